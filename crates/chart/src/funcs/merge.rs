//! `mergo`, as sprig merges maps with it.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::args;
use super::dicts::insert;
use super::logic::empty;
use super::table;
use crate::Failure;
use crate::fmt::{kind, type_name};
use crate::value::{Ctx, MapRef, MapType, Value};

table! {
    "merge" (Map; Map) => |ctx, args| merge(ctx, args, false),
    "mustMerge" (Map; Map) => |ctx, args| merge(ctx, args, false),
    "mergeOverwrite" (Map; Map) => |ctx, args| merge(ctx, args, true),
    "mustMergeOverwrite" (Map; Map) => |ctx, args| merge(ctx, args, true),
}

/// Merges the others into the first, which changes, and gives it back.
fn merge(ctx: &mut Ctx, args: &[Value], overwrite: bool) -> Result<Value, Failure> {
    let mut target = args::map(args, 0);
    for position in 1..args.len() {
        let source = args::map(args, position);
        if target.is_nil() && !source.is_nil() {
            target = ctx.map(MapType::Any, BTreeMap::new())?;
        }
        merge_maps(ctx, target, source, overwrite, 0)?;
    }
    Ok(Value::Map(target))
}

/// Entries of the source that the target has not, or only as empty values, are shared with the source rather than copied.
fn merge_maps(
    ctx: &mut Ctx,
    target: MapRef,
    source: MapRef,
    overwrite: bool,
    depth: u32,
) -> Result<(), Failure> {
    ctx.depth(depth)?;
    let of_source = ctx.heap.map(source).kind;
    let of_target = ctx.heap.map(target).kind;
    let entries = ctx.heap.map(source).entries.clone();
    ctx.step(entries.len())?;
    for (key, value) in entries {
        let before = ctx.heap.get(target, &key).cloned();
        let is_list = kind(&value) == "slice";
        if of_target == MapType::Strings {
            check_string(ctx, of_source, &value, before.as_ref(), overwrite)?;
        }
        if matches!(value, Value::Nil) {
            if overwrite {
                insert(ctx, target, key, value)?;
            }
            continue;
        }
        match (&value, &before) {
            (Value::Map(source), Some(Value::Map(target))) if !target.is_nil() => {
                merge_maps(ctx, *target, *source, overwrite, depth.saturating_add(1))?;
            }
            _ if is_list && (overwrite || ctx.heap.map(target).entries.is_empty()) => {
                insert(ctx, target, Rc::clone(&key), value.clone())?;
            }
            _ => {}
        }
        let has = before.as_ref().is_some_and(|before| !empty(ctx, before));
        let both_maps = kind(&value) == "map" && before.as_ref().is_some_and(|before| kind(before) == "map");
        if has && (is_list || both_maps) {
            continue;
        }
        if overwrite || !has {
            insert(ctx, target, key, value)?;
        }
    }
    Ok(())
}

/// Go's panics where an entry does not fit into a map of strings.
fn check_string(
    ctx: &Ctx,
    of_source: MapType,
    value: &Value,
    before: Option<&Value>,
    overwrite: bool,
) -> Result<(), Failure> {
    let has = before.is_some_and(|before| !empty(ctx, before));
    let name = match (value, before) {
        _ if of_source == MapType::Strings => return Ok(()),
        (Value::Nil, _) if !overwrite => return Ok(()),
        (Value::List(_) | Value::Bytes(_), Some(_)) => {
            return Err(Failure::error("reflect: call of reflect.Value.IsNil on string Value"));
        }
        (Value::List(_) | Value::Bytes(_), None) => type_name(&ctx.heap, value),
        (Value::Nil, _) => "interface {}",
        _ if has && !overwrite => return Ok(()),
        _ => "interface {}",
    };
    Err(Failure::error(format!(
        "reflect.Value.SetMapIndex: value of type {name} is not assignable to type string"
    )))
}
