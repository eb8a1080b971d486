//! `json.Unmarshal` into an `interface{}`.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::Failure;
use crate::value::{Ctx, Value};
use crate::yaml::escape;

/// Reads JSON into an `interface{}`.
pub(crate) fn read(ctx: &mut Ctx, text: &str) -> Result<Value, Failure> {
    ctx.step(text.len())?;
    let mut reader = Reader { ctx, text, at: 0, out_of_range: None };
    reader.skip_space();
    let value = reader.value(0)?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.unexpected("after top-level value"));
    }
    match reader.out_of_range {
        Some(failure) => Err(failure),
        None => Ok(value),
    }
}

struct Reader<'a> {
    ctx: &'a mut Ctx,
    text: &'a str,
    at: usize,
    /// The first number that is too large. Go tells of it only if the syntax is right to the end.
    out_of_range: Option<Failure>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The error for the next byte.
    fn unexpected(&self, context: &str) -> Failure {
        let Some(byte) = self.peek() else {
            return Failure::error("unexpected end of JSON input");
        };
        let mut character = String::new();
        match byte {
            b'\'' => character.push_str("\\'"),
            byte => escape(&mut character, char::from(byte)),
        }
        Failure::error(format!("invalid character '{character}' {context}"))
    }

    fn value(&mut self, depth: u32) -> Result<Value, Failure> {
        self.ctx.step(1)?;
        self.ctx.depth(depth)?;
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => {
                let text = self.string()?;
                Ok(Value::Str(text))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Nil),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, Failure> {
        for expected in word.chars() {
            if self.peek().map(char::from) != Some(expected) {
                let context = format!("in literal {word} (expecting '{expected}')");
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn array(&mut self, depth: u32) -> Result<Value, Failure> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::list(items));
        }
        loop {
            self.skip_space();
            self.ctx.room(size_of::<Value>())?;
            items.push(self.value(depth + 1)?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::list(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn object(&mut self, depth: u32) -> Result<Value, Failure> {
        self.at += 1;
        let mut entries = BTreeMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return self.ctx.dict(entries);
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value(depth + 1)?;
            entries.insert(key, value);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return self.ctx.dict(entries);
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value, Failure> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else if self.digits() == 0 {
            return Err(self.unexpected("in numeric literal"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(float) if float.is_finite() => Ok(Value::Float(float)),
            _ => {
                self.out_of_range.get_or_insert_with(|| {
                    Failure::error(format!(
                        "json: cannot unmarshal number {text} into Go value of type float64"
                    ))
                });
                Ok(Value::Nil)
            }
        }
    }

    fn string(&mut self) -> Result<Rc<str>, Failure> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | ..b' ')) {
                self.at += 1;
            }
            let plain = self.text.get(start..self.at).unwrap_or_default();
            self.ctx.room(plain.len())?;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    out.push_str(plain);
                    return Ok(out.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push_str(plain);
                    let character = self.escape()?;
                    self.ctx.room(character.len_utf8())?;
                    out.push(character);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char, Failure> {
        let character = match self.peek() {
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char, Failure> {
        let unit = self.unit()?;
        if !(0xd800..0xe000).contains(&unit) {
            return Ok(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        // Half of a pair alone is U+FFFD, and what follows it is read again.
        let at = self.at;
        if self.text.as_bytes().get(at..).is_some_and(|rest| rest.starts_with(b"\\u")) {
            self.at += 1;
            let low = self.unit()?;
            if unit < 0xdc00 && (0xdc00..0xe000).contains(&low) {
                let character = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = at;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    /// The four digits after `u`.
    fn unit(&mut self) -> Result<u32, Failure> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}
