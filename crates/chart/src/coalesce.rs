//! How the values of a chart, of its parents and of its user become one tree: Helm 4.3's `coalesce.go`.
//!
//! It works on the heap, because Helm's result shares maps between a chart and its subcharts, and templates can write into
//! them.

use std::rc::Rc;

use crate::chart::Chart;
use crate::plain::{copy_map, import_map};
use crate::value::{Ctx, MapRef, MapType, Value};
use crate::Failure;

const GLOBAL: &str = "global";

/// Whether nulls survive: `MergeValues` keeps them for a later coalescing, `CoalesceValues` lets them delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    Keep,
    Delete,
}

/// Warnings for whoever renders, in Helm's words.
pub(crate) type Warnings = Vec<String>;

/// Coalesces a copy of `values` with the values of the chart and of its dependencies.
pub(crate) fn coalesce_values(
    ctx: &mut Ctx,
    chart: &Chart,
    values: MapRef,
    nulls: Nulls,
    warnings: &mut Warnings,
) -> Result<MapRef, Failure> {
    let copied = copy_map(ctx, values, 0)?;
    coalesce(ctx, chart, copied, "", nulls, warnings)?;
    Ok(copied)
}

fn concat(a: &str, b: &str) -> String {
    if a.is_empty() { b.to_owned() } else { format!("{a}.{b}") }
}

fn coalesce(
    ctx: &mut Ctx,
    chart: &Chart,
    dest: MapRef,
    prefix: &str,
    nulls: Nulls,
    warnings: &mut Warnings,
) -> Result<(), Failure> {
    own_values(ctx, chart, dest, prefix, nulls, warnings)?;
    for sub in &chart.dependencies {
        let name = sub.name();
        let table = match ctx.heap.get(dest, name) {
            None => {
                let Value::Map(table) = ctx.dict(std::collections::BTreeMap::default())? else { continue };
                set(ctx, dest, name, Value::Map(table))?;
                table
            }
            Some(Value::Map(table)) => *table,
            Some(other) => {
                let shown = go_bool_verb(&other.clone());
                return Err(Failure::error(format!("type mismatch on {name}: {shown}")));
            }
        };
        let below = concat(prefix, chart.name());
        globals(ctx, table, dest, &below, warnings)?;
        coalesce(ctx, sub, table, &below, nulls, warnings)?;
    }
    Ok(())
}

/// What Helm's `%t` makes of a value that should be a table: its author's slip for `%T`, kept for equality.
fn go_bool_verb(value: &Value) -> String {
    match value {
        Value::Nil => "%!t(<nil>)".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => format!("%!t(int={value})"),
        Value::Int64(value) => format!("%!t(int64={value})"),
        Value::Float(value) => format!("%!t(float64={value})"),
        Value::Str(text) => format!("%!t(string={text})"),
        _ => "%!t([]interface {}=[...])".into(),
    }
}

fn set(ctx: &mut Ctx, map: MapRef, key: &str, value: Value) -> Result<(), Failure> {
    ctx.room(key.len().saturating_add(64))?;
    ctx.heap.map_mut(map).entries.insert(key.into(), value);
    Ok(())
}

fn entries(ctx: &mut Ctx, map: MapRef) -> Result<Vec<(Rc<str>, Value)>, Failure> {
    let count = ctx.heap.map(map).entries.len();
    ctx.step(count.saturating_add(1))?;
    Ok(ctx.heap.map(map).entries.iter().map(|(key, value)| (Rc::clone(key), value.clone())).collect())
}

/// Hands the globals of `source` on to `dest`, a subchart's values. What the parent has wins.
fn globals(
    ctx: &mut Ctx,
    dest: MapRef,
    source: MapRef,
    prefix: &str,
    warnings: &mut Warnings,
) -> Result<(), Failure> {
    let into = match ctx.heap.get(dest, GLOBAL) {
        None => ctx.map(MapType::Any, std::collections::BTreeMap::default())?,
        Some(Value::Map(map)) => *map,
        Some(_) => {
            warnings.push("skipping globals because destination global is not a table.".into());
            return Ok(());
        }
    };
    let from = match ctx.heap.get(source, GLOBAL) {
        None => Vec::new(),
        Some(Value::Map(map)) => {
            let map = *map;
            entries(ctx, map)?
        }
        Some(_) => {
            warnings.push("skipping globals because source global is not a table.".into());
            return Ok(());
        }
    };
    for (key, value) in from {
        let there = ctx.heap.get(into, &key).cloned();
        match (value, there) {
            (Value::Map(table), None) => {
                let copied = shallow(ctx, table)?;
                set(ctx, into, &key, Value::Map(copied))?;
            }
            (Value::Map(table), Some(Value::Map(existing))) => {
                let copied = shallow(ctx, table)?;
                tables(ctx, copied, existing, &concat(prefix, &key), Nulls::Keep, warnings, 0)?;
                set(ctx, into, &key, Value::Map(copied))?;
            }
            (Value::Map(_), Some(_)) => {
                warnings.push(format!("Conflict: cannot merge map onto non-map for {key:?}. Skipping."));
            }
            (_, Some(Value::Map(_))) => warnings.push(format!("key {key} is table. Skipping")),
            (value, _) => set(ctx, into, &key, value)?,
        }
    }
    set(ctx, dest, GLOBAL, Value::Map(into))
}

