//! Go's durations: sprig's and Helm's functions of them.

use std::rc::Rc;

use super::args;
use super::convert::{clamped, truncate};
use super::table;
use crate::Failure;
use crate::fmt::{float, parse_float, quote, type_name};
use crate::value::{Ctx, Host, Value};

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

table! {
    "duration" (Any) => |ctx, args| {
        let seconds = match args::any(args, 0) {
            Value::Str(text) => clamped(text),
            Value::Int64(seconds) => *seconds,
            _ => 0,
        };
        ctx.text(show(seconds.wrapping_mul(SECOND)))
    },
    "durationRound" (Any) => duration_round,
    "mustToDuration" (Any) => |ctx, args| {
        as_duration(ctx, args::any(args, 0)).map(value).map_err(Failure::error)
    },
    "durationSeconds" (Any) => |ctx, args| Ok(fraction(ctx, args, SECOND)),
    "durationMinutes" (Any) => |ctx, args| Ok(fraction(ctx, args, MINUTE)),
    "durationHours" (Any) => |ctx, args| Ok(fraction(ctx, args, HOUR)),
    "durationDays" (Any) => |ctx, args| Ok(days(ctx, args, 1.0)),
    "durationWeeks" (Any) => |ctx, args| Ok(days(ctx, args, 7.0)),
    "durationMilliseconds" (Any) => |ctx, args| Ok(whole(ctx, args, 1_000_000)),
    "durationMicroseconds" (Any) => |ctx, args| Ok(whole(ctx, args, 1_000)),
    "durationNanoseconds" (Any) => |ctx, args| Ok(whole(ctx, args, 1)),
    "durationRoundTo" (Any, Any) => |ctx, args| Ok(to_multiple(ctx, args, rounded)),
    "durationTruncateTo" (Any, Any) => |ctx, args| {
        Ok(to_multiple(ctx, args, |duration, multiple| {
            if multiple <= 0 { duration } else { duration.wrapping_sub(duration.wrapping_rem(multiple)) }
        }))
    },
}

/// A `time.Duration`, in nanoseconds.
#[derive(Debug)]
pub(super) struct Duration(i64);

impl Host for Duration {
    fn type_name(&self) -> &'static str {
        "time.Duration"
    }

    fn kind(&self) -> &'static str {
        "int64"
    }

    fn truth(&self) -> bool {
        self.0 != 0
    }

    fn display(&self) -> String {
        show(self.0)
    }

    fn plain(&self, _: &mut Ctx) -> Result<Value, Failure> {
        Ok(Value::Int64(self.0))
    }
}

fn value(nanoseconds: i64) -> Value {
    Value::Host(Rc::new(Duration(nanoseconds)))
}

/// `Duration.String`.
pub(super) fn show(nanoseconds: i64) -> String {
    let magnitude = nanoseconds.unsigned_abs();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let second = SECOND.unsigned_abs();
    if magnitude < second {
        let text = match magnitude {
            0 => return "0s".to_owned(),
            1..1_000 => format!("{magnitude}ns"),
            1_000..1_000_000 => format!("{}µs", decimals(magnitude, 3)),
            _ => format!("{}ms", decimals(magnitude, 6)),
        };
        return format!("{sign}{text}");
    }
    let minutes = magnitude / second / 60;
    let seconds = decimals(magnitude - minutes * 60 * second, 9);
    let text = match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    };
    format!("{sign}{text}")
}

/// A number divided by a power of ten, without zeros at the end.
fn decimals(number: u64, places: u32) -> String {
    let unit = 10_u64.pow(places);
    let (whole, part) = (number / unit, number % unit);
    if part == 0 {
        return whole.to_string();
    }
    let places = usize::try_from(places).unwrap_or_default();
    let part = format!("{part:0>places$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

/// `time.ParseDuration`; `None` if Go refuses it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as Go computes"
)]
fn parse(text: &str) -> Option<i64> {
    const LIMIT: u64 = 1 << 63;
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let mut whole = 0_u64;
        for digit in digits.bytes() {
            whole = whole.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            if whole > LIMIT {
                return None;
            }
        }
        rest = after;
        let (mut fraction, mut scale) = (0_u64, 1_f64);
        let mut has_fraction = false;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let (digits, after) = after.split_at(end);
            has_fraction = !digits.is_empty();
            rest = after;
            for digit in digits.bytes() {
                // Digits too many are dropped.
                if fraction > (LIMIT - 1) / 10 {
                    break;
                }
                let next = fraction * 10 + u64::from(digit - b'0');
                if next > LIMIT {
                    break;
                }
                fraction = next;
                scale *= 10.0;
            }
        }
        if digits.is_empty() && !has_fraction {
            return None;
        }
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(end);
        rest = after;
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND.unsigned_abs(),
            "m" => MINUTE.unsigned_abs(),
            "h" => HOUR.unsigned_abs(),
            _ => return None,
        };
        if whole > LIMIT / unit {
            return None;
        }
        let mut amount = whole * unit;
        if fraction > 0 {
            amount = amount.checked_add((fraction as f64 * (unit as f64 / scale)) as u64)?;
            if amount > LIMIT {
                return None;
            }
        }
        total = total.checked_add(amount)?;
        if total > LIMIT {
            return None;
        }
    }
    if negative { Some(0_i64.wrapping_sub_unsigned(total)) } else { i64::try_from(total).ok() }
}

