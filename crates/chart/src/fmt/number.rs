//! Go's `strconv` for numbers.

/// `strconv.FormatFloat` of a 64-bit number; no precision is -1, the shortest that reads back as the same.
pub(crate) fn float(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let magnitude = value.abs();
    let text = match verb {
        'e' | 'E' => exponential(magnitude, precision),
        'f' => match precision {
            None => format!("{magnitude}"),
            Some(precision) => {
                let exact = precision.min(MOST_DIGITS);
                format!("{magnitude:.exact$}{}", zeros(precision - exact))
            }
        },
        'b' => binary(magnitude),
        'x' | 'X' => hexadecimal(magnitude, precision),
        _ => general(magnitude, precision),
    };
    let text = if verb.is_ascii_uppercase() { text.to_uppercase() } else { text };
    if value.is_sign_negative() { format!("-{text}") } else { text }
}

/// No number has more decimals, or significant digits; what follows is zeros. Rust's own formatting takes no more than 65,535.
const MOST_DIGITS: usize = 1_100;

fn zeros(count: usize) -> String {
    "0".repeat(count)
}

/// `%e`: Rust's, with a sign and at least two digits in the exponent.
fn exponential(magnitude: f64, precision: Option<usize>) -> String {
    let exact = precision.map(|precision| precision.min(MOST_DIGITS));
    let text = match exact {
        Some(exact) => format!("{magnitude:.exact$e}"),
        None => format!("{magnitude:e}"),
    };
    let more = zeros(precision.unwrap_or_default().saturating_sub(exact.unwrap_or_default()));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}{more}e{sign}{digits:0>2}")
}

/// `%g`.
fn general(magnitude: f64, precision: Option<usize>) -> String {
    let wanted = precision.map(|precision| precision.max(1));
    // Digits beyond the 767 that a number can have are zeros, which this verb leaves out.
    let text = match wanted {
        Some(wanted) => format!("{magnitude:.*e}", wanted.min(800).saturating_sub(1)),
        None => format!("{magnitude:e}"),
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let count = digits.len().max(usize::from(magnitude != 0.0));
    let limit = match wanted {
        None => 6,
        Some(wanted) => {
            let point = exponent.saturating_add(1);
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
            // As Go decides: %e is for exponents of at least the precision, but not of whole numbers of few digits.
            if wanted > count && count >= point { count } else { wanted }
        }
    };
    if magnitude == 0.0 {
        return "0".into();
    }
    if exponent < -4 || exponent >= limit {
        return exponential(magnitude, Some(count.saturating_sub(1)));
    }
    let point = exponent.saturating_add(1);
    let decimals = i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(point).max(0);
    format!("{magnitude:.*}", usize::try_from(decimals).unwrap_or_default())
}

/// Mantissa and exponent: the number is the first times two to the second.
fn parts(magnitude: f64) -> (u64, i64) {
    let bits = magnitude.to_bits();
    let mantissa = bits & ((1 << 52) - 1);
    let exponent = i64::try_from((bits >> 52) & 0x7ff).unwrap_or_default();
    if exponent == 0 { (mantissa, -1074) } else { (mantissa | (1 << 52), exponent - 1075) }
}

/// `%b`.
fn binary(magnitude: f64) -> String {
    let (mantissa, exponent) = parts(magnitude);
    format!("{mantissa}p{exponent:+}")
}

/// `%x`.
fn hexadecimal(magnitude: f64, precision: Option<usize>) -> String {
    let (mut mantissa, exponent) = parts(magnitude);
    let mut exponent = if mantissa == 0 { 0 } else { exponent + 52 };
    while mantissa != 0 && mantissa < 1 << 52 {
        mantissa <<= 1;
        exponent -= 1;
    }
    if let Some(precision @ 0..=12) = precision {
        let shift = u32::try_from(52 - 4 * precision).unwrap_or_default();
        let extra = mantissa & ((1 << shift) - 1);
        mantissa >>= shift;
        let half = 1 << (shift - 1);
        if extra > half || (extra == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= shift;
        if mantissa & (1 << 53) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:013x}", mantissa & ((1 << 52) - 1));
    let fraction = match precision {
        None => digits.trim_end_matches('0').to_owned(),
        Some(precision) => {
            let shown = digits.get(..precision.min(13)).unwrap_or_default();
            format!("{shown}{}", zeros(precision - shown.len()))
        }
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("0x{}{point}{fraction}p{sign}{:02}", mantissa >> 52, exponent.unsigned_abs())
}

/// Why a number cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberError {
    Syntax,
    Range,
}

/// `strconv.ParseFloat`.
pub(crate) fn parse_float(text: &str) -> Result<f64, NumberError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let special = unsigned.to_ascii_lowercase();
    if matches!(special.as_str(), "inf" | "infinity") {
        return Ok(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    if text.eq_ignore_ascii_case("nan") {
        return Ok(f64::NAN);
    }
    if text.contains('_') {
        if !underscores_fit(unsigned) {
            return Err(NumberError::Syntax);
        }
        return parse_float(&text.replace('_', ""));
    }
    let value = if let Some(digits) = special.strip_prefix("0x") {
        let magnitude = hexadecimal_float(digits).ok_or(NumberError::Syntax)?;
        if text.starts_with('-') { -magnitude } else { magnitude }
    } else {
        let starts_well = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if !starts_well || !unsigned.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) {
            return Err(NumberError::Syntax);
        }
        text.parse().map_err(|_| NumberError::Syntax)?
    };
    if value.is_infinite() { Err(NumberError::Range) } else { Ok(value) }
}

/// What follows `0x`, in small letters: digits, a point among them, and an exponent of two.
#[expect(clippy::cast_precision_loss, reason = "rounds as wanted")]
fn hexadecimal_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent: i32 = exponent.parse().unwrap_or(if exponent.starts_with('-') { -9_999 } else { 9_999 });
    let mut exponent = exponent.clamp(-9_999, 9_999);
    let mut value = 0_u64;
    for (position, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        if value < 1 << 58 {
            value = (value << 4) | digit;
            exponent = exponent.saturating_sub(if position >= whole.len() { 4 } else { 0 });
        } else {
            // Digits that no longer count, but for rounding.
            value |= u64::from(digit != 0);
            exponent = exponent.saturating_add(if position >= whole.len() { 0 } else { 4 });
        }
    }
    let mut number = value as f64;
    for _ in 0..40 {
        let part = exponent.clamp(-500, 500);
        number *= 2_f64.powi(part);
        exponent -= part;
    }
    Some(number)
}

/// `strconv.ParseInt` to 64 bits, where base 0 goes by the prefix and allows underscores.
pub(crate) fn parse_int(text: &str, base: u32) -> Result<i64, NumberError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    let magnitude = parse_uint(digits, base)?;
    if negative {
        if magnitude > 1 << 63 {
            return Err(NumberError::Range);
        }
        return Ok(0_i64.wrapping_sub_unsigned(magnitude));
    }
    i64::try_from(magnitude).map_err(|_| NumberError::Range)
}

