//! Sprig's functions of lists.

use std::rc::Rc;

use super::args::{self, NIL_DEREFERENCE};
use super::convert::to_int;
use super::equal::deep_equal;
use super::logic::empty;
use super::table;
use crate::Failure;
use crate::fmt::kind;
use crate::value::{Ctx, Element, List, Value};

table! {
    "list" (; Any) => |ctx, args| args::slice(ctx, args.to_vec(), Element::Any),
    "tuple" (; Any) => |ctx, args| args::slice(ctx, args.to_vec(), Element::Any),
    "append" (Any, Any) => append,
    "mustAppend" (Any, Any) => append,
    "push" (Any, Any) => append,
    "mustPush" (Any, Any) => append,
    "prepend" (Any, Any) => prepend,
    "mustPrepend" (Any, Any) => prepend,
    "first" (Any) => first,
    "mustFirst" (Any) => first,
    "last" (Any) => last,
    "mustLast" (Any) => last,
    "rest" (Any) => |ctx, args| part(ctx, args, "Cannot find rest on type", |items| items.split_first().map(|(_, rest)| rest)),
    "mustRest" (Any) => |ctx, args| part(ctx, args, "Cannot find rest on type", |items| items.split_first().map(|(_, rest)| rest)),
    "initial" (Any) => |ctx, args| part(ctx, args, "Cannot find initial on type", |items| items.split_last().map(|(_, rest)| rest)),
    "mustInitial" (Any) => |ctx, args| part(ctx, args, "Cannot find initial on type", |items| items.split_last().map(|(_, rest)| rest)),
    "reverse" (Any) => reverse,
    "mustReverse" (Any) => reverse,
    "compact" (Any) => compact,
    "mustCompact" (Any) => compact,
    "uniq" (Any) => uniq,
    "mustUniq" (Any) => uniq,
    "without" (Any; Any) => without,
    "mustWithout" (Any; Any) => without,
    "has" (Any, Any) => has,
    "mustHas" (Any, Any) => has,
    "slice" (Any; Any) => slice,
    "mustSlice" (Any; Any) => slice,
    "concat" (; Any) => concat,
    "chunk" (Int, Any) => chunk,
    "mustChunk" (Int, Any) => chunk,
    "until" (Int) => |ctx, args| {
        let count = args::int(args, 0);
        until(ctx, 0, count, if count < 0 { -1 } else { 1 })
    },
    "untilStep" (Int, Int, Int) => |ctx, args| {
        until(ctx, args::int(args, 0), args::int(args, 1), args::int(args, 2))
    },
    "seq" (; Int) => seq,
}

/// The items of the argument, or why it is no list.
fn list_of(ctx: &mut Ctx, value: &Value, complaint: &str) -> Result<Rc<[Value]>, Failure> {
    match args::items(ctx, value)? {
        Some(items) => Ok(items),
        None if matches!(value, Value::Nil) => Err(Failure::error(NIL_DEREFERENCE)),
        None => Err(Failure::error(format!("{complaint} {}", kind(value)))),
    }
}

fn any_slice(ctx: &mut Ctx, items: Vec<Value>) -> Result<Value, Failure> {
    args::slice(ctx, items, Element::Any)
}

fn append(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut items = list_of(ctx, args::any(args, 0), "Cannot push on type")?.to_vec();
    items.push(args::any(args, 1).clone());
    any_slice(ctx, items)
}

fn prepend(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot prepend on type")?;
    let items = std::iter::once(args::any(args, 1)).chain(items.iter()).cloned().collect();
    any_slice(ctx, items)
}

fn first(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot find first on type")?;
    Ok(items.first().cloned().unwrap_or(Value::Nil))
}

fn last(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot find last on type")?;
    Ok(items.last().cloned().unwrap_or(Value::Nil))
}

/// All items but one, or Go's nil slice of none.
fn part(
    ctx: &mut Ctx,
    args: &[Value],
    complaint: &str,
    of: fn(&[Value]) -> Option<&[Value]>,
) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), complaint)?;
    match of(&items) {
        Some(part) => any_slice(ctx, part.to_vec()),
        None => Ok(args::nil_slice(Element::NilAny)),
    }
}

fn reverse(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot find reverse on type")?;
    any_slice(ctx, items.iter().rev().cloned().collect())
}

fn compact(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot compact on type")?;
    let kept = items.iter().filter(|item| !empty(ctx, item)).cloned().collect();
    any_slice(ctx, kept)
}

