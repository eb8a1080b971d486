//! Constants: a number is everything that its text can stand for, until a parameter or its syntax decides.

use super::text::{INVALID_SYNTAX, quote, unquote_char};

/// The values of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Number {
    pub(super) int: Option<i64>,
    pub(super) uint: Option<u64>,
    pub(super) float: Option<f64>,
}

impl Number {
    /// The value of a character constant, quotes included.
    pub(super) fn of_char(text: &str) -> Result<Self, String> {
        let inner = text.get(1..).unwrap_or_default();
        let (unit, tail) = unquote_char(inner, '\'').ok_or(INVALID_SYNTAX)?;
        if tail != "'" {
            return Err(format!("malformed character constant: {text}"));
        }
        let code = unit.code();
        Ok(Self { int: Some(code.into()), uint: Some(code.into()), float: Some(code.into()) })
    }

    /// The values of a number.
    #[expect(clippy::cast_precision_loss, reason = "as Go converts constants")]
    pub(super) fn of(text: &str) -> Result<Self, String> {
        if let Some(real) = text.strip_suffix('i')
            && parse_float(real).is_some()
        {
            return Err(complex(text));
        }
        let mut number = Self { int: parse_int(text), uint: parse_uint(text), float: None };
        if number.int == Some(0) {
            number.uint = Some(0);
        }
        number.float = number.int.map(|int| int as f64).or(number.uint.map(|uint| uint as f64));
        if number.float.is_some() {
            return Ok(number);
        }
        let Some(float) = parse_float(text) else {
            return Err(format!("illegal number syntax: {}", quote(text)));
        };
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", quote(text)));
        }
        Ok(Self { int: exact_int(float), uint: exact_uint(float), float: Some(float) })
    }
}

/// No function of Helm takes a complex number, and printing them is not worth its code.
pub(super) fn complex(text: &str) -> String {
    format!("complex constants are not supported: {}", quote(text))
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

#[expect(clippy::cast_possible_truncation, reason = "checked to be exact")]
fn exact_int(float: f64) -> Option<i64> {
    (float.fract() == 0.0 && (-TWO_TO_63..TWO_TO_63).contains(&float)).then_some(float as i64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be exact")]
fn exact_uint(float: f64) -> Option<u64> {
    (float.fract() == 0.0 && (0.0..2.0 * TWO_TO_63).contains(&float)).then_some(float as u64)
}

/// `strconv.ParseUint(text, 0, 64)`.
fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'b', _, ..] => (2, lower.get(2..)?),
        [b'0', b'o', _, ..] => (8, lower.get(2..)?),
        [b'0', b'x', _, ..] => (16, lower.get(2..)?),
        [b'0', ..] => (8, lower.get(1..)?),
        [] => return None,
        _ => (10, lower.as_str()),
    };
    let mut value = 0_u64;
    for c in digits.chars().filter(|c| *c != '_') {
        value = value.checked_mul(radix.into())?.checked_add(c.to_digit(radix)?.into())?;
    }
    underscores_fit(text).then_some(value)
}

/// `strconv.ParseInt(text, 0, 64)`.
fn parse_int(text: &str) -> Option<i64> {
    if let Some(digits) = text.strip_prefix('-') {
        return 0_i64.checked_sub_unsigned(parse_uint(digits)?);
    }
    parse_uint(text.strip_prefix('+').unwrap_or(text))?.try_into().ok()
}

/// `strconv.ParseFloat(text, 64)`, of text that begins with a digit, sign or point.
fn parse_float(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let unsigned = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    let hex = unsigned.strip_prefix("0x").filter(|digits| !digits.is_empty());
    let (digits, radix, mark) = hex.map_or((unsigned, 10, 'e'), |digits| (digits, 16, 'p'));
    let (mantissa, exponent) = match digits.split_once(mark) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let valid = |part: &str, radix| part.chars().all(|c| c == '_' || c.is_digit(radix));
    let has_digit = mantissa.chars().any(|c| c.is_digit(radix));
    if !has_digit || !valid(whole, radix) || !valid(fraction, radix) {
        return None;
    }
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) || !valid(digits, 10) {
            return None;
        }
    }
    if !underscores_fit(text) {
        return None;
    }
    let plain = |text: &str| text.replace('_', "");
    let magnitude = if hex.is_some() {
        hex_float(&plain(whole), &plain(fraction), &plain(exponent?))
    } else {
        plain(unsigned).parse().ok()?
    };
    let value: f64 = if lower.starts_with('-') { -magnitude } else { magnitude };
    value.is_finite().then_some(value)
}

/// A hexadecimal float. One below the smallest normal number may be off in its last bit.
#[expect(clippy::cast_precision_loss, reason = "rounds to the nearest, as Go does")]
fn hex_float(whole: &str, fraction: &str, exponent: &str) -> f64 {
    let (mut mantissa, mut scale) = (0_u64, 0_i32);
    for (digit, after_point) in whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true))) {
        let digit = u64::from(digit.to_digit(16).unwrap_or_default());
        if mantissa >> 59 == 0 {
            mantissa = mantissa << 4 | digit;
            scale = scale.saturating_sub(if after_point { 4 } else { 0 });
        } else {
            // Only whether anything but zeros is cut off matters for rounding.
            mantissa |= u64::from(digit != 0);
            scale = scale.saturating_add(if after_point { 0 } else { 4 });
        }
    }
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    let exponent = digits.parse::<i32>().unwrap_or(10_000).min(10_000) * sign;
    let mut power = scale.saturating_add(exponent);
    let mut value = mantissa as f64;
    // In steps, as a single power of two may be too large where the product is not.
    while power != 0 && value != 0.0 && value.is_finite() {
        let step = power.clamp(-1000, 1000);
        value *= 2_f64.powi(step);
        power -= step;
    }
    value
}

/// Whether underscores separate digits, or follow the prefix of a base.
fn underscores_fit(text: &str) -> bool {
    if !text.contains('_') {
        return true;
    }
    let lower = text.to_ascii_lowercase();
    let text = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    let hex = text.starts_with("0x");
    let (text, mut before) = match text.get(..2) {
        Some("0b" | "0o" | "0x") => (text.get(2..).unwrap_or_default(), '0'),
        _ => (text, '^'),
    };
    for c in text.chars() {
        before = match c {
            '0'..='9' => '0',
            'a'..='f' if hex => '0',
            '_' if before == '0' => '_',
            '_' => return false,
            _ if before == '_' => return false,
            _ => '!',
        };
    }
    before != '_'
}
