//! The evaluator: lists and control flow. Values are evaluated in `eval` and `call`.

use std::rc::Rc;

use super::MAX_EVALUATION;
use super::node::{At, Branch, Control, Invocation, Node, Tree};
use super::slot::Slot;
use super::text::quote;
use crate::value::{Ctx, Element, MapType, Value};
use crate::{Failure, fmt};

/// What to do after a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// The execution of one template.
pub(super) struct State<'t, 'c> {
    tree: &'t Tree,
    pub(super) ctx: &'c mut Ctx,
    out: &'c mut String,
    /// Where errors happen.
    pub(super) node: Option<At<'t>>,
    variables: Vec<(&'t str, Slot)>,
}

/// Executes a template within as many as there are being executed already.
pub(super) fn run(ctx: &mut Ctx, tree: &Tree, dot: &Slot, out: &mut String) -> Result<(), Failure> {
    let (calls, nesting) = (ctx.calls, ctx.nesting);
    let limit = ctx.limits.calls;
    if calls >= limit {
        return Err(Failure::Limit { what: "calls of templates", limit: limit.into() });
    }
    ctx.calls += 1;
    let variables = vec![("$", dot.clone())];
    let mut state = State { tree, ctx, out, node: None, variables };
    let result = state.list(dot, &tree.root);
    ctx.calls = calls;
    ctx.nesting = nesting;
    result.map(|_| ())
}

impl<'t> State<'t, '_> {
    pub(super) fn mark(&self) -> usize {
        self.variables.len()
    }

    pub(super) fn push(&mut self, name: &'t str, value: Slot) {
        self.variables.push((name, value));
    }

