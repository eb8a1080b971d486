//! Characters of a document, decoded as far as the scanner has asked for them.
//!
//! go-yaml decodes its input in pieces of 512 bytes and finds characters that YAML forbids only then. A document with two
//! faults is thus refused for one or the other by where the pieces end, so the pieces are kept here too.

use std::borrow::Cow;

use crate::Failure;

/// The length of a piece.
const PIECE: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Unknown,
    Utf8,
    Utf16 { low: usize, high: usize },
}

/// A position, counted in characters from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug)]
pub(super) struct Input<'a> {
    raw: &'a [u8],
    /// The start and the end of the piece, and what of it is decoded.
    start: usize,
    end: usize,
    next: usize,
    ended: bool,
    encoding: Encoding,
    /// What is decoded, as UTF-8.
    text: Vec<u8>,
    at: usize,
    /// How many characters of `text` are ahead.
    ahead: usize,
    pub(super) mark: Mark,
}

impl<'a> Input<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Self {
        let raw = if raw.is_empty() { b"\n" } else { raw };
        Self {
            raw,
            start: 0,
            end: 0,
            next: 0,
            ended: false,
            encoding: Encoding::Unknown,
            text: Vec::with_capacity(raw.len()),
            at: 0,
            ahead: 0,
            mark: Mark::default(),
        }
    }

    /// An error of the scanner at this position.
    pub(super) fn error(&self, problem: impl Into<Cow<'static, str>>) -> Failure {
        let problem = problem.into();
        match self.mark.line {
            0 => Failure::error(format!("yaml: {problem}")),
            line => Failure::error(format!("yaml: line {}: {problem}", line + 1)),
        }
    }

    /// Makes sure that this many characters are decoded, or all that there are.
    pub(super) fn need(&mut self, count: usize) -> Result<(), Failure> {
        if self.ahead >= count { Ok(()) } else { self.decode(count) }
    }

    fn decode(&mut self, count: usize) -> Result<(), Failure> {
        if self.encoding == Encoding::Unknown {
            self.detect();
        }
        let mut first = true;
        while self.ahead < count {
            if !first || self.next == self.end {
                self.advance();
            }
            first = false;
            while self.next < self.end {
                let Some((character, width)) = self.character()? else { break };
                let allowed = matches!(character, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}'
                    | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
                if !allowed {
                    return Err(refuse("control characters are not allowed"));
                }
                self.next += width;
                self.text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.ahead += 1;
            }
            if self.ended {
                break;
            }
        }
        Ok(())
    }

    /// Takes the next piece, beginning with what is left of this one.
    fn advance(&mut self) {
        let whole = self.next == self.start && self.end - self.start == PIECE;
        if whole || self.ended {
            return;
        }
        self.start = self.next;
        if self.end == self.raw.len() {
            self.ended = true;
        } else {
            self.end = self.raw.len().min(self.start + PIECE);
        }
    }

    fn detect(&mut self) {
        while !self.ended && self.end - self.next < 3 {
            self.advance();
        }
        let piece = self.raw.get(self.next..self.end).unwrap_or_default();
        let (encoding, width) = match piece {
            [0xff, 0xfe, ..] => (Encoding::Utf16 { low: 0, high: 1 }, 2),
            [0xfe, 0xff, ..] => (Encoding::Utf16 { low: 1, high: 0 }, 2),
            [0xef, 0xbb, 0xbf, ..] => (Encoding::Utf8, 3),
            _ => (Encoding::Utf8, 0),
        };
        self.encoding = encoding;
        self.next += width;
    }

    /// The next character of the piece and its width, `None` if its end is in the next piece.
    fn character(&self) -> Result<Option<(char, usize)>, Failure> {
        let piece = self.raw.get(self.next..self.end).unwrap_or_default();
        let (value, width) = match self.encoding {
            Encoding::Utf16 { low, high } => {
                let unit = |at: usize| {
                    let byte = |at: usize| piece.get(at).copied().map(u32::from);
                    Some(byte(at + low)? | byte(at + high)? << 8)
                };
                let Some(unit0) = unit(0) else { return self.cut("incomplete UTF-16 character") };
                if unit0 & 0xfc00 == 0xdc00 {
                    return Err(refuse("unexpected low surrogate area"));
                }
                if unit0 & 0xfc00 == 0xd800 {
                    let Some(unit1) = unit(2) else {
                        return self.cut("incomplete UTF-16 surrogate pair");
                    };
                    if unit1 & 0xfc00 != 0xdc00 {
                        return Err(refuse("expected low surrogate area"));
                    }
                    (0x10000 + ((unit0 & 0x3ff) << 10) + (unit1 & 0x3ff), 4)
                } else {
                    (unit0, 2)
                }
            }
            Encoding::Utf8 | Encoding::Unknown => {
                let first = piece.first().copied().unwrap_or_default();
                let (width, bits) = match first {
                    0..0x80 => (1, first),
                    0xc0..0xe0 => (2, first & 0x1f),
                    0xe0..0xf0 => (3, first & 0x0f),
                    0xf0..0xf8 => (4, first & 0x07),
                    _ => return Err(refuse("invalid leading UTF-8 octet")),
                };
                let Some(rest) = piece.get(1..width) else {
                    return self.cut("incomplete UTF-8 octet sequence");
                };
                let mut value = u32::from(bits);
                for byte in rest {
                    if byte & 0xc0 != 0x80 {
                        return Err(refuse("invalid trailing UTF-8 octet"));
                    }
                    value = value << 6 | u32::from(byte & 0x3f);
                }
                let least = match width {
                    1 => 0,
                    2 => 0x80,
                    3 => 0x800,
                    _ => 0x10000,
                };
                if value < least {
                    return Err(refuse("invalid length of a UTF-8 sequence"));
                }
                (value, width)
            }
        };
        match char::from_u32(value) {
            Some(character) => Ok(Some((character, width))),
            None => Err(refuse("invalid Unicode character")),
        }
    }

    fn cut(&self, problem: &str) -> Result<Option<(char, usize)>, Failure> {
        if self.ended { Err(refuse(problem)) } else { Ok(None) }
    }

    /// The byte this many bytes ahead; zero after the end, as no character may be zero.
    pub(super) fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or_default()
    }

    pub(super) fn at_end(&self) -> bool {
        self.byte(0) == 0
    }

    pub(super) fn is_bom(&self) -> bool {
        (self.byte(0), self.byte(1), self.byte(2)) == (0xef, 0xbb, 0xbf)
    }

    pub(super) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    /// Whether a line break of YAML 1.1 is this many bytes ahead.
    pub(super) fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\r' | b'\n' => true,
            0xc2 => self.byte(ahead + 1) == 0x85,
            0xe2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    /// Whether a line break or the end is this many bytes ahead.
    pub(super) fn is_break_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0 || self.is_break(ahead)
    }

    /// Whether a blank, a line break or the end is this many bytes ahead.
    pub(super) fn is_space_or_end(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_break_or_end(ahead)
    }

    /// Whether a name of an anchor, tag handle or directive goes on with the next byte.
    pub(super) fn is_word(&self) -> bool {
        matches!(self.byte(0), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-')
    }

    /// Whether `---` or `...` begins the line.
    pub(super) fn is_document_mark(&self) -> bool {
        self.mark.column == 0 && (self.starts(b"---") || self.starts(b"...")) && self.is_space_or_end(3)
    }

    pub(super) fn starts(&self, with: &[u8]) -> bool {
        self.text.get(self.at..).is_some_and(|text| text.starts_with(with))
    }

    fn width(&self) -> usize {
        match self.byte(0) {
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
            _ => 1,
        }
    }

    fn pass(&mut self, bytes: usize, characters: usize) {
        self.at = self.text.len().min(self.at + bytes);
        self.ahead = self.ahead.saturating_sub(characters);
        self.mark.index += characters;
    }

    /// Passes a character that is no line break.
    pub(super) fn skip(&mut self) {
        self.pass(self.width(), 1);
        self.mark.column += 1;
    }

    /// Passes a character that is no line break, and copies it.
    pub(super) fn copy(&mut self, into: &mut Vec<u8>) {
        let from = self.text.get(self.at..self.at + self.width()).unwrap_or_default();
        into.extend_from_slice(from);
        self.skip();
    }

    /// Passes a line break, if there is one.
    pub(super) fn skip_break(&mut self) {
        if self.starts(b"\r\n") {
            self.pass(2, 2);
        } else if self.is_break(0) {
            self.pass(self.width(), 1);
        } else {
            return;
        }
        self.mark.column = 0;
        self.mark.line += 1;
    }

    /// Passes a line break, if there is one, and copies it: U+2028 and U+2029 as they are, others as a line feed.
    pub(super) fn copy_break(&mut self, into: &mut Vec<u8>) {
        if self.is_break(0) {
            if self.byte(0) == 0xe2 {
                into.extend_from_slice(&[0xe2, 0x80, self.byte(2)]);
            } else {
                into.push(b'\n');
            }
            self.skip_break();
        }
    }
}

/// An error of the reader, which tells no line.
fn refuse(problem: &str) -> Failure {
    Failure::error(format!("yaml: {problem}"))
}
