//! Helm's functions, and sprig's of JSON.

use super::args;
use super::table;
use crate::Failure;
use crate::fmt::kind;
use crate::json::{self, Style};
use crate::value::{Ctx, Element, MapRef, MapType, Value};
use crate::yaml;

table! {
    "toYaml" (Any) => |ctx, args| swallow(to_yaml(ctx, args)),
    "mustToYaml" (Any) => |ctx, args| to_yaml(ctx, args),
    "toYamlPretty" (Any) => |_, _| Err(Failure::error("this renderer does not know toYamlPretty: use toYaml")),
    "fromYaml" (Str) => |ctx, args| {
        let read = yaml::read(ctx, args::text(args, 0));
        map_or_error(ctx, read, YAML)
    },
    "fromYamlArray" (Str) => |ctx, args| {
        let read = yaml::read(ctx, args::text(args, 0));
        list_or_error(ctx, read, YAML)
    },
    "toJson" (Any) => |ctx, args| swallow(to_json(ctx, args, true, false)),
    "mustToJson" (Any) => |ctx, args| to_json(ctx, args, true, false),
    "toPrettyJson" (Any) => |ctx, args| swallow(to_json(ctx, args, true, true)),
    "mustToPrettyJson" (Any) => |ctx, args| to_json(ctx, args, true, true),
    "toRawJson" (Any) => |ctx, args| to_json(ctx, args, false, false),
    "mustToRawJson" (Any) => |ctx, args| to_json(ctx, args, false, false),
    "fromJson" (Str) => |ctx, args| {
        let read = json::read(ctx, args::text(args, 0));
        map_or_error(ctx, read, "")
    },
    "fromJsonArray" (Str) => |ctx, args| {
        let read = json::read(ctx, args::text(args, 0));
        list_or_error(ctx, read, "")
    },
    "mustFromJson" (Str) => |ctx, args| json::read(ctx, args::text(args, 0)),
    "required" (Str, Any) => required,
    "fail" (Str) => |_, args| Err(warning(args::text(args, 0))),
    "lookup" (Str, Str, Str, Str) => |ctx, _| ctx.dict(std::collections::BTreeMap::new()),
    // Helm answers this without a look at the network unless it is told to.
    "getHostByName" (Str) => |_, _| Ok(Value::str("")),
}

/// What stands before the errors of Go's JSON that come from YAML.
const YAML: &str = "error unmarshaling JSON: while decoding JSON: ";

/// An error that Helm shows without where it comes from.
fn warning(message: &str) -> Failure {
    Failure::error(format!("HELM_ERR_START{message}HELM_ERR_END"))
}

fn required(_: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    match args::any(args, 1) {
        Value::Nil => Err(warning(args::text(args, 0))),
        Value::Str(text) if text.is_empty() => Err(warning(args::text(args, 0))),
        value => Ok(value.clone()),
    }
}

/// The empty string instead of an error; limits remain.
fn swallow(result: Result<Value, Failure>) -> Result<Value, Failure> {
    match result {
        Err(Failure::Error(_)) => Ok(Value::str("")),
        _ => result,
    }
}

fn to_yaml(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let text = yaml::write(ctx, args::any(args, 0))?;
    ctx.text(text.strip_suffix('\n').unwrap_or(&text))
}

fn to_json(ctx: &mut Ctx, args: &[Value], escape_html: bool, pretty: bool) -> Result<Value, Failure> {
    let text = json::write(ctx, args::any(args, 0), Style { escape_html, pretty })?;
    ctx.text(text)
}

/// What Go's JSON calls a value that does not fit.
fn json_name(value: &Value) -> &'static str {
    match kind(value) {
        "string" => "string",
        "bool" => "bool",
        "slice" => "array",
        "map" => "object",
        _ => "number",
    }
}

/// Helm's way with errors: an entry `Error` of the map that was asked for.
fn map_or_error(ctx: &mut Ctx, read: Result<Value, Failure>, before: &str) -> Result<Value, Failure> {
    let message = match read {
        Ok(map @ Value::Map(_)) => return Ok(map),
        // The null of JSON makes Go's map nil.
        Ok(Value::Nil) => return Ok(Value::Map(MapRef::NIL)),
        Ok(other) => format!(
            "{before}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_name(&other)
        ),
        Err(Failure::Error(message)) => message.to_string(),
        Err(limit) => return Err(limit),
    };
    let map = ctx.map(MapType::Any, std::collections::BTreeMap::new())?;
    let message = ctx.text(message)?;
    super::dicts::insert(ctx, map, "Error".into(), message)?;
    Ok(Value::Map(map))
}

/// Likewise: the error is the only item of the list.
fn list_or_error(ctx: &mut Ctx, read: Result<Value, Failure>, before: &str) -> Result<Value, Failure> {
    let message = match read {
        Ok(list @ Value::List(_)) => return Ok(list),
        Ok(Value::Nil) => return Ok(args::nil_slice(Element::NilAny)),
        Ok(other) => format!(
            "{before}json: cannot unmarshal {} into Go value of type []interface {{}}",
            json_name(&other)
        ),
        Err(Failure::Error(message)) => message.to_string(),
        Err(limit) => return Err(limit),
    };
    let message = ctx.text(message)?;
    args::slice(ctx, vec![message], Element::Any)
}
