//! Functions that need the templates of the render: their names, until the evaluator binds them.

use super::table;
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "include" (Str, Any) => unbound,
    "tpl" (Str, Any) => unbound,
}

fn unbound(_: &mut Ctx, _: &[Value]) -> Result<Value, Failure> {
    Err(Failure::error("this function is not bound to the templates of a chart"))
}
