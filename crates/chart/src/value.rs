//! Values of templates, with the types that Go tells apart and maps that alias each other as Go's do.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;

use crate::{Failure, Limits};

/// A value as Go's `interface{}` would hold it.
///
/// Numbers of YAML and JSON are `Float` (`float64`), constants of templates and `--set` give `Int` or `Int64`. Lists never
/// change once made, as no function of Helm or sprig writes into one; maps do, and are handles into a [`Heap`].
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// An interface without a value in it.
    Nil,
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `int64`.
    Int64(i64),
    /// `float64`.
    Float(f64),
    Str(Rc<str>),
    /// A `string` that is not UTF-8, such as a picture from `.Files.Get`. Most functions refuse it, see [`Type::Str`].
    Raw(Rc<[u8]>),
    /// `[]byte`.
    Bytes(Rc<[u8]>),
    List(List),
    Map(MapRef),
    /// A Go value that is more than its contents: `.Files`, `.Capabilities`, a semantic version.
    Host(Rc<dyn Host>),
}

impl Value {
    pub(crate) fn str(text: impl AsRef<str>) -> Self {
        Self::Str(text.as_ref().into())
    }

    /// A `[]interface{}` of these.
    pub(crate) fn list(items: Vec<Value>) -> Self {
        Self::List(List { items: items.into(), element: Element::Any })
    }

    /// A `[]string` of these.
    pub(crate) fn strings<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Self {
        let items = items.into_iter().map(|item| Self::str(item)).collect();
        Self::List(List { items, element: Element::Str })
    }
}

/// A slice.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) items: Rc<[Value]>,
    pub(crate) element: Element,
}

/// The element type of a slice or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// `interface{}`: elements may be `Value::Nil`.
    Any,
    /// `string`.
    Str,
    /// `int`.
    Int,
    /// `map[string]interface{}`.
    Map,
    /// `[]interface{}`, as `chunk` makes them.
    List,
    /// `interface{}`, of a slice that is nil: it has no items, and JSON and YAML write `null`.
    NilAny,
    /// `string`, of a slice that is nil.
    NilStr,
}

impl Element {
    /// The Go type of a slice of these.
    pub(crate) fn slice_name(self) -> &'static str {
        match self {
            Self::Any | Self::NilAny => "[]interface {}",
            Self::Str | Self::NilStr => "[]string",
            Self::Int => "[]int",
            Self::Map => "[]map[string]interface {}",
            Self::List => "[][]interface {}",
        }
    }
}

impl List {
    /// Whether it is Go's nil slice.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self.element, Element::NilAny | Element::NilStr)
    }
}

impl MapType {
    /// The Go type of such a map.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "map[string]interface {}",
            Self::Values => "common.Values",
            Self::Strings => "map[string]string",
        }
    }
}

/// The Go type of a map. The keys of all are strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapType {
    /// `map[string]interface {}`.
    Any,
    /// `common.Values`: passes for `map[string]interface{}` where a parameter has that type, not where a function looks
    /// into an `interface{}`.
    Values,
    /// `map[string]string`.
    Strings,
}

/// A handle to a map of a [`Heap`]. Copies are aliases, as in Go. Equal if they are the same map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MapRef(u32);

impl MapRef {
    /// Go's nil map, such as `fromYaml ""`: empty, and JSON and YAML write `null`. Do not write into it.
    pub(crate) const NIL: Self = Self(0);

    /// Whether it is Go's nil map.
    pub(crate) fn is_nil(self) -> bool {
        self == Self::NIL
    }
}

/// A map and its type. Sorted by the bytes of its keys, which is the order in which Go's templates, JSON and `fmt` visit maps.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) kind: MapType,
    pub(crate) entries: BTreeMap<Rc<str>, Value>,
}

/// The maps of a render. They live as long as it does, so that maps that hold themselves cost no more than others.
#[derive(Debug)]
pub(crate) struct Heap {
    /// The first is Go's nil map, which also stands in for a handle of another heap; it is empty.
    maps: Vec<Map>,
}

impl Default for Heap {
    fn default() -> Self {
        Self { maps: vec![Map { kind: MapType::Any, entries: BTreeMap::new() }] }
    }
}

impl Heap {
    /// A new map. `None` once there are too many, which [`Ctx::map`] turns into an error.
    fn insert(&mut self, map: Map) -> Option<MapRef> {
        let handle = MapRef(u32::try_from(self.maps.len()).ok()?);
        self.maps.push(map);
        Some(handle)
    }

    pub(crate) fn map(&self, map: MapRef) -> &Map {
        let position = usize::try_from(map.0).unwrap_or_default();
        self.maps.get(position).unwrap_or(&self.maps[0])
    }

    pub(crate) fn map_mut(&mut self, map: MapRef) -> &mut Map {
        let position = usize::try_from(map.0).unwrap_or_default();
        let position = if position < self.maps.len() { position } else { 0 };
        &mut self.maps[position]
    }

    pub(crate) fn get(&self, map: MapRef, key: &str) -> Option<&Value> {
        self.map(map).entries.get(key)
    }
}

