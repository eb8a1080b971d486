//! The lexer: text and actions in, items out. Line numbers are those that Go's errors have.

use std::borrow::Cow;

use super::text::{code_point, is_alphanumeric, is_space, quote};
use crate::fmt::is_printable;

const LEFT_DELIM: &str = "{{";
const RIGHT_DELIM: &str = "}}";
const LEFT_COMMENT: &str = "/*";
const RIGHT_COMMENT: &str = "*/";
/// A trim marker and the space beside it.
const TRIM_MARKER_LEN: usize = 2;
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The text of the item is an error.
    Error,
    Bool,
    /// Any other printable character of ASCII, such as a comma.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Keyword(Keyword),
}

/// Words, and the dot, that are no identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

fn keyword(word: &str) -> Option<Keyword> {
    Some(match word {
        "block" => Keyword::Block,
        "break" => Keyword::Break,
        "continue" => Keyword::Continue,
        "define" => Keyword::Define,
        "else" => Keyword::Else,
        "end" => Keyword::End,
        "if" => Keyword::If,
        "nil" => Keyword::Nil,
        "range" => Keyword::Range,
        "template" => Keyword::Template,
        "with" => Keyword::With,
        _ => return None,
    })
}

/// A token.
#[derive(Clone, Debug)]
pub(super) struct Item<'s> {
    pub(super) kind: Kind,
    /// Where it begins, in bytes.
    pub(super) pos: usize,
    pub(super) val: Cow<'s, str>,
    /// The line at its beginning.
    pub(super) line: usize,
}

impl Default for Item<'_> {
    fn default() -> Self {
        Self { kind: Kind::Error, pos: 0, val: Cow::Borrowed(""), line: 0 }
    }
}

impl std::fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Eof => f.write_str("EOF"),
            Kind::Error => f.write_str(&self.val),
            Kind::Keyword(_) => write!(f, "<{}>", self.val),
            _ if self.val.len() > 10 => {
                let start: String = self.val.chars().take(10).collect();
                write!(f, "{}...", quote(&start))
            }
            _ => f.write_str(&quote(&self.val)),
        }
    }
}

