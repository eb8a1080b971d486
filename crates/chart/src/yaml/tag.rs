//! Anchors, tags and directives.

use super::scan::{Kind, Scanner, Token};
use crate::Failure;

impl Scanner<'_> {
    fn scan_word(&mut self, into: &mut Vec<u8>) -> Result<(), Failure> {
        self.input.need(1)?;
        while self.input.is_word() {
            self.input.copy(into);
            self.input.need(1)?;
        }
        Ok(())
    }

    pub(super) fn scan_anchor(&mut self, anchor: bool) -> Result<Token, Failure> {
        let line = self.input.mark.line;
        self.input.skip();
        let mut name = Vec::new();
        self.scan_word(&mut name)?;
        let ends = self.input.is_space_or_end(0)
            || matches!(self.input.byte(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            return Err(self.input.error("did not find expected alphabetic or numeric character"));
        }
        let kind = if anchor { Kind::Anchor(name) } else { Kind::Alias(name) };
        Ok(Token { kind, start: line, end: line })
    }

    pub(super) fn scan_tag(&mut self) -> Result<Token, Failure> {
        let line = self.input.mark.line;
        self.input.need(2)?;
        let (mut handle, mut suffix) = (Vec::new(), Vec::new());
        if self.input.byte(1) == b'<' {
            self.input.skip();
            self.input.skip();
            self.scan_uri(&[], &mut suffix)?;
            if self.input.byte(0) != b'>' {
                return Err(self.input.error("did not find the expected '>'"));
            }
            self.input.skip();
        } else {
            self.scan_handle(false, &mut handle)?;
            if handle.len() > 1 && handle.last() == Some(&b'!') {
                self.scan_uri(&[], &mut suffix)?;
            } else {
                self.scan_uri(&handle, &mut suffix)?;
                handle = b"!".to_vec();
                if suffix.is_empty() {
                    std::mem::swap(&mut handle, &mut suffix);
                }
            }
        }
        self.input.need(1)?;
        if !self.input.is_space_or_end(0) {
            return Err(self.input.error("did not find expected whitespace or line break"));
        }
        Ok(Token { kind: Kind::Tag(handle, suffix), start: line, end: line })
    }

    /// A handle such as `!` or `!!`. Only directives insist on the second `!`.
    fn scan_handle(&mut self, directive: bool, handle: &mut Vec<u8>) -> Result<(), Failure> {
        self.input.need(1)?;
        if self.input.byte(0) != b'!' {
            return Err(self.input.error("did not find expected '!'"));
        }
        self.input.copy(handle);
        self.scan_word(handle)?;
        if self.input.byte(0) == b'!' {
            self.input.copy(handle);
        } else if directive && handle.len() > 1 {
            return Err(self.input.error("did not find expected '!'"));
        }
        Ok(())
    }

    /// The rest of a tag, after what looked like a handle and was none.
    fn scan_uri(&mut self, head: &[u8], uri: &mut Vec<u8>) -> Result<(), Failure> {
        let mut found = !head.is_empty();
        uri.extend_from_slice(head.get(1..).unwrap_or_default());
        self.input.need(1)?;
        loop {
            match self.input.byte(0) {
                b'%' => self.scan_uri_escapes(uri)?,
                b';' | b'/' | b'?' | b':' | b'@' | b'&' | b'=' | b'+' | b'$' | b',' | b'.' | b'!' | b'~'
                | b'*' | b'\'' | b'(' | b')' | b'[' | b']' => self.input.copy(uri),
                _ if self.input.is_word() => self.input.copy(uri),
                _ => break,
            }
            self.input.need(1)?;
            found = true;
        }
        if found { Ok(()) } else { Err(self.input.error("did not find expected tag URI")) }
    }

    /// The octets of one character, each as `%` and two digits.
    fn scan_uri_escapes(&mut self, uri: &mut Vec<u8>) -> Result<(), Failure> {
        let mut left = None;
        while left != Some(0) {
            self.input.need(3)?;
            let digit = |ahead| char::from(self.input.byte(ahead)).to_digit(16);
            let (b'%', Some(high), Some(low)) = (self.input.byte(0), digit(1), digit(2)) else {
                return Err(self.input.error("did not find URI escaped octet"));
            };
            let octet = u8::try_from(high << 4 | low).unwrap_or_default();
            let width = match octet {
                0..0x80 => 1,
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0..0xf8 => 4,
                _ => 0,
            };
            if left.is_none() && width == 0 {
                return Err(self.input.error("found an incorrect leading UTF-8 octet"));
            }
            if left.is_some() && octet & 0xc0 != 0x80 {
                return Err(self.input.error("found an incorrect trailing UTF-8 octet"));
            }
            uri.push(octet);
            for _ in 0..3 {
                self.input.skip();
            }
            left = Some(left.unwrap_or(width) - 1);
        }
        Ok(())
    }

    pub(super) fn scan_directive(&mut self) -> Result<Token, Failure> {
        let line = self.input.mark.line;
        self.input.skip();
        let mut name = Vec::new();
        self.scan_word(&mut name)?;
        if name.is_empty() {
            return Err(self.input.error("could not find expected directive name"));
        }
        if !self.input.is_space_or_end(0) {
            return Err(self.input.error("found unexpected non-alphabetical character"));
        }
        let kind = match name.as_slice() {
            b"YAML" => {
                self.skip_blanks()?;
                let major = self.scan_version_number()?;
                if self.input.byte(0) != b'.' {
                    return Err(self.input.error("did not find expected digit or '.' character"));
                }
                self.input.skip();
                Kind::Version(major, self.scan_version_number()?)
            }
            b"TAG" => self.scan_tag_directive()?,
            _ => return Err(self.input.error("found unknown directive name")),
        };
        let end = self.input.mark.line;
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
        Ok(Token { kind, start: line, end })
    }

    fn scan_version_number(&mut self) -> Result<u8, Failure> {
        self.input.need(1)?;
        let (mut value, mut length) = (0, 0);
        while let digit @ b'0'..=b'9' = self.input.byte(0) {
            length += 1;
            if length > 2 {
                return Err(self.input.error("found extremely long version number"));
            }
            value = value * 10 + (digit - b'0');
            self.input.skip();
            self.input.need(1)?;
        }
        if length == 0 {
            return Err(self.input.error("did not find expected version number"));
        }
        Ok(value)
    }

    fn scan_tag_directive(&mut self) -> Result<Kind, Failure> {
        self.skip_blanks()?;
        let (mut handle, mut prefix) = (Vec::new(), Vec::new());
        self.scan_handle(true, &mut handle)?;
        self.input.need(1)?;
        if !self.input.is_blank(0) {
            return Err(self.input.error("did not find expected whitespace"));
        }
        self.skip_blanks()?;
        self.scan_uri(&[], &mut prefix)?;
        self.input.need(1)?;
        if !self.input.is_space_or_end(0) {
            return Err(self.input.error("did not find expected whitespace or line break"));
        }
        Ok(Kind::TagDirective(handle, prefix))
    }
}
