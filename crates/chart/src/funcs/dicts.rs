//! Sprig's functions of maps.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::args;
use super::table;
use super::text::strval;
use crate::Failure;
use crate::fmt::type_name;
use crate::value::{Ctx, Element, List, MapRef, MapType, Value};

table! {
    "dict" (; Any) => dict,
    "get" (Map, Str) => |ctx, args| {
        let value = ctx.heap.get(args::map(args, 0), args::text(args, 1));
        Ok(value.cloned().unwrap_or_else(|| Value::str("")))
    },
    "set" (Map, Str, Any) => set,
    "unset" (Map, Str) => |ctx, args| {
        let map = args::map(args, 0);
        if !map.is_nil() {
            ctx.heap.map_mut(map).entries.remove(args::text(args, 1));
        }
        Ok(Value::Map(map))
    },
    "hasKey" (Map, Str) => |ctx, args| {
        Ok(Value::Bool(ctx.heap.get(args::map(args, 0), args::text(args, 1)).is_some()))
    },
    "pluck" (Str; Map) => pluck,
    "keys" (; Map) => keys,
    "values" (Map) => |ctx, args| {
        let values = ctx.heap.map(args::map(args, 0)).entries.values().cloned().collect();
        args::slice(ctx, values, Element::Any)
    },
    "pick" (Map; Str) => pick,
    "omit" (Map; Str) => omit,
    "dig" (; Any) => dig,
    "deepCopy" (Any) => |ctx, args| deep_copy(ctx, args::any(args, 0)),
    "mustDeepCopy" (Any) => |ctx, args| deep_copy(ctx, args::any(args, 0)),
}

fn dict(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut entries = BTreeMap::new();
    for pair in args.chunks(2) {
        let key = strval(ctx, args::any(pair, 0))?;
        let key = String::from_utf8(key)
            .map_err(|_| Failure::error("this renderer refuses keys of maps that are not UTF-8"))?;
        let value = pair.get(1).cloned().unwrap_or_else(|| Value::str(""));
        entries.insert(Rc::from(key), value);
    }
    ctx.step(entries.len())?;
    ctx.dict(entries)
}

/// Writes an entry, with Go's panic for a nil map.
pub(super) fn insert(ctx: &mut Ctx, map: MapRef, key: Rc<str>, value: Value) -> Result<(), Failure> {
    if map.is_nil() {
        return Err(Failure::error("assignment to entry in nil map"));
    }
    ctx.step(1)?;
    ctx.room(key.len().saturating_add(64))?;
    ctx.heap.map_mut(map).entries.insert(key, value);
    Ok(())
}

fn set(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let map = args::map(args, 0);
    insert(ctx, map, Rc::from(args::text(args, 1)), args::any(args, 2).clone())?;
    Ok(Value::Map(map))
}

fn pluck(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let key = args::text(args, 0);
    let found = (1..args.len()).filter_map(|position| ctx.heap.get(args::map(args, position), key));
    let found = found.cloned().collect();
    args::slice(ctx, found, Element::Any)
}

/// The keys, sorted where Go has them in any order.
fn keys(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut keys = Vec::new();
    for position in 0..args.len() {
        let map = ctx.heap.map(args::map(args, position));
        keys.extend(map.entries.keys().cloned().map(Value::Str));
    }
    args::slice(ctx, keys, Element::Str)
}

fn pick(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let map = args::map(args, 0);
    let mut entries = BTreeMap::new();
    for position in 1..args.len() {
        ctx.step(1)?;
        if let Some((key, value)) = ctx.heap.map(map).entries.get_key_value(args::text(args, position)) {
            entries.insert(Rc::clone(key), value.clone());
        }
    }
    ctx.dict(entries)
}

fn omit(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut entries = ctx.heap.map(args::map(args, 0)).entries.clone();
    ctx.step(entries.len())?;
    for position in 1..args.len() {
        ctx.step(1)?;
        entries.remove(args::text(args, position));
    }
    ctx.dict(entries)
}

/// Go's conversion of an interface to a map, with the text of its panic.
fn as_map(ctx: &Ctx, value: &Value) -> Result<MapRef, Failure> {
    match value {
        Value::Map(map) if ctx.heap.map(*map).kind == MapType::Any => Ok(*map),
        _ => Err(conversion(ctx, value, "map[string]interface {}")),
    }
}

fn conversion(ctx: &Ctx, value: &Value, wanted: &str) -> Failure {
    let name = match value {
        Value::Nil => "nil",
        _ => type_name(&ctx.heap, value),
    };
    Failure::error(format!("interface conversion: interface {{}} is {name}, not {wanted}"))
}

fn dig(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let [keys @ .., default, last] = args else {
        return Err(Failure::error("dig needs at least three arguments"));
    };
    if keys.is_empty() {
        return Err(Failure::error("dig needs at least three arguments"));
    }
    let mut map = as_map(ctx, last)?;
    for key in keys {
        if !matches!(key, Value::Str(_) | Value::Raw(_)) {
            return Err(conversion(ctx, key, "string"));
        }
    }
    for (position, key) in keys.iter().enumerate() {
        ctx.step(1)?;
        let found = match key {
            Value::Str(key) => ctx.heap.get(map, key).cloned(),
            _ => None,
        };
        let Some(found) = found else { return Ok(default.clone()) };
        if position.saturating_add(1) == keys.len() {
            return Ok(found);
        }
        map = as_map(ctx, &found)?;
    }
    Ok(default.clone())
}

fn deep_copy(ctx: &mut Ctx, value: &Value) -> Result<Value, Failure> {
    if matches!(value, Value::Nil) {
        return Err(Failure::error("reflect: call of reflect.Value.Type on zero Value"));
    }
    copy(ctx, value, 0)
}

fn copy(ctx: &mut Ctx, value: &Value, depth: u32) -> Result<Value, Failure> {
    ctx.step(1)?;
    ctx.depth(depth)?;
    match value {
        Value::Map(map) if map.is_nil() => Ok(value.clone()),
        Value::Map(map) => {
            let map = ctx.heap.map(*map).clone();
            let mut entries = BTreeMap::new();
            for (key, value) in map.entries {
                let value = copy(ctx, &value, depth.saturating_add(1))?;
                entries.insert(key, value);
            }
            ctx.map(map.kind, entries).map(Value::Map)
        }
        Value::List(list) => {
            ctx.room(list.items.len().saturating_mul(24))?;
            let items = list.items.iter().map(|item| copy(ctx, item, depth.saturating_add(1)));
            let items = items.collect::<Result<Rc<[Value]>, Failure>>()?;
            Ok(Value::List(List { items, element: list.element }))
        }
        _ => Ok(value.clone()),
    }
}
