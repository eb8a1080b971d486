//! Random values and texts, the same for the same seed.

use std::collections::BTreeMap;

use crate::value::{Ctx, Value};

/// `splitmix64`.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Strings that mean something, or nearly do.
const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "abc",
    "key",
    "y",
    "n",
    "yes",
    "No",
    "on",
    "OFF",
    "true",
    "False",
    "null",
    "~",
    "Null",
    "NULL",
    "nUll",
    "0",
    "1",
    "-1",
    "+1",
    "007",
    "0o17",
    "0x1F",
    "0b101",
    "0b-1",
    "-0b11",
    "0b",
    "08",
    "1_000",
    "_1",
    "1_",
    "1.",
    ".5",
    ".5_0",
    "._5",
    "-.5",
    "+.5",
    "1e3",
    "1E+3",
    "1e999",
    "1e-999",
    ".5e999",
    "1.5e-7",
    "1000000",
    "12345678901234567890",
    "123456789012345678901234567890",
    "9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    ".inf",
    "-.Inf",
    "+.INF",
    ".nan",
    ".NaN",
    "NaN",
    "Inf",
    "-0",
    "0.0",
    "-0.0",
    "1:20",
    "190:20:30",
    "1:2:3.4",
    "-1:60",
    "2001-01-01",
    "2001-1-1",
    "2001-02-30",
    "2004-02-29",
    "2001-01-01T10:00:00Z",
    "2001-1-1t1:2:3.5+24:60",
    "2001-01-01 10:20:30",
    "2001-01-01   10:20:30.123456789123",
    "2001-01-01T10:20:30+25:00",
    "2001-01-01 10:20",
    "2001-13-01",
    "2001-01-01T24:00:00Z",
    "2001-01-01T1:2:3,5Z",
    "<<",
    "=",
    "-",
    "--",
    "---",
    "--- a",
    "...",
    "... b",
    "- a",
    "-a",
    "?",
    "? a",
    "?a",
    ":",
    ": a",
    "a: b",
    "a:b",
    "a:",
    ":a",
    "#",
    "# a",
    "a # b",
    "a#b",
    "&a",
    "*a",
    "!a",
    "!!str",
    "|",
    ">",
    "|-",
    "'",
    "''",
    "\"",
    "a'b",
    "a\"b",
    "%",
    "%a",
    "@a",
    "`a",
    "{",
    "}",
    "[",
    "]",
    ",",
    "a,b",
    "a, b",
    "{a",
    "a}",
    "[]",
    "{}",
    "{{ .Values.x }}",
    "\\",
    "a\\n",
    " a",
    "a ",
    " ",
    "  ",
    "a  b",
    "\ta",
    "a\tb",
    "a\t",
    "\n",
    "\n\n",
    "a\n",
    "a\n\n",
    "\na",
    "a\nb",
    "a\n b",
    "a \nb",
    " a\nb\n",
    "a\nb ",
    "\n\n a",
    "a\n\nb\n\n\n",
    "#a\n#b\n",
    "\r",
    "a\r\nb",
    "\u{85}",
    "a\u{85}b",
    "\u{a0}",
    "\u{2028}",
    "a\u{2028}b",
    "a\u{2029} b",
    "\u{feff}",
    "\u{feff}ab c",
    "a\u{feff}b",
    "\u{7f}",
    "\u{80}",
    "\u{9f}",
    "\u{1}",
    "\u{1b}",
    "\0",
    "\u{7}",
    "\u{fffe}",
    "\u{ffff}",
    "\u{fffd}",
    "\u{e000}",
    "\u{d7ff}",
    "\u{1f600}",
    "a \u{1f600} b",
    "é",
    "ß",
    "日本語",
    "ü: ö",
    "a1",
    "a2",
    "a10",
    "a01",
    "a001",
    "a0",
    "a1b",
    "a1b2",
    "a1b10",
    "1a",
    "10a",
    "2a",
    "a-1",
    "a_1",
    "a.b",
    "a/b",
    "Ab",
    "aB",
    "a٣",
    "a٣٤",
    "ä1",
    "ﬀ",
    "99999999999999999999a",
    "99999999999999999998a",
    "<a>&",
    "a & b",
    "\u{8}\u{c}",
    "app.kubernetes.io/name",
    "the quick brown fox jumps over the lazy dog and then it goes on and on until the line is long",
    "the quick  brown fox  jumps over the lazy dog: and then it goes on and on until the  line is  long",
    "a/very/long/path/without/any/blanks/in/it/that/cannot/be/folded/anywhere/as/there/are/no/blanks/at/all/in it",
];

