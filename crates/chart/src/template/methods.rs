//! The methods of Helm's `common.Values`, which hide keys of their names.

use std::collections::BTreeMap;

use crate::Failure;
use crate::value::{Ctx, MapRef, MapType, Signature, Type, Value};

static NONE: Signature = Signature { params: &[], variadic: None };
static TABLE: Signature = Signature { params: &[Type::Str], variadic: None };
/// Nothing in a template is a writer, so that every call fails on its argument.
static ENCODE: Signature = Signature { params: &[Type::Host("io.Writer")], variadic: None };

/// The parameters of a method, if there is one of this name.
pub(super) fn signature(name: &str) -> Option<&'static Signature> {
    match name {
        "AsMap" | "YAML" => Some(&NONE),
        "Table" => Some(&TABLE),
        "Encode" => Some(&ENCODE),
        _ => None,
    }
}

/// Calls a method with arguments that fit its signature.
pub(super) fn call(ctx: &mut Ctx, values: MapRef, name: &str, args: &[Value]) -> Result<Value, Failure> {
    match (name, args) {
        ("AsMap", _) => retyped(ctx, values, MapType::Any),
        ("Table", [Value::Str(path)]) => {
            let mut table = values;
            for name in path.split('.') {
                ctx.step(1)?;
                table = match ctx.heap.get(table, name) {
                    Some(Value::Map(next)) if ctx.heap.map(*next).kind != MapType::Strings => *next,
                    _ => return Err(Failure::error(format!("{} is not a table", super::text::quote(name)))),
                };
            }
            retyped(ctx, table, MapType::Values)
        }
        ("YAML", _) => match (ctx.set.find)("toYaml") {
            // The function takes off the newline at the end, which the method does not.
            Some((_, to_yaml)) => match to_yaml(ctx, &[Value::Map(values)])? {
                Value::Str(text) => ctx.text(format!("{text}\n")),
                other => Ok(other),
            },
            None => Err(Failure::error("toYaml is missing")),
        },
        _ => Err(Failure::error(format!("common.Values has no method {name}"))),
    }
}

/// A map under another type. A copy, as a handle has only one: what is set in it is not set in the other.
fn retyped(ctx: &mut Ctx, map: MapRef, kind: MapType) -> Result<Value, Failure> {
    if ctx.heap.map(map).kind == kind {
        return Ok(Value::Map(map));
    }
    let entries: BTreeMap<_, _> = ctx.heap.map(map).entries.clone();
    ctx.step(entries.len())?;
    ctx.map(kind, entries).map(Value::Map)
}
