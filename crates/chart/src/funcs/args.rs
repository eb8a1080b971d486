//! Arguments, which fit the signature of the function that reads them. One that does not reads as Go's zero value.

use std::rc::Rc;

use crate::Failure;
use crate::value::{Ctx, Element, List, MapRef, Value};

/// What Go says where a nil interface or pointer is used.
pub(super) const NIL_DEREFERENCE: &str = "runtime error: invalid memory address or nil pointer dereference";

pub(super) fn any(args: &[Value], position: usize) -> &Value {
    args.get(position).unwrap_or(&Value::Nil)
}

/// The arguments from this one on.
pub(super) fn rest(args: &[Value], from: usize) -> &[Value] {
    args.get(from..).unwrap_or_default()
}

pub(super) fn text(args: &[Value], position: usize) -> &str {
    match args.get(position) {
        Some(Value::Str(text)) => text,
        _ => "",
    }
}

/// A string of any bytes.
pub(super) fn bytes(args: &[Value], position: usize) -> &[u8] {
    match args.get(position) {
        Some(Value::Str(text)) => text.as_bytes(),
        Some(Value::Raw(bytes) | Value::Bytes(bytes)) => bytes,
        _ => &[],
    }
}

pub(super) fn int(args: &[Value], position: usize) -> i64 {
    match args.get(position) {
        Some(Value::Int(number) | Value::Int64(number)) => *number,
        _ => 0,
    }
}

pub(super) fn truth(args: &[Value], position: usize) -> bool {
    matches!(args.get(position), Some(Value::Bool(true)))
}

pub(super) fn map(args: &[Value], position: usize) -> MapRef {
    match args.get(position) {
        Some(Value::Map(map)) => *map,
        _ => MapRef::NIL,
    }
}

/// A Go string of these bytes, counted.
pub(super) fn string(ctx: &mut Ctx, bytes: Vec<u8>) -> Result<Value, Failure> {
    ctx.room(bytes.len())?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Value::Str(text.into()),
        Err(error) => Value::Raw(error.into_bytes().into()),
    })
}

/// A new slice, counted.
pub(super) fn slice(ctx: &mut Ctx, items: Vec<Value>, element: Element) -> Result<Value, Failure> {
    ctx.step(items.len())?;
    ctx.room(items.len().saturating_mul(24))?;
    Ok(Value::List(List { items: items.into(), element }))
}

/// A nil slice.
pub(super) fn nil_slice(element: Element) -> Value {
    Value::List(List { items: Rc::default(), element })
}

/// The items of a slice, as Go's reflection visits them; `None` of what is no slice.
pub(super) fn items(ctx: &mut Ctx, value: &Value) -> Result<Option<Rc<[Value]>>, Failure> {
    let items: Rc<[Value]> = match value {
        Value::List(list) => Rc::clone(&list.items),
        Value::Bytes(bytes) => {
            ctx.room(bytes.len().saturating_mul(24))?;
            bytes.iter().map(|&byte| Value::Int(byte.into())).collect()
        }
        Value::Host(host) if host.kind() == "slice" => {
            let entries = host.entries().unwrap_or_default();
            entries.into_iter().map(|(_, item)| item).collect()
        }
        _ => return Ok(None),
    };
    ctx.step(items.len())?;
    Ok(Some(items))
}
