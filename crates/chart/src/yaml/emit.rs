//! go-yaml v2's emitter, for the block style in which it writes everything but empty collections.
//!
//! Its state is that of libyaml: whether the last thing written was white space, and whether only indentation is on the line
//! so far. Where lines break and whether sequences are indented follows from it.

use std::collections::BTreeMap;

use super::data::{Data, Key};
use super::number;
use super::order::sorted;
use super::resolve::is_plain_string;
use super::style::{Analysis, Text, analyze, is_base_60};
use crate::Failure;
use crate::value::Ctx;

/// The column after which lines are folded.
const WIDTH: usize = 80;
/// The longest key that is written on one line with its value.
const MAX_KEY: usize = 128;

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    Item,
    /// A key on one line with its value.
    SimpleKey,
    /// A value of a mapping, or a key after `?`.
    Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

struct Emitter<'a> {
    ctx: &'a mut Ctx,
    out: Vec<u8>,
    column: usize,
    /// `None` outside of all collections.
    indent: Option<usize>,
    whitespace: bool,
    indention: bool,
}

/// Writes a document.
pub(super) fn emit(ctx: &mut Ctx, data: &Data) -> Result<String, Failure> {
    let out = Vec::new();
    let mut emitter = Emitter { ctx, out, column: 0, indent: None, whitespace: true, indention: true };
    emitter.node(data, Place::Root, 0)?;
    emitter.write_indent();
    let out = emitter.out;
    Ok(match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

impl Emitter<'_> {
    fn node(&mut self, data: &Data, place: Place, depth: u32) -> Result<(), Failure> {
        self.ctx.step(1)?;
        self.ctx.depth(depth)?;
        match data {
            Data::Null => self.plain("null", place),
            Data::Bool(bool) => self.plain(if *bool { "true" } else { "false" }, place),
            Data::Int(int) => self.plain(&int.to_string(), place),
            Data::Uint(int) => self.plain(&int.to_string(), place),
            Data::Float(float) => {
                let text = number::format_g(*float);
                let text = match text.as_str() {
                    "+Inf" => ".inf",
                    "-Inf" => "-.inf",
                    "NaN" => ".nan",
                    text => text,
                };
                self.plain(text, place)
            }
            Data::Str(text) => self.string(text, place),
            Data::Raw(bytes) => self.string(&String::from_utf8_lossy(bytes), place),
            Data::List(items) if items.is_empty() => {
                self.indicator(b"[", true, true, false);
                self.indicator(b"]", false, false, false);
                Ok(())
            }
            Data::List(items) => self.list(items, place, depth),
            Data::Map(map) if map.is_empty() => {
                self.indicator(b"{", true, true, false);
                self.indicator(b"}", false, false, false);
                Ok(())
            }
            Data::Map(map) => self.map(map, depth),
        }
    }

    fn list(&mut self, items: &[Data], place: Place, depth: u32) -> Result<(), Failure> {
        let outer = self.indent;
        // Directly after its key, a sequence is indented as far as the key.
        let indentless = place == Place::Entry && !self.indention;
        self.indent = match outer {
            None => Some(0),
            Some(indent) if indentless => Some(indent),
            Some(indent) => Some(indent + 2),
        };
        for item in items {
            self.write_indent();
            self.indicator(b"-", true, false, true);
            self.node(item, Place::Item, depth + 1)?;
        }
        self.indent = outer;
        Ok(())
    }

    fn map(&mut self, map: &BTreeMap<Key, Data>, depth: u32) -> Result<(), Failure> {
        let outer = self.indent;
        self.indent = Some(outer.map_or(0, |indent| indent + 2));
        for (key, value) in sorted(self.ctx, map)? {
            self.write_indent();
            let multiline = analyze(Text(key.as_bytes())).multiline;
            if !multiline && key.len() <= MAX_KEY {
                self.string(key, Place::SimpleKey)?;
                self.indicator(b":", false, false, false);
            } else {
                self.indicator(b"?", true, false, true);
                self.string(key, Place::Entry)?;
                self.write_indent();
                self.indicator(b":", true, false, true);
            }
            self.node(value, Place::Entry, depth + 1)?;
        }
        self.indent = outer;
        Ok(())
    }

    /// A string, quoted if it would be something else without quotes.
    fn string(&mut self, text: &str, place: Place) -> Result<(), Failure> {
        let style = if text.contains('\n') {
            Style::Literal
        } else if is_plain_string(text) && !is_base_60(text.as_bytes()) {
            Style::Plain
        } else {
            Style::Double
        };
        self.scalar(text, style, place)
    }

    fn plain(&mut self, text: &str, place: Place) -> Result<(), Failure> {
        self.scalar(text, Style::Plain, place)
    }

    fn scalar(&mut self, text: &str, style: Style, place: Place) -> Result<(), Failure> {
        // A line of a block is indented as far as everything around it.
        let indent = self.indent.unwrap_or_default() + 2;
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        self.ctx.step(text.len())?;
        self.ctx.room(text.len().saturating_add(lines.saturating_mul(indent)))?;
        let text = Text(text.as_bytes());
        let style = select(&analyze(text), style, place == Place::SimpleKey);
        let outer = self.indent;
        self.indent = Some(outer.map_or(2, |indent| indent + 2));
        let folds = place != Place::SimpleKey;
        match style {
            Style::Plain => self.write_plain(text, folds),
            Style::Single => self.write_single_quoted(text, folds),
            Style::Double => self.write_double_quoted(text, folds),
            Style::Literal => self.write_literal(text),
        }
        self.indent = outer;
        Ok(())
    }

    fn put(&mut self, byte: u8) {
        self.out.push(byte);
        self.column += 1;
    }

    fn put_break(&mut self) {
        self.out.push(b'\n');
        self.column = 0;
    }

    /// Copies the character at a place of a text.
    fn copy(&mut self, text: Text, at: &mut usize) {
        self.out.extend_from_slice(text.character(*at));
        self.column += 1;
        *at += text.character(*at).len().max(1);
    }

    fn copy_break(&mut self, text: Text, at: &mut usize) {
        if text.byte(*at) == b'\n' {
            self.put_break();
            *at += 1;
        } else {
            self.copy(text, at);
            self.column = 0;
        }
    }

    fn indicator(&mut self, text: &[u8], spaced: bool, whitespace: bool, indention: bool) {
        if spaced && !self.whitespace {
            self.put(b' ');
        }
        self.out.extend_from_slice(text);
        self.column += text.len();
        self.whitespace = whitespace;
        self.indention = self.indention && indention;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or_default();
        let begun = self.column > indent || self.column == indent && !self.whitespace;
        if !self.indention || begun {
            self.put_break();
        }
        while self.column < indent {
            self.put(b' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn write_plain(&mut self, text: Text, folds: bool) {
        if !self.whitespace {
            self.put(b' ');
        }
        self.write_lines(text, folds, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_single_quoted(&mut self, text: Text, folds: bool) {
        self.indicator(b"'", true, false, false);
        self.write_lines(text, folds, true);
        self.indicator(b"'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    /// Writes plain or single-quoted text. Line breaks of the text become two, as one alone would be folded.
    fn write_lines(&mut self, text: Text, folds: bool, quoted: bool) {
        let (mut spaces, mut breaks) = (false, false);
        let mut at = 0;
        while at < text.0.len() {
            if text.byte(at) == b' ' {
                let within = at > 0 && at + 1 < text.0.len();
                let alone = !spaces && text.byte(at + 1) != b' ';
                if folds && alone && self.column > WIDTH && (within || !quoted) {
                    self.write_indent();
                    at += 1;
                } else {
                    self.copy(text, &mut at);
                }
                spaces = true;
            } else if text.is_break(at) {
                if !breaks && text.byte(at) == b'\n' {
                    self.put_break();
                }
                self.copy_break(text, &mut at);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if quoted && text.byte(at) == b'\'' {
                    self.put(b'\'');
                }
                self.copy(text, &mut at);
                self.indention = false;
                spaces = false;
                breaks = false;
            }
        }
    }

    fn write_double_quoted(&mut self, text: Text, folds: bool) {
        self.indicator(b"\"", true, false, false);
        // libyaml looks for a byte order mark at the begin of the text, whichever character it is at.
        let escapes_all = text.0.starts_with("\u{feff}".as_bytes());
        let mut spaces = false;
        let mut at = 0;
        while at < text.0.len() {
            let byte = text.byte(at);
            if escapes_all || !text.is_printable(at) || text.is_break(at) || matches!(byte, b'"' | b'\\') {
                self.write_escape(text.character(at));
                at += text.character(at).len().max(1);
                spaces = false;
            } else if byte == b' ' {
                let within = at > 0 && at + 1 < text.0.len();
                if folds && !spaces && self.column > WIDTH && within {
                    self.write_indent();
                    if text.byte(at + 1) == b' ' {
                        self.put(b'\\');
                    }
                    at += 1;
                } else {
                    self.copy(text, &mut at);
                }
                spaces = true;
            } else {
                self.copy(text, &mut at);
                spaces = false;
            }
        }
        self.indicator(b"\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_escape(&mut self, character: &[u8]) {
        let character = std::str::from_utf8(character).ok().and_then(|text| text.chars().next());
        let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
        let escape = match character {
            '\0' => "\\0".into(),
            '\x07' => "\\a".into(),
            '\x08' => "\\b".into(),
            '\t' => "\\t".into(),
            '\n' => "\\n".into(),
            '\x0b' => "\\v".into(),
            '\x0c' => "\\f".into(),
            '\r' => "\\r".into(),
            '\x1b' => "\\e".into(),
            '"' => "\\\"".into(),
            '\\' => "\\\\".into(),
            '\u{85}' => "\\N".into(),
            '\u{a0}' => "\\_".into(),
            '\u{2028}' => "\\L".into(),
            '\u{2029}' => "\\P".into(),
            '\0'..='\u{ff}' => format!("\\x{:02X}", u32::from(character)),
            '\0'..='\u{ffff}' => format!("\\u{:04X}", u32::from(character)),
            _ => format!("\\U{:08X}", u32::from(character)),
        };
        for byte in escape.bytes() {
            self.put(byte);
        }
    }

    fn write_literal(&mut self, text: Text) {
        self.indicator(b"|", true, false, false);
        if text.byte(0) == b' ' || text.is_break(0) {
            self.indicator(b"2", false, false, false);
        }
        let last = text.last_character(text.0.len());
        if !text.is_break(last) {
            self.indicator(b"-", false, false, false);
        } else if last == 0 || text.is_break(text.last_character(last)) {
            self.indicator(b"+", false, false, false);
        }
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        let mut at = 0;
        while at < text.0.len() {
            if text.is_break(at) {
                self.copy_break(text, &mut at);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.copy(text, &mut at);
                self.indention = false;
                breaks = false;
            }
        }
    }
}

/// The style that a scalar can be written in, if not that which is wanted.
fn select(analysis: &Analysis, wanted: Style, simple_key: bool) -> Style {
    let mut style = wanted;
    if simple_key && analysis.multiline {
        style = Style::Double;
    }
    if style == Style::Plain && !analysis.plain_allowed {
        style = Style::Single;
    }
    if style == Style::Single && !analysis.single_quoted_allowed {
        style = Style::Double;
    }
    if style == Style::Literal && (!analysis.block_allowed || simple_key) {
        style = Style::Double;
    }
    style
}
