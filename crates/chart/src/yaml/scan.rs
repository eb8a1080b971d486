//! Tokens of YAML, as libyaml finds them: indentation and simple keys become tokens of their own.

use std::collections::{HashMap, VecDeque};

use super::input::{Input, Mark};
use crate::Failure;

/// How deep go-yaml lets flow collections and indentation nest.
const MAX_NESTING: usize = 10_000;
/// How many characters a simple key may span.
const MAX_KEY: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    StreamStart,
    StreamEnd,
    /// `%YAML`, major and minor.
    Version(u8, u8),
    /// `%TAG`, handle and prefix.
    TagDirective(Vec<u8>, Vec<u8>),
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    FlowEntry,
    BlockEntry,
    Key,
    Value,
    Alias(Vec<u8>),
    Anchor(Vec<u8>),
    /// Handle and suffix.
    Tag(Vec<u8>, Vec<u8>),
    /// The text, and whether it is plain, which is to say not quoted and no block.
    Scalar(Vec<u8>, bool),
}

/// A token, and the lines it starts and ends on, counted from zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where a key may have begun that only a later `:` tells.
#[derive(Clone, Copy, Debug, Default)]
struct SimpleKey {
    possible: bool,
    required: bool,
    token: usize,
    mark: Mark,
}

#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) input: Input<'a>,
    tokens: VecDeque<Token>,
    /// How many tokens the parser has taken.
    taken: usize,
    /// Whether the first of `tokens` is known to be what comes next.
    ready: bool,
    started: bool,
    /// The column of the block collection, -1 outside of all.
    pub(super) indent: isize,
    indents: Vec<isize>,
    pub(super) flow_level: usize,
    pub(super) key_allowed: bool,
    /// For each flow level.
    keys: Vec<SimpleKey>,
    /// The flow levels of possible keys by the numbers of the tokens that they begin with.
    levels: HashMap<usize, usize>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Self {
        Self {
            input: Input::new(raw),
            tokens: VecDeque::new(),
            taken: 0,
            ready: false,
            started: false,
            indent: -1,
            indents: Vec::new(),
            flow_level: 0,
            key_allowed: true,
            keys: vec![SimpleKey::default()],
            levels: HashMap::new(),
        }
    }

    /// The next token.
    pub(super) fn peek(&mut self) -> Result<&Token, Failure> {
        if !self.ready {
            while self.wants_more()? {
                self.fetch()?;
            }
            self.ready = true;
        }
        self.tokens.front().ok_or_else(|| Failure::error("yaml: unknown problem parsing YAML content"))
    }

    /// Takes the token that was peeked at.
    pub(super) fn next(&mut self) -> Option<Token> {
        self.ready = false;
        self.taken += 1;
        self.tokens.pop_front()
    }

    /// Whether the first token may yet turn out to begin a key, before which other tokens belong.
    fn wants_more(&mut self) -> Result<bool, Failure> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        match self.levels.get(&self.taken) {
            Some(&level) => self.is_valid_key(level),
            None => Ok(false),
        }
    }

    fn fetch(&mut self) -> Result<(), Failure> {
        self.input.need(1)?;
        if !self.started {
            self.started = true;
            self.push_at(Kind::StreamStart);
            return Ok(());
        }
        self.skip_to_token()?;
        self.unroll_indent(column(self.input.mark));
        self.input.need(4)?;
        if self.input.at_end() {
            return self.fetch_end();
        }
        let first = self.input.byte(0);
        if self.input.mark.column == 0 && first == b'%' {
            self.unroll_indent(-1);
            self.drop_key()?;
            self.key_allowed = false;
            let token = self.scan_directive()?;
            self.tokens.push_back(token);
            return Ok(());
        }
        if self.input.is_document_mark() {
            let kind = if first == b'-' { Kind::DocumentStart } else { Kind::DocumentEnd };
            self.unroll_indent(-1);
            self.drop_key()?;
            self.key_allowed = false;
            self.push_over(kind, 3);
            return Ok(());
        }
        let in_flow = self.flow_level > 0;
        let spaced = self.input.is_space_or_end(1);
        match first {
            b'[' => self.fetch_flow_start(Kind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(Kind::FlowMappingStart),
            b']' => self.fetch_flow_end(Kind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(Kind::FlowMappingEnd),
            b',' => {
                self.drop_key()?;
                self.key_allowed = true;
                self.push_over(Kind::FlowEntry, 1);
                Ok(())
            }
            b'-' if spaced => self.fetch_block_entry(),
            b'?' if in_flow || spaced => self.fetch_key(),
            b':' if in_flow || spaced => self.fetch_value(),
            b'*' | b'&' => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.scan_anchor(first == b'&')?;
                self.tokens.push_back(token);
                Ok(())
            }
            b'!' => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.scan_tag()?;
                self.tokens.push_back(token);
                Ok(())
            }
            b'|' | b'>' if !in_flow => {
                self.drop_key()?;
                self.key_allowed = true;
                let token = self.scan_block_scalar(first == b'|')?;
                self.tokens.push_back(token);
                Ok(())
            }
            b'\'' | b'"' => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.scan_quoted(first)?;
                self.tokens.push_back(token);
                Ok(())
            }
            _ if self.starts_plain(first) => {
                self.save_key()?;
                self.key_allowed = false;
                let token = self.scan_plain()?;
                self.tokens.push_back(token);
                Ok(())
            }
            _ => Err(self.input.error("found character that cannot start any token")),
        }
    }

    /// Whether a plain scalar begins with the next byte, which begins nothing else.
    fn starts_plain(&self, first: u8) -> bool {
        match first {
            b'-' => !self.input.is_blank(1),
            b'?' | b':' => self.flow_level == 0 && !self.input.is_space_or_end(1),
            b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"'
            | b'%' | b'@' | b'`' => false,
            _ => !self.input.is_space_or_end(0),
        }
    }

    /// Passes blanks, comments and line breaks.
    fn skip_to_token(&mut self) -> Result<(), Failure> {
        loop {
            self.input.need(1)?;
            if self.input.mark.column == 0 && self.input.is_bom() {
                self.input.skip();
            }
            self.input.need(1)?;
            // Tabs may not indent, so that none may be where a key could begin in block context.
            let tabs = self.flow_level > 0 || !self.key_allowed;
            while self.input.byte(0) == b' ' || tabs && self.input.byte(0) == b'\t' {
                self.input.skip();
                self.input.need(1)?;
            }
            if self.input.byte(0) == b'#' {
                self.skip_line()?;
            }
            if !self.input.is_break(0) {
                return Ok(());
            }
            self.input.need(2)?;
            self.input.skip_break();
            if self.flow_level == 0 {
                self.key_allowed = true;
            }
        }
    }

    /// Passes everything up to a line break.
    pub(super) fn skip_line(&mut self) -> Result<(), Failure> {
        while !self.input.is_break_or_end(0) {
            self.input.skip();
            self.input.need(1)?;
        }
        Ok(())
    }

    pub(super) fn skip_blanks(&mut self) -> Result<(), Failure> {
        self.input.need(1)?;
        while self.input.is_blank(0) {
            self.input.skip();
            self.input.need(1)?;
        }
        Ok(())
    }

    /// Adds a token without width.
    fn push_at(&mut self, kind: Kind) {
        let line = self.input.mark.line;
        self.tokens.push_back(Token { kind, start: line, end: line });
    }

    /// Adds a token and passes its characters.
    fn push_over(&mut self, kind: Kind, width: usize) {
        self.push_at(kind);
        for _ in 0..width {
            self.input.skip();
        }
    }

    /// Adds a token before the token of this number, at the end if that was taken already.
    fn insert(&mut self, number: usize, token: Token) {
        match number.checked_sub(self.taken) {
            Some(position) if position < self.tokens.len() => self.tokens.insert(position, token),
            _ => self.tokens.push_back(token),
        }
    }

    fn top_key(&mut self) -> Option<&mut SimpleKey> {
        self.keys.last_mut()
    }

    /// Whether the key of a level is possible still: keys end on the line they begin on.
    fn is_valid_key(&mut self, level: usize) -> Result<bool, Failure> {
        let mark = self.input.mark;
        let Some(key) = self.keys.get_mut(level).filter(|key| key.possible) else { return Ok(false) };
        if key.mark.line >= mark.line && key.mark.index + MAX_KEY >= mark.index {
            return Ok(true);
        }
        if key.required {
            return Err(self.input.error("could not find expected ':'"));
        }
        key.possible = false;
        Ok(false)
    }

    /// Notes that a key may begin here.
    fn save_key(&mut self) -> Result<(), Failure> {
        if !self.key_allowed {
            return Ok(());
        }
        let mark = self.input.mark;
        let required = self.flow_level == 0 && self.indent == column(mark);
        let token = self.taken + self.tokens.len();
        self.drop_key()?;
        if let Some(top) = self.top_key() {
            *top = SimpleKey { possible: true, required, token, mark };
        }
        self.levels.insert(token, self.keys.len() - 1);
        Ok(())
    }

    /// Gives up the key of this level.
    fn drop_key(&mut self) -> Result<(), Failure> {
        let Some(key) = self.keys.last_mut().filter(|key| key.possible) else { return Ok(()) };
        if key.required {
            return Err(self.input.error("could not find expected ':'"));
        }
        key.possible = false;
        self.levels.remove(&key.token);
        Ok(())
    }

    /// Begins a block collection if this column is further in than the one it is in.
    fn roll_indent(&mut self, mark: Mark, number: Option<usize>, kind: Kind) -> Result<(), Failure> {
        if self.flow_level > 0 || self.indent >= column(mark) {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column(mark);
        if self.indents.len() > MAX_NESTING {
            return Err(self.input.error(format!("exceeded max depth of {MAX_NESTING}")));
        }
        let token = Token { kind, start: mark.line, end: mark.line };
        self.insert(number.unwrap_or(usize::MAX), token);
        Ok(())
    }

    /// Ends the block collections that are further in than this column.
    fn unroll_indent(&mut self, column: isize) {
        if self.flow_level > 0 {
            return;
        }
        while self.indent > column {
            self.push_at(Kind::BlockEnd);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn fetch_end(&mut self) -> Result<(), Failure> {
        if self.input.mark.column != 0 {
            self.input.mark.column = 0;
            self.input.mark.line += 1;
        }
        self.unroll_indent(-1);
        self.drop_key()?;
        self.key_allowed = false;
        self.push_at(Kind::StreamEnd);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: Kind) -> Result<(), Failure> {
        self.save_key()?;
        let token = self.taken + self.tokens.len();
        let mark = self.input.mark;
        self.keys.push(SimpleKey { possible: false, required: false, token, mark });
        self.flow_level += 1;
        if self.flow_level > MAX_NESTING {
            return Err(self.input.error(format!("exceeded max depth of {MAX_NESTING}")));
        }
        self.key_allowed = true;
        self.push_over(kind, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: Kind) -> Result<(), Failure> {
        self.drop_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            // An empty collection has the number of its own first token here, and so gives up the key that it may begin
            // itself. go-yaml does too.
            if let Some(key) = self.keys.pop() {
                self.levels.remove(&key.token);
            }
        }
        self.key_allowed = false;
        self.push_over(kind, 1);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Failure> {
        if self.flow_level == 0 {
            if !self.key_allowed {
                return Err(self.input.error("block sequence entries are not allowed in this context"));
            }
            self.roll_indent(self.input.mark, None, Kind::BlockSequenceStart)?;
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.push_over(Kind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Failure> {
        if self.flow_level == 0 {
            if !self.key_allowed {
                return Err(self.input.error("mapping keys are not allowed in this context"));
            }
            self.roll_indent(self.input.mark, None, Kind::BlockMappingStart)?;
        }
        self.drop_key()?;
        self.key_allowed = self.flow_level == 0;
        self.push_over(Kind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Failure> {
        let level = self.keys.len() - 1;
        if self.is_valid_key(level)? {
            let key = self.keys.get(level).copied().unwrap_or_default();
            let line = key.mark.line;
            self.insert(key.token, Token { kind: Kind::Key, start: line, end: line });
            self.roll_indent(key.mark, Some(key.token), Kind::BlockMappingStart)?;
            if let Some(top) = self.top_key() {
                top.possible = false;
            }
            self.levels.remove(&key.token);
            self.key_allowed = false;
        } else {
            if self.flow_level == 0 {
                if !self.key_allowed {
                    return Err(self.input.error("mapping values are not allowed in this context"));
                }
                self.roll_indent(self.input.mark, None, Kind::BlockMappingStart)?;
            }
            self.key_allowed = self.flow_level == 0;
        }
        self.push_over(Kind::Value, 1);
        Ok(())
    }
}

/// A column to compare with [`Scanner::indent`].
pub(super) fn column(mark: Mark) -> isize {
    isize::try_from(mark.column).unwrap_or(isize::MAX)
}
