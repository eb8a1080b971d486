//! Characters and quoting as Go has them: `unicode`, and the part of `strconv` that templates need.

use std::sync::LazyLock;

use regex::Regex;

use crate::fmt::{self, is_printable};

/// What `strconv` says of a string that is not one.
pub(super) const INVALID_SYNTAX: &str = "invalid syntax";

/// Letters and digits of the version of Unicode that Go knows. It cannot fail to be built; if it did, only ASCII would be known.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[[\p{L}\p{Nd}]&&\p{age=15.0}]").ok());

/// White space between words of an action, and what trim markers trim.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// What identifiers consist of.
pub(super) fn is_alphanumeric(c: char) -> bool {
    if c.is_ascii() {
        return c == '_' || c.is_ascii_alphanumeric();
    }
    WORD.as_ref().is_some_and(|word| word.is_match(c.encode_utf8(&mut [0; 4])))
}

/// `%#U`.
pub(super) fn code_point(c: char) -> String {
    let number = format!("U+{:04X}", u32::from(c));
    if is_printable(c) { format!("{number} '{c}'") } else { number }
}

/// `%q` of a string.
pub(super) fn quote(text: &str) -> String {
    fmt::quote(text.as_bytes())
}

/// The bytes of a quoted or raw string, or `None` if its syntax is invalid.
pub(super) fn unquote(quoted: &str) -> Option<Vec<u8>> {
    if let Some(raw) = quoted.strip_prefix('`') {
        return Some(raw.strip_suffix('`')?.bytes().filter(|byte| *byte != b'\r').collect());
    }
    let mut rest = quoted.strip_prefix('"')?;
    let mut bytes = Vec::with_capacity(rest.len());
    while rest != "\"" {
        if rest.starts_with('\n') {
            return None;
        }
        let (unit, after) = unquote_char(rest, '"')?;
        match unit {
            Unit::Byte(byte) => bytes.push(byte),
            Unit::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = after;
    }
    Some(bytes)
}

/// What one character or escape sequence of a quoted string stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A byte, written `\xff` or `\377`, which need not be UTF-8.
    Byte(u8),
    Char(char),
}

impl Unit {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Byte(byte) => byte.into(),
            Self::Char(c) => c.into(),
        }
    }
}

/// The first character or escape sequence, and what follows it.
pub(super) fn unquote_char(text: &str, quote: char) -> Option<(Unit, &str)> {
    let mut chars = text.chars();
    let first = chars.next()?;
    if first == quote {
        return None;
    }
    if first != '\\' {
        return Some((Unit::Char(first), chars.as_str()));
    }
    let escape = chars.next()?;
    let rest = chars.as_str();
    let simple = match escape {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\\' => '\\',
        'x' => {
            let (code, rest) = digits(rest, 2, 16)?;
            return Some((Unit::Byte(u8::try_from(code).ok()?), rest));
        }
        'u' => {
            let (code, rest) = digits(rest, 4, 16)?;
            return Some((Unit::Char(char::from_u32(code)?), rest));
        }
        'U' => {
            let (code, rest) = digits(rest, 8, 16)?;
            return Some((Unit::Char(char::from_u32(code)?), rest));
        }
        '0'..='7' => {
            let (code, rest) = digits(text.get(1..)?, 3, 8)?;
            return Some((Unit::Byte(u8::try_from(code).ok()?), rest));
        }
        c if c == quote => c,
        _ => return None,
    };
    Some((Unit::Char(simple), rest))
}

fn digits(text: &str, count: usize, radix: u32) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(count)?;
    // `from_str_radix` would take a sign.
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some((u32::from_str_radix(digits, radix).ok()?, rest))
}
