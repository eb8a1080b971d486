//! Values as Go's `%#v` prints them, which error messages hold.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use regex::Regex;

use super::data::{Data, Key};
use super::number;
use crate::Failure;
use crate::value::Ctx;

/// Appends a value. The outermost nil is printed without its type.
pub(super) fn write(ctx: &mut Ctx, out: &mut String, data: &Data, depth: u32) -> Result<(), Failure> {
    ctx.step(1)?;
    ctx.depth(depth)?;
    match data {
        Data::Null if depth == 0 => out.push_str("<nil>"),
        Data::Null => out.push_str("interface {}(nil)"),
        Data::Bool(bool) => push(out, format_args!("{bool}")),
        Data::Int(int) => push(out, format_args!("{int}")),
        Data::Uint(int) => push(out, format_args!("{int:#x}")),
        Data::Float(float) => out.push_str(&number::format_g(*float)),
        Data::Str(text) => quote(ctx, out, text.as_bytes())?,
        Data::Raw(bytes) => quote(ctx, out, bytes)?,
        Data::List(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(ctx, out, item, depth + 1)?;
            }
            out.push('}');
        }
        Data::Map(map) => write_map(ctx, out, map, depth)?,
    }
    Ok(())
}

fn write_map(ctx: &mut Ctx, out: &mut String, map: &BTreeMap<Key, Data>, depth: u32) -> Result<(), Failure> {
    out.push_str("map[interface {}]interface {}{");
    for (at, (key, item)) in map.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        if *key == Key::Null {
            out.push_str("interface {}(nil)");
        } else {
            write_key(ctx, out, key)?;
        }
        out.push(':');
        write(ctx, out, item, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

/// Appends a key.
pub(super) fn write_key(ctx: &mut Ctx, out: &mut String, key: &Key) -> Result<(), Failure> {
    let data = match key {
        Key::Null => Data::Null,
        Key::Bool(bool) => Data::Bool(*bool),
        Key::Int(int) => Data::Int(*int),
        Key::Uint(int) => Data::Uint(*int),
        Key::Float(key) => Data::Float(key.float),
        Key::Str(text) => Data::Str(text.clone()),
        Key::Raw(bytes) => Data::Raw(bytes.clone()),
    };
    write(ctx, out, &data, 0)
}

fn push(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

/// Appends a string as `strconv.Quote` writes it.
fn quote(ctx: &mut Ctx, out: &mut String, bytes: &[u8]) -> Result<(), Failure> {
    ctx.step(bytes.len())?;
    ctx.room(bytes.len())?;
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.push_str("\\\""),
                _ => escape(out, character),
            }
        }
        for byte in chunk.invalid() {
            push(out, format_args!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    Ok(())
}

/// Appends a character as Go prints it within quotes of another kind.
pub(crate) fn escape(out: &mut String, character: char) {
    match character {
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        ' '..='~' => out.push(character),
        '\0'..='\x7f' => push(out, format_args!("\\x{:02x}", u32::from(character))),
        _ if is_print(character) => out.push(character),
        '\0'..='\u{ffff}' => push(out, format_args!("\\u{:04x}", u32::from(character))),
        _ => push(out, format_args!("\\U{:08x}", u32::from(character))),
    }
}

/// Go's `unicode.IsPrint`.
fn is_print(character: char) -> bool {
    static PRINT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\pL\pM\pN\pP\pS]$").ok());
    matches(PRINT.as_ref(), character)
}

/// Go's `unicode.IsLetter`.
pub(super) fn is_letter(character: char) -> bool {
    static LETTER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\pL$").ok());
    match character {
        '\0'..='\x7f' => character.is_ascii_alphabetic(),
        _ => matches(LETTER.as_ref(), character),
    }
}

/// Go's `unicode.IsDigit`.
pub(super) fn is_digit(character: char) -> bool {
    static DIGIT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{Nd}$").ok());
    match character {
        '\0'..='\x7f' => character.is_ascii_digit(),
        _ => matches(DIGIT.as_ref(), character),
    }
}

fn matches(class: Option<&Regex>, character: char) -> bool {
    class.is_some_and(|class| class.is_match(character.encode_utf8(&mut [0; 4])))
}
