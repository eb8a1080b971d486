//! Go's `text/template`, with `missingkey=zero`.
//!
//! ```text
//!   text ──► lex.rs ──► parse.rs, pipeline.rs ──► node.rs   trees, kept in a Set by name
//!                          number.rs, text.rs                  │
//!                                                              ▼
//!   output ◄── exec.rs (control flow) ── eval.rs (pipelines, fields) ── call.rs (arguments, calls)
//!                                           slot.rs, methods.rs
//! ```
//!
//! Positions and errors are Go's to the byte. What differs: complex constants and names of templates that are not UTF-8 are
//! refused, and syntax and evaluation may nest less deeply, see [`MAX_SYNTAX`] and [`MAX_EVALUATION`].

mod call;
mod eval;
mod exec;
mod lex;
mod methods;
mod node;
mod number;
mod parse;
mod pipeline;
mod slot;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) use self::node::Tree;
use self::slot::Slot;
use crate::value::{Ctx, Function, Signature, Value};
use crate::{Failure, funcs};

/// How deep lists and parentheses may nest in a file. Helm's charts stay below 20; Go's own bound is the stack.
const MAX_SYNTAX: u32 = 200;

/// How many `else if` may follow an `if`.
const MAX_ELSE: usize = 1000;

/// How deep lists and pipelines may be nested while they are evaluated, in all templates that call each other. A debug build
/// survives it on a stack of 8 MiB.
const MAX_EVALUATION: u32 = 1000;

/// Finds a function by name.
pub(crate) type Find = fn(&str) -> Option<(&'static Signature, Function)>;

/// The name that Helm gives to the set, seen in the error about a template that does not exist.
const ROOT: &str = "gotpl";

/// Whether a function is not one of `funcs`: these evaluate their arguments themselves.
fn is_of_evaluator(name: &str) -> bool {
    matches!(name, "and" | "or" | "call")
}

/// The templates of a chart, by name.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// The functions, other than `and`, `or` and `call`.
    pub(crate) find: Find,
    /// Where templates that this set has not are looked for.
    parent: Option<Rc<Set>>,
    trees: BTreeMap<Rc<str>, Rc<Tree>>,
}

impl Default for Set {
    fn default() -> Self {
        Self { find: funcs::find, parent: None, trees: BTreeMap::new() }
    }
}

impl Set {
    /// A set that has all templates of another, without copying them: Go's `Clone`, for `tpl`.
    pub(crate) fn child(parent: &Rc<Self>) -> Self {
        Self { find: parent.find, parent: Some(Rc::clone(parent)), trees: BTreeMap::new() }
    }

    /// The template of this name.
    pub(crate) fn lookup(&self, name: &str) -> Option<Rc<Tree>> {
        let mut set = self;
        loop {
            if let Some(tree) = set.trees.get(name) {
                return Some(Rc::clone(tree));
            }
            set = set.parent.as_deref()?;
        }
    }

    /// Adds a file and the templates that it defines. They replace those of the same name unless they are empty, in which
    /// case the file's own is returned nonetheless.
    pub(crate) fn parse(&mut self, name: &str, text: &str) -> Result<Rc<Tree>, Failure> {
        let trees = parse::parse(name, text, self.find)?;
        let main = trees.get(name).cloned();
        for (name, tree) in trees {
            if !tree.is_empty() || self.lookup(&name).is_none() {
                self.trees.insert(name, tree);
            }
        }
        main.ok_or_else(|| Failure::error(format!("template: {name}: missing after it was parsed")))
    }
}

/// Executes the template of this name in `ctx.set`. For functions such as `include`, too.
pub(crate) fn execute(ctx: &mut Ctx, name: &str, data: Value) -> Result<String, Failure> {
    if let Some(tree) = ctx.set.lookup(name) {
        return execute_tree(ctx, &tree, data);
    }
    let (name, root) = (text::quote(name), text::quote(ROOT));
    Err(Failure::error(format!("template: no template {name} associated with template {root}")))
}

/// Executes a tree, which need not be in `ctx.set`.
pub(crate) fn execute_tree(ctx: &mut Ctx, tree: &Tree, data: Value) -> Result<String, Failure> {
    let mut out = String::new();
    exec::run(ctx, tree, &Slot::of(data), &mut out)?;
    Ok(out)
}

/// Parses text for `tpl`, with the definitions in it on top of those of `ctx.set`, for [`execute_in`].
pub(crate) fn parse_in(ctx: &mut Ctx, text: &str) -> Result<(Rc<Set>, Rc<Tree>), Failure> {
    ctx.step(text.len())?;
    // A tree takes many times the memory of its text.
    ctx.room(text.len().saturating_mul(64))?;
    let mut set = Set::child(&ctx.set);
    let tree = set.parse(ROOT, text)?;
    Ok((Rc::new(set), tree))
}

/// Executes a tree with the templates of another set.
pub(crate) fn execute_in(ctx: &mut Ctx, set: Rc<Set>, tree: &Tree, data: Value) -> Result<String, Failure> {
    let outer = std::mem::replace(&mut ctx.set, set);
    let result = execute_tree(ctx, tree, data);
    ctx.set = outer;
    result
}