/// The state of the scanner.
#[derive(Debug)]
pub(super) struct Lexer<'s> {
    input: &'s str,
    pos: usize,
    /// Where the item being scanned begins.
    start: usize,
    /// Once the end was read, nothing is ever backed up.
    at_eof: bool,
    paren_depth: i64,
    line: usize,
    start_line: usize,
    inside_action: bool,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(input: &'s str) -> Self {
        Self {
            input,
            pos: 0,
            start: 0,
            at_eof: false,
            paren_depth: 0,
            line: 1,
            start_line: 1,
            inside_action: false,
        }
    }

    pub(super) fn next_item(&mut self) -> Item<'s> {
        if self.inside_action { self.inside_action() } else { self.text() }
    }

    fn rest(&self) -> &'s str {
        self.input.get(self.pos..).unwrap_or_default()
    }

    /// The text of the item so far.
    fn pending(&self) -> &'s str {
        self.input.get(self.start..self.pos).unwrap_or_default()
    }

    fn next(&mut self) -> Option<char> {
        let Some(c) = self.rest().chars().next() else {
            self.at_eof = true;
            return None;
        };
        self.pos += c.len_utf8();
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn peek(&mut self) -> Option<char> {
        let c = self.next();
        self.backup();
        c
    }

    fn backup(&mut self) {
        if self.at_eof {
            return;
        }
        if let Some(c) = self.input.get(..self.pos).unwrap_or_default().chars().next_back() {
            self.pos -= c.len_utf8();
            if c == '\n' {
                self.line = self.line.saturating_sub(1);
            }
        }
    }

    /// Ends the item here.
    fn emit(&mut self, kind: Kind) -> Item<'s> {
        let item = Item { kind, pos: self.start, val: self.pending().into(), line: self.start_line };
        self.start = self.pos;
        self.start_line = self.line;
        item
    }

    /// Skips what is pending, which [`Self::next`] has not read.
    fn ignore(&mut self) {
        self.count_lines();
        self.start = self.pos;
        self.start_line = self.line;
    }

    fn count_lines(&mut self) {
        self.line += self.pending().matches('\n').count();
    }

    fn accept(&mut self, valid: &str) -> bool {
        if self.next().is_some_and(|c| valid.contains(c)) {
            return true;
        }
        self.backup();
        false
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    /// An error, after which there is no input.
    fn error(&mut self, message: impl Into<String>) -> Item<'s> {
        let val = Cow::Owned(message.into());
        let item = Item { kind: Kind::Error, pos: self.start, val, line: self.start_line };
        self.start = 0;
        self.pos = 0;
        self.input = "";
        item
    }

    /// Text until an action; comments are skipped.
    fn text(&mut self) -> Item<'s> {
        loop {
            let Some(length) = self.rest().find(LEFT_DELIM) else {
                self.pos = self.input.len();
                if self.pos > self.start {
                    self.count_lines();
                    return self.emit(Kind::Text);
                }
                return self.emit(Kind::Eof);
            };
            if length > 0 {
                let end = self.pos + length;
                let text = self.input.get(self.start..end).unwrap_or_default();
                let action = self.input.get(end + LEFT_DELIM.len()..).unwrap_or_default();
                let trimmed = if has_left_trim_marker(action) { text.trim_end_matches(SPACES) } else { text };
                self.pos = self.start + trimmed.len();
                self.count_lines();
                let item = self.emit(Kind::Text);
                self.pos = end;
                self.ignore();
                if !item.val.is_empty() {
                    return item;
                }
            }
            if let Some(item) = self.left_delim() {
                return item;
            }
        }
    }

    /// The left delimiter, or a comment, which gives nothing unless it is wrong.
    fn left_delim(&mut self) -> Option<Item<'s>> {
        self.pos += LEFT_DELIM.len();
        let marker = if has_left_trim_marker(self.rest()) { TRIM_MARKER_LEN } else { 0 };
        if self.rest().get(marker..).is_some_and(|rest| rest.starts_with(LEFT_COMMENT)) {
            self.pos += marker;
            self.ignore();
            return self.comment();
        }
        let item = self.emit(Kind::LeftDelim);
        self.inside_action = true;
        self.pos += marker;
        self.ignore();
        self.paren_depth = 0;
        Some(item)
    }

    fn comment(&mut self) -> Option<Item<'s>> {
        self.pos += LEFT_COMMENT.len();
        let Some(length) = self.rest().find(RIGHT_COMMENT) else {
            return Some(self.error("unclosed comment"));
        };
        self.pos += length + RIGHT_COMMENT.len();
        let Some(trim) = self.at_right_delim() else {
            return Some(self.error("comment ends before closing delimiter"));
        };
        self.pos += RIGHT_DELIM.len() + if trim { TRIM_MARKER_LEN } else { 0 };
        if trim {
            self.trim_left();
        }
        self.ignore();
        None
    }

    /// Whether a right delimiter is next, and if so, whether it has a trim marker.
    fn at_right_delim(&self) -> Option<bool> {
        let rest = self.rest();
        if has_right_trim_marker(rest)
            && rest.get(TRIM_MARKER_LEN..).is_some_and(|rest| rest.starts_with(RIGHT_DELIM))
        {
            return Some(true);
        }
        rest.starts_with(RIGHT_DELIM).then_some(false)
    }

    fn trim_left(&mut self) {
        let rest = self.rest();
        self.pos += rest.len() - rest.trim_start_matches(SPACES).len();
    }

    fn right_delim(&mut self) -> Item<'s> {
        let trim = self.at_right_delim() == Some(true);
        if trim {
            self.pos += TRIM_MARKER_LEN;
            self.ignore();
        }
        self.pos += RIGHT_DELIM.len();
        let item = self.emit(Kind::RightDelim);
        if trim {
            self.trim_left();
            self.ignore();
        }
        self.inside_action = false;
        item
    }

    fn inside_action(&mut self) -> Item<'s> {
        if self.at_right_delim().is_some() {
            if self.paren_depth == 0 {
                return self.right_delim();
            }
            return self.error("unclosed left paren");
        }
        let Some(c) = self.next() else { return self.error("unclosed action") };
        match c {
            c if is_space(c) => {
                self.backup();
                self.space()
            }
            '=' => self.emit(Kind::Assign),
            ':' if self.next() == Some('=') => self.emit(Kind::Declare),
            ':' => self.error("expected :="),
            '|' => self.emit(Kind::Pipe),
            '"' => self.quoted('"', Kind::String, "unterminated quoted string"),
            '`' => self.raw_string(),
            '$' if self.at_terminator() => self.emit(Kind::Variable),
            '$' => self.field_or_variable(Kind::Variable),
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant"),
            '.' if self.rest().starts_with(|c: char| !c.is_ascii_digit()) => {
                self.field_or_variable(Kind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.backup();
                self.number()
            }
            c if is_alphanumeric(c) => {
                self.backup();
                self.identifier()
            }
            '(' => {
                self.paren_depth += 1;
                self.emit(Kind::LeftParen)
            }
            ')' => {
                self.paren_depth -= 1;
                if self.paren_depth < 0 {
                    return self.error("unexpected right paren");
                }
                self.emit(Kind::RightParen)
            }
            c if c.is_ascii() && is_printable(c) => self.emit(Kind::Char),
            c => self.error(format!("unrecognized character in action: {}", code_point(c))),
        }
    }

    fn space(&mut self) -> Item<'s> {
        let mut count = 0_usize;
        while self.peek().is_some_and(is_space) {
            self.next();
            count += 1;
        }
        // The last space may belong to the right delimiter.
        let last = self.input.get(self.pos.saturating_sub(1)..).unwrap_or_default();
        if has_right_trim_marker(last)
            && last.get(TRIM_MARKER_LEN..).is_some_and(|rest| rest.starts_with(RIGHT_DELIM))
        {
            self.backup();
            if count == 1 {
                return self.right_delim();
            }
        }
        self.emit(Kind::Space)
    }

    fn word(&mut self) {
        while self.next().is_some_and(is_alphanumeric) {}
        self.backup();
    }

    fn bad_character(&mut self) -> Item<'s> {
        let c = self.rest().chars().next().unwrap_or_default();
        self.error(format!("bad character {}", code_point(c)))
    }

    fn identifier(&mut self) -> Item<'s> {
        self.word();
        if !self.at_terminator() {
            return self.bad_character();
        }
        match self.pending() {
            "true" | "false" => self.emit(Kind::Bool),
            word => self.emit(keyword(word).map_or(Kind::Identifier, Kind::Keyword)),
        }
    }

    /// A field or variable, of which the dot or dollar is scanned.
    fn field_or_variable(&mut self, kind: Kind) -> Item<'s> {
        if self.at_terminator() {
            return self.emit(if kind == Kind::Field { Kind::Keyword(Keyword::Dot) } else { kind });
        }
        self.word();
        if !self.at_terminator() {
            return self.bad_character();
        }
        self.emit(kind)
    }

    /// Whether something that may follow an identifier is next.
    fn at_terminator(&mut self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(c) => is_space(c) || self.rest().starts_with(RIGHT_DELIM),
        }
    }

    /// A string or character constant. The parser checks what is inside.
    fn quoted(&mut self, quote: char, kind: Kind, unterminated: &'static str) -> Item<'s> {
        loop {
            match self.next() {
                Some('\\') if !matches!(self.next(), None | Some('\n')) => {}
                None | Some('\n' | '\\') => return self.error(unterminated),
                Some(c) if c == quote => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn raw_string(&mut self) -> Item<'s> {
        loop {
            match self.next() {
                None => return self.error("unterminated raw quoted string"),
                Some('`') => return self.emit(Kind::RawString),
                Some(_) => {}
            }
        }
    }

    /// A number. The parser checks it, so more than numbers passes here.
    fn number(&mut self) -> Item<'s> {
        let mut kind = Kind::Number;
        let mut good = self.scan_number();
        if good && matches!(self.peek(), Some('+' | '-')) {
            kind = Kind::Complex;
            good = self.scan_number() && self.pending().ends_with('i');
        }
        if good {
            return self.emit(kind);
        }
        let text = quote(self.pending());
        self.error(format!("bad number syntax: {text}"))
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let (mut digits, mut exponent) = ("0123456789_", "eE");
        if self.accept("0") {
            if self.accept("xX") {
                (digits, exponent) = ("0123456789abcdefABCDEF_", "pP");
            } else if self.accept("oO") {
                (digits, exponent) = ("01234567_", "");
            } else if self.accept("bB") {
                (digits, exponent) = ("01_", "");
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        if !exponent.is_empty() && self.accept(exponent) {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

fn has_left_trim_marker(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES))
}

fn has_right_trim_marker(text: &str) -> bool {
    text.strip_prefix(SPACES).is_some_and(|rest| rest.starts_with('-'))
}
