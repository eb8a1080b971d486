//! In which styles a scalar can be written.

use std::sync::LazyLock;

use regex::Regex;

/// Text as UTF-8, looked at by byte. There are zeros after its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl<'a> Text<'a> {
    pub(super) fn byte(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    /// The bytes of the character at a place.
    pub(super) fn character(self, at: usize) -> &'a [u8] {
        let width = match self.byte(at) {
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
            _ => 1,
        };
        self.0.get(at..self.0.len().min(at + width)).unwrap_or_default()
    }

    /// The place of the last character before a place.
    pub(super) fn last_character(self, before: usize) -> usize {
        let mut at = before.saturating_sub(1);
        while at > 0 && self.byte(at) & 0xc0 == 0x80 {
            at -= 1;
        }
        at
    }

    pub(super) fn is_break(self, at: usize) -> bool {
        match self.byte(at) {
            b'\r' | b'\n' => true,
            0xc2 => self.byte(at + 1) == 0x85,
            0xe2 => self.byte(at + 1) == 0x80 && matches!(self.byte(at + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    /// Whether the character at a place is written as it is. Those beyond U+FFFF are not.
    pub(super) fn is_printable(self, at: usize) -> bool {
        match self.byte(at) {
            b'\n' | b' '..=b'~' | 0xc3..0xed | 0xee => true,
            0xc2 => self.byte(at + 1) >= 0xa0,
            0xed => self.byte(at + 1) < 0xa0,
            0xef => {
                let rest = (self.byte(at + 1), self.byte(at + 2));
                !matches!(rest, (0xbb, 0xbf) | (0xbf, 0xbe | 0xbf))
            }
            _ => false,
        }
    }
}

/// What may be done with a scalar in block context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Analysis {
    pub(super) multiline: bool,
    pub(super) plain_allowed: bool,
    pub(super) single_quoted_allowed: bool,
    pub(super) block_allowed: bool,
}

pub(super) fn analyze(text: Text) -> Analysis {
    if text.0.is_empty() {
        return Analysis {
            multiline: false,
            plain_allowed: true,
            single_quoted_allowed: true,
            block_allowed: false,
        };
    }
    let is_space = |at: usize| text.byte(at) == b' ';
    let last = text.last_character(text.0.len());
    let mut indicators = text.0.starts_with(b"---") || text.0.starts_with(b"...");
    let (mut multiline, mut special) = (false, false);
    let (mut break_space, mut space_break) = (false, false);
    let (mut after_space, mut after_break, mut after_blank) = (false, false, true);
    let mut at = 0;
    while at < text.0.len() {
        let next = at + text.character(at).len().max(1);
        let before_blank = next >= text.0.len() || matches!(text.byte(next), b' ' | b'\t');
        indicators |= match text.byte(at) {
            b'#' => at == 0 || after_blank,
            b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%'
            | b'@' | b'`' => at == 0,
            b'?' | b'-' => at == 0 && before_blank,
            b':' => before_blank,
            _ => false,
        };
        special |= !text.is_printable(at);
        let is_break = text.is_break(at);
        if is_space(at) {
            break_space |= after_break;
        } else if is_break {
            multiline = true;
            space_break |= after_space;
        }
        after_space = is_space(at);
        after_break = is_break;
        after_blank = is_break || matches!(text.byte(at), b' ' | b'\t' | 0);
        at = next;
    }
    let edges = is_space(0) || is_space(last) || multiline;
    let unquotable = break_space || space_break || special;
    Analysis {
        multiline,
        plain_allowed: !(edges || unquotable || indicators),
        single_quoted_allowed: !unquotable,
        block_allowed: !(is_space(last) || space_break || special),
    }
}

/// Whether the text is a number in base 60, which go-yaml quotes although it does not read it as one.
pub(super) fn is_base_60(text: &[u8]) -> bool {
    static NUMBER: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$").ok());
    if !matches!(text.first(), Some(b'+' | b'-' | b'0'..=b'9')) || !text.contains(&b':') {
        return false;
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    NUMBER.as_ref().is_some_and(|number| number.is_match(text))
}