fn contains(ctx: &mut Ctx, items: &[Value], wanted: &Value) -> Result<bool, Failure> {
    for item in items {
        if deep_equal(ctx, wanted, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot find uniq on type")?;
    let mut kept = Vec::new();
    for item in items.iter() {
        if !contains(ctx, &kept, item)? {
            kept.push(item.clone());
        }
    }
    any_slice(ctx, kept)
}

fn without(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let items = list_of(ctx, args::any(args, 0), "Cannot find without on type")?;
    let mut kept = Vec::new();
    for item in items.iter() {
        if !contains(ctx, args::rest(args, 1), item)? {
            kept.push(item.clone());
        }
    }
    any_slice(ctx, kept)
}

fn has(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let haystack = args::any(args, 1);
    if matches!(haystack, Value::Nil) {
        return Ok(Value::Bool(false));
    }
    let items = list_of(ctx, haystack, "Cannot find has on type")?;
    contains(ctx, &items, args::any(args, 0)).map(Value::Bool)
}

/// Sprig's `slice`, which takes the place of Go's own: it knows no strings.
fn slice(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let value = args::any(args, 0);
    let items = list_of(ctx, value, "list should be type of slice or array but")?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let start = args.get(1).map_or(0, to_int);
    let end = args.get(2).map_or_else(|| i64::try_from(items.len()).unwrap_or(i64::MAX), to_int);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let part = range.and_then(|(start, end)| items.get(start..end));
    let part = part.ok_or_else(|| Failure::error("reflect.Value.Slice: slice index out of bounds"))?;
    match value {
        Value::Bytes(bytes) => {
            let range = range.and_then(|(start, end)| bytes.get(start..end));
            Ok(Value::Bytes(range.unwrap_or_default().into()))
        }
        Value::List(list) => args::slice(ctx, part.to_vec(), list.element),
        _ => any_slice(ctx, part.to_vec()),
    }
}

fn concat(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut all = Vec::new();
    for value in args {
        let Some(items) = args::items(ctx, value)? else {
            if matches!(value, Value::Nil) {
                return Err(Failure::error(NIL_DEREFERENCE));
            }
            return Err(Failure::error(format!("Cannot concat type {} as list", kind(value))));
        };
        all.extend_from_slice(&items);
    }
    if all.is_empty() {
        return Ok(args::nil_slice(Element::NilAny));
    }
    any_slice(ctx, all)
}

/// Sprig's `chunk`, with its arithmetic of floats and so with its panics for sizes that are not positive.
#[expect(clippy::cast_precision_loss, reason = "as Go rounds")]
fn chunk(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let size = args::int(args, 0);
    let items = list_of(ctx, args::any(args, 1), "Cannot chunk type")?;
    let makeslice = || Failure::error("runtime error: makeslice: len out of range");
    let length = items.len() as f64;
    let count = ((length - 1.0) / size as f64).floor() + 1.0;
    if !(0.0..1e18).contains(&count) {
        return Err(makeslice());
    }
    let size = match usize::try_from(size) {
        Ok(size) => size,
        Err(_) if count < 1.0 => return args::slice(ctx, Vec::new(), Element::List),
        // The rest of the division has the sign of the length.
        Err(_) if items.len() == 1 && size < -1 => 1,
        Err(_) => return Err(makeslice()),
    };
    let mut chunks = Vec::new();
    for chunk in items.chunks(size.max(1)) {
        chunks.push(any_slice(ctx, chunk.to_vec())?);
    }
    args::slice(ctx, chunks, Element::List)
}

/// The numbers of `untilStep`, refused before they are made if they are too many.
fn numbers(ctx: &mut Ctx, from: i64, to: i64, step: i64) -> Result<Vec<i64>, Failure> {
    let wrong_way = if to < from { step >= 0 } else { step <= 0 };
    if wrong_way {
        return Ok(Vec::new());
    }
    let distance = from.abs_diff(to);
    let count = usize::try_from(distance.div_ceil(step.unsigned_abs())).unwrap_or(usize::MAX);
    ctx.step(count)?;
    ctx.room(count.saturating_mul(24))?;
    let mut numbers = Vec::with_capacity(count);
    let mut next = from;
    for _ in 0..count {
        numbers.push(next);
        next = next.wrapping_add(step);
    }
    Ok(numbers)
}

fn until(ctx: &mut Ctx, from: i64, to: i64, step: i64) -> Result<Value, Failure> {
    let items: Rc<[Value]> = numbers(ctx, from, to, step)?.into_iter().map(Value::Int).collect();
    Ok(Value::List(List { items, element: Element::Int }))
}

fn seq(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let (start, step, end) = match args.len() {
        1 => (1, None, args::int(args, 0)),
        2 => (args::int(args, 0), None, args::int(args, 1)),
        3 => (args::int(args, 0), Some(args::int(args, 1)), args::int(args, 2)),
        _ => return Ok(Value::str("")),
    };
    let increment = if end < start { -1 } else { 1 };
    if end < start && step.is_some_and(|step| step > 0) {
        return Ok(Value::str(""));
    }
    let numbers = numbers(ctx, start, end.wrapping_add(increment), step.unwrap_or(increment))?;
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    ctx.text(words.join(" "))
}
