//! What go-yaml v2 decodes into an `interface{}`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use super::parse::{Content, Node, Tag, parse};
use super::resolve::resolve;
use super::syntax;
use crate::Failure;
use crate::value::Ctx;

/// A decoded value. It holds no maps of a [`crate::value::Heap`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer too large for `int64`.
    Uint(u64),
    Float(f64),
    Str(Rc<str>),
    /// What `!!binary` stood for, if it is not UTF-8.
    Raw(Rc<[u8]>),
    List(Vec<Data>),
    Map(BTreeMap<Key, Data>),
}

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Null,
    Bool(bool),
    Float(FloatKey),
    Int(i64),
    Str(Rc<str>),
    Raw(Rc<[u8]>),
    Uint(u64),
}

/// A float as a key: zeros are equal, and no two NaNs are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatKey {
    pub(crate) float: f64,
    nan: usize,
}

impl Ord for FloatKey {
    fn cmp(&self, other: &Self) -> Ordering {
        // Adding zero makes a negative zero positive.
        let floats = (self.float + 0.0).total_cmp(&(other.float + 0.0));
        floats.then(self.nan.cmp(&other.nan))
    }
}

impl PartialOrd for FloatKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FloatKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for FloatKey {}

/// Decodes the first document, as go-yaml's `Unmarshal` does, or `UnmarshalStrict` if `strict`, which refuses keys that are
/// there twice.
pub(crate) fn decode(ctx: &mut Ctx, text: &[u8], strict: bool) -> Result<Data, Failure> {
    let Some((nodes, root)) = parse(ctx, text)? else { return Ok(Data::Null) };
    let mut decoder = Decoder {
        ctx,
        nodes: &nodes,
        strict,
        count: 0,
        aliased: 0,
        alias_depth: 0,
        active: HashSet::new(),
        nans: 0,
        problems: Vec::new(),
    };
    // go-yaml counts the document as a node.
    decoder.count_node()?;
    let data = decoder.node(root, 0)?;
    if decoder.problems.is_empty() {
        return Ok(data);
    }
    let problems = decoder.problems.join("\n  ");
    Err(Failure::error(format!("yaml: unmarshal errors:\n  {problems}")))
}

struct Decoder<'a> {
    ctx: &'a mut Ctx,
    nodes: &'a [Node],
    strict: bool,
    /// Nodes decoded, and how many of them within an alias.
    count: u32,
    aliased: u32,
    alias_depth: u32,
    /// The aliases that are being decoded.
    active: HashSet<usize>,
    nans: usize,
    problems: Vec<String>,
}

