//! Which subcharts a render has, and what their parents take over from them: Helm's `ProcessDependencies`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use crate::chart::{Chart, Dependency};
use crate::coalesce::{Nulls, Warnings, coalesce_values, tables};
use crate::funcs::semver;
use crate::plain::{copy_map, export_map, import_map};
use crate::value::{Ctx, MapRef, MapType, Value};
use crate::{Failure, Values, fmt};

/// Removes what the values switch off, names what has an alias, and imports values into parents.
pub(crate) fn process(
    ctx: &mut Ctx,
    chart: &mut Chart,
    values: &Values,
    warnings: &mut Warnings,
) -> Result<(), Failure> {
    let values = import_map(ctx, values, MapType::Any, 0)?;
    enable(ctx, chart, values, "", warnings)?;
    import(ctx, chart, warnings)
}

fn enable(
    ctx: &mut Ctx,
    chart: &mut Chart,
    values: MapRef,
    path: &str,
    warnings: &mut Warnings,
) -> Result<(), Failure> {
    let Some(mut wanted) = chart.metadata.dependencies.take() else { return Ok(()) };
    let present = std::mem::take(&mut chart.dependencies);
    let compatible = |dependency: &Dependency, sub: &Chart| {
        sub.name() == dependency.name && semver::compatible(&dependency.version, &sub.metadata.version)
    };
    let declared =
        |sub: &Chart| wanted.iter().flatten().any(|dependency| compatible(dependency, sub));
    let mut charts: Vec<Chart> = present.iter().filter(|sub| !declared(sub)).cloned().collect();
    for dependency in wanted.iter_mut().flatten() {
        if let Some(found) = present.iter().find(|sub| compatible(dependency, sub)) {
            let mut sub = found.clone();
            if !dependency.alias.is_empty() {
                sub.metadata.name.clone_from(&dependency.alias);
            }
            charts.push(sub);
        }
        if !dependency.alias.is_empty() {
            dependency.name.clone_from(&dependency.alias);
        }
        dependency.enabled = true;
    }
    chart.dependencies = charts;
    let coalesced = coalesce_values(ctx, chart, values, Nulls::Delete, &mut Vec::new())?;
    for dependency in wanted.iter_mut().flatten() {
        by_tags(ctx, dependency, coalesced, warnings);
        by_condition(ctx, dependency, coalesced, path, warnings);
    }
    let off: BTreeSet<String> = wanted
        .iter()
        .flatten()
        .filter(|dependency| !dependency.enabled)
        .map(|dependency| dependency.name.clone())
        .collect();
    chart.dependencies.retain(|sub| !off.contains(sub.name()));
    wanted.retain(|dependency| dependency.as_ref().is_some_and(|dependency| !off.contains(&dependency.name)));
    for sub in &mut chart.dependencies {
        let below = format!("{path}{}.", sub.name());
        enable(ctx, sub, coalesced, &below, warnings)?;
    }
    chart.metadata.dependencies = Some(wanted);
    Ok(())
}

fn by_tags(ctx: &Ctx, dependency: &mut Dependency, values: MapRef, warnings: &mut Warnings) {
    let Some(Value::Map(tags)) = ctx.heap.get(values, "tags") else { return };
    let (mut on, mut off) = (false, false);
    for tag in &dependency.tags {
        match ctx.heap.get(*tags, tag) {
            Some(Value::Bool(true)) => on = true,
            Some(Value::Bool(false)) => off = true,
            Some(_) => warnings.push(format!("tag {tag} of chart {} is not a boolean", dependency.name)),
            None => {}
        }
    }
    dependency.enabled = on || !off;
}

fn by_condition(ctx: &Ctx, dependency: &mut Dependency, values: MapRef, path: &str, warnings: &mut Warnings) {
    for condition in dependency.condition.trim().split(',').filter(|condition| !condition.is_empty()) {
        match at(ctx, values, &format!("{path}{condition}")) {
            Some(Value::Bool(value)) => {
                dependency.enabled = *value;
                return;
            }
            Some(Value::Map(_)) | None => {}
            Some(_) => {
                warnings.push(format!("condition {condition} of chart {} is not a boolean", dependency.name));
            }
        }
    }
}

/// The value at a path of keys joined by dots.
fn at<'h>(ctx: &'h Ctx, values: MapRef, path: &str) -> Option<&'h Value> {
    let (mut map, mut keys) = (values, path.split('.').peekable());
    while let Some(key) = keys.next() {
        match ctx.heap.get(map, key)? {
            found if keys.peek().is_none() => return Some(found),
            Value::Map(next) => map = *next,
            _ => return None,
        }
    }
    None
}

fn import(ctx: &mut Ctx, chart: &mut Chart, warnings: &mut Warnings) -> Result<(), Failure> {
    for sub in &mut chart.dependencies {
        import(ctx, sub, warnings)?;
    }
    if chart.metadata.dependencies.is_none() {
        return Ok(());
    }
    let empty = ctx.map(MapType::Any, BTreeMap::new())?;
    let merged = coalesce_values(ctx, chart, empty, Nulls::Keep, &mut Vec::new())?;
    let imported = ctx.map(MapType::Any, BTreeMap::new())?;
    let mut wanted = chart.metadata.dependencies.take().unwrap_or_default();
    for dependency in wanted.iter_mut().flatten() {
        let mut resolved = Vec::new();
        for entry in std::mem::take(&mut dependency.import_values) {
            let Some((child, parent)) = paths(ctx, &entry)? else { continue };
            resolved.push(json!({"child": child, "parent": parent}));
            let Some(Value::Map(table)) = at(ctx, merged, &format!("{}.{child}", dependency.name)) else {
                warnings.push(format!("chart {} has no table {child} to import", dependency.name));
                continue;
            };
            let mut under = *table;
            if parent != "." {
                for key in parent.split('.').rev() {
                    under = ctx.map(MapType::Any, BTreeMap::from([(key.into(), Value::Map(under))]))?;
                }
            }
            tables(ctx, imported, under, "", Nulls::Keep, warnings, 0)?;
        }
        dependency.import_values = resolved;
    }
    chart.metadata.dependencies = Some(wanted);
    let own = copy_map(ctx, merged, 0)?;
    tables(ctx, own, imported, "", Nulls::Keep, warnings, 0)?;
    chart.values = export_map(ctx, own, 0)?;
    Ok(())
}

/// Where an entry of `import-values` takes from, and where to.
fn paths(ctx: &mut Ctx, entry: &Json) -> Result<Option<(String, String)>, Failure> {
    Ok(match entry {
        Json::String(name) => Some((format!("exports.{name}"), ".".to_owned())),
        Json::Object(entry) => {
            let mut shown = |key: &str| -> Result<String, Failure> {
                let value = crate::plain::import(ctx, entry.get(key).unwrap_or(&Json::Null), 0)?;
                fmt::display(ctx, &value)
            };
            Some((shown("child")?, shown("parent")?))
        }
        _ => None,
    })
}
