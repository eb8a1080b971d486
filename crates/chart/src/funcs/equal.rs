//! `reflect.DeepEqual`.

use std::collections::HashSet;
use std::rc::Rc;

use crate::Failure;
use crate::fmt::type_name;
use crate::value::{Ctx, MapRef, Value};

/// Whether two values have the same type and contents. Maps met again while they are compared count as equal.
pub(crate) fn deep_equal(ctx: &mut Ctx, left: &Value, right: &Value) -> Result<bool, Failure> {
    equal(ctx, left, right, 0, &mut HashSet::new())
}

fn equal(
    ctx: &mut Ctx,
    left: &Value,
    right: &Value,
    depth: u32,
    seen: &mut HashSet<(MapRef, MapRef)>,
) -> Result<bool, Failure> {
    ctx.step(1)?;
    ctx.depth(depth)?;
    if type_name(&ctx.heap, left) != type_name(&ctx.heap, right) {
        return Ok(false);
    }
    Ok(match (left, right) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Int(left), Value::Int(right)) | (Value::Int64(left), Value::Int64(right)) => left == right,
        (Value::Float(left), Value::Float(right)) => {
            left.partial_cmp(right).is_some_and(std::cmp::Ordering::is_eq)
        }
        (Value::Str(left), Value::Str(right)) => left == right,
        (Value::Raw(left), Value::Raw(right)) | (Value::Bytes(left), Value::Bytes(right)) => left == right,
        (Value::List(left), Value::List(right)) => {
            if left.is_nil() != right.is_nil() || left.items.len() != right.items.len() {
                return Ok(false);
            }
            if Rc::ptr_eq(&left.items, &right.items) {
                return Ok(true);
            }
            for (left, right) in left.items.iter().zip(right.items.iter()) {
                if !equal(ctx, left, right, depth.saturating_add(1), seen)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(left), Value::Map(right)) => {
            if left == right {
                return Ok(true);
            }
            if left.is_nil() || right.is_nil() {
                return Ok(false);
            }
            let entries = ctx.heap.map(*left).entries.clone();
            ctx.step(entries.len())?;
            if entries.len() != ctx.heap.map(*right).entries.len() {
                return Ok(false);
            }
            if !seen.insert((*left, *right)) {
                return Ok(true);
            }
            for (key, value) in &entries {
                let Some(other) = ctx.heap.get(*right, key).cloned() else { return Ok(false) };
                if !equal(ctx, value, &other, depth.saturating_add(1), seen)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Host(left), Value::Host(right)) => {
            Rc::ptr_eq(left, right) || left.display() == right.display()
        }
        _ => false,
    })
}
