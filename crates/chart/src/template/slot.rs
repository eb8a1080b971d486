//! What `reflect.Value` tells apart, and the names of types in errors.

use crate::fmt;
use crate::value::{Element, Heap, MapType, Type, Value};

/// A value in the evaluator, as `reflect.Value` holds it.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// No value, of no type.
    Invalid,
    /// Of the type `interface {}`, such as an element of a `map[string]interface {}`: nil is a value here.
    Interface(Value),
    /// Of a type of its own; never [`Value::Nil`].
    Concrete(Value),
}

impl Slot {
    /// The value of a function or of a Go variable of type `interface {}`.
    pub(super) fn of(value: Value) -> Self {
        if matches!(value, Value::Nil) { Self::Invalid } else { Self::Concrete(value) }
    }

    /// What a function gave. Only one whose result is an `interface {}` gives nil.
    pub(super) fn result(value: Value) -> Self {
        if matches!(value, Value::Nil) { Self::Interface(value) } else { Self::Concrete(value) }
    }

    /// An element of a collection.
    pub(super) fn element(value: Value, interface: bool) -> Self {
        if interface { Self::Interface(value) } else { Self::result(value) }
    }

    /// Forgets that the value was in an interface.
    pub(super) fn elem(self) -> Self {
        match self {
            Self::Interface(value) => Self::of(value),
            other => other,
        }
    }

    /// The value, where nil stands for itself and for no value.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Invalid => Value::Nil,
            Self::Interface(value) | Self::Concrete(value) => value,
        }
    }

    /// The type of the value, which `Invalid` has none of.
    pub(super) fn type_name(&self, heap: &Heap) -> &'static str {
        match self {
            Self::Invalid => "<nil>",
            Self::Interface(_) => "interface {}",
            Self::Concrete(value) => fmt::type_name(heap, value),
        }
    }

    /// Whether `if` takes it for true.
    pub(super) fn truth(&self, heap: &Heap) -> bool {
        match self {
            Self::Invalid => false,
            Self::Interface(value) | Self::Concrete(value) => truth(value, heap),
        }
    }
}

fn truth(value: &Value, heap: &Heap) -> bool {
    match value {
        Value::Nil => false,
        Value::Bool(value) => *value,
        Value::Int(value) | Value::Int64(value) => *value != 0,
        Value::Float(value) => *value != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Raw(bytes) | Value::Bytes(bytes) => !bytes.is_empty(),
        Value::List(list) => !list.items.is_empty(),
        Value::Map(map) => !heap.map(*map).entries.is_empty(),
        Value::Host(host) => host.truth(),
    }
}

/// The type of a parameter, as errors have it.
pub(super) fn param_name(param: Type) -> &'static str {
    match param {
        Type::Any => "interface {}",
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Int64 => "int64",
        Type::Float => "float64",
        Type::Str | Type::Raw => "string",
        Type::Bytes => "[]uint8",
        Type::Map => "map[string]interface {}",
        Type::StrMap => "map[string]string",
        Type::List => "[]interface {}",
        Type::Strs => "[]string",
        Type::Host(name) => name,
    }
}

/// Whether a parameter of this type can be nil.
pub(super) fn can_be_nil(param: Type) -> bool {
    match param {
        Type::Any | Type::Bytes | Type::Map | Type::StrMap | Type::List | Type::Strs => true,
        Type::Host(name) => name.starts_with('*'),
        Type::Bool | Type::Int | Type::Int64 | Type::Float | Type::Str | Type::Raw => false,
    }
}

/// Nil, or what stands for it where functions do not expect nil.
pub(super) fn zero(param: Type) -> Value {
    if param == Type::Bytes { Value::Bytes(Vec::new().into()) } else { Value::Nil }
}

/// Whether Go would assign a value to a parameter, or to what a pointer points to.
pub(super) fn assignable(value: &Value, param: Type, heap: &Heap) -> bool {
    match (param, value) {
        (Type::Any, _)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Int64, Value::Int64(_))
        | (Type::Float, Value::Float(_))
        | (Type::Str | Type::Raw, Value::Str(_))
        | (Type::Raw, Value::Raw(_))
        | (Type::Bytes, Value::Bytes(_)) => true,
        (Type::Map, Value::Map(map)) => heap.map(*map).kind != MapType::Strings,
        (Type::StrMap, Value::Map(map)) => heap.map(*map).kind == MapType::Strings,
        (Type::List, Value::List(list)) => matches!(list.element, Element::Any | Element::NilAny),
        (Type::Strs, Value::List(list)) => matches!(list.element, Element::Str | Element::NilStr),
        (Type::Host(name), Value::Host(host)) => {
            host.type_name() == name || host.type_name().strip_prefix('*') == Some(name)
        }
        _ => false,
    }
}
