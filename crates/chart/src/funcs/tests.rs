//! Facts, and the functions compared with Go's by thousands of random calls.

mod draw;
mod facts;
mod oracle;

use super::{Entry, TABLES};
use crate::value::{Ctx, Element, MapType, Type, Value};
use crate::{Failure, Limits};
use draw::Draw;
use serde_json::{Value as Json, json};

/// Functions that are not compared: those refused or bound late, those whose order Go leaves open, those of other modules.
const LEFT_OUT: &[&str] = &[
    // Evaluated elsewhere.
    "and",
    "or",
    "call",
    "include",
    "tpl",
    // In the hands of the tests of JSON and YAML.
    "toYaml",
    "mustToYaml",
    "toYamlPretty",
    "fromYaml",
    "fromYamlArray",
    "toJson",
    "mustToJson",
    "toPrettyJson",
    "mustToPrettyJson",
    "toRawJson",
    "mustToRawJson",
    "fromJson",
    "fromJsonArray",
    "mustFromJson",
    // Go gives the values of a map in any order.
    "values",
];

fn names() -> Vec<Entry> {
    let refused: Vec<&str> = super::refused::TABLE.iter().map(|entry| entry.name).collect();
    let entries = TABLES.iter().flat_map(|table| table.iter());
    entries
        .filter(|entry| {
            !LEFT_OUT.contains(&entry.name)
                && (!refused.contains(&entry.name) || entry.name == "getHostByName")
        })
        .copied()
        .collect()
}

/// Whether an argument fits a parameter, as the evaluator decides it.
fn fits(ctx: &Ctx, value: &Value, wanted: Type) -> bool {
    match (wanted, value) {
        (Type::Any, _)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Int64, Value::Int64(_))
        | (Type::Float, Value::Float(_))
        | (Type::Str | Type::Raw, Value::Str(_))
        | (Type::Raw, Value::Raw(_))
        | (Type::Map | Type::StrMap | Type::List | Type::Strs, Value::Nil) => true,
        (Type::Map, Value::Map(map)) => ctx.heap.map(*map).kind != MapType::Strings,
        (Type::List, Value::List(list)) => matches!(list.element, Element::Any | Element::NilAny),
        (Type::Strs, Value::List(list)) => matches!(list.element, Element::Str | Element::NilStr),
        _ => false,
    }
}

fn all_fit(ctx: &Ctx, entry: &Entry, args: &[Value]) -> bool {
    let params = entry.signature.params;
    let enough = match entry.signature.variadic {
        Some(_) => args.len() >= params.len(),
        None => args.len() == params.len(),
    };
    enough
        && args.iter().enumerate().all(|(position, arg)| {
            let wanted = params.get(position).copied().or(entry.signature.variadic);
            wanted.is_some_and(|wanted| fits(ctx, arg, wanted))
        })
}

/// Small enough that a call with a monstrous argument ends at once.
fn limits() -> Limits {
    Limits { steps: 5_000_000, bytes: 50_000_000, ..Limits::default() }
}

#[test]
fn calls_equal_gos() {
    let Some(oracle) = oracle::build() else { return };
    let count = std::env::var("CHART_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(5_000);
    let seed = std::env::var("CHART_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let only = std::env::var("CHART_FUNC").ok();
    let entries: Vec<Entry> =
        names().into_iter().filter(|entry| only.as_ref().is_none_or(|only| only == entry.name)).collect();
    let mut draw = Draw::new(seed);
    let calls: Vec<(Entry, Json)> = (0..count)
        .map(|_| {
            // Formats are many: a fifth of the calls.
            let entry = match entries.iter().find(|entry| entry.name == "printf") {
                Some(printf) if draw.one_in(5) => *printf,
                _ => *draw.pick(&entries),
            };
            let args = draw.args(&entry);
            (entry, Json::Array(args))
        })
        .collect();
    let lines: Vec<Json> =
        calls.iter().map(|(entry, args)| json!({ "func": entry.name, "args": args })).collect();
    let answers = oracle::ask(&oracle, &lines);
    assert_eq!(answers.len(), calls.len(), "the oracle has an answer for each call");
    let (mut compared, mut refused) = (0, 0);
    let mut wrong = Vec::new();
    for ((entry, args), theirs) in calls.iter().zip(answers) {
        let mut ctx = Ctx::new(limits());
        let values: Vec<Value> =
            args.as_array().unwrap().iter().map(|arg| oracle::decode(&mut ctx, arg)).collect();
        let theirs_types = theirs["error"].as_str().is_some_and(|error| error.starts_with("TYPES "));
        let fit = all_fit(&ctx, entry, &values);
        let has_raw = values.iter().any(|value| matches!(value, Value::Raw(_)));
        if !fit && has_raw && !theirs_types {
            // Strings that are not UTF-8 fit fewer functions than in Go.
            continue;
        }
        let ours = if fit {
            match (entry.function)(&mut ctx, &values) {
                Ok(value) => {
                    let mut value = oracle::encode(&ctx, &value);
                    if entry.name == "keys" {
                        // Go has them in any order, and the oracle sorts those of all maps together.
                        value["v"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
                    }
                    json!({ "value": value })
                }
                // What only this renderer refuses: keys that are not UTF-8, and few regular expressions.
                Err(Failure::Error(message)) if message.starts_with("this renderer ") => {
                    refused += 1;
                    eprintln!("refused {}: {message}", entry.name);
                    continue;
                }
                Err(Failure::Error(message)) => json!({ "error": &*message }),
                Err(limit @ Failure::Limit { .. }) => {
                    wrong.push(format!("{} {args}: {limit}", entry.name));
                    continue;
                }
            }
        } else {
            json!("does not fit")
        };
        compared += 1;
        let equal = if fit { ours == theirs } else { theirs_types };
        if !equal {
            wrong.push(format!("{} {args}\n  ours   {ours}\n  theirs {theirs}", entry.name));
        }
    }
    let shown: Vec<&String> = wrong.iter().take(40).collect();
    for wrong in &shown {
        eprintln!("{wrong}");
    }
    eprintln!("{compared} calls compared, {} differ, {refused} refused", wrong.len());
    assert!(wrong.is_empty(), "{} of {compared} calls differ", wrong.len());
}
