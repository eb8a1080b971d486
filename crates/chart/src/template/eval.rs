//! The evaluator: pipelines, commands, variables and fields.

use std::rc::Rc;

use super::call::{BUILT_IN, Callee};
use super::exec::State;
use super::methods;
use super::node::{At, Command, Operand, Pipe, Term};
use super::number::Number;
use super::slot::Slot;
use crate::Failure;
use crate::value::{MapType, Value};

impl<'t> State<'t, '_> {
    /// The value of a pipeline. Variables that it declares stay until the caller drops them.
    pub(super) fn pipeline(&mut self, dot: &Slot, pipe: &'t Pipe) -> Result<Slot, Failure> {
        self.descend()?;
        self.node = Some(At::Pipe(pipe));
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(dot, command, value)?.elem());
        }
        let value = value.unwrap_or(Slot::Invalid);
        for name in &pipe.variables {
            if pipe.assign {
                self.set(name, value.clone())?;
            } else {
                self.push(name, value.clone());
            }
        }
        self.ascend();
        Ok(value)
    }

    fn not_a_function(&self, args: &[Operand], last: Option<&Slot>) -> Result<(), Failure> {
        match args {
            [first, ..] if args.len() > 1 || last.is_some() => {
                let text = At::Operand(first).text("");
                Err(self.error(format!("can't give argument to non-function {text}")))
            }
            _ => Ok(()),
        }
    }

    /// The value of a command, to which that of the one before is the last argument.
    fn command(&mut self, dot: &Slot, command: &'t Command, last: Option<Slot>) -> Result<Slot, Failure> {
        self.ctx.step(1)?;
        let args = command.args.as_slice();
        let Some(first) = args.first() else { return Err(self.error("empty command")) };
        match &first.term {
            Term::Field(names) => self.field(dot, first, names, args, last),
            Term::Chain(inner, names) => self.chain(dot, first, inner, names, args, last),
            Term::Identifier(name) => self.function(dot, first, At::Command(command), name, args, last),
            Term::Variable(names) => self.variable_field(dot, first, names, args, last),
            Term::Pipe(pipe) => {
                self.not_a_function(args, last.as_ref())?;
                self.pipeline(dot, pipe)
            }
            term => {
                self.node = Some(At::Operand(first));
                self.not_a_function(args, last.as_ref())?;
                match term {
                    Term::Dot => Ok(dot.clone()),
                    Term::Nil => Err(self.error("nil is not a command")),
                    _ => self.constant(first),
                }
            }
        }
    }

    /// The value of a literal of which the context does not say the type.
    pub(super) fn constant(&mut self, operand: &'t Operand) -> Result<Slot, Failure> {
        self.node = Some(At::Operand(operand));
        match &operand.term {
            Term::Bool(value) => Ok(Slot::Concrete(Value::Bool(*value))),
            Term::String { value, .. } => Ok(Slot::Concrete(value.clone())),
            Term::Number { number, text } => match ideal(number, text) {
                Some(value) => Ok(Slot::Concrete(value)),
                None => Err(self.error(format!("{text} overflows int"))),
            },
            _ => {
                let text = At::Operand(operand).text("");
                let message = format!("can't handle assignment of {text} to empty interface argument");
                Err(self.error(message))
            }
        }
    }

    /// `.a.b`, with arguments if `b` is a method.
    pub(super) fn field(
        &mut self,
        dot: &Slot,
        operand: &'t Operand,
        names: &'t [Rc<str>],
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        self.node = Some(At::Operand(operand));
        self.fields(dot, dot.clone(), operand, names, args, last)
    }

    /// `$x.a.b`, or `$x` alone.
    pub(super) fn variable_field(
        &mut self,
        dot: &Slot,
        operand: &'t Operand,
        names: &'t [Rc<str>],
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        self.node = Some(At::Operand(operand));
        let Some((name, fields)) = names.split_first() else { return Ok(Slot::Invalid) };
        let value = self.variable(name)?;
        if fields.is_empty() {
            self.not_a_function(args, last.as_ref())?;
            return Ok(value);
        }
        self.fields(dot, value, operand, fields, args, last)
    }

    /// `(pipeline).a.b` or `function.a.b`.
    pub(super) fn chain(
        &mut self,
        dot: &Slot,
        operand: &'t Operand,
        inner: &'t Operand,
        names: &'t [Rc<str>],
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        self.node = Some(At::Operand(operand));
        let receiver = self.argument(dot, None, inner)?;
        self.fields(dot, receiver, operand, names, args, last)
    }

    pub(super) fn function(
        &mut self,
        dot: &Slot,
        operand: &'t Operand,
        node: At<'t>,
        name: &'t Rc<str>,
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        self.node = Some(At::Operand(operand));
        let callee = match (self.ctx.set.find)(name) {
            _ if super::is_of_evaluator(name) => Callee::BuiltIn(&BUILT_IN),
            Some((signature, function)) => Callee::Function(signature, function),
            None => {
                let name = super::text::quote(name);
                return Err(self.error(format!("{name} is not a defined function")));
            }
        };
        self.call(dot, &callee, node, name, args, last)
    }

    /// Walks along fields. The last may be a method, which has the arguments.
    fn fields(
        &mut self,
        dot: &Slot,
        mut receiver: Slot,
        operand: &'t Operand,
        names: &'t [Rc<str>],
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        let Some((name, before)) = names.split_last() else { return Ok(receiver) };
        self.ctx.step(names.len())?;
        for name in before {
            receiver = self.one_field(dot, receiver, operand, name, &[], None)?;
        }
        self.one_field(dot, receiver, operand, name, args, last)
    }

    fn one_field(
        &mut self,
        dot: &Slot,
        receiver: Slot,
        operand: &'t Operand,
        name: &'t Rc<str>,
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Failure> {
        let type_name = receiver.type_name(&self.ctx.heap);
        let value = match receiver {
            Slot::Invalid => return Ok(Slot::Invalid),
            Slot::Interface(Value::Nil) => {
                return Err(self.error(format!("nil pointer evaluating {type_name}.{name}")));
            }
            Slot::Interface(value) | Slot::Concrete(value) => value,
        };
        let has_args = args.len() > 1 || last.is_some();
        match value {
            Value::Map(map) => {
                let kind = self.ctx.heap.map(map).kind;
                if kind == MapType::Values
                    && let Some(signature) = methods::signature(name)
                {
                    return self.call(
                        dot,
                        &Callee::Values(map, signature),
                        At::Operand(operand),
                        name,
                        args,
                        last,
                    );
                }
                if has_args {
                    return Err(self.error(format!("{name} is not a method but has arguments")));
                }
                let found = self.ctx.heap.get(map, name).cloned();
                Ok(match (kind, found) {
                    (MapType::Strings, Some(value)) => Slot::Concrete(value),
                    (MapType::Strings, None) => Slot::Concrete(Value::str("")),
                    (_, found) => Slot::Interface(found.unwrap_or(Value::Nil)),
                })
            }
            Value::Host(host) => {
                if let Some(signature) = host.method(name) {
                    return self.call(
                        dot,
                        &Callee::Method(host, signature),
                        At::Operand(operand),
                        name,
                        args,
                        last,
                    );
                }
                let is_map = host.kind() == "map";
                if is_map && has_args {
                    return Err(self.error(format!("{name} is not a method but has arguments")));
                }
                match host.field(self.ctx, name) {
                    Some(_) if has_args => {
                        let message = format!("{name} has arguments but cannot be invoked as function");
                        Err(self.error(message))
                    }
                    Some(value) => Ok(Slot::result(value)),
                    None if is_map => Ok(Slot::Invalid),
                    None => Err(self.error(format!("can't evaluate field {name} in type {type_name}"))),
                }
            }
            _ => Err(self.error(format!("can't evaluate field {name} in type {type_name}"))),
        }
    }
}

/// The value of a number whose syntax alone tells the type, or `None` if it does not fit an `int`.
fn ideal(number: &Number, text: &str) -> Option<Value> {
    let hex = text.len() > 2 && text.starts_with("0x") | text.starts_with("0X") && !text.contains(['p', 'P']);
    let looks_float = !hex && !text.starts_with('\'') && text.contains(['.', 'e', 'E', 'p', 'P']);
    match number.float {
        Some(float) if looks_float => Some(Value::Float(float)),
        _ => number.int.map(Value::Int),
    }
}
