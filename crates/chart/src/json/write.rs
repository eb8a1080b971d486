//! `json.Marshal` and `json.MarshalIndent`.

use std::rc::Rc;

use super::type_name;
use crate::Failure;
use crate::value::{Ctx, MapRef, Value};
use crate::yaml::{base64, number};

/// How JSON is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether `<`, `>` and `&` are escaped, as `json.Marshal` does.
    pub(crate) escape_html: bool,
    /// Two spaces for each level and a line for each entry, as `json.MarshalIndent(v, "", "  ")` does.
    pub(crate) pretty: bool,
}

/// Writes JSON.
pub(crate) fn write(ctx: &mut Ctx, value: &Value, style: Style) -> Result<String, Failure> {
    let mut writer = Writer { ctx, style, out: String::new(), open: Vec::new() };
    writer.value(value, 0)?;
    Ok(writer.out)
}

/// Bytes as a string, each byte that is not UTF-8 as U+FFFD.
pub(crate) fn lossy(ctx: &mut Ctx, bytes: &[u8]) -> Result<String, Failure> {
    ctx.step(bytes.len())?;
    ctx.room(bytes.len().saturating_mul(3))?;
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Ok(out)
}

struct Writer<'a> {
    ctx: &'a mut Ctx,
    style: Style,
    out: String,
    /// The maps that are being written.
    open: Vec<MapRef>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: u32) -> Result<(), Failure> {
        self.ctx.step(1)?;
        self.ctx.depth(depth)?;
        match value {
            Value::Nil => self.push("null"),
            Value::Bool(bool) => self.push(if *bool { "true" } else { "false" }),
            Value::Int(int) | Value::Int64(int) => self.push(&int.to_string()),
            Value::Float(float) => {
                let text = format_float(*float)?;
                self.push(&text)
            }
            Value::Str(text) => self.string(text.as_bytes()),
            Value::Raw(bytes) => self.string(bytes),
            Value::Bytes(bytes) => {
                self.ctx.step(bytes.len())?;
                self.ctx.room(bytes.len())?;
                let text = base64::encode(bytes);
                self.push("\"")?;
                self.push(&text)?;
                self.push("\"")
            }
            Value::List(list) => {
                self.push("[")?;
                for (at, item) in list.items.iter().enumerate() {
                    self.separate(at, depth + 1)?;
                    self.value(item, depth + 1)?;
                }
                self.close("]", list.items.is_empty(), depth)
            }
            Value::Map(map) => self.map(*map, depth),
            Value::Host(host) => {
                let plain = host.clone().plain(self.ctx)?;
                self.value(&plain, depth + 1)
            }
        }
    }

    fn map(&mut self, handle: MapRef, depth: u32) -> Result<(), Failure> {
        let map = self.ctx.heap.map(handle);
        if self.open.contains(&handle) {
            let kind = type_name(map.kind);
            return Err(Failure::error(format!("json: unsupported value: encountered a cycle via {kind}")));
        }
        let entries: Vec<(Rc<str>, Value)> =
            map.entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        self.open.push(handle);
        self.push("{")?;
        for (at, (key, value)) in entries.iter().enumerate() {
            self.separate(at, depth + 1)?;
            self.string(key.as_bytes())?;
            self.push(if self.style.pretty { ": " } else { ":" })?;
            self.value(value, depth + 1)?;
        }
        self.open.pop();
        self.close("}", entries.is_empty(), depth)
    }

    fn push(&mut self, text: &str) -> Result<(), Failure> {
        self.ctx.room(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    /// What comes before an entry.
    fn separate(&mut self, at: usize, depth: u32) -> Result<(), Failure> {
        if at > 0 {
            self.push(",")?;
        }
        self.new_line(depth)
    }

    fn close(&mut self, bracket: &str, empty: bool, depth: u32) -> Result<(), Failure> {
        if !empty {
            self.new_line(depth)?;
        }
        self.push(bracket)
    }

    fn new_line(&mut self, depth: u32) -> Result<(), Failure> {
        if self.style.pretty {
            self.push("\n")?;
            for _ in 0..depth {
                self.push("  ")?;
            }
        }
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.ctx.step(bytes.len())?;
        self.ctx.room(bytes.len())?;
        self.out.push('"');
        for chunk in bytes.utf8_chunks() {
            let mut text = chunk.valid();
            while let Some(at) = text.find(|character| self.is_escaped(character)) {
                let (before, rest) = text.split_at(at);
                self.out.push_str(before);
                let mut rest = rest.chars();
                if let Some(character) = rest.next() {
                    self.escape(character)?;
                }
                text = rest.as_str();
            }
            self.out.push_str(text);
            for _ in chunk.invalid() {
                self.push("\\ufffd")?;
            }
        }
        self.out.push('"');
        Ok(())
    }

    fn is_escaped(&self, character: char) -> bool {
        match character {
            '\0'..='\x1f' | '"' | '\\' | '\u{2028}' | '\u{2029}' => true,
            '<' | '>' | '&' => self.style.escape_html,
            _ => false,
        }
    }

    fn escape(&mut self, character: char) -> Result<(), Failure> {
        match character {
            '"' => self.push("\\\""),
            '\\' => self.push("\\\\"),
            '\x08' => self.push("\\b"),
            '\x0c' => self.push("\\f"),
            '\n' => self.push("\\n"),
            '\r' => self.push("\\r"),
            '\t' => self.push("\\t"),
            _ => self.push(&format!("\\u{:04x}", u32::from(character))),
        }
    }
}

/// A float as JSON writes it: with an exponent only if it is very large or very small.
fn format_float(float: f64) -> Result<String, Failure> {
    if !float.is_finite() {
        let text = number::format_g(float);
        return Err(Failure::error(format!("json: unsupported value: {text}")));
    }
    let size = float.abs();
    let short = size == 0.0 || (1e-6..1e21).contains(&size);
    Ok(if short { float.to_string() } else { number::format_e(float, 1) })
}
