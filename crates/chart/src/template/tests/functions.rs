//! The functions that tests call; the oracle has the same.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::fmt::{quote, sprint, sprintf, type_name};
use crate::template::slot::Slot;
use crate::template::{Set, execute, execute_in, parse_in};
use crate::value::{Ctx, Function, Signature, Type, Value};
use crate::{Failure, Limits};

/// A context whose templates call the functions of this file.
pub(super) fn context() -> Ctx {
    let mut ctx = Ctx::new(Limits::default());
    ctx.set = Rc::new(Set { find, ..Set::default() });
    ctx
}

/// Runs a test on a stack of this size.
pub(super) fn on_stack(bytes: usize, test: fn()) {
    std::thread::Builder::new().stack_size(bytes).spawn(test).unwrap().join().unwrap();
}

macro_rules! takes {
    ($function:expr $(, $param:ident)*) => {
        Some((&Signature { params: &[$(Type::$param),*], variadic: None }, $function))
    };
    ($function:expr $(, $param:ident)*; $variadic:ident) => {
        Some((&Signature { params: &[$(Type::$param),*], variadic: Some(Type::$variadic) }, $function))
    };
}

pub(super) fn find(name: &str) -> Option<(&'static Signature, Function)> {
    match name {
        "include" => takes!(include, Str, Any),
        "tpl" => takes!(tpl, Str, Any),
        "str" => takes!(|_, args| Ok(Value::str(format!("s:{}", text(&args[0])))), Str),
        "num" => takes!(|_, args| Ok(Value::Int(int(&args[0]).wrapping_add(1))), Int),
        "big" => takes!(|_, args| Ok(Value::Int64(int(&args[0]).wrapping_add(1))), Int64),
        "flt" => takes!(|_, args| Ok(args[0].clone()), Float),
        "yes" => takes!(|_, args| Ok(Value::Bool(!matches!(args[0], Value::Bool(true)))), Bool),
        "bytes" => takes!(|ctx, args| length(ctx, args), Bytes),
        "keys" => takes!(keys, Map),
        "strmap" => takes!(nil_or_length, StrMap),
        "items" => takes!(nil_or_length, List),
        "strs" => takes!(nil_or_length, Strs),
        "id" => takes!(|_, args| Ok(args[0].clone()), Any),
        "two" => takes!(two, Str; Int),
        "cat" => takes!(cat; Str),
        "list" => takes!(|_, args| Ok(Value::list(args.to_vec())); Any),
        "dict" => takes!(dict; Any),
        "nothing" => takes!(|_, _| Ok(Value::Nil)),
        "default" => takes!(default, Any; Any),
        "set" => takes!(set, Map, Str, Any),
        "fail" => takes!(|_, args| Err(Failure::error(text(&args[0]))), Str),
        "not" => takes!(not, Any),
        "len" => takes!(length, Any),
        "print" => takes!(print; Any),
        "printf" => takes!(printf, Str; Any),
        _ => None,
    }
}

fn text(value: &Value) -> &str {
    let Value::Str(text) = value else { panic!("{value:?} is no string") };
    text
}

fn int(value: &Value) -> i64 {
    let (Value::Int(int) | Value::Int64(int)) = value else { panic!("{value:?} is no int") };
    *int
}

fn include(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    execute(ctx, text(&args[0]), args[1].clone()).map(Value::str)
}

fn tpl(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let source = text(&args[0]);
    let wrap = |words: &str, cause: Failure| match cause {
        Failure::Limit { .. } => cause,
        _ => Failure::exec(format!("{words} {}: {cause}", quote(source.as_bytes())), Some(cause)),
    };
    let (set, tree) = parse_in(ctx, source).map_err(|cause| wrap("cannot parse template", cause))?;
    let out = execute_in(ctx, set, &tree, args[1].clone())
        .map_err(|cause| wrap("error during tpl function execution for", cause))?;
    Ok(Value::str(out.replace("<no value>", "")))
}

fn keys(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let Value::Map(map) = args[0] else { return Ok(Value::str("")) };
    let keys: Vec<_> = ctx.heap.map(map).entries.keys().cloned().collect();
    Ok(Value::str(keys.join(",")))
}

fn nil_or_length(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    if matches!(args[0], Value::Nil) { Ok(Value::Int(0)) } else { length(ctx, args) }
}

fn length(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let length = match &args[0] {
        Value::Nil => return Err(Failure::error("len of nil pointer")),
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => ctx.heap.map(*map).entries.len(),
        other => return Err(Failure::error(format!("len of type {}", type_name(&ctx.heap, other)))),
    };
    Ok(Value::Int(i64::try_from(length).unwrap()))
}

fn two(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let rest = Value::Int(i64::try_from(args.len() - 1).unwrap());
    print(ctx, &[args[0].clone(), rest])
}

fn cat(_: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    Ok(Value::str(args.iter().map(text).collect::<Vec<_>>().join("+")))
}

fn dict(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut entries = BTreeMap::new();
    for pair in args.chunks(2) {
        let key = String::from_utf8(sprint(ctx, &pair[..1])?).unwrap();
        entries.insert(key.into(), pair.get(1).cloned().unwrap_or_else(|| Value::str("")));
    }
    ctx.dict(entries)
}

fn default(_: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    match args {
        [_, given, ..] if !matches!(given, Value::Nil) => Ok(given.clone()),
        _ => Ok(args[0].clone()),
    }
}

fn set(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let Value::Map(map) = args[0] else {
        return Err(Failure::error("assignment to entry in nil map"));
    };
    ctx.heap.map_mut(map).entries.insert(text(&args[1]).into(), args[2].clone());
    Ok(args[0].clone())
}

fn not(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    Ok(Value::Bool(!Slot::of(args[0].clone()).truth(&ctx.heap)))
}

fn print(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    Ok(Value::str(String::from_utf8(sprint(ctx, args)?).unwrap()))
}

fn printf(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    Ok(Value::str(String::from_utf8(sprintf(ctx, text(&args[0]).as_bytes(), &args[1..])?).unwrap()))
}
