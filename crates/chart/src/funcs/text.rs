//! What functions of strings share: Go's characters and cases, escapes, and strings of values.

use std::sync::LazyLock;

use regex::Regex;

use super::args;
use crate::Failure;
use crate::fmt;
use crate::value::{Ctx, Value};

/// A category of Unicode, in the version that Go knows.
#[derive(Clone, Copy)]
pub(super) enum Category {
    Upper,
    Lower,
    Title,
    Letter,
    Digit,
    Number,
    Punctuation,
}

pub(super) fn is(character: char, category: Category) -> bool {
    static CLASSES: LazyLock<[Option<Regex>; 7]> = LazyLock::new(|| {
        ["Lu", "Ll", "Lt", "L", "Nd", "N", "P"]
            .map(|class| Regex::new(&format!(r"^[\p{{{class}}}&&\p{{age=15.0}}]$")).ok())
    });
    if character.is_ascii() {
        return match category {
            Category::Upper => character.is_ascii_uppercase(),
            Category::Lower => character.is_ascii_lowercase(),
            Category::Title => false,
            Category::Letter => character.is_ascii_alphabetic(),
            Category::Digit | Category::Number => character.is_ascii_digit(),
            Category::Punctuation => character.is_ascii_punctuation() && !"$+<=>^`|~".contains(character),
        };
    }
    let position = match category {
        Category::Upper => 0,
        Category::Lower => 1,
        Category::Title => 2,
        Category::Letter => 3,
        Category::Digit => 4,
        Category::Number => 5,
        Category::Punctuation => 6,
    };
    let mut buffer = [0; 4];
    let text: &str = character.encode_utf8(&mut buffer);
    CLASSES.get(position).and_then(Option::as_ref).is_some_and(|class| class.is_match(text))
}

/// Whether Go's version of Unicode has this character, and so may change its case.
fn is_known(character: char) -> bool {
    static KNOWN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{age=15.0}$").ok());
    let mut buffer = [0; 4];
    let text: &str = character.encode_utf8(&mut buffer);
    character.is_ascii() || KNOWN.as_ref().is_none_or(|known| known.is_match(text))
}

/// `unicode.ToUpper`: unlike Rust's, one character for one.
pub(super) fn to_upper(character: char) -> char {
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) if upper == character || (is_known(character) && is_known(upper)) => upper,
        (Some(_), Some(_)) => {
            let offset = match u32::from(character) {
                0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7 => 8,
                0x1fb3 | 0x1fc3 | 0x1ff3 => 9,
                _ => 0,
            };
            char::from_u32(u32::from(character) + offset).unwrap_or(character)
        }
        _ => character,
    }
}

/// `unicode.ToLower`.
pub(super) fn to_lower(character: char) -> char {
    let mut lower = character.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) if lower == character || (is_known(character) && is_known(lower)) => lower,
        (Some(first), Some(_)) => first,
        _ => character,
    }
}

/// `unicode.ToTitle`.
pub(super) fn to_title(character: char) -> char {
    match character {
        '\u{1c4}'..='\u{1c6}' => '\u{1c5}',
        '\u{1c7}'..='\u{1c9}' => '\u{1c8}',
        '\u{1ca}'..='\u{1cc}' => '\u{1cb}',
        '\u{1f1}'..='\u{1f3}' => '\u{1f2}',
        '\u{10d0}'..='\u{10fa}' | '\u{10fd}'..='\u{10ff}' => character,
        _ => to_upper(character),
    }
}

/// Sprig's string of a value.
pub(super) fn strval(ctx: &mut Ctx, value: &Value) -> Result<Vec<u8>, Failure> {
    match value {
        Value::Str(_) | Value::Raw(_) | Value::Bytes(_) => {
            let bytes = args::bytes(std::slice::from_ref(value), 0);
            ctx.room(bytes.len())?;
            Ok(bytes.to_vec())
        }
        _ => fmt::sprint(ctx, std::slice::from_ref(value)),
    }
}

/// Sprig's `toStrings`: without what is nil.
pub(super) fn strslice(ctx: &mut Ctx, value: &Value) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(items) = args::items(ctx, value)? else {
        return Ok(if matches!(value, Value::Nil) { Vec::new() } else { vec![strval(ctx, value)?] });
    };
    let mut strings = Vec::with_capacity(items.len());
    for item in items.iter().filter(|item| !matches!(item, Value::Nil)) {
        strings.push(strval(ctx, item)?);
    }
    Ok(strings)
}

/// `template.HTMLEscapeString`.
pub(super) fn html_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            _ => out.push(*byte),
        }
    }
    out
}

/// `template.JSEscapeString`.
pub(super) fn js_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\'' => out.extend_from_slice(b"\\'"),
                '"' => out.extend_from_slice(b"\\\""),
                '<' | '>' | '&' | '=' | '\0'..'\x20' => {
                    out.extend_from_slice(format!("\\u{:04X}", u32::from(character)).as_bytes());
                }
                _ if character.is_ascii() || fmt::is_printable(character) => {
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => out.extend_from_slice(format!("\\u{:04X}", u32::from(character)).as_bytes()),
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

/// `url.QueryEscape`.
pub(super) fn query_escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b' ' => out.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => out.push(*byte),
            _ if byte.is_ascii_alphanumeric() => out.push(*byte),
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}

/// Go's `text[low:high]`, with the text of its panic.
pub(super) fn cut(text: &[u8], low: i64, high: Option<i64>) -> Result<&[u8], Failure> {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let end = high.unwrap_or(length);
    let wrong = if end < 0 {
        format!("[:{end}]")
    } else if end > length {
        format!("[:{end}] with length {length}")
    } else if low < 0 {
        format!("[{low}:]")
    } else if low > end {
        format!("[{low}:{end}]")
    } else {
        let range = usize::try_from(low).unwrap_or_default()..usize::try_from(end).unwrap_or_default();
        return Ok(text.get(range).unwrap_or_default());
    };
    Err(Failure::error(format!("runtime error: slice bounds out of range {wrong}")))
}
