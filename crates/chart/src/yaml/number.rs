//! Floats as Go's `strconv.FormatFloat` writes them.

use std::fmt::{Display, LowerExp};

/// The shortest text of a float that gives it back, format `g`.
pub(crate) fn format_g(float: f64) -> String {
    if float.is_nan() {
        return "NaN".into();
    }
    if float.is_infinite() {
        return if float > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    format_finite(float)
}

/// Likewise, with no more digits than a `float32` has.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn format_g32(float: f64) -> String {
    let float = float as f32;
    if float.is_finite() { format_finite(float) } else { format_g(float.into()) }
}

/// Format `e`, with an exponent of no fewer digits than `width`.
pub(crate) fn format_e(float: impl LowerExp, width: usize) -> String {
    let text = format!("{float:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>width$}")
}

fn format_finite(float: impl LowerExp + Display) -> String {
    let text = format!("{float:e}");
    let exponent = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    match exponent {
        Some(-4..6_i32) => format!("{float}"),
        _ => format_e(float, 2),
    }
}
