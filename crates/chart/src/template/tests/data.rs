//! Random data, the same for the same seed.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::value::{Ctx, Element, List, MapType, Value};

/// The generator `SplitMix64`.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these, which are separated by `¦`.
    pub(super) fn word<'a>(&mut self, choices: &'a str) -> &'a str {
        let count = choices.split('¦').count();
        choices.split('¦').nth(self.below(count)).unwrap()
    }

    pub(super) fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

pub(super) const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "gé"];

/// A map of data, and its JSON for the oracle.
pub(super) fn data(random: &mut Random, ctx: &mut Ctx) -> (Value, String) {
    if random.one_in(60) {
        return value(random, ctx, 0);
    }
    map(random, ctx, 3, MapType::Any)
}

fn map(random: &mut Random, ctx: &mut Ctx, depth: usize, kind: MapType) -> (Value, String) {
    let mut entries = BTreeMap::new();
    let mut json = Vec::new();
    for key in KEYS {
        if random.one_in(3) {
            continue;
        }
        let (value, text) = if kind == MapType::Strings { string(random) } else { value(random, ctx, depth) };
        entries.insert(Rc::from(key), value);
        json.push(format!("{}:{text}", super::oracle::json_string(key)));
    }
    let json = format!("{{{}}}", json.join(","));
    let json = match kind {
        MapType::Any => json,
        MapType::Values => format!("{{\"$values\":{json}}}"),
        MapType::Strings => format!("{{\"$strings\":{json}}}"),
    };
    (Value::Map(ctx.map(kind, entries).unwrap()), json)
}

fn string(random: &mut Random) -> (Value, String) {
    let text = random.pick(&[
        "",
        "x",
        "hello",
        "a b",
        "d0",
        "t1",
        "<no value>",
        "{{ .a }}",
        "{{ include \"d1\" . }}",
        "{{ .b.c",
        "%d é\n",
        "7",
    ]);
    (Value::str(text), super::oracle::json_string(text))
}

fn value(random: &mut Random, ctx: &mut Ctx, depth: usize) -> (Value, String) {
    let choice = if depth == 0 { random.below(9) } else { random.below(18) };
    match choice {
        0 => (Value::Nil, "null".to_owned()),
        1 => (Value::Bool(true), "true".to_owned()),
        2 => (Value::Bool(false), "false".to_owned()),
        3 => {
            let number = [0.0, 1.0, -2.5, 3e21, 1e-7, 1_000_000.0][random.below(6)];
            (Value::Float(number), format!("{number:e}"))
        }
        4 => {
            let number = [0, 3, -1, 42][random.below(4)];
            (Value::Int(number), format!("{{\"$int\":{number}}}"))
        }
        5 => {
            let number = [0, 2, -7][random.below(3)];
            (Value::Int64(number), format!("{{\"$int64\":{number}}}"))
        }
        6..9 => string(random),
        9 => {
            let items: Vec<_> = (0..random.below(3)).map(|_| string(random)).collect();
            let json: Vec<_> = items.iter().map(|(_, json)| json.as_str()).collect();
            let json = format!("{{\"$strs\":[{}]}}", json.join(","));
            let items = items.into_iter().map(|(value, _)| value).collect();
            (Value::List(List { items, element: Element::Str }), json)
        }
        10 => {
            let json = ["[]", "[4]", "[0,5]"][random.below(3)];
            let items = match json {
                "[]" => vec![],
                "[4]" => vec![Value::Int(4)],
                _ => vec![Value::Int(0), Value::Int(5)],
            };
            let list = List { items: items.into(), element: Element::Int };
            (Value::List(list), format!("{{\"$ints\":{json}}}"))
        }
        11 => map(random, ctx, 0, MapType::Strings),
        12 => {
            let text = random.pick(&["", "ab"]);
            (Value::Bytes(text.as_bytes().into()), format!("{{\"$bytes\":\"{text}\"}}"))
        }
        13 => map(random, ctx, depth - 1, MapType::Values),
        14 | 15 => map(random, ctx, depth - 1, MapType::Any),
        _ => {
            let items: Vec<_> = (0..random.below(4)).map(|_| value(random, ctx, depth - 1)).collect();
            let json: Vec<_> = items.iter().map(|(_, json)| json.as_str()).collect();
            let json = format!("[{}]", json.join(","));
            (Value::list(items.into_iter().map(|(value, _)| value).collect()), json)
        }
    }
}
