//! Sprig's defaults and reflection.

use super::args;
use super::equal::deep_equal;
use super::table;
use crate::fmt::{kind, type_name};
use crate::value::{Ctx, Value};

table! {
    "default" (Any; Any) => |ctx, args| {
        let given = args.get(1).filter(|given| !empty(ctx, given));
        Ok(given.unwrap_or(args::any(args, 0)).clone())
    },
    "empty" (Any) => |ctx, args| Ok(Value::Bool(empty(ctx, args::any(args, 0)))),
    "coalesce" (; Any) => |ctx, args| {
        Ok(args.iter().find(|value| !empty(ctx, value)).cloned().unwrap_or(Value::Nil))
    },
    "all" (; Any) => |ctx, args| Ok(Value::Bool(!args.iter().any(|value| empty(ctx, value)))),
    "any" (; Any) => |ctx, args| Ok(Value::Bool(args.iter().any(|value| !empty(ctx, value)))),
    "ternary" (Any, Any, Bool) => |_, args| {
        Ok(args::any(args, usize::from(!args::truth(args, 2))).clone())
    },
    "typeOf" (Any) => |ctx, args| Ok(Value::str(type_name(&ctx.heap, args::any(args, 0)))),
    "typeIs" (Str, Any) => |ctx, args| {
        Ok(Value::Bool(args::text(args, 0) == type_name(&ctx.heap, args::any(args, 1))))
    },
    "typeIsLike" (Str, Any) => |ctx, args| {
        let name = type_name(&ctx.heap, args::any(args, 1));
        let wanted = args::text(args, 0);
        Ok(Value::Bool(wanted == name || name.strip_prefix('*') == Some(wanted)))
    },
    "kindOf" (Any) => |_, args| Ok(Value::str(kind(args::any(args, 0)))),
    "kindIs" (Str, Any) => |_, args| Ok(Value::Bool(args::text(args, 0) == kind(args::any(args, 1)))),
    "deepEqual" (Any, Any) => |ctx, args| {
        deep_equal(ctx, args::any(args, 0), args::any(args, 1)).map(Value::Bool)
    },
    "hello" () => |_, _| Ok(Value::str("Hello!")),
}

/// Whether sprig takes a value for unset.
pub(super) fn empty(ctx: &Ctx, value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::Bool(truth) => !truth,
        Value::Int(number) | Value::Int64(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::Str(text) => text.is_empty(),
        Value::Raw(bytes) | Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.items.is_empty(),
        Value::Map(map) => ctx.heap.map(*map).entries.is_empty(),
        Value::Host(host) => !host.truth(),
    }
}
