//! The syntax tree, and its text as errors quote it.

use std::ops::Range;
use std::rc::Rc;

use super::number::Number;
use super::text::quote;
use crate::value::Value;

/// The file that a tree was parsed from: what positions refer to.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: Rc<str>,
    pub(super) text: Rc<str>,
}

impl Source {
    /// Name, line and column of a position, as errors have them.
    pub(super) fn location(&self, pos: usize) -> String {
        let before = self.text.get(..pos).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let column = before.rfind('\n').map_or(pos, |newline| pos - newline - 1);
        format!("{}:{line}:{column}", self.name)
    }
}

/// A template: a file, or what `define` or `block` holds.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) name: Rc<str>,
    pub(super) source: Rc<Source>,
    pub(super) root: Vec<Node>,
}

impl Tree {
    /// Whether there is nothing but white space and comments, so that it does not replace another.
    pub(super) fn is_empty(&self) -> bool {
        self.root.iter().all(|node| match node {
            Node::Text(range) => self.source.text.get(range.clone()).unwrap_or_default().trim().is_empty(),
            _ => false,
        })
    }
}

/// An element of a list.
#[derive(Debug)]
pub(super) enum Node {
    /// Where the text is in the source.
    Text(Range<usize>),
    Action(Action),
    Branch(Branch),
    Template(Invocation),
    Break,
    Continue,
}

/// A pipeline whose value is printed, or declares variables.
#[derive(Debug)]
pub(super) struct Action {
    pub(super) pos: usize,
    pub(super) pipe: Pipe,
}

/// Which action a [`Branch`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    If,
    With,
    Range,
}

/// `if`, `with` and `range`.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) control: Control,
    pub(super) pos: usize,
    pub(super) pipe: Pipe,
    pub(super) list: Vec<Node>,
    pub(super) else_list: Option<Vec<Node>>,
}

/// The action `template`, also for a `block`.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) pos: usize,
    pub(super) name: Rc<str>,
    pub(super) pipe: Option<Pipe>,
}

/// Commands, each of which has the value of the one before as its last argument.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) pos: usize,
    /// Whether variables are assigned to rather than declared.
    pub(super) assign: bool,
    pub(super) variables: Vec<Rc<str>>,
    pub(super) commands: Vec<Command>,
}

/// An operand and its arguments.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) pos: usize,
    /// There is at least one.
    pub(super) args: Vec<Operand>,
}

/// An argument or the first word of a command, and where it begins.
#[derive(Debug)]
pub(super) struct Operand {
    pub(super) pos: usize,
    pub(super) term: Term,
}

/// What an operand is.
#[derive(Debug)]
pub(super) enum Term {
    Bool(bool),
    Dot,
    Nil,
    Number {
        number: Number,
        text: Rc<str>,
    },
    /// The value, a [`Value::Str`] or [`Value::Raw`], and its text with quotes.
    String {
        value: Value,
        quoted: Rc<str>,
    },
    /// The names of `.a.b`.
    Field(Vec<Rc<str>>),
    /// `$x.a.b`: the first name has its dollar.
    Variable(Vec<Rc<str>>),
    /// The name of a function.
    Identifier(Rc<str>),
    /// Fields of another operand.
    Chain(Box<Operand>, Vec<Rc<str>>),
    /// A pipeline in parentheses.
    Pipe(Box<Pipe>),
}

/// A node that an error may happen at.
#[derive(Clone, Copy, Debug)]
pub(super) enum At<'t> {
    Action(&'t Action),
    Branch(&'t Branch),
    Template(&'t Invocation),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Operand(&'t Operand),
}

impl At<'_> {
    pub(super) fn pos(self) -> usize {
        match self {
            Self::Action(node) => node.pos,
            Self::Branch(node) => node.pos,
            Self::Template(node) => node.pos,
            Self::Pipe(node) => node.pos,
            Self::Command(node) => node.pos,
            Self::Operand(node) => node.pos,
        }
    }

    /// The node in the syntax of templates, with Go's spacing.
    pub(super) fn text(self, source: &str) -> String {
        let mut text = String::new();
        match self {
            Self::Action(node) => write_action(node, &mut text),
            Self::Branch(node) => write_branch(node, source, &mut text),
            Self::Template(node) => write_template(node, &mut text),
            Self::Pipe(node) => write_pipe(node, &mut text),
            Self::Command(node) => write_command(node, &mut text),
            Self::Operand(node) => write_operand(node, &mut text),
        }
        text
    }
}

fn write_list(list: &[Node], source: &str, text: &mut String) {
    for node in list {
        match node {
            Node::Text(range) => text.push_str(source.get(range.clone()).unwrap_or_default()),
            Node::Action(node) => write_action(node, text),
            Node::Branch(node) => write_branch(node, source, text),
            Node::Template(node) => write_template(node, text),
            Node::Break => text.push_str("{{break}}"),
            Node::Continue => text.push_str("{{continue}}"),
        }
    }
}

fn write_action(action: &Action, text: &mut String) {
    text.push_str("{{");
    write_pipe(&action.pipe, text);
    text.push_str("}}");
}

fn write_branch(branch: &Branch, source: &str, text: &mut String) {
    text.push_str(match branch.control {
        Control::If => "{{if ",
        Control::With => "{{with ",
        Control::Range => "{{range ",
    });
    write_pipe(&branch.pipe, text);
    text.push_str("}}");
    write_list(&branch.list, source, text);
    if let Some(list) = &branch.else_list {
        text.push_str("{{else}}");
        write_list(list, source, text);
    }
    text.push_str("{{end}}");
}

fn write_template(node: &Invocation, text: &mut String) {
    text.push_str("{{template ");
    text.push_str(&quote(&node.name));
    if let Some(pipe) = &node.pipe {
        text.push(' ');
        write_pipe(pipe, text);
    }
    text.push_str("}}");
}

fn write_pipe(pipe: &Pipe, text: &mut String) {
    if !pipe.variables.is_empty() {
        text.push_str(&pipe.variables.join(", "));
        text.push_str(if pipe.assign { " = " } else { " := " });
    }
    for (position, command) in pipe.commands.iter().enumerate() {
        if position > 0 {
            text.push_str(" | ");
        }
        write_command(command, text);
    }
}

fn write_command(command: &Command, text: &mut String) {
    for (position, operand) in command.args.iter().enumerate() {
        if position > 0 {
            text.push(' ');
        }
        write_in_parentheses(operand, text);
    }
}

/// A pipeline among others has parentheses; alone it has none.
fn write_in_parentheses(operand: &Operand, text: &mut String) {
    if let Term::Pipe(pipe) = &operand.term {
        text.push('(');
        write_pipe(pipe, text);
        text.push(')');
    } else {
        write_operand(operand, text);
    }
}

fn write_operand(operand: &Operand, text: &mut String) {
    match &operand.term {
        Term::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Term::Dot => text.push('.'),
        Term::Nil => text.push_str("nil"),
        Term::Number { text: number, .. } => text.push_str(number),
        Term::String { quoted, .. } => text.push_str(quoted),
        Term::Field(names) => write_fields(names, text),
        Term::Variable(names) => text.push_str(&names.join(".")),
        Term::Identifier(name) => text.push_str(name),
        Term::Chain(first, names) => {
            write_in_parentheses(first, text);
            write_fields(names, text);
        }
        Term::Pipe(pipe) => write_pipe(pipe, text),
    }
}

fn write_fields(names: &[Rc<str>], text: &mut String) {
    for name in names {
        text.push('.');
        text.push_str(name);
    }
}
