//! The Go program that calls Go's functions, and its notation of values.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use serde_json::{Value as Json, json};

use crate::fmt::type_name;
use crate::value::{Ctx, Element, MapRef, MapType, Value};

/// Builds the program; `None` where there is no Go.
pub(super) fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/funcs");
    let program = std::env::temp_dir().join(format!("chart-oracle-funcs-{}", std::process::id()));
    let built = Command::new("go").arg("build").arg("-o").arg(&program).arg(".").current_dir(source).status();
    match built {
        Ok(status) => {
            assert!(status.success(), "go build of the oracle: {status}");
            Some(program)
        }
        Err(error) => {
            eprintln!("skipped, as there is no Go: {error}");
            None
        }
    }
}

/// The answers to calls, in their order.
pub(super) fn ask(program: &Path, calls: &[Json]) -> Vec<Json> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut input: Vec<u8> = Vec::new();
    for call in calls {
        writeln!(input, "{call}").unwrap();
    }
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    std::fs::remove_file(program).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |sum, place| (sum << 8) | u32::from(*chunk.get(place).unwrap_or(&0)));
        for place in 0..4 {
            let symbol = ALPHABET[usize::try_from((number >> (18 - 6 * place)) & 63).unwrap()];
            out.push(if place > chunk.len() { '=' } else { char::from(symbol) });
        }
    }
    out
}

fn unbase64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut buffer, mut bits) = (0_u32, 0);
    for symbol in text.bytes().filter(|&byte| byte != b'=') {
        let value = ALPHABET.iter().position(|&other| other == symbol).unwrap();
        buffer = ((buffer << 6) | u32::try_from(value).unwrap()) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((buffer >> bits) & 255).unwrap());
        }
    }
    out
}

/// The notation of bytes that are not UTF-8.
pub(super) fn raw(bytes: &[u8]) -> Json {
    json!({ "t": "raw", "v": base64(bytes) })
}

/// The value that a notation describes.
pub(super) fn decode(ctx: &mut Ctx, json: &Json) -> Value {
    let inner = &json["v"];
    let text = inner.as_str().unwrap_or_default();
    match json["t"].as_str().unwrap() {
        "nil" => Value::Nil,
        "bool" => Value::Bool(inner.as_bool().unwrap()),
        "int" => Value::Int(text.parse().unwrap()),
        "int64" => Value::Int64(text.parse().unwrap()),
        "float" => Value::Float(f64::from_bits(u64::from_str_radix(text, 16).unwrap())),
        "str" => Value::str(text),
        "raw" => Value::Raw(unbase64(text).into()),
        "bytes" => Value::Bytes(unbase64(text).into()),
        "list" => {
            let items = inner.as_array().unwrap().iter().map(|item| decode(ctx, item)).collect();
            Value::list(items)
        }
        "strs" => Value::strings(inner.as_array().unwrap().iter().map(|item| item.as_str().unwrap())),
        "ints" => {
            let items = inner.as_array().unwrap().iter().map(|item| Value::Int(item.as_i64().unwrap()));
            Value::List(crate::value::List { items: items.collect(), element: Element::Int })
        }
        "nillist" => super::super::args::nil_slice(Element::NilAny),
        "nilmap" => Value::Map(MapRef::NIL),
        kind @ ("map" | "strmap") => {
            let mut entries = BTreeMap::new();
            for (key, item) in inner.as_object().unwrap() {
                entries.insert(Rc::from(key.as_str()), decode(ctx, item));
            }
            let kind = if kind == "map" { MapType::Any } else { MapType::Strings };
            Value::Map(ctx.map(kind, entries).unwrap())
        }
        other => unreachable!("{other}"),
    }
}

/// The notation of a value.
pub(super) fn encode(ctx: &Ctx, value: &Value) -> Json {
    let of = |kind: &str, inner: Json| json!({ "t": kind, "v": inner });
    match value {
        Value::Nil => json!({ "t": "nil" }),
        Value::Bool(truth) => of("bool", json!(truth)),
        Value::Int(number) => of("int", json!(number.to_string())),
        Value::Int64(number) => of("int64", json!(number.to_string())),
        Value::Float(number) => {
            let bits = if number.is_nan() { 0x7ff8_0000_0000_0001 } else { number.to_bits() };
            of("float", json!(format!("{bits:x}")))
        }
        Value::Str(text) => of("str", json!(&**text)),
        Value::Raw(bytes) => raw(bytes),
        Value::Bytes(bytes) => of("bytes", json!(base64(bytes))),
        Value::List(list) => {
            let kind = match list.element {
                Element::Any => "list",
                Element::Str => "strs",
                Element::Int => {
                    let numbers = list.items.iter().map(|item| match item {
                        Value::Int(number) => json!(number),
                        _ => Json::Null,
                    });
                    return of("ints", Json::Array(numbers.collect()));
                }
                Element::Map => "maps",
                Element::List => "lists",
                Element::NilAny => return json!({ "t": "nillist" }),
                Element::NilStr => return json!({ "t": "nilstrs" }),
            };
            of(kind, Json::Array(list.items.iter().map(|item| encode(ctx, item)).collect()))
        }
        Value::Map(map) if map.is_nil() => json!({ "t": "nilmap" }),
        Value::Map(map) => {
            let map = ctx.heap.map(*map);
            let kind = if map.kind == MapType::Strings { "strmap" } else { "map" };
            let entries = map.entries.iter().map(|(key, value)| (key.to_string(), encode(ctx, value)));
            of(kind, Json::Object(entries.collect()))
        }
        Value::Host(host) => of("host", json!(format!("{} {}", type_name(&ctx.heap, value), host.display()))),
    }
}
