//! Sprig's functions between strings and lists of strings.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::args;
use super::table;
use super::text::{strslice, strval};
use crate::Failure;
use crate::value::{Ctx, Element, MapType, Value};

table! {
    "split" (Str, Str) => |ctx, args| {
        let parts = split(ctx, args::text(args, 1), args::text(args, 0), -1)?;
        numbered(ctx, &parts)
    },
    "splitn" (Str, Int, Str) => |ctx, args| {
        let parts = split(ctx, args::text(args, 2), args::text(args, 0), args::int(args, 1))?;
        numbered(ctx, &parts)
    },
    "splitList" (Str, Str) => |ctx, args| {
        let parts = split(ctx, args::text(args, 1), args::text(args, 0), -1)?;
        ctx.room(args::text(args, 1).len())?;
        args::slice(ctx, parts.into_iter().map(Value::str).collect(), Element::Str)
    },
    "join" (Raw, Any) => |ctx, args| {
        let strings = strslice(ctx, args::any(args, 1))?;
        let separator = args::bytes(args, 0);
        ctx.room(separator.len().saturating_mul(strings.len()))?;
        let joined = strings.join(separator);
        args::string(ctx, joined)
    },
    "toStrings" (Any) => |ctx, args| {
        if let value @ Value::List(list) = args::any(args, 0)
            && matches!(list.element, Element::Str | Element::NilStr)
        {
            return Ok(value.clone());
        }
        let strings = strslice(ctx, args::any(args, 0))?;
        string_list(ctx, strings)
    },
    "sortAlpha" (Any) => |ctx, args| {
        let value = args::any(args, 0);
        let strings = if crate::fmt::kind(value) == "slice" {
            let mut strings = strslice(ctx, value)?;
            ctx.step(strings.len().saturating_mul(16))?;
            strings.sort();
            strings
        } else {
            vec![strval(ctx, value)?]
        };
        string_list(ctx, strings)
    },
}

/// A `[]string` of these.
pub(super) fn string_list(ctx: &mut Ctx, strings: Vec<Vec<u8>>) -> Result<Value, Failure> {
    let mut items = Vec::with_capacity(strings.len());
    for string in strings {
        items.push(args::string(ctx, string)?);
    }
    args::slice(ctx, items, Element::Str)
}

/// `strings.SplitN`: at most this many parts, all if negative; an empty separator parts all characters.
fn split<'t>(ctx: &mut Ctx, text: &'t str, separator: &str, count: i64) -> Result<Vec<&'t str>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    let parts: Vec<&str> = if separator.is_empty() {
        let starts = text.char_indices().map(|(start, _)| start);
        let mut parts = Vec::new();
        let mut ends = starts.clone().skip(1).chain(std::iter::once(text.len()));
        for start in starts {
            let is_last = parts.len().saturating_add(1) == most;
            let end = ends.next().unwrap_or(text.len());
            parts.push(text.get(start..if is_last { text.len() } else { end }).unwrap_or_default());
            if is_last {
                break;
            }
        }
        parts
    } else {
        text.splitn(most, separator).collect()
    };
    ctx.step(parts.len())?;
    ctx.room(parts.len().saturating_mul(16))?;
    Ok(parts)
}

/// Sprig's map of parts: `_0` and so on.
fn numbered(ctx: &mut Ctx, parts: &[&str]) -> Result<Value, Failure> {
    let mut entries = BTreeMap::new();
    for (position, part) in parts.iter().enumerate() {
        let text = ctx.text(part)?;
        entries.insert(Rc::from(format!("_{position}")), text);
    }
    ctx.map(MapType::Strings, entries).map(Value::Map)
}
