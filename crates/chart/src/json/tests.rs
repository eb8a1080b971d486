//! Facts, and comparisons with Go's `encoding/json`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use super::*;
use crate::Limits;
use crate::value::Ctx;
use crate::yaml::tests::generate::{self, Random};
use crate::yaml::tests::oracle::{Answer, compare, seeds};

const COMPACT: Style = Style { escape_html: false, pretty: false };
const HTML: Style = Style { escape_html: true, pretty: false };
const PRETTY: Style = Style { escape_html: true, pretty: true };

fn context() -> Ctx {
    Ctx::new(Limits::default())
}

fn again(text: &[u8], style: Style) -> Answer {
    let mut ctx = context();
    let text = std::str::from_utf8(text).unwrap();
    read(&mut ctx, text).and_then(|value| write(&mut ctx, &value, style)).into()
}

fn texts() -> Vec<Vec<u8>> {
    const NUMBERS: &[&str] = &[
        "1e999",
        "-1e999",
        "1e-999",
        "01",
        "-",
        "-0",
        "1.",
        "1.e1",
        ".5",
        "1e",
        "1e+",
        "1E5",
        "+1",
        "0.1e-7",
        "1e21",
        "123456789012345678901234567890",
        "1e20",
        "5e-324",
        "0.000001",
        "0.0000001",
        "NaN",
        "truE",
        "nul",
        "falsy",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ud83dx\"",
        "\"\\ude00\\ud83d\"",
        "\"\\ud83d\\u0041\"",
        "\"\\ud83d\\u00\"",
        "\"\\u12g4\"",
        "\"\\'\"",
        "\"\\/\"",
        "\"\n\"",
        "\"\u{7f}\u{2028}<>&\"",
        "\"é",
        "é",
        "'",
        "\"\\x\"",
        "\"\\\"",
        "// c",
    ];
    let text = |seed| {
        let mut random = Random::new(seed);
        let mut ctx = context();
        let value = generate::value(&mut random, &mut ctx, 0);
        let style = if random.one_in(2) { COMPACT } else { PRETTY };
        let mut text = write(&mut ctx, &value, style).unwrap().into_bytes();
        if random.one_in(3) {
            let number = random.pick(NUMBERS).bytes();
            let at = text.iter().position(|byte| b",:[".contains(byte)).map_or(0, |at| at + 1);
            text.splice(at..at, number.chain([b',']));
        }
        if random.one_in(8) {
            text = random.pick(NUMBERS).as_bytes().to_vec();
        }
        if random.one_in(2) {
            generate::mutate(&mut random, &mut text);
        }
        String::from_utf8_lossy(&text).into_owned().into_bytes()
    };
    (0..seeds()).map(text).collect()
}

#[test]
fn reads_and_writes_what_go_does() {
    compare("json", &texts(), |text| again(text, COMPACT));
}

#[test]
fn escapes_html_as_go_does() {
    compare("json-html", &texts(), |text| again(text, HTML));
}

#[test]
fn indents_as_go_does() {
    compare("json-pretty", &texts(), |text| again(text, PRETTY));
}

#[test]
fn writes_bytes_and_text_that_is_no_utf8() {
    let mut ctx = context();
    let list = Value::list(vec![
        Value::Bytes(b"\x00\xffab".as_slice().into()),
        Value::Raw(b"a\xff\xe2\x82b".as_slice().into()),
        Value::strings(["a"]),
    ]);
    let text = write(&mut ctx, &list, COMPACT).unwrap();
    assert_eq!(text, r#"["AP9hYg==","a\ufffd\ufffd\ufffdb",["a"]]"#);
}

#[test]
fn names_numbers_that_json_lacks() {
    for (float, name) in [(f64::NAN, "NaN"), (f64::INFINITY, "+Inf"), (f64::NEG_INFINITY, "-Inf")] {
        let failure = write(&mut context(), &Value::Float(float), COMPACT).unwrap_err();
        assert_eq!(failure.to_string(), format!("json: unsupported value: {name}"));
    }
}

#[test]
fn refuses_maps_that_hold_themselves() {
    let mut ctx = context();
    let map = ctx.map(MapType::Any, BTreeMap::new()).unwrap();
    let list = Value::list(vec![Value::Map(map)]);
    ctx.heap.map_mut(map).entries.insert("list".into(), list);
    let failure = write(&mut ctx, &Value::Map(map), COMPACT).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "json: unsupported value: encountered a cycle via map[string]interface {}"
    );
}

#[test]
fn writes_a_map_that_is_there_twice() {
    let mut ctx = context();
    let map = ctx.dict(BTreeMap::new()).unwrap();
    let list = Value::list(vec![map.clone(), map]);
    assert_eq!(write(&mut ctx, &list, COMPACT).unwrap(), "[{},{}]");
}

#[test]
fn bounds_nesting() {
    let text = "[".repeat(100_000);
    let failure = read(&mut context(), &text).unwrap_err();
    assert!(matches!(failure, Failure::Limit { what: "depth", .. }), "{failure}");
}

#[test]
fn tells_which_type_was_wanted() {
    assert_eq!(
        mismatch(&Value::list(Vec::new()), "map[string]interface {}").to_string(),
        "json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}
