//! Values between callers, who have `serde_json`, and the heap of a render.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map as Object, Number, Value as Json};

use crate::Failure;
use crate::value::{Ctx, MapRef, MapType, Value};

/// Values as callers hold them. A number that is an integer is Go's `int64`, as `--set` gives; every number read from YAML is
/// a `float64` and so never one.
pub type Values = Object<String, Json>;

/// Copies a value into the heap.
pub(crate) fn import(ctx: &mut Ctx, value: &Json, depth: u32) -> Result<Value, Failure> {
    ctx.depth(depth)?;
    ctx.step(1)?;
    Ok(match value {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => number_in(number),
        Json::String(text) => ctx.text(text)?,
        Json::Array(items) => {
            let items: Result<Vec<Value>, Failure> =
                items.iter().map(|item| import(ctx, item, depth.saturating_add(1))).collect();
            let items = items?;
            ctx.room(items.len().saturating_mul(size_of::<Value>()))?;
            Value::list(items)
        }
        Json::Object(entries) => Value::Map(import_map(ctx, entries, MapType::Any, depth)?),
    })
}

/// Copies a map into the heap.
pub(crate) fn import_map(
    ctx: &mut Ctx,
    entries: &Values,
    kind: MapType,
    depth: u32,
) -> Result<MapRef, Failure> {
    let mut map: BTreeMap<Rc<str>, Value> = BTreeMap::new();
    for (key, value) in entries {
        map.insert(key.as_str().into(), import(ctx, value, depth.saturating_add(1))?);
    }
    ctx.map(kind, map)
}

fn number_in(number: &Number) -> Value {
    match number.as_i64() {
        Some(integer) => Value::Int64(integer),
        None => Value::Float(number.as_f64().unwrap_or_default()),
    }
}

/// Copies a value out of the heap.
///
/// # Errors
/// When it nests too deep, as a map that holds itself does, or holds what JSON has no form for.
pub(crate) fn export(ctx: &mut Ctx, value: &Value, depth: u32) -> Result<Json, Failure> {
    ctx.depth(depth)?;
    ctx.step(1)?;
    let deeper = depth.saturating_add(1);
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) | Value::Int64(value) => Json::Number((*value).into()),
        Value::Float(value) => Json::Number(
            Number::from_f64(*value)
                .ok_or_else(|| Failure::error(format!("json: unsupported value: {value}")))?,
        ),
        Value::Str(text) => Json::String(text.as_ref().to_owned()),
        Value::Raw(bytes) | Value::Bytes(bytes) => Json::String(String::from_utf8_lossy(bytes).into_owned()),
        Value::List(list) => {
            let items: Result<Vec<Json>, Failure> =
                list.items.iter().map(|item| export(ctx, item, deeper)).collect();
            Json::Array(items?)
        }
        Value::Map(map) => Json::Object(export_map(ctx, *map, depth)?),
        Value::Host(host) => {
            let plain = host.plain(ctx)?;
            export(ctx, &plain, deeper)?
        }
    })
}

/// Copies a map out of the heap.
pub(crate) fn export_map(ctx: &mut Ctx, map: MapRef, depth: u32) -> Result<Values, Failure> {
    let entries: Vec<(Rc<str>, Value)> =
        ctx.heap.map(map).entries.iter().map(|(key, value)| (Rc::clone(key), value.clone())).collect();
    let mut object = Values::new();
    for (key, value) in entries {
        object.insert(key.as_ref().to_owned(), export(ctx, &value, depth.saturating_add(1))?);
    }
    Ok(object)
}

/// A deep copy within the heap.
pub(crate) fn copy(ctx: &mut Ctx, value: &Value, depth: u32) -> Result<Value, Failure> {
    ctx.depth(depth)?;
    ctx.step(1)?;
    match value {
        Value::Map(map) => copy_map(ctx, *map, depth).map(Value::Map),
        Value::List(list) => {
            let items: Result<Vec<Value>, Failure> =
                list.items.iter().map(|item| copy(ctx, item, depth.saturating_add(1))).collect();
            let items = items?;
            ctx.room(items.len().saturating_mul(size_of::<Value>()))?;
            Ok(Value::List(crate::value::List { items: items.into(), element: list.element }))
        }
        other => Ok(other.clone()),
    }
}

/// A deep copy of a map within the heap.
pub(crate) fn copy_map(ctx: &mut Ctx, map: MapRef, depth: u32) -> Result<MapRef, Failure> {
    let source = ctx.heap.map(map);
    let kind = source.kind;
    let entries: Vec<(Rc<str>, Value)> =
        source.entries.iter().map(|(key, value)| (Rc::clone(key), value.clone())).collect();
    let mut copied = BTreeMap::new();
    for (key, value) in entries {
        copied.insert(key, copy(ctx, &value, depth.saturating_add(1))?);
    }
    ctx.map(kind, copied)
}
