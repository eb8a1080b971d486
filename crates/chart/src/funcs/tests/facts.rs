//! Single facts.

use super::super::find;
use super::limits;
use crate::Failure;
use crate::fmt::{display, sprintf};
use crate::value::{Ctx, Value};

fn call(ctx: &mut Ctx, name: &str, args: &[Value]) -> Result<Value, Failure> {
    let (_, function) = find(name).unwrap();
    function(ctx, args)
}

fn show(ctx: &mut Ctx, name: &str, args: &[Value]) -> String {
    match call(ctx, name, args) {
        Ok(value) => display(ctx, &value).unwrap(),
        Err(failure) => failure.to_string(),
    }
}

fn dict(ctx: &mut Ctx, pairs: &[(&str, Value)]) -> Value {
    let args: Vec<Value> = pairs.iter().flat_map(|(key, value)| [Value::str(key), value.clone()]).collect();
    call(ctx, "dict", &args).unwrap()
}

#[test]
fn names_are_those_of_helm() {
    for name in [
        "include",
        "tpl",
        "required",
        "and",
        "or",
        "call",
        "toYaml",
        "genCA",
        "getHostByName",
        "slice",
        "fail",
    ] {
        assert!(find(name).is_some(), "{name}");
    }
    for name in ["env", "expandenv", "", "nosuch"] {
        assert!(find(name).is_none(), "{name}");
    }
}

#[test]
fn monstrous_calls_end_at_once() {
    let int = Value::Int;
    let long = Value::str("a\n".repeat(100_000));
    let calls: &[(&str, Vec<Value>)] = &[
        ("repeat", vec![int(1_000_000_000), Value::str("x")]),
        ("until", vec![int(i64::MAX)]),
        ("untilStep", vec![int(i64::MIN), int(i64::MAX), int(1)]),
        ("seq", vec![int(1_000_000_000)]),
        ("indent", vec![int(1_000_000_000), Value::str("x")]),
        ("nindent", vec![int(100_000), long.clone()]),
        ("replace", vec![Value::str("a"), long.clone(), long.clone()]),
        ("regexReplaceAll", vec![Value::str("a"), long.clone(), long.clone()]),
        ("wrapWith", vec![int(1), long.clone(), long.clone()]),
        ("regexReplaceAll", vec![Value::str("a(?s).*?b|a"), long.clone(), Value::str("")]),
        ("printf", [vec![Value::str("%1000000d".repeat(1_000))], vec![int(1); 1_000]].concat()),
        ("mulf", vec![Value::Float(1.234_567_890_123); 20_000]),
    ];
    for (name, args) in calls {
        let result = call(&mut Ctx::new(limits()), name, args);
        assert!(matches!(result, Err(Failure::Limit { .. })), "{name}: {result:?}");
    }
}

#[test]
fn maps_that_hold_themselves_end_in_a_limit() {
    let mut ctx = Ctx::new(limits());
    let left = dict(&mut ctx, &[("a", Value::Int(1))]);
    let right = dict(&mut ctx, &[("a", Value::Int(1))]);
    for map in [&left, &right] {
        call(&mut ctx, "set", &[map.clone(), Value::str("self"), map.clone()]).unwrap();
    }
    for (name, args) in [
        ("print", vec![left.clone()]),
        ("toString", vec![left.clone()]),
        ("deepCopy", vec![left.clone()]),
        ("merge", vec![left.clone(), right.clone()]),
        ("mergeOverwrite", vec![left.clone(), right.clone()]),
    ] {
        let result = call(&mut ctx, name, &args);
        assert!(matches!(result, Err(Failure::Limit { what: "depth", .. })), "{name}: {result:?}");
    }
    // Go's comparison knows what it has met before.
    assert!(matches!(call(&mut ctx, "deepEqual", &[left, right]), Ok(Value::Bool(true))));
}

#[test]
fn merges_share_what_they_take_over() {
    let mut ctx = Ctx::new(limits());
    let inner = dict(&mut ctx, &[("a", Value::Int(1))]);
    let source = dict(&mut ctx, &[("inner", inner.clone())]);
    let target = dict(&mut ctx, &[]);
    let merged = call(&mut ctx, "merge", &[target.clone(), source]).unwrap();
    call(&mut ctx, "set", &[inner, Value::str("a"), Value::Int(2)]).unwrap();
    assert_eq!(display(&mut ctx, &merged).unwrap(), "map[inner:map[a:2]]");
    assert_eq!(display(&mut ctx, &target).unwrap(), "map[inner:map[a:2]]");
}

#[test]
fn errors_are_gos() {
    let mut ctx = Ctx::new(limits());
    let list = Value::list(vec![Value::Int(1)]);
    for (name, args, wanted) in [
        ("first", vec![Value::Nil], "runtime error: invalid memory address or nil pointer dereference"),
        ("first", vec![Value::str("x")], "Cannot find first on type string"),
        (
            "substr",
            vec![Value::Int(2), Value::Int(1), Value::str("abc")],
            "runtime error: slice bounds out of range [2:1]",
        ),
        ("div", vec![Value::Int(1), Value::Int(0)], "runtime error: integer divide by zero"),
        ("index", vec![list, Value::Int(7)], "index out of range: 7"),
        ("required", vec![Value::str("give it"), Value::Nil], "HELM_ERR_STARTgive itHELM_ERR_END"),
        ("set", vec![Value::Nil, Value::str("a"), Value::Nil], "assignment to entry in nil map"),
    ] {
        assert_eq!(show(&mut ctx, name, &args), wanted);
    }
}

#[test]
fn floats_print_as_gos() {
    let mut ctx = Ctx::new(limits());
    for (value, wanted) in
        [(1e6, "1e+06"), (123_456.0, "123456"), (0.1, "0.1"), (1e-5, "1e-05"), (-0.0, "-0"), (1e20, "1e+20")]
    {
        assert_eq!(display(&mut ctx, &Value::Float(value)).unwrap(), wanted);
    }
    let printed = sprintf(&mut ctx, b"%d|%s|%v|%!|%z", &[Value::str("hi"), Value::Nil, Value::Float(1e6)]);
    assert_eq!(printed.unwrap(), b"%!d(string=hi)|%!s(<nil>)|1e+06|%!!(MISSING)|%!z(MISSING)");
}

#[test]
fn bytes_that_are_no_text_stay() {
    let mut ctx = Ctx::new(limits());
    let cut = call(&mut ctx, "trunc", &[Value::Int(2), Value::str("aé")]).unwrap();
    assert!(matches!(&cut, Value::Raw(bytes) if bytes[..] == [b'a', 0xc3]), "{cut:?}");
    assert_eq!(show(&mut ctx, "b64enc", std::slice::from_ref(&cut)), "YcM=");
    assert_eq!(show(&mut ctx, "quote", &[cut]), "\"a\\xc3\"");
}
