//! Sprig's arithmetic.

use super::args;
use super::convert::{to_float, to_int};
use super::decimal::Decimal;
use super::table;
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "add1" (Any) => |_, args| Ok(Value::Int64(to_int(args::any(args, 0)).wrapping_add(1))),
    "add" (; Any) => |ctx, args| fold(ctx, 0, args, i64::wrapping_add),
    "sub" (Any, Any) => |ctx, args| fold(ctx, to_int(args::any(args, 0)), args::rest(args, 1), i64::wrapping_sub),
    "mul" (Any; Any) => |ctx, args| fold(ctx, to_int(args::any(args, 0)), args::rest(args, 1), i64::wrapping_mul),
    "div" (Any, Any) => |_, args| {
        let (left, right) = divisible(args)?;
        Ok(Value::Int64(left.wrapping_div(right)))
    },
    "mod" (Any, Any) => |_, args| {
        let (left, right) = divisible(args)?;
        Ok(Value::Int64(left.wrapping_rem(right)))
    },
    "max" (Any; Any) => |ctx, args| fold(ctx, to_int(args::any(args, 0)), args::rest(args, 1), i64::max),
    "biggest" (Any; Any) => |ctx, args| fold(ctx, to_int(args::any(args, 0)), args::rest(args, 1), i64::max),
    "min" (Any; Any) => |ctx, args| fold(ctx, to_int(args::any(args, 0)), args::rest(args, 1), i64::min),
    "maxf" (Any; Any) => |_, args| Ok(fold_float(args, greater)),
    "minf" (Any; Any) => |_, args| Ok(fold_float(args, |left, right| -greater(-left, -right))),
    "floor" (Any) => |_, args| Ok(Value::Float(to_float(args::any(args, 0)).floor())),
    "ceil" (Any) => |_, args| Ok(Value::Float(to_float(args::any(args, 0)).ceil())),
    "round" (Any, Int; Float) => |_, args| Ok(Value::Float(round(args))),
    "add1f" (Any) => |ctx, args| {
        decimals(ctx, 0.0, &[args::any(args, 0).clone(), Value::Int(1)], Decimal::add)
    },
    "addf" (; Any) => |ctx, args| decimals(ctx, 0.0, args, Decimal::add),
    "subf" (Any; Any) => |ctx, args| decimals(ctx, to_float(args::any(args, 0)), args::rest(args, 1), Decimal::sub),
    "mulf" (Any; Any) => |ctx, args| decimals(ctx, to_float(args::any(args, 0)), args::rest(args, 1), Decimal::mul),
    "divf" (Any; Any) => |ctx, args| decimals(ctx, to_float(args::any(args, 0)), args::rest(args, 1), Decimal::div),
}

fn fold(ctx: &mut Ctx, first: i64, rest: &[Value], operation: fn(i64, i64) -> i64) -> Result<Value, Failure> {
    ctx.step(rest.len())?;
    Ok(Value::Int64(rest.iter().map(to_int).fold(first, operation)))
}

fn divisible(args: &[Value]) -> Result<(i64, i64), Failure> {
    let (left, right) = (to_int(args::any(args, 0)), to_int(args::any(args, 1)));
    if right == 0 {
        return Err(Failure::error("runtime error: integer divide by zero"));
    }
    Ok((left, right))
}

fn fold_float(args: &[Value], operation: fn(f64, f64) -> f64) -> Value {
    let first = to_float(args::any(args, 0));
    Value::Float(args::rest(args, 1).iter().map(to_float).fold(first, operation))
}

/// `math.Max`: infinity first, then what is not a number, and zero before minus zero.
fn greater(left: f64, right: f64) -> f64 {
    if left == f64::INFINITY || right == f64::INFINITY {
        f64::INFINITY
    } else if left.is_nan() || right.is_nan() {
        f64::NAN
    } else if left == 0.0 && right == 0.0 {
        if left.is_sign_negative() { right } else { left }
    } else if left > right {
        left
    } else {
        right
    }
}

fn round(args: &[Value]) -> f64 {
    let round_on = args.get(2).map_or(0.5, to_float);
    let value = to_float(args::any(args, 0));
    let power = power_of_ten(args::int(args, 1));
    let digit = power * value;
    // Go's fraction of an infinity is not a number, as Rust's.
    let rounded = if digit.fract() >= round_on { digit.ceil() } else { digit.floor() };
    rounded / power
}

/// Go's `math.Pow(10, places)`, bit for bit.
fn power_of_ten(places: i64) -> f64 {
    if places == 0 {
        return 1.0;
    }
    // The fraction and the exponent of 10, and of the result.
    let (mut base, mut base_exponent) = (0.625_f64, 4_i64);
    let (mut fraction, mut exponent) = (1.0_f64, 0_i64);
    let mut left = places.unsigned_abs();
    while left != 0 {
        if !(-4096..=4096).contains(&base_exponent) {
            exponent = exponent.saturating_add(base_exponent);
            break;
        }
        if left & 1 == 1 {
            fraction *= base;
            exponent += base_exponent;
        }
        base *= base;
        base_exponent <<= 1;
        if base < 0.5 {
            base += base;
            base_exponent -= 1;
        }
        left >>= 1;
    }
    if places < 0 {
        fraction = 1.0 / fraction;
        exponent = -exponent;
    }
    scale(fraction, exponent)
}

/// `math.Ldexp`.
fn scale(fraction: f64, exponent: i64) -> f64 {
    let mut value = fraction;
    let mut left = exponent.clamp(-4200, 4200);
    // One rounding at most: powers of two are exact but for the last, which may give a number without all its bits.
    while left > 900 {
        value *= 2_f64.powi(900);
        left -= 900;
    }
    while left < -900 {
        if left >= -1200 {
            let first = left + 900;
            value *= 2_f64.powi(i32::try_from(first).unwrap_or_default());
            left = -900;
        } else {
            value *= 2_f64.powi(-900);
            left += 900;
        }
    }
    value * 2_f64.powi(i32::try_from(left).unwrap_or_default())
}

type Operation = fn(&Decimal, &mut Ctx, &Decimal) -> Result<Decimal, Failure>;

fn decimals(ctx: &mut Ctx, first: f64, rest: &[Value], operation: Operation) -> Result<Value, Failure> {
    let mut result = Decimal::new(first)?;
    for value in rest {
        result = operation(&result, ctx, &Decimal::new(to_float(value))?)?;
    }
    Ok(Value::Float(result.float()))
}
