//! The functions of Go's `text/template`.

use super::args;
use super::table;
use super::text::{html_escape, js_escape, query_escape};
use crate::Failure;
use crate::fmt;
use crate::value::{Ctx, MapType, Value};

table! {
    // The evaluator does these three itself, as they do not evaluate all of their arguments.
    "and" (Any; Any) => |_, _| Err(Failure::error("unreachable")),
    "or" (Any; Any) => |_, _| Err(Failure::error("unreachable")),
    "call" (Any; Any) => |_, _| Err(Failure::error("unreachable")),
    "not" (Any) => |ctx, args| Ok(Value::Bool(!truth(ctx, args::any(args, 0)))),
    "len" (Any) => len,
    "index" (Any; Any) => index,
    // `slice` is sprig's, which takes the place of Go's: see the table of lists.
    "print" (; Any) => |ctx, args| {
        let bytes = fmt::sprint(ctx, args)?;
        args::string(ctx, bytes)
    },
    "println" (; Any) => |ctx, args| {
        let bytes = fmt::sprintln(ctx, args)?;
        args::string(ctx, bytes)
    },
    "printf" (Raw; Any) => |ctx, args| {
        let bytes = fmt::sprintf(ctx, args::bytes(args, 0), args::rest(args, 1))?;
        args::string(ctx, bytes)
    },
    "html" (; Any) => |ctx, args| escape(ctx, args, html_escape),
    "js" (; Any) => |ctx, args| escape(ctx, args, js_escape),
    "urlquery" (; Any) => |ctx, args| escape(ctx, args, query_escape),
    "eq" (Any; Any) => |ctx, args| eq(ctx, args).map(Value::Bool),
    "ne" (Any, Any) => |ctx, args| eq(ctx, args).map(|equal| Value::Bool(!equal)),
    "lt" (Any, Any) => |ctx, args| lt(ctx, args).map(Value::Bool),
    "le" (Any, Any) => |ctx, args| le(ctx, args).map(Value::Bool),
    "gt" (Any, Any) => |ctx, args| le(ctx, args).map(|le| Value::Bool(!le)),
    "ge" (Any, Any) => |ctx, args| lt(ctx, args).map(|lt| Value::Bool(!lt)),
}

/// Whether `if` takes a value for true.
pub(crate) fn truth(ctx: &Ctx, value: &Value) -> bool {
    !super::logic::empty(ctx, value)
}

fn escape(ctx: &mut Ctx, args: &[Value], with: fn(&[u8]) -> Vec<u8>) -> Result<Value, Failure> {
    // Go's escapers print like `print`, but show `<no value>` of what is nil.
    let shown: Vec<Value> = args
        .iter()
        .map(|arg| if matches!(arg, Value::Nil) { Value::str("<no value>") } else { arg.clone() })
        .collect();
    let bytes = fmt::sprint(ctx, &shown)?;
    ctx.room(bytes.len().saturating_mul(6))?;
    args::string(ctx, with(&bytes))
}

fn len(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let value = args::any(args, 0);
    let length = match value {
        Value::Str(text) => text.len(),
        Value::Raw(bytes) | Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => ctx.heap.map(*map).entries.len(),
        Value::Host(host) if matches!(host.kind(), "map" | "slice") => {
            host.entries().unwrap_or_default().len()
        }
        Value::Nil => {
            return Err(Failure::error("reflect: call of reflect.Value.Type on zero Value"));
        }
        _ => {
            let name = type_name_of(ctx, value);
            return Err(Failure::error(format!("len of type {name}")));
        }
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut item = args::any(args, 0).clone();
    if matches!(item, Value::Nil) {
        return Err(Failure::error("index of untyped nil"));
    }
    let mut is_byte = false;
    for index in args::rest(args, 1) {
        ctx.step(1)?;
        if is_byte {
            return Err(Failure::error("can't index item of type uint8"));
        }
        is_byte = matches!(item, Value::Str(_) | Value::Raw(_) | Value::Bytes(_));
        item = match &item {
            Value::List(list) => {
                let position = position(ctx, index, list.items.len())?;
                list.items.get(position).cloned().ok_or_else(|| out_of_range("slice"))?
            }
            Value::Bytes(bytes) => byte(ctx, index, bytes, "slice")?,
            Value::Str(text) => byte(ctx, index, text.as_bytes(), "string")?,
            Value::Raw(bytes) => byte(ctx, index, bytes, "string")?,
            Value::Map(map) => {
                let key = match index {
                    Value::Str(key) => key.as_ref(),
                    // No key of a map is other than UTF-8.
                    Value::Raw(_) => "",
                    Value::Nil => return Err(Failure::error("value is nil; should be of type string")),
                    _ => {
                        let name = type_name_of(ctx, index);
                        return Err(Failure::error(format!("value has type {name}; should be string")));
                    }
                };
                let map = ctx.heap.map(*map);
                match map.entries.get(key).filter(|_| matches!(index, Value::Str(_))) {
                    Some(value) => value.clone(),
                    None if map.kind == MapType::Strings => Value::str(""),
                    None => Value::Nil,
                }
            }
            Value::Host(host) if host.kind() == "map" => {
                let Value::Str(key) = index else {
                    let name = type_name_of(ctx, index);
                    return Err(Failure::error(format!("value has type {name}; should be string")));
                };
                host.field(ctx, key).unwrap_or(Value::Nil)
            }
            // Go finds an interface without a value in it, which has no type.
            Value::Nil => return Err(Failure::error("index of nil pointer")),
            _ => {
                let name = type_name_of(ctx, &item);
                return Err(Failure::error(format!("can't index item of type {name}")));
            }
        };
    }
    Ok(item)
}

fn out_of_range(what: &str) -> Failure {
    Failure::error(format!("reflect: {what} index out of range"))
}

fn byte(ctx: &mut Ctx, index: &Value, bytes: &[u8], what: &str) -> Result<Value, Failure> {
    let position = position(ctx, index, bytes.len())?;
    bytes.get(position).map(|&byte| Value::Int(byte.into())).ok_or_else(|| out_of_range(what))
}

/// Checks an index; one past the end passes here, as in Go.
fn position(ctx: &Ctx, index: &Value, length: usize) -> Result<usize, Failure> {
    match index {
        Value::Int(number) | Value::Int64(number) => usize::try_from(*number)
            .ok()
            .filter(|&position| position <= length)
            .ok_or_else(|| Failure::error(format!("index out of range: {number}"))),
        Value::Nil => Err(Failure::error("cannot index slice/array with nil")),
        _ => {
            let name = type_name_of(ctx, index);
            Err(Failure::error(format!("cannot index slice/array with type {name}")))
        }
    }
}

fn type_name_of(ctx: &Ctx, value: &Value) -> &'static str {
    fmt::type_name(&ctx.heap, value)
}

