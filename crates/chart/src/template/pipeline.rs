//! The parser: what is inside actions.

use std::rc::Rc;

use super::lex::{Keyword, Kind};
use super::node::{Command, Operand, Pipe, Term};
use super::number::{Number, complex};
use super::parse::Parser;
use super::text::{INVALID_SYNTAX, quote, unquote};
use crate::Failure;
use crate::value::Value;

impl Parser<'_> {
    /// Declarations, and commands until `end`.
    pub(super) fn pipeline(&mut self, context: &str, end: Kind) -> Result<Pipe, Failure> {
        let pos = self.peek_non_space().pos;
        let mut pipe = Pipe { pos, assign: false, variables: Vec::new(), commands: Vec::new() };
        while self.declaration(&mut pipe, context)? {}
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => {
                    self.check(&pipe, context)?;
                    return Ok(pipe);
                }
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen
                | Kind::Keyword(Keyword::Dot | Keyword::Nil) => {
                    self.backup();
                    let command = self.command()?;
                    pipe.commands.push(command);
                }
                _ => return Err(self.unexpected(&token, context)),
            }
        }
    }

    /// A variable that is declared or assigned to, if there is one. Whether there may be another.
    fn declaration(&mut self, pipe: &mut Pipe, context: &str) -> Result<bool, Failure> {
        let variable = self.peek_non_space();
        if variable.kind != Kind::Variable {
            return Ok(false);
        }
        self.next();
        // A variable may turn out to be an argument once what follows the space after it is known, so that three items
        // are given back.
        let after = self.peek();
        let next = self.peek_non_space();
        let comma = next.kind == Kind::Char && next.val == ",";
        if !comma && !matches!(next.kind, Kind::Assign | Kind::Declare) {
            if after.kind == Kind::Space {
                self.backup3(variable, after);
            } else {
                self.backup2(variable);
            }
            return Ok(false);
        }
        self.next_non_space();
        let name: Rc<str> = variable.val.into();
        pipe.variables.push(name.clone());
        self.scope.variables.push(name);
        if !comma {
            pipe.assign = next.kind == Kind::Assign;
            return Ok(false);
        }
        if context != "range" || pipe.variables.len() >= 2 {
            return Err(self.error(format!("too many declarations in {context}")));
        }
        match self.peek_non_space().kind {
            Kind::Variable | Kind::RightDelim | Kind::RightParen => Ok(true),
            _ => Err(self.error("range can only initialize variables")),
        }
    }

    fn check(&self, pipe: &Pipe, context: &str) -> Result<(), Failure> {
        if pipe.commands.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        for (position, command) in pipe.commands.iter().enumerate().skip(1) {
            if command.args.first().is_some_and(|operand| is_literal(&operand.term)) {
                let stage = position + 1;
                return Err(self.error(format!("non executable command in pipeline stage {stage}")));
            }
        }
        Ok(())
    }

    /// Operands until a pipe, which is consumed, or the end, which is not.
    fn command(&mut self) -> Result<Command, Failure> {
        let pos = self.peek_non_space().pos;
        let mut args = Vec::new();
        loop {
            self.peek_non_space();
            if let Some(operand) = self.operand()? {
                args.push(operand);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.backup(),
                Kind::Pipe => {}
                _ => return Err(self.unexpected(&token, "operand")),
            }
            break;
        }
        if args.is_empty() {
            return Err(self.error("empty command"));
        }
        Ok(Command { pos, args })
    }

    /// A term and its fields, or `None` if something else is next.
    fn operand(&mut self) -> Result<Option<Operand>, Failure> {
        let Some(operand) = self.term()? else { return Ok(None) };
        let field = self.peek();
        if field.kind != Kind::Field {
            return Ok(Some(operand));
        }
        let mut names = Vec::new();
        while self.peek().kind == Kind::Field {
            names.push(Rc::from(self.next().val.get(1..).unwrap_or_default()));
        }
        // What follows a field or variable goes on with it, but the position is that of what follows.
        let term = match operand.term {
            Term::Field(first) => Term::Field(first.into_iter().chain(names).collect()),
            Term::Variable(first) => Term::Variable(first.into_iter().chain(names).collect()),
            term if is_literal(&term) => {
                let operand = Operand { pos: operand.pos, term };
                let text = super::node::At::Operand(&operand).text("");
                return Err(self.error(format!("unexpected . after term {}", quote(&text))));
            }
            term => Term::Chain(Box::new(Operand { pos: operand.pos, term }), names),
        };
        Ok(Some(Operand { pos: field.pos, term }))
    }

    /// An operand without fields, or `None` if something else is next.
    fn term(&mut self) -> Result<Option<Operand>, Failure> {
        let token = self.next_non_space();
        let text = &token.val;
        let term = match token.kind {
            Kind::Identifier => {
                if !self.has_function(text) {
                    return Err(self.error(format!("function {} not defined", quote(text))));
                }
                Term::Identifier(text.as_ref().into())
            }
            Kind::Keyword(Keyword::Dot) => Term::Dot,
            Kind::Keyword(Keyword::Nil) => Term::Nil,
            Kind::Variable => {
                if !self.scope.variables.iter().any(|name| **name == **text) {
                    return Err(self.error(format!("undefined variable {}", quote(text))));
                }
                Term::Variable(vec![text.as_ref().into()])
            }
            Kind::Field => Term::Field(vec![text.get(1..).unwrap_or_default().into()]),
            Kind::Bool => Term::Bool(text == "true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => {
                let number = match token.kind {
                    Kind::CharConstant => Number::of_char(text),
                    Kind::Number => Number::of(text),
                    _ => Err(complex(text)),
                };
                let number = number.map_err(|message| self.error(message))?;
                Term::Number { number, text: text.as_ref().into() }
            }
            Kind::LeftParen => {
                self.descend()?;
                let pipe = self.pipeline("parenthesized pipeline", Kind::RightParen)?;
                self.ascend();
                // A pipeline is an operand at its own position, within the parentheses.
                return Ok(Some(Operand { pos: pipe.pos, term: Term::Pipe(Box::new(pipe)) }));
            }
            Kind::String | Kind::RawString => {
                let bytes = unquote(text).ok_or_else(|| self.error(INVALID_SYNTAX))?;
                let value = match String::from_utf8(bytes) {
                    Ok(text) => Value::str(text),
                    Err(error) => Value::Raw(error.into_bytes().into()),
                };
                Term::String { value, quoted: text.as_ref().into() }
            }
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(Operand { pos: token.pos, term }))
    }
}

/// What can neither be executed nor have fields.
fn is_literal(term: &Term) -> bool {
    matches!(term, Term::Bool(_) | Term::Dot | Term::Nil | Term::Number { .. } | Term::String { .. })
}
