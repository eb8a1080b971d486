//! The printer behind `fmt`, after Go's `print.go` and `format.go`.

use super::number::float;
use super::quote::{can_backquote, is_printable, quote_with};
use super::{kind, type_name};
use crate::Failure;
use crate::value::{Ctx, Value};

/// The largest width or precision, as in Go.
pub(super) const LARGEST: i64 = 1_000_000;

/// How one verb prints.
#[expect(clippy::struct_excessive_bools, reason = "Go's flags")]
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// `%#v`.
    pub(super) sharp_v: bool,
}

pub(super) struct Printer<'c> {
    pub(super) ctx: &'c mut Ctx,
    out: Vec<u8>,
    /// How much of `out` is counted.
    counted: usize,
    pub(super) flags: Flags,
}

impl<'c> Printer<'c> {
    pub(super) fn new(ctx: &'c mut Ctx) -> Self {
        Self { ctx, out: Vec::new(), counted: 0, flags: Flags::default() }
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, Failure> {
        self.count()?;
        Ok(self.out)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.write(text.as_bytes());
    }

    pub(super) fn count(&mut self) -> Result<(), Failure> {
        let more = self.out.len().saturating_sub(self.counted);
        self.counted = self.out.len();
        self.ctx.step(1)?;
        self.ctx.room(more)
    }

    /// Prints an argument: the start of every verb.
    pub(super) fn arg(&mut self, value: &Value, verb: char) -> Result<(), Failure> {
        self.count()?;
        match (value, verb) {
            (Value::Nil, 'T' | 'v') => self.pad(b"<nil>"),
            (Value::Nil, _) => return self.bad_verb(value, verb),
            (_, 'T') => {
                let name = type_name(&self.ctx.heap, value);
                self.fmt_s(name.as_bytes());
            }
            (_, 'p') => {
                if matches!(kind(value), "map" | "slice" | "ptr") {
                    return Err(Failure::error("%p is refused: it would differ from render to render"));
                }
                return self.bad_verb(value, verb);
            }
            (_, 'w') if !matches!(value, Value::Bytes(_)) => return self.bad_verb(value, verb),
            (Value::Bytes(bytes), _) => return self.bytes(bytes, verb, "[]byte"),
            _ => return self.value(value, verb, 0),
        }
        Ok(())
    }

    /// Prints a value within another, or an argument after what is special to arguments.
    fn value(&mut self, value: &Value, verb: char, depth: u32) -> Result<(), Failure> {
        self.ctx.depth(depth)?;
        self.count()?;
        match value {
            // An element that is an interface without a value, whatever the verb.
            Value::Nil => self.text(if self.flags.sharp_v { "interface {}(nil)" } else { "<nil>" }),
            Value::Bool(truth) => match verb {
                't' | 'v' => self.pad(if *truth { b"true" } else { b"false" }),
                _ => return self.bad_verb(value, verb),
            },
            Value::Int(number) | Value::Int64(number) => {
                if !self.integer(number.unsigned_abs(), *number < 0, *number, verb) {
                    return self.bad_verb(value, verb);
                }
            }
            Value::Float(number) => {
                if !self.float(*number, verb) {
                    return self.bad_verb(value, verb);
                }
            }
            Value::Str(text) => return self.string(value, text.as_bytes(), verb),
            Value::Raw(bytes) => return self.string(value, bytes, verb),
            Value::Bytes(bytes) => return self.bytes(bytes, verb, "[]uint8"),
            Value::Host(host) => {
                let text = host.display();
                match verb {
                    'v' if self.flags.sharp_v => self.text(&text),
                    'v' | 's' | 'x' | 'X' | 'q' => return self.string(value, text.as_bytes(), verb),
                    _ => return self.bad_verb(value, verb),
                }
            }
            Value::List(list) => {
                let (open, comma, close) = self.open(list.element.slice_name(), "");
                if self.flags.sharp_v && list.is_nil() {
                    self.text("(nil)");
                    return Ok(());
                }
                self.text(open);
                for (position, item) in list.items.iter().enumerate() {
                    if position > 0 {
                        self.text(comma);
                    }
                    self.value(item, verb, depth.saturating_add(1))?;
                }
                self.text(close);
            }
            Value::Map(map) => {
                let name = self.ctx.heap.map(*map).kind.name();
                let (open, comma, close) = self.open(name, "map");
                if self.flags.sharp_v && map.is_nil() {
                    self.text("(nil)");
                    return Ok(());
                }
                self.text(open);
                let entries = self.ctx.heap.map(*map).entries.clone();
                self.ctx.step(entries.len())?;
                for (position, (key, item)) in entries.into_iter().enumerate() {
                    if position > 0 {
                        self.text(comma);
                    }
                    self.value(&Value::Str(key), verb, depth.saturating_add(1))?;
                    self.text(":");
                    self.value(&item, verb, depth.saturating_add(1))?;
                }
                self.text(close);
            }
        }
        Ok(())
    }

    /// Begins a collection: what opens, parts and closes it.
    fn open(&mut self, name: &str, word: &str) -> (&'static str, &'static str, &'static str) {
        if self.flags.sharp_v {
            self.text(name);
            ("{", ", ", "}")
        } else {
            self.text(word);
            ("[", " ", "]")
        }
    }

    fn bad_verb(&mut self, value: &Value, verb: char) -> Result<(), Failure> {
        self.text("%!");
        self.rune(verb);
        self.text("(");
        if matches!(value, Value::Nil) {
            self.text("<nil>");
        } else {
            let name = type_name(&self.ctx.heap, value);
            self.text(name);
            self.text("=");
            self.value(value, 'v', 0)?;
        }
        self.text(")");
        Ok(())
    }

    pub(super) fn rune(&mut self, rune: char) {
        self.text(rune.encode_utf8(&mut [0; 4]));
    }

    /// Appends with padding to the width, counted in characters.
    fn pad(&mut self, bytes: &[u8]) {
        let Some(width) = self.flags.width else { return self.write(bytes) };
        let padding = width.saturating_sub(runes(bytes));
        if self.flags.minus {
            self.write(bytes);
            self.padding(padding);
        } else {
            self.padding(padding);
            self.write(bytes);
        }
    }

    fn padding(&mut self, count: usize) {
        let fill = if self.flags.zero && !self.flags.minus { b'0' } else { b' ' };
        let length = self.out.len().saturating_add(count);
        self.out.resize(length, fill);
    }

    fn pad_with_spaces(&mut self, bytes: &[u8]) {
        let zero = std::mem::take(&mut self.flags.zero);
        self.pad(bytes);
        self.flags.zero = zero;
    }

    fn truncate<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(precision) = self.flags.precision else { return bytes };
        bytes.get(..rune_offset(bytes, precision)).unwrap_or(bytes)
    }

