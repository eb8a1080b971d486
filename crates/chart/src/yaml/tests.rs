//! Facts, and comparisons with Helm's libraries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod generate;
pub(crate) mod oracle;

use generate::Random;
use oracle::{Answer, compare, seeds};

use super::*;
use crate::Limits;
use crate::json::Style;

const COMPACT: Style = Style { escape_html: false, pretty: false };

fn context() -> Ctx {
    Ctx::new(Limits::default())
}

fn read_to_json(text: &[u8], strict: bool) -> Answer {
    let mut ctx = context();
    let value = read_bytes(&mut ctx, text, strict);
    value.and_then(|value| json::write(&mut ctx, &value, COMPACT)).into()
}

fn texts() -> Vec<Vec<u8>> {
    (0..seeds())
        .map(|seed| {
            let mut random = Random::new(seed);
            let mut text = generate::yaml(&mut random);
            if random.one_in(2) {
                generate::mutate(&mut random, &mut text);
            }
            text
        })
        .collect()
}

#[test]
fn reads_what_helm_reads() {
    compare("yaml", &texts(), |text| read_to_json(text, false));
}

#[test]
fn reads_strictly_what_helm_reads_strictly() {
    compare("yaml-strict", &texts(), |text| read_to_json(text, true));
}

#[test]
fn writes_what_helm_writes() {
    let values: Vec<Vec<u8>> = (0..seeds())
        .map(|seed| {
            let mut ctx = context();
            let value = generate::value(&mut Random::new(seed), &mut ctx, 0);
            json::write(&mut ctx, &value, COMPACT).unwrap().into_bytes()
        })
        .collect();
    // Seeds give the same values again, from which this side writes.
    let mut seed = 0;
    let values_again = std::cell::RefCell::new(&mut seed);
    compare("write", &values, |_| {
        let mut ctx = context();
        let mut seed = values_again.borrow_mut();
        let value = generate::value(&mut Random::new(**seed), &mut ctx, 0);
        **seed += 1;
        write(&mut ctx, &value).into()
    });
}

#[test]
fn survives_anything() {
    for seed in 0..seeds() * 2 {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut text: Vec<u8> = (0..random.below(60))
            .map(|_| match random.below(3) {
                0 => u8::try_from(random.below(256)).unwrap(),
                _ => b" \n\t:-?'\"\\{}[],#&*!|>%@`~.0123456789abcxue<"[random.below(43)],
            })
            .collect();
        if random.one_in(4) {
            text.splice(0..0, [[0xff, 0xfe], [0xfe, 0xff]][random.below(2)]);
        }
        let mut ctx = context();
        if let Ok(value) = read_bytes(&mut ctx, &text, false) {
            let _ = write(&mut ctx, &value);
        }
    }
}

fn json_of(text: &str) -> String {
    match read_to_json(text.as_bytes(), false) {
        Answer::Out(text) | Answer::Err(text) => text,
        Answer::None => String::new(),
    }
}

fn yaml_of(json_text: &str) -> String {
    from_json(&mut context(), json_text).unwrap()
}

#[test]
fn resolves_scalars_by_yaml_1_1() {
    let text = "[y, No, on, 0777, 0o17, 0b11, 1_000, 08, 1:20, 2001-01-01, .5, +1, ~, '1', !!str 1]";
    let json = r#"[true,false,true,511,15,3,1000,8,"1:20","2001-01-01",0.5,1,null,"1","1"]"#;
    assert_eq!(json_of(text), json);
}

#[test]
fn makes_strings_of_keys() {
    assert_eq!(json_of("{y: 1, 1.5: 2, 0x10: 3, 1e100: 4}"), r#"{".inf":4,"1.5":2,"16":3,"true":1}"#);
}

#[test]
fn merges_maps_where_they_stand() {
    let text = "x: &x {a: 1, b: 2}\ny:\n  a: 0\n  <<: *x\n  b: 3\n";
    assert_eq!(json_of(text), r#"{"x":{"a":1,"b":2},"y":{"a":1,"b":3}}"#);
}

#[test]
fn tells_what_is_wrong_and_where() {
    let cases = [
        ("a: b\nc: d\ne: f: g\n", "yaml: line 3: mapping values are not allowed in this context"),
        (
            "a: {{ .Values.x }}\n",
            r#"yaml: invalid map key: map[interface {}]interface {}{".Values.x":interface {}(nil)}"#,
        ),
        ("a: *b\n", "yaml: unknown anchor 'b' referenced"),
        ("a: &a [*a]\n", "yaml: anchor 'a' value contains itself"),
        ("a: .inf\n", "json: unsupported value: +Inf"),
        ("a: \u{7f}\n", "yaml: control characters are not allowed"),
        ("~: 1\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: 1"),
        ("a: !!int b\n", "yaml: cannot decode !!str `b` as a !!int"),
    ];
    for (text, problem) in cases {
        assert_eq!(json_of(text), format!("error converting YAML to JSON: {problem}"), "{text}");
    }
}

#[test]
fn refuses_keys_that_are_there_twice_if_strict() {
    let text = b"a: 1\na: 2\n";
    assert_eq!(read_to_json(text, false), Answer::Out(r#"{"a":2}"#.into()));
    let problem = "yaml: unmarshal errors:\n  line 2: key \"a\" already set in map";
    let problem = format!("error converting YAML to JSON: {problem}");
    assert_eq!(read_to_json(text, true), Answer::Err(problem));
}

#[test]
fn writes_block_style() {
    let json = r#"{"a10":[1,{"b":[],"c":{}}],"a2":"x\ny\n","a3":"yes","n":null,"f":1e21,"s":" x","t":"😀"}"#;
    let yaml = "a2: |\n  x\n  y\na3: \"yes\"\na10:\n- 1\n- b: []\n  c: {}\nf: 1e+21\n\"n\": null\ns: ' x'\nt: \"\\U0001F600\"\n";
    assert_eq!(yaml_of(json), yaml);
}

#[test]
fn ends_alias_bombs() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(json_of(&text).ends_with("document contains excessive aliasing"));
}

#[test]
fn bounds_nesting() {
    for text in ["[".repeat(100_000), "- ".repeat(100_000), "? ".repeat(100_000), "{a: ".repeat(50_000)] {
        let failure = read(&mut context(), &text).unwrap_err();
        assert!(matches!(failure, Failure::Limit { what: "depth", .. }), "{failure}");
    }
}

#[test]
fn bounds_what_is_made() {
    let mut ctx = Ctx::new(Limits { bytes: 10_000, ..Limits::default() });
    let text = "a: b\n".repeat(10_000);
    assert!(matches!(read(&mut ctx, &text), Err(Failure::Limit { what: "bytes", .. })));
    let mut ctx = Ctx::new(Limits { steps: 1_000, ..Limits::default() });
    assert!(matches!(read(&mut ctx, &text), Err(Failure::Limit { what: "steps", .. })));
}