/// A Go value that is more than its contents: a struct, or a type with methods.
pub(crate) trait Host: Debug {
    /// What `%T` prints of it.
    fn type_name(&self) -> &'static str;

    /// The reflect kind, as `kindOf` prints it: `struct`, `ptr`, `map`, `slice`.
    fn kind(&self) -> &'static str;

    /// The parameters of a method, if there is one of this name.
    fn method(&self, _name: &str) -> Option<&'static Signature> {
        None
    }

    /// Calls a method with arguments that fit its signature.
    fn call(&self, _ctx: &mut Ctx, name: &str, _args: &[Value]) -> Result<Value, Failure> {
        Err(Failure::error(format!("{} has no method {name}", self.type_name())))
    }

    /// A field of a struct or an entry of a map.
    fn field(&self, _ctx: &mut Ctx, _name: &str) -> Option<Value> {
        None
    }

    /// Keys and elements, sorted as Go's `range` visits them; `None` if it cannot be ranged over.
    fn entries(&self) -> Option<Vec<(Value, Value)>> {
        None
    }

    /// Whether `if` takes it for true: structs always, collections unless empty.
    fn truth(&self) -> bool {
        self.entries().is_none_or(|entries| !entries.is_empty())
    }

    /// What `%v` prints of it.
    fn display(&self) -> String;

    /// What it is for JSON and YAML.
    fn plain(&self, ctx: &mut Ctx) -> Result<Value, Failure>;
}

/// The Go type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// `interface {}`, or `reflect.Value` of Go's own functions: takes everything, nil too.
    Any,
    Bool,
    Int,
    Int64,
    Float,
    /// `string`, in UTF-8: a [`Value::Raw`] is refused with an error that says so.
    Str,
    /// `string`, also one that is not UTF-8.
    Raw,
    /// `[]byte`.
    Bytes,
    /// `map[string]interface {}`. A function that has this parameter may be given `Value::Nil`: Go's nil map.
    Map,
    /// `map[string]string`; likewise.
    StrMap,
    /// `[]interface {}`; likewise nil.
    List,
    /// `[]string`; likewise nil.
    Strs,
    /// A [`Host`] of this type name, such as `*semver.Version`.
    Host(&'static str),
}

/// The parameters of a function. Arity and types are checked against it before a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) params: &'static [Type],
    /// The element type of a variadic last parameter, after those of `params`.
    pub(crate) variadic: Option<Type>,
}

/// A function of templates. The arguments fit its [`Signature`].
pub(crate) type Function = fn(&mut Ctx, &[Value]) -> Result<Value, Failure>;

/// What a render has beside its templates: the maps, and how much it may still use up.
#[derive(Debug)]
pub(crate) struct Ctx {
    pub(crate) heap: Heap,
    pub(crate) limits: Limits,
    steps: u64,
    bytes: u64,
    /// The templates that `include`, `tpl` and `template` find.
    pub(crate) set: Rc<crate::template::Set>,
    /// How many of `include`, `tpl` and `template` are being executed.
    pub(crate) calls: u32,
    /// How deep the evaluation of templates is nested, in all that call each other.
    pub(crate) nesting: u32,
}

impl Ctx {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { heap: Heap::default(), limits, steps: 0, bytes: 0, set: Rc::default(), calls: 0, nesting: 0 }
    }

    /// Notes work done: call it in every loop whose length input decides.
    pub(crate) fn step(&mut self, count: usize) -> Result<(), Failure> {
        self.steps = self.steps.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        let limit = self.limits.steps;
        if self.steps > limit { Err(Failure::Limit { what: "steps", limit }) } else { Ok(()) }
    }

    /// Notes bytes about to be made: call it before strings or lists whose size input decides are made.
    pub(crate) fn room(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let limit = self.limits.bytes;
        if self.bytes > limit { Err(Failure::Limit { what: "bytes", limit }) } else { Ok(()) }
    }

    /// Fails if `depth` is deeper than values may nest.
    pub(crate) fn depth(&self, depth: u32) -> Result<(), Failure> {
        let limit = self.limits.depth;
        if depth > limit { Err(Failure::Limit { what: "depth", limit: limit.into() }) } else { Ok(()) }
    }

    /// A new map of this type.
    pub(crate) fn map(
        &mut self,
        kind: MapType,
        entries: BTreeMap<Rc<str>, Value>,
    ) -> Result<MapRef, Failure> {
        self.room(entries.len().saturating_mul(64).saturating_add(64))?;
        let limit = u64::from(u32::MAX);
        self.heap.insert(Map { kind, entries }).ok_or(Failure::Limit { what: "maps", limit })
    }

    /// A new `map[string]interface {}`.
    pub(crate) fn dict(&mut self, entries: BTreeMap<Rc<str>, Value>) -> Result<Value, Failure> {
        self.map(MapType::Any, entries).map(Value::Map)
    }

    /// A new string, counted.
    pub(crate) fn text(&mut self, text: impl AsRef<str>) -> Result<Value, Failure> {
        let text = text.as_ref();
        self.room(text.len())?;
        Ok(Value::str(text))
    }
}
