//! Sprig's functions of strings.

use super::args;
use super::table;
use super::text::{cut, strval, to_lower, to_upper};
use crate::Failure;
use crate::fmt;
use crate::value::{Ctx, Value};

table! {
    "trim" (Str) => |ctx, args| ctx.text(args::text(args, 0).trim()),
    "upper" (Str) => |ctx, args| map_chars(ctx, args::text(args, 0), to_upper),
    "lower" (Str) => |ctx, args| map_chars(ctx, args::text(args, 0), to_lower),
    "trunc" (Int, Raw) => trunc,
    "substr" (Int, Int, Raw) => substr,
    "repeat" (Int, Raw) => |ctx, args| {
        let bytes = repeated(ctx, args::bytes(args, 1), args::int(args, 0))?;
        args::string(ctx, bytes)
    },
    "trimall" (Str, Str) => trim_all,
    "trimAll" (Str, Str) => trim_all,
    "trimSuffix" (Raw, Raw) => |ctx, args| {
        let text = args::bytes(args, 1);
        let bytes = text.strip_suffix(args::bytes(args, 0)).unwrap_or(text).to_vec();
        args::string(ctx, bytes)
    },
    "trimPrefix" (Raw, Raw) => |ctx, args| {
        let text = args::bytes(args, 1);
        let bytes = text.strip_prefix(args::bytes(args, 0)).unwrap_or(text).to_vec();
        args::string(ctx, bytes)
    },
    "contains" (Raw, Raw) => |ctx, args| {
        let (wanted, text) = (args::bytes(args, 0), args::bytes(args, 1));
        contains(ctx, text, wanted).map(Value::Bool)
    },
    "hasPrefix" (Raw, Raw) => |_, args| {
        Ok(Value::Bool(args::bytes(args, 1).starts_with(args::bytes(args, 0))))
    },
    "hasSuffix" (Raw, Raw) => |_, args| {
        Ok(Value::Bool(args::bytes(args, 1).ends_with(args::bytes(args, 0))))
    },
    "quote" (; Any) => quote,
    "squote" (; Any) => squote,
    "cat" (; Any) => cat,
    "indent" (Int, Raw) => |ctx, args| {
        let bytes = indent(ctx, args::int(args, 0), args::bytes(args, 1))?;
        args::string(ctx, bytes)
    },
    "nindent" (Int, Raw) => |ctx, args| {
        let mut bytes = indent(ctx, args::int(args, 0), args::bytes(args, 1))?;
        bytes.insert(0, b'\n');
        args::string(ctx, bytes)
    },
    "replace" (Str, Str, Str) => |ctx, args| {
        replace(ctx, args::text(args, 2), args::text(args, 0), args::text(args, 1))
    },
    "plural" (Raw, Raw, Int) => |_, args| {
        Ok(args::any(args, usize::from(args::int(args, 2) != 1)).clone())
    },
    "toString" (Any) => |ctx, args| {
        let bytes = strval(ctx, args::any(args, 0))?;
        args::string(ctx, bytes)
    },
}

/// Maps each character, as `strings.Map` does.
pub(super) fn map_chars(ctx: &mut Ctx, text: &str, map: fn(char) -> char) -> Result<Value, Failure> {
    ctx.step(text.len() / 16)?;
    let mapped: String = text.chars().map(map).collect();
    ctx.text(mapped)
}

fn trunc(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let (count, text) = (args::int(args, 0), args::bytes(args, 1));
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let from_end = length.wrapping_add(count);
    let bytes = if count < 0 && from_end > 0 {
        cut(text, from_end, None)?
    } else if count >= 0 && length > count {
        cut(text, 0, Some(count))?
    } else {
        text
    };
    args::string(ctx, bytes.to_vec())
}

fn substr(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let (start, end, text) = (args::int(args, 0), args::int(args, 1), args::bytes(args, 2));
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let bytes = if start < 0 {
        cut(text, 0, Some(end))?
    } else if end < 0 || end > length {
        cut(text, start, None)?
    } else {
        cut(text, start, Some(end))?
    };
    args::string(ctx, bytes.to_vec())
}

/// `strings.Repeat`.
pub(super) fn repeated(ctx: &mut Ctx, text: &[u8], count: i64) -> Result<Vec<u8>, Failure> {
    let Ok(count) = usize::try_from(count) else {
        return Err(Failure::error("strings: negative Repeat count"));
    };
    let Some(length) = text.len().checked_mul(count) else {
        return Err(Failure::error("strings: Repeat output length overflow"));
    };
    ctx.room(length)?;
    Ok(if length == 0 { Vec::new() } else { text.repeat(count) })
}

fn trim_all(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let (set, text) = (args::text(args, 0), args::text(args, 1));
    ctx.step(set.len().saturating_mul(text.len()) / 16)?;
    ctx.text(text.trim_matches(|character| set.contains(character)))
}

fn contains(ctx: &mut Ctx, text: &[u8], wanted: &[u8]) -> Result<bool, Failure> {
    if let (Ok(text), Ok(wanted)) = (std::str::from_utf8(text), std::str::from_utf8(wanted)) {
        ctx.step(text.len() / 64)?;
        return Ok(text.contains(wanted));
    }
    ctx.step(text.len().saturating_mul(wanted.len()))?;
    Ok(wanted.is_empty() || text.windows(wanted.len()).any(|window| window == wanted))
}

fn quote(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut out = String::new();
    for (position, arg) in args.iter().filter(|arg| !matches!(arg, Value::Nil)).enumerate() {
        if position > 0 {
            out.push(' ');
        }
        let bytes = strval(ctx, arg)?;
        out.push_str(&fmt::quote(&bytes));
    }
    ctx.text(out)
}

fn squote(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut out = Vec::new();
    for (position, arg) in args.iter().filter(|arg| !matches!(arg, Value::Nil)).enumerate() {
        if position > 0 {
            out.push(b' ');
        }
        out.push(b'\'');
        out.extend(fmt::sprint(ctx, std::slice::from_ref(arg))?);
        out.push(b'\'');
    }
    args::string(ctx, out)
}

fn cat(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut out = Vec::new();
    for (position, arg) in args.iter().filter(|arg| !matches!(arg, Value::Nil)).enumerate() {
        if position > 0 {
            out.push(b' ');
        }
        out.extend(fmt::sprint(ctx, std::slice::from_ref(arg))?);
    }
    args::string(ctx, out)
}

/// Sprig's `indent`: empty lines too are indented.
fn indent(ctx: &mut Ctx, spaces: i64, text: &[u8]) -> Result<Vec<u8>, Failure> {
    let padding = repeated(ctx, b" ", spaces)?;
    let lines = text.split(|&byte| byte == b'\n').count();
    ctx.step(lines)?;
    ctx.room(lines.saturating_mul(padding.len()))?;
    let mut out = padding.clone();
    for &byte in text {
        out.push(byte);
        if byte == b'\n' {
            out.extend_from_slice(&padding);
        }
    }
    Ok(out)
}

fn replace(ctx: &mut Ctx, text: &str, old: &str, new: &str) -> Result<Value, Failure> {
    let count = text.matches(old).count();
    ctx.step(count)?;
    ctx.room(count.saturating_mul(new.len()))?;
    ctx.text(text.replace(old, new))
}
