//! Random templates and data, the same for the same seed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use crate::value::{Ctx, Element, List, MapType, Value};

/// SplitMix64.
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

    pub(super) fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

const KEYS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "gé"];

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

/// What a template may be made of.
pub(super) struct Templates<'r> {
    random: &'r mut Random,
    /// How rarely something is wrong; 1 is always.
    rarely: usize,
    variables: Vec<String>,
    in_range: bool,
    position: usize,
    /// Templates from this number on may be called, so that calls end.
    callable: usize,
    text: String,
}

/// Files, of which the first is to be executed.
pub(super) fn sources(random: &mut Random) -> Vec<(String, String)> {
    let rarely = [5, 30, 200, 1000][random.below(4)];
    let count = 1 + random.below(3);
    let broken = if random.one_in(4) { random.below(count) } else { count };
    let mut sources = Vec::new();
    for position in 0..count {
        let mut templates = Templates {
            random: &mut *random,
            rarely,
            variables: vec!["$".to_owned()],
            in_range: false,
            position,
            callable: 10 * (position + 1),
            text: String::new(),
        };
        templates.file();
        let mut text = templates.text;
        if position == broken {
            text = break_somewhere(random, &text);
        }
        sources.push((format!("t{position}"), text));
    }
    sources
}

/// Changes a few characters.
fn break_somewhere(random: &mut Random, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(2) {
        let at = random.below(chars.len());
        match random.below(4) {
            0 if !chars.is_empty() => {
                chars.remove(at);
            }
            1 => {
                let token = random.pick(&[
                    "{{",
                    "}}",
                    "{{-",
                    "-}}",
                    "{{end}}",
                    "{{else}}",
                    "{{/*",
                    "*/",
                    "\"",
                    "`",
                    "'",
                    "(",
                    ")",
                    "|",
                    ".",
                    "$",
                    ",",
                    ":=",
                    "=",
                    "-",
                    "\n",
                    " ",
                    "@",
                    "é",
                    "\u{1}",
                    "0x",
                    "1_",
                    "if",
                    "nil",
                    "$x",
                    "{{break}}",
                    "#",
                    "世",
                ]);
                chars.splice(at..at, token.chars());
            }
            2 => {
                let end = (at + random.below(8)).min(chars.len());
                chars.drain(at..end);
            }
            _ => {
                let end = (at + random.below(12)).min(chars.len());
                let copy = chars[at..end].to_vec();
                let to = random.below(chars.len());
                chars.splice(to..to, copy);
            }
        }
    }
    chars.into_iter().collect()
}

