//! `spf13/cast`: numbers of anything.

use super::args;
use super::table;
use crate::fmt::{NumberError, parse_float, parse_int, sprint};
use crate::value::{Ctx, Value};

table! {
    "int" (Any) => |_, args| Ok(Value::Int(to_int(args::any(args, 0)))),
    "int64" (Any) => |_, args| Ok(Value::Int64(to_int(args::any(args, 0)))),
    "float64" (Any) => |_, args| Ok(Value::Float(to_float(args::any(args, 0)))),
    "atoi" (Str) => |_, args| Ok(Value::Int(clamped(args::text(args, 0)))),
    "toDecimal" (Any) => |ctx: &mut Ctx, args: &[Value]| {
        let bytes = sprint(ctx, &[args::any(args, 0).clone()])?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        Ok(Value::Int64(parse_int(text, 8).unwrap_or_default()))
    },
}

/// A decimal number, or the closest one if it is too large, or 0 if it is none.
pub(super) fn clamped(text: &str) -> i64 {
    match parse_int(text, 10) {
        Ok(number) => number,
        Err(NumberError::Range) => {
            if text.starts_with('-') {
                i64::MIN
            } else {
                i64::MAX
            }
        }
        Err(NumberError::Syntax) => 0,
    }
}

/// `cast.ToInt` and `cast.ToInt64`.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Int(number) | Value::Int64(number) => *number,
        Value::Float(number) => truncate(*number),
        Value::Bool(truth) => i64::from(*truth),
        Value::Str(text) => parse_int(without_zero_decimal(text), 0).unwrap_or_default(),
        _ => 0,
    }
}

/// Go's conversion on amd64: what does not fit is the smallest number.
#[expect(clippy::cast_possible_truncation, reason = "in range")]
pub(super) fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Cuts off a point that only zeros follow.
fn without_zero_decimal(text: &str) -> &str {
    let trimmed = text.trim_end_matches('0');
    if trimmed.len() == text.len() { text } else { trimmed.strip_suffix('.').unwrap_or(text) }
}

/// `cast.ToFloat64`.
#[expect(clippy::cast_precision_loss, reason = "as Go rounds")]
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Int(number) | Value::Int64(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Str(text) => parse_float(text).unwrap_or_default(),
        _ => 0.0,
    }
}
