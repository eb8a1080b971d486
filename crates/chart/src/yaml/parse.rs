//! Nodes of the first document of a text.

use std::collections::HashMap;
use std::rc::Rc;

use super::scan::{Kind, Scanner};
use crate::Failure;
use crate::value::Ctx;

/// What go-yaml tells apart of a scalar's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    None,
    Str,
    Bool,
    Int,
    Float,
    Null,
    Timestamp,
    Binary,
    Merge,
    /// `!`, and every tag that means nothing to go-yaml.
    Other,
}

impl Tag {
    fn of(tag: &[u8]) -> Self {
        if tag.is_empty() {
            return Self::None;
        }
        match tag.strip_prefix(b"tag:yaml.org,2002:").unwrap_or_default() {
            b"str" => Self::Str,
            b"bool" => Self::Bool,
            b"int" => Self::Int,
            b"float" => Self::Float,
            b"null" => Self::Null,
            b"timestamp" => Self::Timestamp,
            b"binary" => Self::Binary,
            b"merge" => Self::Merge,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The text, and whether what it looks like tells its type.
    Scalar {
        text: Rc<str>,
        implicit: bool,
        tag: Tag,
    },
    Sequence(Vec<usize>),
    /// Keys and values in turn.
    Mapping(Vec<usize>),
    /// The name and the node.
    Alias(Rc<str>, usize),
}

/// A node, and the line it starts on, counted from zero.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    pub(super) line: usize,
}

#[derive(Debug)]
struct Parser<'a> {
    scanner: Scanner<'a>,
    ctx: &'a mut Ctx,
    nodes: Vec<Node>,
    anchors: HashMap<Vec<u8>, usize>,
    /// Handles and prefixes.
    directives: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Parses the first document into nodes and the number of its root, `None` if there is no document.
pub(super) fn parse(ctx: &mut Ctx, text: &[u8]) -> Result<Option<(Vec<Node>, usize)>, Failure> {
    ctx.step(text.len())?;
    ctx.room(text.len())?;
    let mut parser = Parser {
        scanner: Scanner::new(text),
        ctx,
        nodes: Vec::new(),
        anchors: HashMap::new(),
        directives: Vec::new(),
    };
    Ok(parser.document()?.map(|root| (parser.nodes, root)))
}

impl Parser<'_> {
    fn peek(&mut self) -> Result<&Kind, Failure> {
        self.scanner.peek().map(|token| &token.kind)
    }

    /// The lines on which the next token starts and ends.
    fn lines(&mut self) -> Result<(usize, usize), Failure> {
        self.scanner.peek().map(|token| (token.start, token.end))
    }

    fn is_next(&mut self, kinds: &[Kind]) -> Result<bool, Failure> {
        self.peek().map(|kind| kinds.contains(kind))
    }

    fn skip_if(&mut self, kind: &Kind) -> Result<bool, Failure> {
        let found = self.peek()? == kind;
        if found {
            self.scanner.next();
        }
        Ok(found)
    }

    /// An error at the next token.
    fn error<T>(&mut self, problem: &str) -> Result<T, Failure> {
        let (line, _) = self.lines()?;
        Err(error(line, problem))
    }

    fn document(&mut self) -> Result<Option<usize>, Failure> {
        self.peek()?;
        self.scanner.next();
        let root = match self.peek()? {
            Kind::StreamEnd => return Ok(None),
            Kind::Version(..) | Kind::TagDirective(..) | Kind::DocumentStart => {
                self.process_directives()?;
                if !self.skip_if(&Kind::DocumentStart)? {
                    return self.error("did not find expected <document start>");
                }
                match self.peek()? {
                    Kind::Version(..)
                    | Kind::TagDirective(..)
                    | Kind::DocumentStart
                    | Kind::DocumentEnd
                    | Kind::StreamEnd => {
                        let (line, _) = self.lines()?;
                        self.empty(line)?
                    }
                    _ => self.node(true, false, 0)?,
                }
            }
            _ => {
                self.process_directives()?;
                self.node(true, false, 0)?
            }
        };
        // What follows the document is read no further than this, and wrong only if it is no token.
        self.peek()?;
        Ok(Some(root))
    }

    fn process_directives(&mut self) -> Result<(), Failure> {
        let mut versioned = false;
        loop {
            let (line, _) = self.lines()?;
            match self.peek()?.clone() {
                Kind::Version(major, minor) => {
                    if versioned {
                        return Err(error(line, "found duplicate %YAML directive"));
                    }
                    if (major, minor) != (1, 1) {
                        return Err(error(line, "found incompatible YAML document"));
                    }
                    versioned = true;
                }
                Kind::TagDirective(handle, prefix) => {
                    self.ctx.step(self.directives.len())?;
                    if self.directives.iter().any(|(known, _)| *known == handle) {
                        return Err(error(line, "found duplicate %TAG directive"));
                    }
                    self.directives.push((handle, prefix));
                }
                _ => break,
            }
            self.scanner.next();
        }
        for (handle, prefix) in [(b"!".as_slice(), b"!".as_slice()), (b"!!", b"tag:yaml.org,2002:")] {
            if !self.directives.iter().any(|(known, _)| known == handle) {
                self.directives.push((handle.to_vec(), prefix.to_vec()));
            }
        }
        Ok(())
    }