fn shallow(ctx: &mut Ctx, map: MapRef) -> Result<MapRef, Failure> {
    let entries = ctx.heap.map(map).entries.clone();
    ctx.map(MapType::Any, entries)
}

/// Adds the chart's own defaults to `dest`, which wins.
fn own_values(
    ctx: &mut Ctx,
    chart: &Chart,
    dest: MapRef,
    prefix: &str,
    nulls: Nulls,
    warnings: &mut Warnings,
) -> Result<(), Failure> {
    let below = concat(prefix, chart.name());
    let defaults = import_map(ctx, &chart.values, MapType::Any, 0)?;
    for (key, value) in entries(ctx, defaults)? {
        match ctx.heap.get(dest, &key).cloned() {
            Some(Value::Nil) if nulls == Nulls::Delete => {
                ctx.heap.map_mut(dest).entries.remove(&key);
            }
            Some(Value::Map(given)) => {
                let Value::Map(default) = value else {
                    if !matches!(value, Value::Nil) {
                        warnings.push(format!("skipped value for {below}.{key}: Not a table."));
                    }
                    continue;
                };
                let of_child = chart.dependencies.iter().any(|sub| sub.name() == key.as_ref());
                let nulls = if of_child { Nulls::Keep } else { nulls };
                if nulls == Nulls::Delete {
                    drop_nulls(ctx, default, 0)?;
                }
                tables(ctx, given, default, &concat(&below, &key), nulls, warnings, 0)?;
            }
            Some(_) => {}
            None => {
                if nulls == Nulls::Delete {
                    match value {
                        Value::Nil => continue,
                        Value::Map(table) => drop_nulls(ctx, table, 0)?,
                        _ => {}
                    }
                }
                set(ctx, dest, &key, value)?;
            }
        }
    }
    Ok(())
}

/// Removes nulls at every level, in place.
fn drop_nulls(ctx: &mut Ctx, map: MapRef, depth: u32) -> Result<(), Failure> {
    ctx.depth(depth)?;
    for (key, value) in entries(ctx, map)? {
        match value {
            Value::Nil => {
                ctx.heap.map_mut(map).entries.remove(&key);
            }
            Value::Map(table) => drop_nulls(ctx, table, depth.saturating_add(1))?,
            _ => {}
        }
    }
    Ok(())
}

/// Merges `source` into `dest`, which wins.
pub(crate) fn tables(
    ctx: &mut Ctx,
    dest: MapRef,
    source: MapRef,
    prefix: &str,
    nulls: Nulls,
    warnings: &mut Warnings,
    depth: u32,
) -> Result<(), Failure> {
    ctx.depth(depth)?;
    let given = entries(ctx, source)?;
    let had_value = |key: &Rc<str>| given.iter().any(|(k, value)| k == key && !matches!(value, Value::Nil));
    for (key, value) in entries(ctx, dest)? {
        if matches!(value, Value::Nil) {
            set(ctx, source, &key, Value::Nil)?;
        }
    }
    for (key, value) in entries(ctx, source)? {
        let full = concat(prefix, &key);
        match (ctx.heap.get(dest, &key).cloned(), value) {
            (Some(Value::Nil), _) if nulls == Nulls::Delete && had_value(&key) => {
                ctx.heap.map_mut(dest).entries.remove(&key);
            }
            (None, value) => set(ctx, dest, &key, value)?,
            (Some(Value::Map(to)), Value::Map(from)) => {
                tables(ctx, to, from, &full, nulls, warnings, depth.saturating_add(1))?;
            }
            (Some(_), Value::Map(_)) => {
                warnings.push(format!("cannot overwrite table with non table for {full}"));
            }
            (Some(Value::Map(_)), value) if !matches!(value, Value::Nil) => {
                warnings.push(format!("destination for {full} is a table. Ignoring non-table value"));
            }
            _ => {}
        }
    }
    Ok(())
}