    fn fmt_s(&mut self, bytes: &[u8]) {
        let shown = self.truncate(bytes);
        self.pad(shown);
    }

    fn fmt_q(&mut self, bytes: &[u8]) {
        let shown = self.truncate(bytes);
        if self.flags.sharp && can_backquote(shown) {
            self.pad(&[b"`", shown, b"`"].concat());
        } else {
            let quoted = quote_with(shown, '"', self.flags.plus);
            self.pad(quoted.as_bytes());
        }
    }

    fn string(&mut self, value: &Value, bytes: &[u8], verb: char) -> Result<(), Failure> {
        match verb {
            'v' if self.flags.sharp_v => self.fmt_q(bytes),
            'v' | 's' => self.fmt_s(bytes),
            'x' | 'X' => self.hex(bytes, verb),
            'q' => self.fmt_q(bytes),
            _ => return self.bad_verb(value, verb),
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8], verb: char, name: &str) -> Result<(), Failure> {
        match verb {
            's' => self.fmt_s(bytes),
            'x' | 'X' => self.hex(bytes, verb),
            'q' => self.fmt_q(bytes),
            _ => {
                let (open, comma, close) = self.open(name, "");
                self.text(open);
                for (position, byte) in bytes.iter().enumerate() {
                    if position > 0 {
                        self.text(comma);
                    }
                    self.count()?;
                    if self.flags.sharp_v {
                        self.text(&format!("{byte:#x}"));
                    } else if !self.integer(u64::from(*byte), false, i64::from(*byte), verb) {
                        self.text("%!");
                        self.rune(verb);
                        self.text("(uint8=");
                        self.integer(u64::from(*byte), false, i64::from(*byte), 'v');
                        self.text(")");
                    }
                }
                self.text(close);
            }
        }
        Ok(())
    }