pub(crate) fn string(random: &mut Random) -> String {
    let mut text = String::new();
    if random.one_in(200) {
        text.push_str(&"long ".repeat(random.below(400)));
    }
    let words = match random.below(8) {
        0..5 => 1,
        5 | 6 => 2 + random.below(3),
        _ => random.below(40),
    };
    for _ in 0..words {
        text.push_str(random.pick(WORDS));
        if random.one_in(3) {
            text.push_str(random.pick(&[" ", " ", "\n", "\n  ", ": ", "-", "  ", ".", "\t"]));
        }
    }
    text
}

#[allow(clippy::cast_precision_loss)]
fn number(random: &mut Random) -> Value {
    let bits = random.next();
    match random.below(7) {
        0 => Value::Int(i64::from_ne_bytes(bits.to_ne_bytes()) >> random.below(64)),
        1 => Value::Int64(i64::from_ne_bytes(bits.to_ne_bytes()) >> random.below(64)),
        2 => Value::Float((bits % 100) as f64),
        3 => Value::Float((bits % 100_000) as f64 / 1000.0),
        4 => Value::Float(10_f64.powi(i32::try_from(random.below(50)).unwrap() - 25)),
        5 => Value::Float((bits >> random.below(64)) as f64 * -1.0),
        _ => Value::Float(Some(f64::from_bits(bits)).filter(|float| float.is_finite()).unwrap_or(-0.0)),
    }
}

/// A value of JSON.
pub(crate) fn value(random: &mut Random, ctx: &mut Ctx, depth: usize) -> Value {
    let kinds = if depth > 4 { 7 } else { 12 };
    match random.below(kinds) {
        0 => Value::Nil,
        1 => Value::Bool(random.one_in(2)),
        2 => number(random),
        3..7 => Value::str(string(random)),
        7 | 8 => {
            let count = random.below(5);
            Value::list((0..count).map(|_| value(random, ctx, depth + 1)).collect())
        }
        _ => {
            let mut entries = BTreeMap::new();
            let count = random.below(if random.one_in(10) { 30 } else { 6 });
            for _ in 0..count {
                let key = if random.one_in(3) { string(random) } else { random.pick(WORDS).into() };
                entries.insert(key.into(), value(random, ctx, depth + 1));
            }
            ctx.dict(entries).unwrap()
        }
    }
}

/// A text that is YAML more often than not.
pub(crate) fn yaml(random: &mut Random) -> Vec<u8> {
    let mut out = String::new();
    if random.one_in(12) {
        out.push_str(random.pick(&[
            "%YAML 1.1\n---\n",
            "%YAML 1.2\n---\n",
            "%TAG !e! tag:yaml.org,2002:\n---\n",
            "---\n",
            "--- ",
            "\u{feff}",
            "...\n",
            "---\n---\n",
            "# a\n",
            "%FOO\n---\n",
            "%TAG ! tag:x,1:\n--- ",
            "%YAML 1.1 # c\n---\n",
            "%YAML 1.1\n%YAML 1.1\n---\n",
            "%TAG !a! !b\n%TAG !a! !c\n---\n",
            "%YAML 123.1\n---\n",
            "%YAML x\n---\n",
        ]));
    }
    let indent = if random.one_in(10) { random.below(3) } else { 0 };
    block(random, &mut out, indent, 0);
    if random.one_in(10) {
        out.push_str(random.pick(&[
            "---\na: b\n",
            "...\n",
            "...\n---\n",
            "--- |\n a\n",
            "# end",
            "\n\n",
            "---\n: [",
            "... a\n",
            "}",
            "  \t\n",
            "\t",
        ]));
    }
    out.into_bytes()
}

fn pad(out: &mut String, indent: usize) {
    out.push_str(&" ".repeat(indent));
}

/// A node that begins at an indentation on a line of its own.
fn block(random: &mut Random, out: &mut String, indent: usize, depth: usize) {
    match random.below(if depth > 3 { 2 } else { 8 }) {
        0 => {
            pad(out, indent);
            inline(random, out, indent, depth);
        }
        1 => {
            pad(out, indent);
            block_scalar(random, out, indent);
        }
        2 | 3 => {
            for _ in 0..=random.below(4) {
                comment(random, out, indent);
                pad(out, indent);
                out.push('-');
                out.push_str(random.pick(&[" ", " ", " ", "  ", "\t", ""]));
                child(random, out, indent, depth, true);
            }
        }
        _ => {
            for _ in 0..=random.below(5) {
                comment(random, out, indent);
                pad(out, indent);
                entry(random, out, indent, depth);
            }
        }
    }
}

fn comment(random: &mut Random, out: &mut String, indent: usize) {
    if random.one_in(12) {
        pad(out, random.below(indent + 3));
        out.push_str(random.pick(&["# comment\n", "#\n", "\n", "\t# tab\n", "\t\n"]));
    }
}

