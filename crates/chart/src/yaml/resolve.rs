//! What plain scalars mean by YAML 1.1, as far as go-yaml follows it.

use super::data::Data;
use super::parse::Tag;
use super::time::is_timestamp;
use crate::Failure;

/// The value and the tag of a scalar whose text may tell its type.
pub(super) fn resolve(tag: Tag, text: &std::rc::Rc<str>) -> Result<Data, Failure> {
    if matches!(tag, Tag::Other | Tag::Merge | Tag::Binary | Tag::Str) {
        return Ok(Data::Str(text.clone()));
    }
    let timestamps = matches!(tag, Tag::None | Tag::Timestamp);
    let (found, data) = match guess(text, timestamps) {
        Guess::Data(found, data) => (found, data),
        Guess::Timestamp => (Tag::Timestamp, Data::Str(text.clone())),
        Guess::Str => (Tag::Str, Data::Str(text.clone())),
    };
    match (tag, data) {
        (Tag::None, data) => Ok(data),
        (Tag::Float, Data::Int(int)) => Ok(Data::Float(int_to_float(int))),
        (tag, data) if tag == found => Ok(data),
        (tag, _) => {
            Err(Failure::error(format!("yaml: cannot decode {} `{text}` as a {}", short(found), short(tag))))
        }
    }
}

/// Whether the text is a string also without quotes.
pub(super) fn is_plain_string(text: &str) -> bool {
    matches!(guess(text, true), Guess::Str)
}

enum Guess {
    Data(Tag, Data),
    Timestamp,
    Str,
}

fn guess(text: &str, timestamps: bool) -> Guess {
    let Some(&first) = text.as_bytes().first() else { return Guess::Data(Tag::Null, Data::Null) };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(text),
        b'.' => match special_float(text).or_else(|| go_float(text)) {
            Some(float) => Guess::Data(Tag::Float, Data::Float(float)),
            None => Guess::Str,
        },
        b'+' | b'-' | b'0'..=b'9' => number(text, timestamps),
        _ => Guess::Str,
    }
}

fn word(text: &str) -> Guess {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Guess::Data(Tag::Bool, Data::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Guess::Data(Tag::Bool, Data::Bool(false))
        }
        "~" | "null" | "Null" | "NULL" => Guess::Data(Tag::Null, Data::Null),
        _ => Guess::Str,
    }
}

fn special_float(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn number(text: &str, timestamps: bool) -> Guess {
    if let Some(float) = special_float(text) {
        return Guess::Data(Tag::Float, Data::Float(float));
    }
    if timestamps && is_timestamp(text) {
        return Guess::Timestamp;
    }
    let plain = text.replace('_', "");
    let int = parse_int(&plain, 0).map(Data::Int);
    let int = int.or_else(|| parse_uint(&plain, 0).map(Data::Uint));
    if let Some(data) = int {
        return Guess::Data(Tag::Int, data);
    }
    if is_yaml_float(plain.as_bytes())
        && let Some(float) = parse_float(&plain)
    {
        return Guess::Data(Tag::Float, Data::Float(float));
    }
    // A second sign may follow the prefix here.
    let binary = if let Some(digits) = plain.strip_prefix("0b") {
        let int = parse_int(digits, 2).map(Data::Int);
        int.or_else(|| parse_uint(digits, 2).map(Data::Uint))
    } else if let Some(digits) = plain.strip_prefix("-0b") {
        parse_int(&format!("-{digits}"), 2).map(Data::Int)
    } else {
        None
    };
    binary.map_or(Guess::Str, |data| Guess::Data(Tag::Int, data))
}

/// `strconv.ParseUint`, of 64 bits and without underscores. Base 0 goes by the prefix.
fn parse_uint(text: &str, base: u32) -> Option<u64> {
    let (digits, base) = match text.as_bytes() {
        [] => return None,
        [b'0', b'b' | b'B', _, ..] if base == 0 => (text.get(2..)?, 2),
        [b'0', b'o' | b'O', _, ..] if base == 0 => (text.get(2..)?, 8),
        [b'0', b'x' | b'X', _, ..] if base == 0 => (text.get(2..)?, 16),
        [b'0'] if base == 0 => return Some(0),
        [b'0', ..] if base == 0 => (text.get(1..)?, 8),
        _ if base == 0 => (text, 10),
        _ => (text, base),
    };
    // The standard library lets a sign pass.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, base).ok() }
}

/// `strconv.ParseInt`, likewise.
fn parse_int(text: &str, base: u32) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => 0_i64.checked_sub_unsigned(parse_uint(digits, base)?),
        None => parse_uint(text.strip_prefix('+').unwrap_or(text), base)?.try_into().ok(),
    }
}

fn parse_float(text: &str) -> Option<f64> {
    text.parse().ok().filter(|float: &f64| float.is_finite())
}

/// Whether the text is a decimal number: `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_yaml_float(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> (usize, &[u8]) {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count, text.get(count..).unwrap_or_default())
    }
    fn unsigned(text: &[u8]) -> &[u8] {
        if let [b'+' | b'-', rest @ ..] = text { rest } else { text }
    }
    let (whole, rest) = digits(unsigned(text));
    let (fraction, rest) = if let [b'.', rest @ ..] = rest { digits(rest) } else { (0, rest) };
    if whole + fraction == 0 {
        return false;
    }
    match rest {
        [] => true,
        [b'e' | b'E', rest @ ..] => {
            let (exponent, rest) = digits(unsigned(rest));
            exponent > 0 && rest.is_empty()
        }
        _ => false,
    }
}

/// `strconv.ParseFloat` of a text that begins with a point: unlike YAML it wants digits on both sides of an underscore.
fn go_float(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let misplaced = bytes.iter().enumerate().any(|(at, byte)| {
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let is_score = |at: usize| bytes.get(at) == Some(&b'_');
        *byte == b'_' && !(at > 0 && is_digit(at - 1) && is_digit(at + 1) && !is_score(at + 1))
    });
    let plain = text.replace('_', "");
    if misplaced || !is_yaml_float(plain.as_bytes()) { None } else { parse_float(&plain) }
}

/// The nearest float to an integer.
#[allow(clippy::cast_precision_loss)]
pub(super) fn int_to_float(int: i64) -> f64 {
    int as f64
}

/// The nearest float to an integer.
#[allow(clippy::cast_precision_loss)]
pub(super) fn uint_to_float(int: u64) -> f64 {
    int as f64
}

fn short(tag: Tag) -> &'static str {
    match tag {
        Tag::Bool => "!!bool",
        Tag::Int => "!!int",
        Tag::Float => "!!float",
        Tag::Null => "!!null",
        Tag::Timestamp => "!!timestamp",
        Tag::Binary => "!!binary",
        Tag::Merge => "!!merge",
        Tag::Str | Tag::None | Tag::Other => "!!str",
    }
}