    fn hex(&mut self, bytes: &[u8], verb: char) {
        let length = self.flags.precision.map_or(bytes.len(), |precision| precision.min(bytes.len()));
        let shown = bytes.get(..length).unwrap_or_default();
        if shown.is_empty() {
            return self.padding(self.flags.width.unwrap_or_default());
        }
        let prefix: &str = match (self.flags.sharp, verb) {
            (false, _) => "",
            (true, 'X') => "0X",
            (true, _) => "0x",
        };
        let mut text = prefix.to_owned();
        for (position, byte) in shown.iter().enumerate() {
            if self.flags.space && position > 0 {
                text.push(' ');
                text.push_str(prefix);
            }
            for digit in [byte >> 4, byte & 15] {
                let digit = char::from_digit(digit.into(), 16).unwrap_or('0');
                text.push(if verb == 'X' { digit.to_ascii_uppercase() } else { digit });
            }
        }
        self.pad(text.as_bytes());
    }

    /// Prints an integer; false if the verb is not for integers.
    fn integer(&mut self, magnitude: u64, negative: bool, number: i64, verb: char) -> bool {
        let code = u32::try_from(number).ok().and_then(char::from_u32);
        match verb {
            'v' | 'd' => self.number(magnitude, negative, 10, verb),
            'b' => self.number(magnitude, negative, 2, verb),
            'o' | 'O' => self.number(magnitude, negative, 8, verb),
            'x' | 'X' => self.number(magnitude, negative, 16, verb),
            'c' => {
                let character = code.unwrap_or(char::REPLACEMENT_CHARACTER);
                self.pad(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            'q' => {
                let character = code.unwrap_or(char::REPLACEMENT_CHARACTER);
                let mut buffer = [0; 4];
                let text: &str = character.encode_utf8(&mut buffer);
                let quoted = quote_with(text.as_bytes(), '\'', self.flags.plus);
                self.pad(quoted.as_bytes());
            }
            'U' => self.unicode(number, code),
            _ => return false,
        }
        true
    }

    fn unicode(&mut self, number: i64, code: Option<char>) {
        let precision = self.flags.precision.unwrap_or_default().max(4);
        let digits = format!("{number:X}");
        let mut text = format!("U+{}{digits}", "0".repeat(precision.saturating_sub(digits.len())));
        if let Some(character) = code.filter(|&code| self.flags.sharp && is_printable(code)) {
            text.extend([' ', '\'', character, '\'']);
        }
        self.pad_with_spaces(text.as_bytes());
    }

    fn number(&mut self, magnitude: u64, negative: bool, base: u32, verb: char) {
        let mut precision = self.flags.precision.unwrap_or_default();
        if self.flags.precision == Some(0) && magnitude == 0 {
            let zero = std::mem::take(&mut self.flags.zero);
            self.padding(self.flags.width.unwrap_or_default());
            self.flags.zero = zero;
            return;
        }
        if let (None, true, false, Some(width)) =
            (self.flags.precision, self.flags.zero, self.flags.minus, self.flags.width)
        {
            let sign = negative || self.flags.plus || self.flags.space;
            precision = width.saturating_sub(usize::from(sign));
        }
        let digits = match (base, verb) {
            (2, _) => format!("{magnitude:b}"),
            (8, _) => format!("{magnitude:o}"),
            (16, 'X') => format!("{magnitude:X}"),
            (16, _) => format!("{magnitude:x}"),
            _ => magnitude.to_string(),
        };
        let zeros = "0".repeat(precision.saturating_sub(digits.len()));
        let prefix = match (self.flags.sharp, base) {
            (true, 2) => "0b",
            (true, 8) if !zeros.is_empty() || digits.starts_with('0') => "",
            (true, 8) => "0",
            (true, 16) if verb == 'X' => "0X",
            (true, 16) => "0x",
            _ => "",
        };
        let octal = if verb == 'O' { "0o" } else { "" };
        let sign = match (negative, self.flags.plus, self.flags.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        let text = [sign, octal, prefix, &zeros, &digits].concat();
        self.pad_with_spaces(text.as_bytes());
    }

    /// Prints a float; false if the verb is not for floats.
    fn float(&mut self, value: f64, verb: char) -> bool {
        let (verb, precision) = match verb {
            'v' => ('g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => (verb, None),
            'f' | 'F' => ('f', Some(6)),
            'e' | 'E' => (verb, Some(6)),
            _ => return false,
        };
        let precision = self.flags.precision.or(precision);
        let text = float(value, verb, precision);
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits.to_owned()),
            None => (false, text.strip_prefix('+').unwrap_or(&text).to_owned()),
        };
        let sign = match (negative, self.flags.plus, self.flags.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        if value.is_nan() || value.is_infinite() {
            // Go shows the sign of an infinity only where others would show theirs, and minus always.
            self.pad_with_spaces(
                [if value.is_infinite() && sign.is_empty() { "+" } else { sign }, &digits]
                    .concat()
                    .as_bytes(),
            );
            return true;
        }
        let digits =
            if self.flags.sharp && verb != 'b' { with_point(&digits, verb, precision) } else { digits };
        if self.flags.zero
            && !self.flags.minus
            && let Some(width) = self.flags.width
            && !sign.is_empty()
        {
            let length = digits.len().saturating_add(sign.len());
            if width > length {
                self.text(sign);
                self.padding(width.saturating_sub(length));
                self.text(&digits);
                return true;
            }
        }
        self.pad([sign, &digits].concat().as_bytes());
        true
    }
}

/// Keeps the point and the zeros that `%#g` shows.
fn with_point(digits: &str, verb: char, precision: Option<usize>) -> String {
    let mut wanted = match verb {
        'g' | 'G' | 'x' => i64::try_from(precision.unwrap_or(6)).unwrap_or(LARGEST),
        _ => 0,
    };
    let split = match verb {
        'x' | 'X' => digits.find(['p', 'P']),
        _ => digits.find(['e', 'E']),
    };
    let (number, tail) = digits.split_at(split.unwrap_or(digits.len()));
    let mut has_point = false;
    let mut significant = false;
    for character in number.chars() {
        if character == '.' {
            has_point = true;
            continue;
        }
        significant |= character != '0';
        if significant {
            wanted -= 1;
        }
    }
    let mut out = number.to_owned();
    if !has_point {
        if number == "0" {
            wanted -= 1;
        }
        out.push('.');
    }
    out.push_str(&"0".repeat(usize::try_from(wanted).unwrap_or_default()));
    out.push_str(tail);
    out
}

/// How many characters Go counts: each byte that is not UTF-8 is one.
fn runes(bytes: &[u8]) -> usize {
    bytes
        .utf8_chunks()
        .map(|chunk| chunk.valid().chars().count().saturating_add(chunk.invalid().len()))
        .fold(0, usize::saturating_add)
}

/// Where the character of this number starts.
fn rune_offset(bytes: &[u8], count: usize) -> usize {
    let mut left = count;
    let mut offset = 0_usize;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if left == 0 {
                return offset;
            }
            left -= 1;
            offset = offset.saturating_add(character.len_utf8());
        }
        let skipped = chunk.invalid().len().min(left);
        offset = offset.saturating_add(skipped);
        left = left.saturating_sub(skipped);
        if skipped < chunk.invalid().len() {
            return offset;
        }
    }
    offset
}
