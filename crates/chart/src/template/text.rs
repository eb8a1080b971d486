//! Characters and quoting as Go has them: `unicode`, and the part of `strconv` that templates need.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

/// What `strconv` says of a string that is not one.
pub(super) const INVALID_SYNTAX: &str = "invalid syntax";

/// Tables of Unicode come with `regex`. It cannot fail to build these; if it did, only ASCII would be known.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{Nd}]").ok());
static PRINT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]").ok());

fn is_of(class: &Option<Regex>, c: char) -> bool {
    class.as_ref().is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}

/// White space between words of an action, and what trim markers trim.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// What identifiers consist of.
pub(super) fn is_alphanumeric(c: char) -> bool {
    if c.is_ascii() { c == '_' || c.is_ascii_alphanumeric() } else { is_of(&WORD, c) }
}

/// `unicode.IsPrint`.
pub(super) fn is_print(c: char) -> bool {
    if c.is_ascii() { c == ' ' || c.is_ascii_graphic() } else { is_of(&PRINT, c) }
}

/// `%#U`.
pub(super) fn code_point(c: char) -> String {
    let number = format!("U+{:04X}", u32::from(c));
    if is_print(c) { format!("{number} '{c}'") } else { number }
}

/// `%q` of a string.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let escape = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\x07' => "\\a",
            '\x08' => "\\b",
            '\x0c' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\x0b' => "\\v",
            c if is_print(c) => {
                quoted.push(c);
                continue;
            }
            c => {
                let code = u32::from(c);
                // Writing to a string does not fail.
                let _ = match code {
                    0..0x20 | 0x7f => write!(quoted, "\\x{code:02x}"),
                    0..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
                continue;
            }
        };
        quoted.push_str(escape);
    }
    quoted.push('"');
    quoted
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