fn entry(random: &mut Random, out: &mut String, indent: usize, depth: usize) {
    match random.below(24) {
        0 => {
            out.push_str("? ");
            child(random, out, indent, depth, true);
            if !random.one_in(6) {
                pad(out, indent);
                out.push_str(": ");
                child(random, out, indent, depth, true);
            }
            return;
        }
        1 | 2 => out.push_str(random.pick(&["<<", "<<", "\"<<\"", "!!merge <<", "? <<\n"])),
        3 => flow(random, out, depth + 2),
        _ => {
            properties(random, out, 20);
            flow_scalar(random, out, true);
        }
    }
    out.push_str(random.pick(&[": ", ": ", ": ", ":", ":  ", " : ", ":\t"]));
    child(random, out, indent, depth, false);
}

/// What follows `-`, `?` or `:`.
fn child(random: &mut Random, out: &mut String, indent: usize, depth: usize, compact: bool) {
    properties(random, out, 12);
    match random.below(10) {
        0 | 1 if depth < 5 => {
            out.push('\n');
            let more = if random.one_in(8) { random.below(4) } else { 2 };
            block(random, out, indent + more, depth + 1);
        }
        2 if depth < 5 && !compact => {
            out.push('\n');
            for _ in 0..=random.below(3) {
                pad(out, indent);
                out.push_str("- ");
                child(random, out, indent, depth + 1, true);
            }
        }
        3 if depth < 5 && compact => {
            entry(random, out, indent + 2, depth + 1);
            for _ in 0..random.below(3) {
                pad(out, indent + 2);
                entry(random, out, indent + 2, depth + 1);
            }
        }
        4 => block_scalar(random, out, indent),
        5 => out.push_str(random.pick(&["\n", "\n", " # c\n", "\n\n"])),
        _ => inline(random, out, indent, depth),
    }
}

fn inline(random: &mut Random, out: &mut String, indent: usize, depth: usize) {
    properties(random, out, 12);
    match random.below(8) {
        0 | 1 => flow(random, out, depth),
        2 => {
            flow_scalar(random, out, false);
            out.push('\n');
            pad(out, indent + random.below(4));
            flow_scalar(random, out, false);
        }
        3 => {
            out.push('*');
            out.push_str(random.pick(&["a", "b", "c", "zz"]));
        }
        _ => flow_scalar(random, out, false),
    }
    out.push_str(
        random.pick(&["\n", "\n", "\n", " # c\n", "\r\n", " \n", "\n\n", "#x\n", "\u{85}", "\u{2028}", "\r"]),
    );
}

fn properties(random: &mut Random, out: &mut String, rarity: usize) {
    if random.one_in(rarity) {
        out.push_str(random.pick(&[
            "&a ",
            "&b ",
            "&c ",
            "!!str ",
            "!!int ",
            "!!float ",
            "!!bool ",
            "!!null ",
            "!!binary ",
            "! ",
            "!x ",
            "!!timestamp ",
            "!!map ",
            "!!seq ",
            "!e!str ",
            "!!str &a ",
            "&b !!int ",
            "!<tag:yaml.org,2002:str> ",
            "!<x",
            "!%41 ",
            "!%zz ",
            "!é ",
            "&é ",
            "&a&b ",
            "!!merge ",
            "!!set ",
            "!!",
            "!! ",
            "!a!b ",
            "&a\n",
            "!!str\n",
            "!!float 1 ",
            "!<> ",
        ]));
    }
}

fn flow(random: &mut Random, out: &mut String, depth: usize) {
    let sequence = random.one_in(2);
    out.push(if sequence { '[' } else { '{' });
    for at in 0..random.below(4) {
        if at > 0 {
            out.push_str(random.pick(&[", ", ", ", ",", " , ", ",\n  ", ",,", ",\t", ", # c\n "]));
        }
        let pair = if sequence { random.one_in(8) } else { !random.one_in(8) };
        if pair {
            out.push_str(random.pick(&["", "", "", "", "", "", "? ", "?", "<<: ", "*a : "]));
            if random.one_in(12) {
                flow(random, out, depth + 1);
            } else if !random.one_in(20) {
                flow_scalar(random, out, true);
            }
            out.push_str(random.pick(&[": ", ": ", ": ", ":", " : ", ":\n "]));
        }
        properties(random, out, 15);
        match random.below(8) {
            0 | 1 if depth < 5 => flow(random, out, depth + 1),
            2 => out.push_str(random.pick(&["", "*a", "*b", "*c", "? "])),
            _ => flow_scalar(random, out, false),
        }
    }
    out.push_str(random.pick(&["", "", "", "", "", " ", ",", "\n", "\n ", "\t"]));
    if !random.one_in(60) {
        out.push(if sequence { ']' } else { '}' });
    }
}