impl Templates<'_> {
    fn wrong(&mut self) -> bool {
        self.random.one_in(self.rarely)
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn open(&mut self) {
        let delim = self.random.pick(&["{{", "{{ ", "{{- ", "{{-\n", "{{  "]);
        self.push(delim);
    }

    fn close(&mut self) {
        let delim = self.random.pick(&["}}", " }}", " -}}", "\n-}}", "\t}}"]);
        self.push(delim);
    }

    /// An action of this word alone.
    fn word(&mut self, word: &str) {
        self.open();
        self.push(word);
        self.close();
    }

    fn file(&mut self) {
        let position = self.position;
        for define in 0..self.random.below(3) {
            let number = 10 * (position + 1) + define;
            let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
            self.callable = number + 1;
            self.open();
            let name = if self.wrong() { "d".to_owned() } else { format!("d{number}") };
            let _ = write!(self.text, "define \"{name}\"");
            self.close();
            self.list(2);
            self.word("end");
            self.variables = outer;
            let between = self.random.pick(&["", "\n", " x "]);
            self.push(between);
        }
        self.callable = 10 * (position + 1);
        self.list(3);
    }

    fn list(&mut self, depth: usize) {
        let mark = self.variables.len();
        for _ in 0..self.random.below(if depth == 0 { 3 } else { 5 }) {
            self.node(depth);
        }
        self.variables.truncate(mark);
    }

    fn node(&mut self, depth: usize) {
        match self.random.below(if depth == 0 { 9 } else { 17 }) {
            0..3 => {
                let text = self.random.pick(&[" ", "\n", "x", "a: b\n", "  - ", "é\t", "{ }", "}}"]);
                self.push(text);
            }
            3..6 => {
                self.open();
                self.pipeline(2);
                self.close();
            }
            6 => self.declaration(),
            7 => {
                let comment = self.random.pick(&["{{/* c */}}", "{{- /* c\n */ -}}", "{{/**/ -}}"]);
                self.push(comment);
            }
            8 => self.leave_or_call(),
            9..12 => self.branch("if", depth),
            12 | 13 => self.branch("with", depth),
            14 | 15 => self.range(depth),
            _ => self.block(depth),
        }
    }

    fn declaration(&mut self) {
        self.open();
        if self.variables.len() > 1 && self.random.one_in(2) {
            let variable = self.variable();
            let _ = write!(self.text, "{variable} = ");
            self.pipeline(2);
        } else {
            let name = format!("$v{}", self.random.below(4));
            let _ = write!(self.text, "{name} := ");
            self.pipeline(2);
            self.variables.push(name);
        }
        self.close();
    }

    fn leave_or_call(&mut self) {
        if (self.in_range || self.wrong()) && self.random.one_in(2) {
            let word = self.random.pick(&["break", "continue"]);
            self.word(word);
            return;
        }
        self.open();
        let name = self.template_name();
        let _ = write!(self.text, "template {name}");
        if !self.random.one_in(4) {
            self.push(" ");
            self.pipeline(1);
        }
        self.close();
    }

    /// The name of a template that may be called here, quoted.
    fn template_name(&mut self) -> String {
        let number = self.callable + self.random.below(40usize.saturating_sub(self.callable).max(1));
        match self.random.below(3) {
            0 => {
                let file = (self.callable / 10).max(1);
                format!("\"t{}\"", file + self.random.below(2))
            }
            1 => format!("`d{}`", number.next_multiple_of(10)),
            _ => format!("\"d{number}\""),
        }
    }

    fn branch(&mut self, word: &str, depth: usize) {
        let mark = self.variables.len();
        self.open();
        self.push(word);
        self.push(" ");
        let mut declared = None;
        if self.random.one_in(6) {
            let name = format!("$w{}", self.random.below(3));
            let _ = write!(self.text, "{name} := ");
            declared = Some(name);
        }
        self.pipeline(2);
        self.variables.extend(declared);
        self.close();
        self.list(depth - 1);
        while self.random.one_in(4) {
            self.open();
            let word = if self.wrong() { "if" } else { word };
            let _ = write!(self.text, "else {word} ");
            self.pipeline(2);
            self.close();
            self.list(depth - 1);
        }
        if self.random.one_in(2) {
            self.word("else");
            self.list(depth - 1);
        }
        self.word("end");
        self.variables.truncate(mark);
    }

    fn range(&mut self, depth: usize) {
        let mark = self.variables.len();
        let outer = std::mem::replace(&mut self.in_range, true);
        self.open();
        self.push("range ");
        let mut declared = Vec::new();
        for _ in 0..[0, 0, 1, 2, 2][self.random.below(5)] {
            declared.push(format!("$r{}", self.random.below(4)));
        }
        if self.random.one_in(12) {
            declared = vec![self.variable(); declared.len().min(1)];
            self.push(&declared.join(", "));
            self.push(if declared.is_empty() { "" } else { " = " });
        } else if !declared.is_empty() {
            let comma = self.random.pick(&[", ", ",", " , "]);
            self.push(&declared.join(comma));
            self.push(" := ");
        }
        if self.random.one_in(2) {
            let collection = self.random.pick(&[
                "list 1 .a nil",
                "dict \"x\" .b \"y\" 2",
                ".",
                "$",
                "3",
                "list",
                "(list .c 2)",
            ]);
            self.push(collection);
        } else {
            self.pipeline(1);
        }
        self.close();
        self.variables.extend(declared);
        self.list(depth - 1);
        self.in_range = outer;
        if self.random.one_in(3) {
            self.word("else");
            self.list(depth - 1);
        }
        self.word("end");
        self.variables.truncate(mark);
    }

    fn block(&mut self, depth: usize) {
        self.open();
        let number = 10 * self.position + self.random.below(5);
        let _ = write!(self.text, "block \"b{number}\" ");
        self.pipeline(1);
        self.close();
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let in_range = std::mem::replace(&mut self.in_range, false);
        self.list(depth - 1);
        self.in_range = in_range;
        self.variables = outer;
        self.word("end");
    }

    fn variable(&mut self) -> String {
        if self.wrong() {
            return "$nosuch".to_owned();
        }
        self.variables[self.random.below(self.variables.len())].clone()
    }

    fn pipeline(&mut self, depth: usize) {
        self.command(depth);
        while self.random.one_in(5) {
            let pipe = self.random.pick(&[" | ", "|", " |"]);
            self.push(pipe);
            let (function, args) = self.function();
            self.push(function);
            for _ in 1..args {
                self.push(" ");
                self.operand(depth.saturating_sub(1));
            }
        }
    }

    /// A function, and how many arguments it usually has.
    fn function(&mut self) -> (&'static str, usize) {
        const SURE: [(&str, usize); 9] = [
            ("id", 1),
            ("list", 2),
            ("dict", 2),
            ("default", 2),
            ("not", 1),
            ("print", 2),
            ("and", 2),
            ("or", 2),
            ("nothing", 0),
        ];
        const UNSURE: [(&str, usize); 18] = [
            ("str", 1),
            ("num", 1),
            ("big", 1),
            ("flt", 1),
            ("yes", 1),
            ("bytes", 1),
            ("keys", 1),
            ("strmap", 1),
            ("items", 1),
            ("strs", 1),
            ("two", 2),
            ("cat", 2),
            ("set", 3),
            ("fail", 1),
            ("len", 1),
            ("call", 1),
            ("nosuch", 1),
            ("tpl", 2),
        ];
        let unsure = self.rarely < 50 || self.wrong();
        let all = if unsure && self.random.one_in(3) { &UNSURE[..] } else { &SURE[..] };
        let (name, args) = all[self.random.below(all.len())];
        (name, if self.wrong() { self.random.below(4) } else { args })
    }

    fn command(&mut self, depth: usize) {
        if self.random.one_in(2) {
            self.operand(depth);
            if self.wrong() {
                self.push(" ");
                self.operand(depth);
            }
            return;
        }
        if self.random.one_in(8) {
            let name = self.template_name();
            let _ = write!(self.text, "include {name} ");
            self.operand(depth);
            return;
        }
        let (function, args) = self.function();
        self.push(function);
        match function {
            "str" | "cat" | "two" | "fail" if self.random.one_in(2) => {
                let text = self.random.pick(&[" \"x\"", " `y\r\n`", " \"a\\tb\\u00e9\"", " .a"]);
                self.push(text);
            }
            "num" | "big" | "flt" if self.random.one_in(2) => {
                let number = self.number();
                self.push(" ");
                self.push(number);
            }
            "keys" | "items" if self.random.one_in(2) => {
                self.push(if function == "keys" { " (dict 1 2)" } else { " (list 1)" });
            }
            "tpl" if self.random.one_in(2) => {
                let text = self.random.pick(&[
                    " \"{{ .a }}x\"",
                    " `{{define \"q\"}}{{ . }}{{end}}{{ include \"q\" .b }}`",
                    " \" \"",
                    " `{{ tpl \"{{ .c.d.e }}\" . }}`",
                    " \"{{ if }}\"",
                    " `{{ include \"nope\" . }}` ",
                ]);
                self.push(text);
                self.push(" .");
            }
            _ => {
                for _ in 0..args {
                    self.push(" ");
                    self.operand(depth.saturating_sub(1));
                }
            }
        }
    }

    fn number(&mut self) -> &'static str {
        self.random.pick(&[
            "0",
            "1",
            "-1",
            "+3",
            "42",
            "017",
            "0o17",
            "0b101",
            "0x1F",
            "1_000",
            "1.5",
            "-2.50",
            "1e3",
            "1E-2",
            ".5",
            "0x1p4",
            "0x1.8p1",
            "'a'",
            "'\\n'",
            "'é'",
            "'\\x41'",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "1e20",
            "0x_1",
            "08",
            "099",
            "1__0",
            "1_",
            "99999999999999999999",
            "-0",
            "-0x1e",
            "0x1e",
            "3.0",
            "1e400",
            "''",
            "'ab'",
            "0x",
            "0b2",
            "1.2.3",
        ])
    }

    fn operand(&mut self, depth: usize) {
        match self.random.below(if depth == 0 { 10 } else { 14 }) {
            0..4 => {
                for _ in 0..=self.random.below(if self.rarely > 100 { 1 } else { 3 }) {
                    let key = KEYS[self.random.below(KEYS.len())];
                    let _ = write!(self.text, ".{key}");
                }
            }
            4 => self.push("."),
            5 => {
                let variable = self.variable();
                self.push(&variable);
                if self.random.one_in(3) {
                    let key = KEYS[self.random.below(KEYS.len())];
                    let _ = write!(self.text, ".{key}");
                }
            }
            6 => {
                let literal = self.random.pick(&[
                    "\"x\"",
                    "`r`",
                    "true",
                    "false",
                    "\"q\\\"\\\\\"",
                    "\"\"",
                    "\"{{\"",
                    "\"\\q\"",
                ]);
                let literal = if literal.ends_with("q\"") && !self.wrong() { "\"z\"" } else { literal };
                self.push(literal);
            }
            7 => {
                let number = self.number();
                let number = if self.rarely > 50 && !self.wrong() { "12" } else { number };
                self.push(number);
            }
            8 => {
                let sure = !self.wrong();
                self.push(if sure { "$" } else { "nil" });
            }
            9 => {
                let word =
                    self.random.pick(&["nothing", "list", "dict", "cat", "nothing.a", "dict.a", "$.a"]);
                self.push(word);
            }
            _ => {
                self.push("(");
                self.pipeline(depth - 1);
                self.push(")");
                if self.random.one_in(4) {
                    let key = KEYS[self.random.below(KEYS.len())];
                    let _ = write!(self.text, ".{key}");
                }
            }
        }
    }
}