/// Helm's `asDuration`: numbers are seconds.
fn as_duration(ctx: &Ctx, value: &Value) -> Result<i64, String> {
    match value {
        Value::Str(text) => {
            let trimmed = text.trim();
            if trimmed.is_empty() {
                return Err("empty duration".to_owned());
            }
            if let Some(duration) = parse(trimmed) {
                return Ok(duration);
            }
            match parse_float(trimmed) {
                Ok(seconds) => from_seconds(seconds),
                Err(_) => Err(format!("could not parse duration {}", quote(text.as_bytes()))),
            }
        }
        Value::Raw(bytes) => Err(format!("could not parse duration {}", quote(bytes))),
        Value::Nil => Err("invalid duration".to_owned()),
        Value::Int(seconds) | Value::Int64(seconds) => {
            seconds.checked_mul(SECOND).ok_or_else(|| format!("duration seconds overflow: {seconds}"))
        }
        Value::Float(seconds) => from_seconds(*seconds),
        Value::Host(host) if host.type_name() == "time.Duration" => {
            Ok(parse(&host.display()).unwrap_or_default())
        }
        _ => Err(format!("unsupported duration type {}", type_name(&ctx.heap, value))),
    }
}

fn from_seconds(seconds: f64) -> Result<i64, String> {
    const MOST: f64 = 9_223_372_036.854_776;
    let shown = |number: f64| float(number, 'g', None);
    if !seconds.is_finite() {
        return Err(format!("invalid duration seconds: {}", shown(seconds)));
    }
    if !(-MOST..=MOST).contains(&seconds) {
        return Err(format!("duration seconds overflow: {}", shown(seconds)));
    }
    Ok(truncate(seconds * 1e9))
}

/// Seconds, minutes or hours with what is left of them, as Go adds them up.
#[expect(clippy::cast_precision_loss, reason = "as Go computes")]
fn parts(duration: i64, unit: i64) -> f64 {
    (duration / unit) as f64 + (duration % unit) as f64 / unit as f64
}

fn fraction(ctx: &Ctx, args: &[Value], unit: i64) -> Value {
    Value::Float(as_duration(ctx, args::any(args, 0)).map_or(0.0, |duration| parts(duration, unit)))
}

fn days(ctx: &Ctx, args: &[Value], per: f64) -> Value {
    let hours = as_duration(ctx, args::any(args, 0)).map_or(0.0, |duration| parts(duration, HOUR));
    Value::Float(hours / 24.0 / per)
}

fn whole(ctx: &Ctx, args: &[Value], unit: i64) -> Value {
    Value::Int64(as_duration(ctx, args::any(args, 0)).unwrap_or_default() / unit)
}

fn to_multiple(ctx: &Ctx, args: &[Value], of: fn(i64, i64) -> i64) -> Value {
    let Ok(duration) = as_duration(ctx, args::any(args, 0)) else { return value(0) };
    match as_duration(ctx, args::any(args, 1)) {
        Ok(multiple) => value(of(duration, multiple)),
        Err(_) => value(duration),
    }
}

/// `Duration.Round`.
fn rounded(duration: i64, multiple: i64) -> i64 {
    if multiple <= 0 {
        return duration;
    }
    let rest = (duration % multiple).abs();
    let less_than_half = rest.unsigned_abs().wrapping_mul(2) < multiple.unsigned_abs();
    match (duration < 0, less_than_half) {
        (true, true) => duration.wrapping_add(rest),
        (true, false) => duration.checked_sub(multiple - rest).unwrap_or(i64::MIN),
        (false, true) => duration.wrapping_sub(rest),
        (false, false) => duration.checked_add(multiple - rest).unwrap_or(i64::MAX),
    }
}

/// Sprig's `durationRound`: the largest unit alone.
fn duration_round(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let duration = match args::any(args, 0) {
        Value::Str(text) => parse(text).unwrap_or_default(),
        Value::Int64(duration) => *duration,
        _ => 0,
    };
    let magnitude = duration.unsigned_abs();
    let hour = HOUR.unsigned_abs();
    let units = [
        (hour * 24 * 365, "y"),
        (hour * 24 * 30, "mo"),
        (hour * 24, "d"),
        (hour, "h"),
        (MINUTE.unsigned_abs(), "m"),
        (SECOND.unsigned_abs(), "s"),
    ];
    let largest = units.iter().find(|(unit, _)| magnitude > *unit);
    ctx.text(largest.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", magnitude / unit)))
}