/// A plain or quoted scalar, on one line unless it is no key.
fn flow_scalar(random: &mut Random, out: &mut String, key: bool) {
    let mut text = if key || !random.one_in(4) { random.pick(WORDS).into() } else { string(random) };
    match random.below(if key { 10 } else { 7 }) {
        0 | 1 => {
            out.push('"');
            for character in text.chars() {
                match character {
                    '"' | '\\' => {
                        out.push('\\');
                        out.push(character);
                    }
                    '\n' if random.one_in(2) => out.push_str("\\n"),
                    ' ' if random.one_in(8) => {
                        out.push_str(
                            random.pick(&["\n", "\n  ", "\\\n ", " \n\n", "\\ ", "\\\n\\ ", "\n\t"]),
                        );
                    }
                    _ => out.push(character),
                }
                if random.one_in(30) {
                    out.push_str(random.pick(&[
                        "\\0",
                        "\\a",
                        "\\t",
                        "\\\t",
                        "\\e",
                        "\\N",
                        "\\_",
                        "\\L",
                        "\\P",
                        "\\x41",
                        "\\xe9",
                        "\\u00e9",
                        "\\u2028",
                        "\\U0001F600",
                        "\\ud800",
                        "\\U00110000",
                        "\\q",
                        "\\x4",
                        "\\/",
                        "\\'",
                        "\\\n",
                    ]));
                }
            }
            out.push('"');
        }
        2 => {
            out.push('\'');
            out.push_str(&text.replace('\'', "''").replace("  ", "\n"));
            out.push('\'');
        }
        _ => {
            if random.one_in(2) {
                text.retain(|character| character.is_alphanumeric() || ".-_+: ~".contains(character));
            }
            if key && text.is_empty() && !random.one_in(4) {
                text.push_str(random.pick(&["k", "l", "m", "1"]));
            }
            out.push_str(&text);
        }
    }
}

fn block_scalar(random: &mut Random, out: &mut String, indent: usize) {
    out.push_str(random.pick(&["|", "|", ">", ">"]));
    out.push_str(
        random.pick(&["", "", "", "-", "+", "2", "1", "-2", "2+", "+1", "0", "-0", "++", "22", "9"]),
    );
    out.push_str(random.pick(&["\n", "\n", "\n", " # c\n", " \n", "#c\n", " x\n", "\t\n", "\r\n"]));
    let more = if random.one_in(5) { random.below(5) } else { 2 };
    for _ in 0..random.below(5) {
        match random.below(8) {
            0 => out.push_str(random.pick(&["\n", "\n\n", " \n", "   \n", "\t\n", "\u{85}"])),
            1 => {
                pad(out, indent + more);
                out.push_str(random.pick(&[" ", "  ", "\t", "# ", "- ", ""]));
                out.push_str(random.pick(WORDS));
                out.push('\n');
            }
            _ => {
                pad(out, indent + more);
                out.push_str(random.pick(WORDS));
                out.push_str(random.pick(&["\n", "\n", "\n", "\r\n", "\n\n", " \n", "\u{2028}", ""]));
            }
        }
    }
}

/// Changes a few bytes of a text.
pub(crate) fn mutate(random: &mut Random, text: &mut Vec<u8>) {
    const PIECES: &[&str] = &[
        " ",
        "  ",
        "\n",
        "\t",
        ":",
        ": ",
        "-",
        "- ",
        "?",
        "? ",
        "'",
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        "#",
        " #",
        "&a",
        "*a",
        "!",
        "!!str ",
        "|",
        ">",
        "%",
        "@",
        "---\n",
        "...\n",
        "<<: ",
        "\r",
        "\u{85}",
        "\u{feff}",
        "\u{7f}",
        "é",
        "a",
        "1",
        "0",
        "x",
        "u",
        "e",
        ".",
        "~",
        "\u{1f600}",
        "\u{0}",
    ];
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        let end = text.len().min(at + 1 + random.below(4));
        match random.below(5) {
            0 => drop(text.drain(at..end)),
            1 => drop(text.splice(at..at, random.pick(PIECES).bytes())),
            2 => drop(text.splice(at..end, random.pick(PIECES).bytes())),
            3 => {
                let end = text.len().min(at + random.below(20));
                let copy = text[at..end].to_vec();
                drop(text.splice(at..at, copy));
            }
            _ => {
                if random.one_in(8) && at < text.len() {
                    text[at] = u8::try_from(random.below(256)).unwrap();
                } else if at + 1 < text.len() {
                    text.swap(at, at + 1);
                }
            }
        }
    }
}
