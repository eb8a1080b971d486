//! `strconv.Quote`.

use std::sync::LazyLock;

use regex::Regex;

/// Whether Go prints a character rather than its escape: letters, marks, numbers, punctuation, symbols and the ASCII space,
/// in the version of Unicode that Go knows.
pub(crate) fn is_printable(character: char) -> bool {
    static PRINTABLE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[[\p{L}\p{M}\p{N}\p{P}\p{S}]&&\p{age=15.0}]$").ok());
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    let mut buffer = [0; 4];
    let text: &str = character.encode_utf8(&mut buffer);
    PRINTABLE.as_ref().is_none_or(|printable| printable.is_match(text))
}

/// A Go string constant.
pub(crate) fn quote(text: &[u8]) -> String {
    quote_with(text, '"', false)
}

/// A Go constant in these quotes, which in ASCII escapes all else.
pub(super) fn quote_with(text: &[u8], mark: char, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(2));
    out.push(mark);
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            escape(&mut out, character, mark, ascii);
        }
        for byte in chunk.invalid() {
            hex(&mut out, "\\x", u32::from(*byte), 2);
        }
    }
    out.push(mark);
    out
}

fn escape(out: &mut String, character: char, mark: char, ascii: bool) {
    if character == mark || character == '\\' {
        out.push('\\');
        out.push(character);
        return;
    }
    if if ascii { (' '..='~').contains(&character) } else { is_printable(character) } {
        out.push(character);
        return;
    }
    match character {
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        _ => match u32::from(character) {
            code if code < 0x20 || code == 0x7f => hex(out, "\\x", code, 2),
            code if code < 0x10000 => hex(out, "\\u", code, 4),
            code => hex(out, "\\U", code, 8),
        },
    }
}

fn hex(out: &mut String, prefix: &str, code: u32, digits: u32) {
    out.push_str(prefix);
    for digit in (0..digits).rev() {
        out.push(char::from_digit((code >> (4 * digit)) & 15, 16).unwrap_or('0'));
    }
}

/// `strconv.CanBackquote`.
pub(super) fn can_backquote(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| {
        !text.chars().any(|c| c == '\u{feff}' || (c < ' ' && c != '\t') || c == '`' || c == '\x7f')
    })
}
