//! From what go-yaml decodes to what `encoding/json` makes of it: numbers become floats, and keys strings.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::data::{Data, Key};
use super::resolve::{int_to_float, uint_to_float};
use super::{number, syntax};
use crate::Failure;
use crate::json;
use crate::value::{Ctx, Value};

/// Converts decoded data into a value.
pub(super) fn to_value(ctx: &mut Ctx, data: Data) -> Result<Value, Failure> {
    let mut finite = true;
    let value = convert(ctx, data, &mut finite, 0)?;
    if !finite {
        // JSON has no name for this number, and writing it tells which it is.
        json::write(ctx, &value, json::Style { escape_html: false, pretty: false })?;
    }
    Ok(value)
}

fn convert(ctx: &mut Ctx, data: Data, finite: &mut bool, depth: u32) -> Result<Value, Failure> {
    ctx.step(1)?;
    ctx.depth(depth)?;
    Ok(match data {
        Data::Null => Value::Nil,
        Data::Bool(bool) => Value::Bool(bool),
        Data::Int(int) => Value::Float(int_to_float(int)),
        Data::Uint(int) => Value::Float(uint_to_float(int)),
        Data::Float(float) => {
            *finite &= float.is_finite();
            Value::Float(float)
        }
        Data::Str(text) => Value::Str(text),
        Data::Raw(bytes) => Value::Str(json::lossy(ctx, &bytes)?.into()),
        Data::List(items) => {
            ctx.room(items.len().saturating_mul(size_of::<Value>()))?;
            let items = items.into_iter().map(|item| convert(ctx, item, finite, depth + 1));
            Value::list(items.collect::<Result<_, _>>()?)
        }
        Data::Map(map) => {
            let mut entries = BTreeMap::new();
            let mut raw = Vec::new();
            for (key, data) in map {
                match key {
                    Key::Raw(bytes) => raw.push((bytes, convert(ctx, data, finite, depth + 1)?)),
                    Key::Null | Key::Uint(_) => return Err(unsupported(ctx, &key, &data)?),
                    _ => {
                        let value = convert(ctx, data, finite, depth + 1)?;
                        entries.insert(name(key), value);
                    }
                }
            }
            for (bytes, value) in raw {
                entries.insert(json::lossy(ctx, &bytes)?.into(), value);
            }
            ctx.dict(entries)?
        }
    })
}

fn name(key: Key) -> Rc<str> {
    match key {
        Key::Str(text) => text,
        Key::Bool(bool) => if bool { "true" } else { "false" }.into(),
        Key::Int(int) => int.to_string().into(),
        Key::Float(key) => match number::format_g32(key.float).as_str() {
            "+Inf" => ".inf".into(),
            "-Inf" => "-.inf".into(),
            "NaN" => ".nan".into(),
            text => text.into(),
        },
        Key::Null | Key::Uint(_) | Key::Raw(_) => "".into(),
    }
}

fn unsupported(ctx: &mut Ctx, key: &Key, data: &Data) -> Result<Failure, Failure> {
    let kind = if *key == Key::Null { "%!s(<nil>)" } else { "uint64" };
    let (mut name, mut value) = (String::new(), String::new());
    syntax::write_key(ctx, &mut name, key)?;
    syntax::write(ctx, &mut value, data, 0)?;
    Ok(Failure::error(format!("unsupported map key of type: {kind}, key: {name}, value: {value}")))
}