impl Decoder<'_> {
    /// Notes that a node is decoded. Most nodes of a small document may come out of aliases, few of a large one.
    fn count_node(&mut self) -> Result<(), Failure> {
        const LOW: f64 = 400_000.0;
        const HIGH: f64 = 4_000_000.0;
        self.ctx.step(1)?;
        self.count = self.count.saturating_add(1);
        if self.alias_depth > 0 {
            self.aliased = self.aliased.saturating_add(1);
        }
        if self.aliased <= 100 || self.count <= 1000 {
            return Ok(());
        }
        let (count, aliased) = (f64::from(self.count), f64::from(self.aliased));
        let allowed = if count <= LOW {
            0.99
        } else if count >= HIGH {
            0.10
        } else {
            0.99 - 0.89 * ((count - LOW) / (HIGH - LOW))
        };
        if aliased / count > allowed {
            return Err(Failure::error("yaml: document contains excessive aliasing"));
        }
        Ok(())
    }

    fn node(&mut self, id: usize, depth: u32) -> Result<Data, Failure> {
        self.ctx.depth(depth)?;
        self.count_node()?;
        let nodes = self.nodes;
        match nodes.get(id).map(|node| &node.content) {
            Some(Content::Scalar { text, implicit, tag }) => scalar(text, *implicit, *tag),
            Some(Content::Sequence(items)) => {
                self.ctx.room(items.len().saturating_mul(size_of::<Data>()))?;
                let items = items.iter().map(|item| self.node(*item, depth + 1));
                items.collect::<Result<_, _>>().map(Data::List)
            }
            Some(Content::Mapping(_)) => {
                let mut map = BTreeMap::new();
                self.mapping(id, &mut map, depth)?;
                Ok(Data::Map(map))
            }
            Some(Content::Alias(name, target)) => {
                self.enter(id, name)?;
                let data = self.node(*target, depth + 1)?;
                self.leave(id);
                Ok(data)
            }
            None => Ok(Data::Null),
        }
    }

    fn enter(&mut self, alias: usize, name: &str) -> Result<(), Failure> {
        if !self.active.insert(alias) {
            return Err(Failure::error(format!("yaml: anchor '{name}' value contains itself")));
        }
        self.alias_depth += 1;
        Ok(())
    }

    fn leave(&mut self, alias: usize) {
        self.active.remove(&alias);
        self.alias_depth -= 1;
    }

    /// Decodes the entries of a mapping into a map.
    fn mapping(&mut self, id: usize, map: &mut BTreeMap<Key, Data>, depth: u32) -> Result<(), Failure> {
        let nodes = self.nodes;
        let Some(Content::Mapping(entries)) = nodes.get(id).map(|node| &node.content) else {
            return Ok(());
        };
        for pair in entries.chunks_exact(2) {
            let &[key, value] = pair else { continue };
            if self.is_merge(key) {
                self.merge(value, map, depth + 1)?;
                continue;
            }
            let key = self.key(key, depth + 1)?;
            let data = self.node(value, depth + 1)?;
            if self.strict && map.contains_key(&key) {
                let line = nodes.get(value).map_or(0, |node| node.line) + 1;
                let mut name = String::new();
                syntax::write_key(self.ctx, &mut name, &key)?;
                self.problems.push(format!("line {line}: key {name} already set in map"));
                continue;
            }
            self.ctx.room(size_of::<(Key, Data)>())?;
            if matches!(key, Key::Float(_)) {
                // Which zero it was last is what tells.
                map.remove(&key);
            }
            map.insert(key, data);
        }
        Ok(())
    }

    fn key(&mut self, id: usize, depth: u32) -> Result<Key, Failure> {
        Ok(match self.node(id, depth)? {
            Data::Null => Key::Null,
            Data::Bool(bool) => Key::Bool(bool),
            Data::Int(int) => Key::Int(int),
            Data::Uint(int) => Key::Uint(int),
            Data::Float(float) => {
                self.nans += usize::from(float.is_nan());
                Key::Float(FloatKey { float, nan: if float.is_nan() { self.nans } else { 0 } })
            }
            Data::Str(text) => Key::Str(text),
            Data::Raw(bytes) => Key::Raw(bytes),
            data @ (Data::List(_) | Data::Map(_)) => {
                let mut text = String::new();
                syntax::write(self.ctx, &mut text, &data, 0)?;
                return Err(Failure::error(format!("yaml: invalid map key: {text}")));
            }
        })
    }

    fn is_merge(&self, id: usize) -> bool {
        match self.nodes.get(id).map(|node| &node.content) {
            Some(Content::Scalar { text, implicit, tag }) => {
                &**text == "<<" && (*implicit || *tag == Tag::Merge)
            }
            _ => false,
        }
    }

    /// Adds what `<<` stands for, which takes precedence over the entries before it.
    fn merge(&mut self, id: usize, map: &mut BTreeMap<Key, Data>, depth: u32) -> Result<(), Failure> {
        let nodes = self.nodes;
        match nodes.get(id).map(|node| &node.content) {
            Some(Content::Sequence(items)) => {
                for item in items.iter().rev() {
                    self.merge_one(*item, map, depth)?;
                }
                Ok(())
            }
            _ => self.merge_one(id, map, depth),
        }
    }

    fn merge_one(&mut self, id: usize, map: &mut BTreeMap<Key, Data>, depth: u32) -> Result<(), Failure> {
        self.ctx.depth(depth)?;
        let nodes = self.nodes;
        let content = |id: usize| nodes.get(id).map(|node| &node.content);
        match content(id) {
            Some(Content::Mapping(_)) => {
                self.count_node()?;
                self.mapping(id, map, depth)
            }
            Some(Content::Alias(name, target)) if matches!(content(*target), Some(Content::Mapping(_))) => {
                self.count_node()?;
                self.enter(id, name)?;
                self.count_node()?;
                self.mapping(*target, map, depth)?;
                self.leave(id);
                Ok(())
            }
            _ => Err(Failure::error("yaml: map merge requires map or sequence of maps as the value")),
        }
    }
}

fn scalar(text: &Rc<str>, implicit: bool, tag: Tag) -> Result<Data, Failure> {
    match tag {
        Tag::None if !implicit => Ok(Data::Str(text.clone())),
        Tag::Binary => {
            let Some(bytes) = super::base64::decode(text.as_bytes()) else {
                return Err(Failure::error("yaml: !!binary value contains invalid base64 data"));
            };
            Ok(match String::from_utf8(bytes) {
                Ok(text) => Data::Str(text.into()),
                Err(error) => Data::Raw(error.into_bytes().into()),
            })
        }
        _ => resolve(tag, text),
    }
}
