//! Random templates, the same for the same seed.

use std::fmt::Write as _;

use super::data::{KEYS, Random};

/// What a template may be made of.
pub(super) struct Templates<'r> {
    random: &'r mut Random,
    /// How rarely something is wrong; 1 is always.
    rarely: usize,
    variables: Vec<String>,
    in_range: bool,
    position: usize,
    /// How many blocks there are in this file.
    blocks: usize,
    /// Templates from this number on may be called, so that calls end.
    callable: usize,
    /// The templates that there are, and their numbers.
    known: &'r mut Vec<(usize, String)>,
    /// Whether dot is likely to have fields.
    dot_is_map: bool,
    text: String,
}

/// Files, of which the first is to be executed.
pub(super) fn sources(random: &mut Random) -> Vec<(String, String)> {
    let rarely = [5, 30, 300, 1000, 3000][random.below(5)];
    let count = 1 + random.below(3);
    let broken = if random.one_in(4) { random.below(count) } else { count };
    let (mut sources, mut known) = (Vec::new(), Vec::new());
    // The last first, as those before it call it.
    for position in (0..count).rev() {
        let mut templates = Templates {
            random: &mut *random,
            rarely,
            variables: vec!["$".to_owned()],
            in_range: false,
            position,
            blocks: 0,
            callable: 10 * (position + 1),
            known: &mut known,
            dot_is_map: true,
            text: String::new(),
        };
        templates.file();
        let mut text = templates.text;
        if position == broken {
            text = break_somewhere(random, &text);
        }
        let name = format!("t{position}");
        known.push((10 * position + 9, name.clone()));
        sources.insert(0, (name, text));
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
                let token = random.word("{{¦}}¦{{-¦-}}¦{{end}}¦{{else}}¦{{/*¦*/¦\"¦`¦'¦(¦)¦|¦.¦$¦,¦:=¦=¦-¦\n¦ ¦@¦é¦\u{1}¦0x¦1_¦if¦nil¦$x¦{{break}}¦#¦世");
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

    /// Whether templates should succeed, which they seldom do by chance.
    fn calm(&self) -> bool {
        self.rarely >= 300
    }

    /// A list for which dot is something else.
    fn list_of(&mut self, dot_is_map: bool, depth: usize) {
        let outer = std::mem::replace(&mut self.dot_is_map, dot_is_map);
        self.list(depth);
        self.dot_is_map = outer;
    }

    fn key(&mut self) {
        let key = KEYS[self.random.below(KEYS.len())];
        let _ = write!(self.text, ".{key}");
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn open(&mut self) {
        let delim = self.random.word("{{¦{{ ¦{{- ¦{{-\n¦{{  ");
        self.push(delim);
    }

    fn close(&mut self) {
        let delim = self.random.word("}}¦ }}¦ -}}¦\n-}}¦\t}}");
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
        for define in (0..self.random.below(3)).rev() {
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
            self.known.push((number, format!("d{number}")));
            let between = self.random.word("¦\n¦ x ");
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
                let text = self.random.word(" ¦\n¦x¦a: b\n¦  - ¦é\t¦{ }¦}}");
                self.push(text);
            }
            3..6 => {
                self.open();
                self.pipeline(2);
                self.close();
            }
            6 => self.declaration(),
            7 => {
                let comment = self.random.word("{{/* c */}}¦{{- /* c\n */ -}}¦{{/**/ -}}");
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
            let word = self.random.word("break¦continue");
            self.word(word);
            return;
        }
        let Some(name) = self.template_name() else { return self.push("none") };
        self.open();
        let _ = write!(self.text, "template {name}");
        if self.calm() && !self.wrong() {
            let data = self.random.word(" $¦ (dict \"a\" . \"b\" $.b)¦ (dict)");
            self.push(data);
        } else if !self.random.one_in(4) {
            self.push(" ");
            self.pipeline(1);
        }
        self.close();
    }

    /// The name of a template that may be called here, quoted.
    fn template_name(&mut self) -> Option<String> {
        if self.wrong() {
            return Some("\"nosuch\"".to_owned());
        }
        let names: Vec<_> = self.known.iter().filter(|(number, _)| *number >= self.callable).collect();
        let (_, name) = names.get(self.random.below(names.len()))?;
        Some(if self.random.one_in(2) { format!("\"{name}\"") } else { format!("`{name}`") })
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
        let dot_is_map = self.dot_is_map && word != "with";
        self.list_of(dot_is_map, depth - 1);
        while self.random.one_in(4) {
            self.open();
            let word = if self.wrong() { "if" } else { word };
            let _ = write!(self.text, "else {word} ");
            self.pipeline(2);
            self.close();
            self.list_of(dot_is_map, depth - 1);
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
            let comma = self.random.word(", ¦,¦ , ");
            self.push(&declared.join(comma));
            self.push(" := ");
        }
        if self.random.one_in(2) || self.calm() && !self.wrong() {
            let collection = self
                .random
                .word("list 1 $.a nil¦dict \"x\" $.b \"y\" 2¦$¦list¦(list $.c 2)¦list $ $ | default 3");
            self.push(collection);
        } else {
            self.pipeline(1);
        }
        self.close();
        self.variables.extend(declared);
        self.list_of(false, depth - 1);
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
        self.blocks += 1;
        let number = if self.wrong() { 1 } else { self.blocks };
        let number = 100 * self.position + number;
        let _ = write!(self.text, "block \"b{number}\" ");
        if self.calm() {
            self.push("$");
        } else {
            self.pipeline(1);
        }
        self.close();
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let in_range = std::mem::replace(&mut self.in_range, false);
        self.list_of(true, depth - 1);
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
            let pipe = self.random.word(" | ¦|¦ |");
            self.push(pipe);
            let (function, args) = self.function();
            let (function, args) = if args == 0 && !self.wrong() { ("id", 1) } else { (function, args) };
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
        const UNSURE: [(&str, usize); 17] = [
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
            ("tpl", 2),
        ];
        if self.wrong() && self.random.one_in(4) {
            return ("nosuch", 1);
        }
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
        if self.random.one_in(8)
            && (!self.calm() || self.known.iter().any(|(number, _)| *number >= self.callable))
        {
            let name = self.template_name().unwrap_or_else(|| "\"nosuch\"".to_owned());
            let _ = write!(self.text, "include {name} ");
            if self.calm() {
                self.push("$");
            } else {
                self.operand(depth);
            }
            return;
        }
        let (function, args) = self.function();
        self.push(function);
        match function {
            "str" | "cat" | "two" | "fail" if self.random.one_in(2) => {
                let text = self.random.word(" \"x\"¦ `y\r\n`¦ \"a\\tb\\u00e9\"¦ .a");
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
                let text = self.random.word(" \"{{ .a }}x\"¦ `{{define \"q\"}}{{ . }}{{end}}{{ include \"q\" .b }}`¦ \" \"¦ `{{ tpl \"{{ .c.d.e }}\" . }}`¦ \"{{ if }}\"¦ `{{ include \"nope\" . }}` ");
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
        self.random.word("0¦1¦-1¦+3¦42¦017¦0o17¦0b101¦0x1F¦1_000¦1.5¦-2.50¦1e3¦1E-2¦.5¦0x1p4¦0x1.8p1¦'a'¦'\\n'¦'é'¦'\\x41'¦9223372036854775807¦9223372036854775808¦-9223372036854775808¦1e20¦0x_1¦08¦099¦1__0¦1_¦99999999999999999999¦-0¦-0x1e¦0x1e¦3.0¦1e400¦''¦'ab'¦0x¦0b2¦1.2.3")
    }

    fn operand(&mut self, depth: usize) {
        match self.random.below(if depth == 0 { 10 } else { 14 }) {
            0..4 => {
                if self.calm() && !self.dot_is_map {
                    self.push("$");
                }
                let more = self.random.below(if self.calm() { 1 } else { 3 });
                for _ in 0..=more {
                    self.key();
                }
            }
            4 => self.push("."),
            5 => {
                let variable = self.variable();
                self.push(&variable);
                if self.random.one_in(3) && (variable == "$" || !self.calm()) {
                    self.key();
                }
            }
            6 => {
                let literal = self.random.word("\"x\"¦`r`¦true¦false¦\"q\\\"\\\\\"¦\"\"¦\"{{\"¦\"\\q\"");
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
                let word = self.random.word("nothing¦list¦dict¦cat¦nothing.a¦dict.a¦$.a");
                self.push(word);
            }
            _ => {
                self.push("(");
                self.pipeline(depth - 1);
                self.push(")");
                if self.random.one_in(if self.calm() { 40 } else { 4 }) {
                    self.key();
                }
            }
        }
    }
}
