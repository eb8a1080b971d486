//! The evaluator: arguments and calls.

use std::rc::Rc;

use super::exec::State;
use super::methods;
use super::node::{At, Operand, Term};
use super::slot::{Slot, assignable, can_be_nil, param_name, zero};
use crate::Failure;
use crate::fmt::type_name;
use crate::value::{Function, Host, MapRef, Signature, Type, Value};

/// The parameters of `and`, `or` and `call`.
pub(super) static BUILT_IN: Signature = Signature { params: &[Type::Any], variadic: Some(Type::Any) };

/// What is called.
pub(super) enum Callee {
    Function(&'static Signature, Function),
    Method(Rc<dyn Host>, &'static Signature),
    /// A method of `common.Values`.
    Values(MapRef, &'static Signature),
    /// `and`, `or` and `call`.
    BuiltIn(&'static Signature),
}

impl Callee {
    fn signature(&self) -> &'static Signature {
        match self {
            Self::Function(signature, _)
            | Self::Method(_, signature)
            | Self::Values(_, signature)
            | Self::BuiltIn(signature) => signature,
        }
    }
}

impl<'t> State<'t, '_> {
    /// Calls a function or method. The first of `args`, if there is one, is its name.
    pub(super) fn call(
        &mut self,
        dot: &Slot,
        callee: &Callee,
        node: At<'t>,
        name: &'t str,
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        let args = args.get(1..).unwrap_or_default();
        let signature = callee.signature();
        let (fixed, given) = (signature.params.len(), args.len() + usize::from(last.is_some()));
        if signature.variadic.is_none() {
            if given != fixed {
                let message = format!("wrong number of args for {name}: want {fixed} got {given}");
                return Err(self.error(message));
            }
        } else if given < fixed {
            // Go leaves out the argument that a pipeline gives.
            let given = args.len();
            let message = format!("wrong number of args for {name}: want at least {fixed} got {given}");
            return Err(self.error(message));
        }
        let built_in = matches!(callee, Callee::BuiltIn(_));
        if built_in && name != "call" {
            return self.logic(dot, name == "or", args, last);
        }
        let mut slots = Vec::with_capacity(given);
        for (position, arg) in args.iter().enumerate() {
            let param = signature.params.get(position).copied().or(signature.variadic);
            slots.push(self.argument(dot, param, arg)?);
        }
        if let Some(last) = last {
            let param = signature.params.get(args.len()).copied().or(signature.variadic);
            slots.push(self.check(last, param)?);
        }
        let result = self.invoke(callee, name, args, slots);
        match result {
            Ok(value) => Ok(Slot::result(value)),
            Err(limit @ Failure::Limit { .. }) => Err(limit),
            Err(cause) => {
                self.node = Some(node);
                Err(self.wrap(format!("error calling {name}: {cause}"), Some(cause)))
            }
        }
    }

    fn invoke(
        &mut self,
        callee: &Callee,
        name: &str,
        args: &[Operand],
        slots: Vec<Slot>,
    ) -> Result<Value, Failure> {
        // Of Go's functions only this one tells no value from nil.
        if name == "len" && matches!(slots.as_slice(), [Slot::Invalid]) {
            return Err(Failure::error("reflect: call of reflect.Value.Type on zero Value"));
        }
        self.ctx.step(1 + slots.len())?;
        let values: Vec<Value> = slots.into_iter().map(Slot::into_value).collect();
        match callee {
            Callee::Function(_, function) => function(self.ctx, &values),
            Callee::Method(host, _) => host.call(self.ctx, name, &values),
            Callee::Values(map, _) => methods::call(self.ctx, *map, name, &values),
            // There are no values that are functions.
            Callee::BuiltIn(_) => match values.first() {
                None | Some(Value::Nil) => Err(Failure::error("call of nil")),
                Some(value) => {
                    let type_name = type_name(&self.ctx.heap, value);
                    // Go takes the name of what a pipeline gave from its value, if that is a string.
                    let callee = match (args.first(), value) {
                        (Some(operand), _) => At::Operand(operand).text(""),
                        (None, Value::Str(text)) => text.to_string(),
                        (None, _) => format!("<{type_name} Value>"),
                    };
                    Err(Failure::error(format!("non-function {callee} of type {type_name}")))
                }
            },
        }
    }

    /// `and` and `or`, which evaluate no more than they need.
    fn logic(
        &mut self,
        dot: &Slot,
        or: bool,
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        let mut value = Slot::Invalid;
        for arg in args {
            value = self.argument(dot, None, arg)?;
            if value.truth(&self.ctx.heap) == or {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    /// The value of an argument. Without a parameter, and for `interface {}`, it is what it is.
    pub(super) fn argument(
        &mut self,
        dot: &Slot,
        param: Option<Type>,
        operand: &'t Operand,
    ) -> Result<Slot, Failure> {
        self.node = Some(At::Operand(operand));
        let alone = std::slice::from_ref(operand);
        let value = match &operand.term {
            Term::Dot => dot.clone(),
            Term::Nil => {
                return match param {
                    None | Some(Type::Any) => Ok(Slot::Invalid),
                    Some(param) if can_be_nil(param) => Ok(Slot::result(zero(param))),
                    Some(param) => Err(self.error(format!("cannot assign nil to {}", param_name(param)))),
                };
            }
            Term::Field(names) => self.field(dot, operand, names, alone, None)?,
            Term::Variable(names) => self.variable_field(dot, operand, names, &[], None)?,
            Term::Pipe(pipe) => self.pipeline(dot, pipe)?,
            Term::Identifier(name) => self.function(dot, operand, At::Operand(operand), name, &[], None)?,
            Term::Chain(inner, names) => self.chain(dot, operand, inner, names, &[], None)?,
            Term::Bool(_) | Term::Number { .. } | Term::String { .. } => {
                return self.literal(param, operand);
            }
        };
        self.check(value, param)
    }

    /// A literal, whose type is that of the parameter.
    fn literal(&mut self, param: Option<Type>, operand: &'t Operand) -> Result<Slot, Failure> {
        let Some(param) = param.filter(|param| *param != Type::Any) else {
            return self.constant(operand);
        };
        let (found, expected) = match (param, &operand.term) {
            (Type::Bool, Term::Bool(value)) => (Some(Value::Bool(*value)), "bool"),
            (Type::Bool, _) => (None, "bool"),
            (Type::Int, Term::Number { number, .. }) => (number.int.map(Value::Int), "integer"),
            (Type::Int64, Term::Number { number, .. }) => (number.int.map(Value::Int64), "integer"),
            (Type::Int | Type::Int64, _) => (None, "integer"),
            (Type::Float, Term::Number { number, .. }) => (number.float.map(Value::Float), "float"),
            (Type::Float, _) => (None, "float"),
            (Type::Raw, Term::String { value, .. }) => (Some(value.clone()), "string"),
            (Type::Str, Term::String { value, .. }) => {
                return self.check(Slot::Concrete(value.clone()), Some(param));
            }
            (Type::Str | Type::Raw, _) => (None, "string"),
            _ => {
                let (text, param) = (At::Operand(operand).text(""), param_name(param));
                return Err(self.error(format!("can't handle {text} for arg of type {param}")));
            }
        };
        found.map(Slot::Concrete).ok_or_else(|| {
            let text = At::Operand(operand).text("");
            self.error(format!("expected {expected}; found {text}"))
        })
    }

    /// Makes sure that a value can be assigned to a parameter.
    fn check(&self, value: Slot, param: Option<Type>) -> Result<Slot, Failure> {
        let Some(param) = param.filter(|param| *param != Type::Any) else { return Ok(value) };
        let expected = param_name(param);
        let heap = &self.ctx.heap;
        match value {
            Slot::Invalid if can_be_nil(param) => Ok(Slot::result(zero(param))),
            Slot::Invalid => Err(self.error(format!("invalid value; expected {expected}"))),
            Slot::Interface(Value::Nil) => {
                let message = format!("wrong type for value; expected {expected}; got interface {{}}");
                Err(self.error(message))
            }
            Slot::Interface(value) | Slot::Concrete(value) if assignable(&value, param, heap) => {
                Ok(Slot::Concrete(value))
            }
            Slot::Interface(Value::Raw(_)) | Slot::Concrete(Value::Raw(_)) if param == Type::Str => {
                Err(self.error("wrong type for value; expected string in UTF-8; got other bytes"))
            }
            Slot::Interface(value) | Slot::Concrete(value) => {
                let got = type_name(heap, &value);
                let message = format!("wrong type for value; expected {expected}; got {got}");
                Err(self.error(message))
            }
        }
    }
}