/// `strconv.ParseUint` to 64 bits.
pub(crate) fn parse_uint(text: &str, base: u32) -> Result<u64, NumberError> {
    if text.is_empty() {
        return Err(NumberError::Syntax);
    }
    let mut digits = text;
    let mut radix = base;
    if base == 0 {
        radix = 10;
        if let Some(rest) = text.strip_prefix('0') {
            (radix, digits) = match rest.as_bytes().first().map(u8::to_ascii_lowercase) {
                Some(b'b') if rest.len() > 1 => (2, rest.get(1..).unwrap_or_default()),
                Some(b'o') if rest.len() > 1 => (8, rest.get(1..).unwrap_or_default()),
                Some(b'x') if rest.len() > 1 => (16, rest.get(1..).unwrap_or_default()),
                _ => (8, rest),
            };
        }
        if text.contains('_') && !underscores_fit(text) {
            return Err(NumberError::Syntax);
        }
    }
    let mut value = 0_u64;
    let mut overflow = false;
    for digit in digits.chars() {
        if digit == '_' && base == 0 {
            continue;
        }
        let digit = digit.to_digit(radix).ok_or(NumberError::Syntax)?;
        let next = value.checked_mul(radix.into()).and_then(|value| value.checked_add(digit.into()));
        // Go stops at the first digit too many, so that what follows it does not matter.
        match next {
            Some(next) => value = next,
            None => overflow = true,
        }
        if overflow {
            return Err(NumberError::Range);
        }
    }
    Ok(value)
}

/// Underscores may only stand between digits, or between the prefix and a digit.
fn underscores_fit(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut previous = b'^';
    let mut rest = bytes;
    let mut is_hex = false;
    if let [b'0', mark, tail @ ..] = bytes
        && matches!(mark.to_ascii_lowercase(), b'b' | b'o' | b'x')
    {
        previous = b'0';
        is_hex = mark.eq_ignore_ascii_case(&b'x');
        rest = tail;
    }
    for &byte in rest {
        if byte.is_ascii_digit() || (is_hex && byte.is_ascii_hexdigit()) {
            previous = b'0';
        } else if byte == b'_' {
            if previous != b'0' {
                return false;
            }
            previous = b'_';
        } else {
            if previous == b'_' {
                return false;
            }
            previous = b'!';
        }
    }
    previous != b'_'
}
