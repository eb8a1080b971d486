//! Scalars: plain, quoted and block.

use super::scan::{Kind, Scanner, Token, column};
use crate::Failure;

/// Line breaks between two lines of a scalar: the first, which folding makes a space, and those of empty lines.
#[derive(Default)]
struct Breaks {
    first: Vec<u8>,
    more: Vec<u8>,
}

impl Breaks {
    /// Adds what the breaks fold to.
    fn fold(&mut self, into: &mut Vec<u8>) {
        if self.first.first() == Some(&b'\n') {
            if self.more.is_empty() {
                into.push(b' ');
            }
        } else {
            into.extend_from_slice(&self.first);
        }
        into.extend_from_slice(&self.more);
        self.first.clear();
        self.more.clear();
    }
}

impl Scanner<'_> {
    pub(super) fn scan_plain(&mut self) -> Result<Token, Failure> {
        let start = self.input.mark.line;
        let mut end = start;
        let indent = self.indent + 1;
        let mut text = Vec::new();
        let mut blanks = Vec::new();
        let mut breaks = Breaks::default();
        let mut new_line = false;
        loop {
            self.input.need(4)?;
            if self.input.is_document_mark() || self.input.byte(0) == b'#' {
                break;
            }
            while !self.input.is_space_or_end(0) {
                let byte = self.input.byte(0);
                let in_flow = self.flow_level > 0;
                if byte == b':' && self.input.is_space_or_end(1)
                    || in_flow && matches!(byte, b',' | b'?' | b'[' | b']' | b'{' | b'}')
                {
                    break;
                }
                if new_line {
                    breaks.fold(&mut text);
                    new_line = false;
                } else {
                    text.append(&mut blanks);
                }
                self.input.copy(&mut text);
                end = self.input.mark.line;
                self.input.need(2)?;
            }
            if !self.input.is_blank(0) && !self.input.is_break(0) {
                break;
            }
            self.input.need(1)?;
            while self.input.is_blank(0) || self.input.is_break(0) {
                if self.input.is_blank(0) {
                    let indenting = new_line && column(self.input.mark) < indent;
                    if indenting && self.input.byte(0) == b'\t' {
                        return Err(self.input.error("found a tab character that violates indentation"));
                    }
                }
                self.scan_space(&mut blanks, &mut breaks, &mut new_line)?;
            }
            if self.flow_level == 0 && column(self.input.mark) < indent {
                break;
            }
        }
        if new_line {
            self.key_allowed = true;
        }
        Ok(Token { kind: Kind::Scalar(text, true), start, end })
    }

    /// Passes a blank or line break within a scalar. Blanks of later lines are dropped.
    fn scan_space(
        &mut self,
        blanks: &mut Vec<u8>,
        breaks: &mut Breaks,
        new_line: &mut bool,
    ) -> Result<(), Failure> {
        if self.input.is_blank(0) {
            if *new_line {
                self.input.skip();
            } else {
                self.input.copy(blanks);
            }
        } else {
            self.input.need(2)?;
            if *new_line {
                self.input.copy_break(&mut breaks.more);
            } else {
                blanks.clear();
                self.input.copy_break(&mut breaks.first);
                *new_line = true;
            }
        }
        self.input.need(1)
    }

    pub(super) fn scan_quoted(&mut self, quote: u8) -> Result<Token, Failure> {
        let start = self.input.mark.line;
        self.input.skip();
        let mut text = Vec::new();
        let mut blanks = Vec::new();
        let mut breaks = Breaks::default();
        loop {
            self.input.need(4)?;
            if self.input.is_document_mark() {
                return Err(self.input.error("found unexpected document indicator"));
            }
            if self.input.at_end() {
                return Err(self.input.error("found unexpected end of stream"));
            }
            let mut new_line = false;
            while !self.input.is_space_or_end(0) {
                let byte = self.input.byte(0);
                if byte == quote {
                    if quote == b'"' || self.input.byte(1) != b'\'' {
                        break;
                    }
                    text.push(b'\'');
                    self.input.skip();
                    self.input.skip();
                } else if quote == b'"' && byte == b'\\' {
                    if self.input.is_break(1) {
                        self.input.need(3)?;
                        self.input.skip();
                        self.input.skip_break();
                        new_line = true;
                        break;
                    }
                    self.scan_escape(&mut text)?;
                } else {
                    self.input.copy(&mut text);
                }
                self.input.need(2)?;
            }
            self.input.need(1)?;
            if self.input.byte(0) == quote {
                break;
            }
            while self.input.is_blank(0) || self.input.is_break(0) {
                self.scan_space(&mut blanks, &mut breaks, &mut new_line)?;
            }
            if new_line {
                breaks.fold(&mut text);
            } else {
                text.append(&mut blanks);
            }
        }
        self.input.skip();
        let end = self.input.mark.line;
        Ok(Token { kind: Kind::Scalar(text, false), start, end })
    }

    /// An escape sequence of a double-quoted scalar.
    fn scan_escape(&mut self, text: &mut Vec<u8>) -> Result<(), Failure> {
        let mut digits = 0;
        let plain: &[u8] = match self.input.byte(1) {
            b'0' => b"\0",
            b'a' => b"\x07",
            b'b' => b"\x08",
            b't' | b'\t' => b"\t",
            b'n' => b"\n",
            b'v' => b"\x0b",
            b'f' => b"\x0c",
            b'r' => b"\r",
            b'e' => b"\x1b",
            b' ' => b" ",
            b'"' => b"\"",
            b'\'' => b"'",
            b'\\' => b"\\",
            b'N' => "\u{85}".as_bytes(),
            b'_' => "\u{a0}".as_bytes(),
            b'L' => "\u{2028}".as_bytes(),
            b'P' => "\u{2029}".as_bytes(),
            escape @ (b'x' | b'u' | b'U') => {
                digits = match escape {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                b""
            }
            _ => return Err(self.input.error("found unknown escape character")),
        };
        text.extend_from_slice(plain);
        self.input.skip();
        self.input.skip();
        if digits == 0 {
            return Ok(());
        }
        self.input.need(digits)?;
        let mut value = 0_u32;
        for digit in 0..digits {
            let Some(digit) = char::from(self.input.byte(digit)).to_digit(16) else {
                return Err(self.input.error("did not find expected hexdecimal number"));
            };
            value = value << 4 | digit;
        }
        let Some(character) = char::from_u32(value) else {
            return Err(self.input.error("found invalid Unicode character escape code"));
        };
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        for _ in 0..digits {
            self.input.skip();
        }
        Ok(())
    }

    pub(super) fn scan_block_scalar(&mut self, literal: bool) -> Result<Token, Failure> {
        let start = self.input.mark.line;
        self.input.skip();
        let (chomping, increment) = self.scan_block_header()?;
        let mut end = self.input.mark.line;
        let mut indent = match increment {
            0 => 0,
            increment => self.indent.max(0) + increment,
        };
        let mut text = Vec::new();
        let mut breaks = Breaks::default();
        self.scan_block_breaks(&mut indent, &mut breaks.more, &mut end)?;
        self.input.need(1)?;
        let mut leading_blank = false;
        while column(self.input.mark) == indent && !self.input.at_end() {
            let blank = self.input.is_blank(0);
            let folds = !literal && !leading_blank && !blank;
            if folds && breaks.first.first() == Some(&b'\n') {
                breaks.fold(&mut text);
            } else {
                text.append(&mut breaks.first);
                text.append(&mut breaks.more);
            }
            leading_blank = blank;
            while !self.input.is_break_or_end(0) {
                self.input.copy(&mut text);
                self.input.need(1)?;
            }
            self.input.need(2)?;
            self.input.copy_break(&mut breaks.first);
            self.scan_block_breaks(&mut indent, &mut breaks.more, &mut end)?;
        }
        if chomping != Some(b'-') {
            text.append(&mut breaks.first);
        }
        if chomping == Some(b'+') {
            text.append(&mut breaks.more);
        }
        Ok(Token { kind: Kind::Scalar(text, false), start, end })
    }

    /// The indicators after `|` or `>`, and the rest of the line.
    fn scan_block_header(&mut self) -> Result<(Option<u8>, isize), Failure> {
        let mut chomping = None;
        let mut increment = 0;
        for _ in 0..2 {
            self.input.need(1)?;
            match self.input.byte(0) {
                sign @ (b'+' | b'-') if chomping.is_none() => chomping = Some(sign),
                b'0' if increment == 0 => {
                    return Err(self.input.error("found an indentation indicator equal to 0"));
                }
                digit @ b'1'..=b'9' if increment == 0 => increment = isize::from(digit - b'0'),
                _ => break,
            }
            self.input.skip();
        }
        self.skip_blanks()?;
        if self.input.byte(0) == b'#' {
            self.skip_line()?;
        }
        if !self.input.is_break_or_end(0) {
            return Err(self.input.error("did not find expected comment or line break"));
        }
        if self.input.is_break(0) {
            self.input.need(2)?;
            self.input.skip_break();
        }
        Ok((chomping, increment))
    }

    /// Passes indentation and empty lines of a block scalar. The first line with content tells the indentation.
    fn scan_block_breaks(
        &mut self,
        indent: &mut isize,
        breaks: &mut Vec<u8>,
        end: &mut usize,
    ) -> Result<(), Failure> {
        *end = self.input.mark.line;
        let mut deepest = 0;
        loop {
            self.input.need(1)?;
            let within = |column: isize| *indent == 0 || column < *indent;
            while within(column(self.input.mark)) && self.input.byte(0) == b' ' {
                self.input.skip();
                self.input.need(1)?;
            }
            deepest = deepest.max(column(self.input.mark));
            if within(column(self.input.mark)) && self.input.byte(0) == b'\t' {
                return Err(self.input.error("found a tab character where an indentation space is expected"));
            }
            if !self.input.is_break(0) {
                break;
            }
            self.input.need(2)?;
            self.input.copy_break(breaks);
            *end = self.input.mark.line;
        }
        if *indent == 0 {
            *indent = deepest.max(self.indent + 1).max(1);
        }
        Ok(())
    }
}