    fn add(&mut self, content: Content, line: usize) -> Result<usize, Failure> {
        self.ctx.step(1)?;
        self.ctx.room(size_of::<Node>())?;
        self.nodes.push(Node { content, line });
        Ok(self.nodes.len() - 1)
    }

    /// A scalar where there is nothing.
    fn empty(&mut self, line: usize) -> Result<usize, Failure> {
        self.add(Content::Scalar { text: "".into(), implicit: true, tag: Tag::None }, line)
    }

    /// The tag that a handle and a suffix stand for.
    fn resolve_tag(&mut self, handle: &[u8], suffix: Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
        if handle.is_empty() {
            return Ok(Some(suffix));
        }
        self.ctx.step(self.directives.len())?;
        let Some((_, prefix)) = self.directives.iter().find(|(known, _)| known == handle) else {
            return Ok(None);
        };
        self.ctx.room(prefix.len() + suffix.len())?;
        Ok(Some([prefix.as_slice(), &suffix].concat()).filter(|tag| !tag.is_empty()))
    }

    /// A node: in block context or flow context, and as a sequence that is indented no further than its key or not.
    fn node(&mut self, block: bool, indentless: bool, depth: u32) -> Result<usize, Failure> {
        self.ctx.depth(depth)?;
        let (start, _) = self.lines()?;
        if let Kind::Alias(name) = self.peek()? {
            let name = name.clone();
            self.scanner.next();
            let text = String::from_utf8_lossy(&name).as_ref().into();
            let Some(&target) = self.anchors.get(&name) else {
                return Err(Failure::error(format!("yaml: unknown anchor '{text}' referenced")));
            };
            return self.add(Content::Alias(text, target), start);
        }
        let mut anchor = None;
        let mut tag = None;
        for _ in 0..2 {
            let (line, _) = self.lines()?;
            match self.peek()?.clone() {
                Kind::Anchor(name) if anchor.is_none() => anchor = Some(name),
                Kind::Tag(handle, suffix) if tag.is_none() => tag = Some((line, handle, suffix)),
                _ => break,
            }
            self.scanner.next();
        }
        let tag = match tag {
            Some((line, handle, suffix)) => match self.resolve_tag(&handle, suffix)? {
                Some(tag) => tag,
                // The next token may be wrong in itself, which is told before.
                None => {
                    self.peek()?;
                    return Err(error(line, "found undefined tag handle"));
                }
            },
            None => Vec::new(),
        };
        let scalar = |text: Vec<u8>, implicit| {
            let text = match String::from_utf8(text) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            };
            Content::Scalar { text: text.into(), implicit, tag: Tag::of(&tag) }
        };
        let content = match self.peek()? {
            Kind::BlockEntry if indentless => Content::Sequence(Vec::new()),
            Kind::FlowSequenceStart => Content::Sequence(Vec::new()),
            Kind::FlowMappingStart => Content::Mapping(Vec::new()),
            Kind::BlockSequenceStart if block => Content::Sequence(Vec::new()),
            Kind::BlockMappingStart if block => Content::Mapping(Vec::new()),
            Kind::Scalar(text, plain) => {
                let implicit = tag.is_empty() && *plain || tag == b"!";
                scalar(text.clone(), implicit)
            }
            _ if anchor.is_some() || !tag.is_empty() => scalar(Vec::new(), tag.is_empty()),
            _ => return self.error("did not find expected node content"),
        };
        let node = self.add(content, start)?;
        if let Some(name) = anchor {
            self.anchors.insert(name, node);
        }
        let children = match self.peek()? {
            Kind::BlockEntry if indentless => self.indentless_sequence(depth)?,
            Kind::FlowSequenceStart => self.flow_sequence(depth)?,
            Kind::FlowMappingStart => self.flow_mapping(depth)?,
            Kind::BlockSequenceStart if block => self.block_sequence(depth)?,
            Kind::BlockMappingStart if block => self.block_mapping(depth)?,
            Kind::Scalar(..) => {
                self.scanner.next();
                return Ok(node);
            }
            _ => return Ok(node),
        };
        if let Some(Content::Sequence(list) | Content::Mapping(list)) =
            self.nodes.get_mut(node).map(|node| &mut node.content)
        {
            *list = children;
        }
        Ok(node)
    }

    fn block_sequence(&mut self, depth: u32) -> Result<Vec<usize>, Failure> {
        self.scanner.next();
        let mut items = Vec::new();
        loop {
            let (_, line) = self.lines()?;
            if self.skip_if(&Kind::BlockEntry)? {
                items.push(if self.is_next(&[Kind::BlockEntry, Kind::BlockEnd])? {
                    self.empty(line)?
                } else {
                    self.node(true, false, depth + 1)?
                });
            } else if self.skip_if(&Kind::BlockEnd)? {
                return Ok(items);
            } else {
                return self.error("did not find expected '-' indicator");
            }
        }
    }

    fn indentless_sequence(&mut self, depth: u32) -> Result<Vec<usize>, Failure> {
        let ends = [Kind::BlockEntry, Kind::Key, Kind::Value, Kind::BlockEnd];
        let mut items = Vec::new();
        loop {
            let (_, line) = self.lines()?;
            if !self.skip_if(&Kind::BlockEntry)? {
                return Ok(items);
            }
            items.push(if self.is_next(&ends)? {
                self.empty(line)?
            } else {
                self.node(true, false, depth + 1)?
            });
        }
    }

    fn block_mapping(&mut self, depth: u32) -> Result<Vec<usize>, Failure> {
        let ends = [Kind::Key, Kind::Value, Kind::BlockEnd];
        self.scanner.next();
        let mut items = Vec::new();
        loop {
            let (_, line) = self.lines()?;
            if self.skip_if(&Kind::BlockEnd)? {
                return Ok(items);
            }
            if !self.skip_if(&Kind::Key)? {
                return self.error("did not find expected key");
            }
            items.push(if self.is_next(&ends)? {
                self.empty(line)?
            } else {
                self.node(true, true, depth + 1)?
            });
            let (start, end) = self.lines()?;
            items.push(if !self.skip_if(&Kind::Value)? {
                self.empty(start)?
            } else if self.is_next(&ends)? {
                self.empty(end)?
            } else {
                self.node(true, true, depth + 1)?
            });
        }
    }

    fn flow_sequence(&mut self, depth: u32) -> Result<Vec<usize>, Failure> {
        self.scanner.next();
        let mut items = Vec::new();
        let mut first = true;
        loop {
            if self.skip_if(&Kind::FlowSequenceEnd)? {
                return Ok(items);
            }
            if !first {
                if !self.skip_if(&Kind::FlowEntry)? {
                    return self.error("did not find expected ',' or ']'");
                }
                if self.skip_if(&Kind::FlowSequenceEnd)? {
                    return Ok(items);
                }
            }
            first = false;
            let (line, _) = self.lines()?;
            items.push(if self.skip_if(&Kind::Key)? {
                self.flow_pair(line, depth + 1)?
            } else {
                self.node(false, false, depth + 1)?
            });
        }
    }

    /// A mapping of one entry in a flow sequence, after its key indicator.
    fn flow_pair(&mut self, line: usize, depth: u32) -> Result<usize, Failure> {
        self.ctx.depth(depth)?;
        let ends = [Kind::FlowEntry, Kind::FlowSequenceEnd];
        let pair = self.add(Content::Mapping(Vec::new()), line)?;
        let (_, end) = self.lines()?;
        let key = if self.is_next(&ends)? || self.is_next(&[Kind::Value])? {
            // libyaml passes the token that it looked at, so that no flow sequence with an empty key is valid.
            self.scanner.next();
            self.empty(end)?
        } else {
            self.node(false, false, depth + 1)?
        };
        let (start, _) = self.lines()?;
        let value = if self.skip_if(&Kind::Value)? && !self.is_next(&ends)? {
            self.node(false, false, depth + 1)?
        } else {
            self.empty(start)?
        };
        if let Some(node) = self.nodes.get_mut(pair) {
            node.content = Content::Mapping(vec![key, value]);
        }
        Ok(pair)
    }

    fn flow_mapping(&mut self, depth: u32) -> Result<Vec<usize>, Failure> {
        let ends = [Kind::FlowEntry, Kind::FlowMappingEnd];
        self.scanner.next();
        let mut items = Vec::new();
        let mut first = true;
        loop {
            if self.skip_if(&Kind::FlowMappingEnd)? {
                return Ok(items);
            }
            if !first {
                if !self.skip_if(&Kind::FlowEntry)? {
                    return self.error("did not find expected ',' or '}'");
                }
                if self.skip_if(&Kind::FlowMappingEnd)? {
                    return Ok(items);
                }
            }
            first = false;
            if !self.skip_if(&Kind::Key)? {
                items.push(self.node(false, false, depth + 1)?);
                let (line, _) = self.lines()?;
                items.push(self.empty(line)?);
                continue;
            }
            let (line, _) = self.lines()?;
            items.push(if self.is_next(&ends)? || self.is_next(&[Kind::Value])? {
                self.empty(line)?
            } else {
                self.node(false, false, depth + 1)?
            });
            let (line, _) = self.lines()?;
            items.push(if self.skip_if(&Kind::Value)? && !self.is_next(&ends)? {
                self.node(false, false, depth + 1)?
            } else {
                self.empty(line)?
            });
        }
    }
}

/// An error of the parser. Its lines are counted from zero, unlike those of the scanner, and the first is not told.
fn error(line: usize, problem: &str) -> Failure {
    match line {
        0 => Failure::error(format!("yaml: {problem}")),
        line => Failure::error(format!("yaml: line {line}: {problem}")),
    }
}