/// What Go compares: values of different groups do not compare, and those without a group hardly.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    None,
    Bool,
    Int,
    Float,
    Str,
}

fn group(value: &Value) -> Group {
    match value {
        Value::Bool(_) => Group::Bool,
        Value::Int(_) | Value::Int64(_) => Group::Int,
        Value::Float(_) => Group::Float,
        Value::Str(_) | Value::Raw(_) => Group::Str,
        _ => Group::None,
    }
}

/// Whether the first argument equals one of the others.
fn eq(ctx: &mut Ctx, args: &[Value]) -> Result<bool, Failure> {
    let first = args::any(args, 0);
    let others = args::rest(args, 1);
    if others.is_empty() {
        return Err(Failure::error("missing argument for comparison"));
    }
    for other in others {
        ctx.step(1)?;
        if eq_two(ctx, first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn eq_two(ctx: &mut Ctx, left: &Value, right: &Value) -> Result<bool, Failure> {
    let (of_left, of_right) = (group(left), group(right));
    if of_left != of_right {
        if matches!(left, Value::Nil) || matches!(right, Value::Nil) {
            return Ok(false);
        }
        return Err(incompatible(ctx, left, right));
    }
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Float(left), Value::Float(right)) => {
            left.partial_cmp(right).is_some_and(std::cmp::Ordering::is_eq)
        }
        (Value::Int(left) | Value::Int64(left), Value::Int(right) | Value::Int64(right)) => left == right,
        (Value::Str(left), Value::Str(right)) => left == right,
        (Value::Str(_) | Value::Raw(_), _) => {
            args::bytes(std::slice::from_ref(left), 0) == args::bytes(std::slice::from_ref(right), 0)
        }
        _ => return eq_others(ctx, left, right),
    })
}

/// Compares values that are neither numbers nor strings: with nil, or of one comparable type.
fn eq_others(ctx: &mut Ctx, left: &Value, right: &Value) -> Result<bool, Failure> {
    let (of_left, of_right) = (fmt::kind(left), fmt::kind(right));
    let (is_nil, other_is_nil) = (is_nil(left), is_nil(right));
    if of_left != of_right && of_left != "invalid" && of_right != "invalid" {
        let (left_type, right_type) = (type_name_of(ctx, left), type_name_of(ctx, right));
        let (left, right) = (shown(ctx, b"%s", left)?, shown(ctx, b"%v", right)?);
        return Err(Failure::error(format!(
            "non-comparable types {left}: {left_type}, {right_type}: {right}"
        )));
    }
    if is_nil || other_is_nil {
        return Ok(is_nil == other_is_nil);
    }
    match (left, right) {
        (Value::Host(left), Value::Host(host)) if host.kind() == "ptr" => Ok(std::rc::Rc::ptr_eq(left, host)),
        _ => {
            let right_type = type_name_of(ctx, right);
            let right = shown(ctx, b"%s", right)?;
            Err(Failure::error(format!("non-comparable type {right}: {right_type}")))
        }
    }
}

fn is_nil(value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::List(list) => list.is_nil(),
        Value::Map(map) => map.is_nil(),
        _ => false,
    }
}

fn shown(ctx: &mut Ctx, format: &[u8], value: &Value) -> Result<String, Failure> {
    let bytes = fmt::sprintf(ctx, format, std::slice::from_ref(value))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn incompatible(ctx: &Ctx, left: &Value, right: &Value) -> Failure {
    let (left, right) = (type_name_of(ctx, left), type_name_of(ctx, right));
    Failure::error(format!("incompatible types for comparison: {left} and {right}"))
}

fn lt(ctx: &mut Ctx, args: &[Value]) -> Result<bool, Failure> {
    let (left, right) = (args::any(args, 0), args::any(args, 1));
    let (of_left, of_right) = (group(left), group(right));
    if of_left == Group::None || of_right == Group::None {
        return Err(Failure::error("invalid type for comparison"));
    }
    if of_left != of_right {
        return Err(incompatible(ctx, left, right));
    }
    Ok(match (left, right) {
        (Value::Float(left), Value::Float(right)) => left < right,
        (Value::Int(left) | Value::Int64(left), Value::Int(right) | Value::Int64(right)) => left < right,
        (Value::Bool(_), _) => return Err(Failure::error("invalid type for comparison")),
        _ => args::bytes(std::slice::from_ref(left), 0) < args::bytes(std::slice::from_ref(right), 0),
    })
}

fn le(ctx: &mut Ctx, args: &[Value]) -> Result<bool, Failure> {
    Ok(lt(ctx, args)? || eq(ctx, args)?)
}
