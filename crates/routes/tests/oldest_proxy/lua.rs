//! Which calls a Lua script makes, and of which object.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::known::{Kind, Known};

/// What a script is called with.
const STREAM: &str = "stream";
/// Words of Lua's own that may stand before a bracket.
const WORDS: [&str; 6] = ["if", "elseif", "while", "and", "or", "not"];

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"function\s+(envoy_on_\w+)\s*\((\w*)\)").unwrap());
static LOCAL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\s*local\s+([\w, ]+?)\s*=\s*(.+)$").unwrap());
static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z_][\w.]*").unwrap());
static FIRST_TEXT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\('([^']*)'").unwrap());

/// What is looked up for a script: each call, and each place of dynamic metadata. What nobody can tell the object of is
/// looked up under the variable's name, and so is unknown.
pub(crate) fn uses(known: &Known, script: &str) -> Vec<(Kind, String)> {
    let mut reader = Reader { known, objects: BTreeMap::new(), uses: Vec::new() };
    for line in script.lines() {
        if let Some(function) = FUNCTION.captures(line) {
            reader.objects = BTreeMap::from([(function[2].to_owned(), STREAM.to_owned())]);
        }
        // What the function is called is no call.
        let line = FUNCTION.replace(line, "");
        reader.calls(&line);
        if let Some(local) = LOCAL.captures(&line) {
            reader.assign(&local[1], &local[2]);
        }
    }
    reader.uses
}

struct Reader<'k> {
    known: &'k Known,
    /// The object that a variable holds; none for those that hold a plain value.
    objects: BTreeMap<String, String>,
    uses: Vec<(Kind, String)>,
}

impl Reader<'_> {
    /// Every call in a line.
    fn calls(&mut self, line: &str) {
        for name in NAME.find_iter(line) {
            let before = line[..name.start()].trim_end();
            // A method is read with its object, and what lies in quotes is no code.
            if before.ends_with(':') || before.matches('\'').count() % 2 == 1 {
                continue;
            }
            let after = &line[name.end()..];
            if after.starts_with(':') {
                self.chain(name.as_str(), after, true);
            } else if after.trim_start().starts_with('(') && !WORDS.contains(&name.as_str()) {
                self.uses.push((Kind::Lua, name.as_str().to_owned()));
            }
        }
    }

    /// What `variable:method(...):method(...)` returns, and what is left of the line behind it.
    fn chain<'l>(&mut self, variable: &str, mut rest: &'l str, note: bool) -> (String, &'l str) {
        let mut object = self.objects.get(variable).cloned().unwrap_or_else(|| variable.to_owned());
        while let Some(call) = rest.strip_prefix(':') {
            let end = call.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(call.len());
            let method = format!("{object}:{}", &call[..end]);
            let arguments = &call[end..];
            if note {
                let place = FIRST_TEXT.captures(arguments).filter(|_| object == "dynamic");
                self.uses.extend(place.map(|place| (Kind::Metadata, place[1].to_owned())));
                self.uses.push((Kind::Lua, method.clone()));
            }
            self.known.holds(Kind::Lua, &method).unwrap_or("-").clone_into(&mut object);
            rest = &arguments[closed(arguments)..];
        }
        (object, rest)
    }

    /// `local a, b = one, two`
    fn assign(&mut self, variables: &str, values: &str) {
        let mut values = split(values).into_iter();
        for variable in variables.split(',').map(str::trim) {
            self.objects.remove(variable);
            let Some(value) = values.next().map(str::trim) else { continue };
            let Some(name) = NAME.find(value).filter(|name| name.start() == 0) else { continue };
            let (object, rest) = self.chain(name.as_str(), &value[name.end()..], false);
            if object != "-" && rest.is_empty() && (self.objects.contains_key(name.as_str())) {
                self.objects.insert(variable.to_owned(), object);
            }
        }
    }
}

/// Where the bracket with which a text begins is closed.
fn closed(text: &str) -> usize {
    let (mut depth, mut quoted) = (0, false);
    for (place, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place + c.len_utf8();
        }
    }
    text.len()
}

/// Splits at commas outside brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut parts) = (0, false, 0, Vec::new());
    for (place, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '(' | '{' | '[' if !quoted => depth += 1,
            ')' | '}' | ']' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