    fn set_top(&mut self, from_top: usize, value: Slot) {
        if let Some((_, variable)) = self.variables.iter_mut().nth_back(from_top) {
            *variable = value;
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Slot) -> Result<(), Failure> {
        match self.variables.iter_mut().rev().find(|(variable, _)| *variable == name) {
            Some((_, variable)) => {
                *variable = value;
                Ok(())
            }
            None => Err(self.error(format!("undefined variable: {name}"))),
        }
    }

    pub(super) fn variable(&self, name: &str) -> Result<Slot, Failure> {
        let variable = self.variables.iter().rev().find(|(variable, _)| *variable == name);
        variable
            .map(|(_, value)| value.clone())
            .ok_or_else(|| self.error(format!("undefined variable: {name}")))
    }

    /// An error at the current node.
    pub(super) fn error(&self, message: impl std::fmt::Display) -> Failure {
        self.wrap(message, None)
    }

    /// An error at the current node that another is the cause of.
    pub(super) fn wrap(&self, message: impl std::fmt::Display, cause: Option<Failure>) -> Failure {
        let name = &self.tree.name;
        let text = match self.node {
            None => format!("template: {name}: {message}"),
            Some(node) => {
                let source = &self.tree.source;
                let (location, context) = (source.location(node.pos()), node.text(&source.text));
                format!("template: {location}: executing {} at <{context}>: {message}", quote(name))
            }
        };
        Failure::exec(text, cause)
    }

    /// Counts a level of evaluation; [`Self::ascend`] ends it.
    pub(super) fn descend(&mut self) -> Result<(), Failure> {
        self.ctx.nesting += 1;
        if self.ctx.nesting > MAX_EVALUATION {
            return Err(Failure::Limit { what: "depth of evaluation", limit: MAX_EVALUATION.into() });
        }
        Ok(())
    }

    pub(super) fn ascend(&mut self) {
        self.ctx.nesting = self.ctx.nesting.saturating_sub(1);
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.ctx.room(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn list(&mut self, dot: &Slot, list: &'t [Node]) -> Result<Flow, Failure> {
        self.descend()?;
        for node in list {
            let flow = self.walk(dot, node)?;
            if flow != Flow::Next {
                self.ascend();
                return Ok(flow);
            }
        }
        self.ascend();
        Ok(Flow::Next)
    }

    fn walk(&mut self, dot: &Slot, node: &'t Node) -> Result<Flow, Failure> {
        self.ctx.step(1)?;
        match node {
            Node::Text(range) => {
                let tree = self.tree;
                self.write(tree.source.text.get(range.clone()).unwrap_or_default())?;
            }
            Node::Action(action) => {
                self.node = Some(At::Action(action));
                let value = self.pipeline(dot, &action.pipe)?;
                if action.pipe.variables.is_empty() {
                    self.node = Some(At::Action(action));
                    self.print(value)?;
                }
            }
            Node::Branch(branch) if branch.control == Control::Range => return self.range(dot, branch),
            Node::Branch(branch) => return self.branch(dot, branch),
            Node::Template(invocation) => self.template(dot, invocation)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn print(&mut self, value: Slot) -> Result<(), Failure> {
        match value {
            Slot::Invalid => self.write("<no value>"),
            Slot::Interface(Value::Str(text)) | Slot::Concrete(Value::Str(text)) => self.write(&text),
            Slot::Interface(value) | Slot::Concrete(value) => {
                let text = fmt::display(self.ctx, &value)?;
                self.write(&text)
            }
        }
    }

    fn branch(&mut self, dot: &Slot, branch: &'t Branch) -> Result<Flow, Failure> {
        let mark = self.mark();
        let flow = self.branches(dot, branch);
        self.variables.truncate(mark);
        flow
    }

    fn branches(&mut self, dot: &Slot, mut branch: &'t Branch) -> Result<Flow, Failure> {
        loop {
            self.node = Some(At::Branch(branch));
            let value = self.pipeline(dot, &branch.pipe)?;
            if value.truth(&self.ctx.heap) {
                let dot = if branch.control == Control::With { &value } else { dot };
                return self.list(dot, &branch.list);
            }
            match branch.else_list.as_deref() {
                None => return Ok(Flow::Next),
                // `else if` comes one after another, without nesting the calls here.
                Some([Node::Branch(next)]) if next.control != Control::Range => {
                    self.ctx.step(1)?;
                    branch = next;
                }
                Some(list) => return self.list(dot, list),
            }
        }
    }

    fn range(&mut self, dot: &Slot, branch: &'t Branch) -> Result<Flow, Failure> {
        let mark = self.mark();
        self.node = Some(At::Branch(branch));
        let value = self.pipeline(dot, &branch.pipe)?;
        let ran = self.iterate(branch, value)?;
        let mut flow = Flow::Next;
        if !ran && let Some(list) = &branch.else_list {
            flow = self.list(dot, list)?;
        }
        self.variables.truncate(mark);
        // Go lets `break` within `else` leave this range rather than the one around it; `continue` goes on with that.
        Ok(if flow == Flow::Break { Flow::Next } else { flow })
    }

    /// Visits the elements. Whether there was one.
    fn iterate(&mut self, branch: &'t Branch, value: Slot) -> Result<bool, Failure> {
        let (Slot::Concrete(value) | Slot::Interface(value)) = value else { return Ok(false) };
        match &value {
            Value::Nil => Ok(false),
            Value::Int(end) | Value::Int64(end) => {
                if branch.pipe.variables.len() > 1 {
                    let message = format!("can't use {end} to iterate over more than one variable");
                    return Err(self.error(message));
                }
                for index in 0..*end {
                    let element =
                        if matches!(value, Value::Int(_)) { Value::Int(index) } else { Value::Int64(index) };
                    if self.iteration(branch, Slot::Invalid, &Slot::Concrete(element))? == Flow::Break {
                        break;
                    }
                }
                Ok(*end > 0)
            }
            Value::List(list) => {
                let elements = list.items.iter().cloned().zip(0_i64..);
                let elements = elements.map(|(element, index)| (Value::Int(index), element));
                self.each(branch, elements, matches!(list.element, Element::Any | Element::NilAny))
            }
            Value::Bytes(bytes) => {
                let elements = bytes.iter().zip(0_i64..);
                let elements =
                    elements.map(|(byte, index)| (Value::Int(index), Value::Int(i64::from(*byte))));
                self.each(branch, elements, false)
            }
            Value::Map(map) => {
                let map = self.ctx.heap.map(*map);
                let interface = map.kind != MapType::Strings;
                // The body may change the map, which goes unnoticed here as in Go.
                let elements: Vec<_> = map
                    .entries
                    .iter()
                    .map(|(key, value)| (Value::Str(Rc::clone(key)), value.clone()))
                    .collect();
                self.ctx.step(elements.len())?;
                self.each(branch, elements.into_iter(), interface)
            }
            Value::Host(host) if let Some(elements) = host.entries() => {
                self.each(branch, elements.into_iter(), false)
            }
            _ => {
                let text = fmt::display(self.ctx, &value)?;
                Err(self.error(format!("range can't iterate over {text}")))
            }
        }
    }

    fn each(
        &mut self,
        branch: &'t Branch,
        elements: impl Iterator<Item = (Value, Value)>,
        interface: bool,
    ) -> Result<bool, Failure> {
        let mut ran = false;
        for (index, element) in elements {
            ran = true;
            let element = Slot::element(element, interface);
            if self.iteration(branch, Slot::Concrete(index), &element)? == Flow::Break {
                break;
            }
        }
        Ok(ran)
    }

    fn iteration(&mut self, branch: &'t Branch, index: Slot, element: &Slot) -> Result<Flow, Failure> {
        self.ctx.step(1)?;
        let mark = self.mark();
        let names = &branch.pipe.variables;
        match (names.as_slice(), branch.pipe.assign) {
            ([name], true) => self.set(name, element.clone())?,
            ([first, second, ..], true) => {
                self.set(first, index)?;
                self.set(second, element.clone())?;
            }
            ([], _) => {}
            ([_], false) => self.set_top(0, element.clone()),
            ([_, _, ..], false) => {
                self.set_top(0, element.clone());
                self.set_top(1, index);
            }
        }
        let flow = self.list(element, &branch.list)?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn template(&mut self, dot: &Slot, invocation: &'t Invocation) -> Result<(), Failure> {
        self.node = Some(At::Template(invocation));
        let Some(tree) = self.ctx.set.lookup(&invocation.name) else {
            return Err(self.error(format!("template {} not defined", quote(&invocation.name))));
        };
        let dot = match &invocation.pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Slot::Invalid,
        };
        run(self.ctx, &tree, &dot, self.out)
    }
}
