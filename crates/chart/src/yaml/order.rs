//! The order in which go-yaml writes the keys of a map: numbers within them count as numbers, and letters come last.

use std::collections::BTreeMap;

use super::data::{Data, Key};
use super::syntax::{is_digit, is_letter};
use crate::Failure;
use crate::value::Ctx;

/// The entries of a map, sorted. Keys that are not strings are left out, as JSON has none.
pub(super) fn sorted<'a>(
    ctx: &mut Ctx,
    map: &'a BTreeMap<Key, Data>,
) -> Result<Vec<(&'a str, &'a Data)>, Failure> {
    let mut entries: Vec<_> = map
        .iter()
        .filter_map(|(key, data)| match key {
            Key::Str(key) => Some((&**key, data)),
            _ => None,
        })
        .collect();
    ctx.step(entries.len())?;
    ctx.room(entries.len().saturating_mul(size_of::<(&str, &Data)>()))?;
    sort(&mut entries);
    Ok(entries)
}

/// Merge sort, since the order is not quite transitive, which the standard library's sort may answer with a panic.
fn sort(entries: &mut Vec<(&str, &Data)>) {
    let in_order = |pair: &[(&str, &Data)]| match pair {
        [left, right] => !is_less(right.0, left.0),
        _ => true,
    };
    if entries.windows(2).all(in_order) {
        return;
    }
    let mut right = entries.split_off(entries.len() / 2);
    sort(entries);
    sort(&mut right);
    let left = std::mem::take(entries);
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(first), Some(second)) = (left.peek(), right.peek()) {
        let next = if is_less(second.0, first.0) { right.next() } else { left.next() };
        entries.extend(next);
    }
    entries.extend(left);
    entries.extend(right);
}

fn is_less(left: &str, right: &str) -> bool {
    // Nearly all keys differ in letters of ASCII or in length, which needs no characters decoded.
    let common = left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count();
    match (left.as_bytes().get(common), right.as_bytes().get(common)) {
        (Some(left), Some(right)) if left.is_ascii_alphabetic() && right.is_ascii_alphabetic() => {
            return left < right;
        }
        (None, right) => return right.is_some(),
        (_, None) => return false,
        _ => {}
    }
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let pair = left.iter().zip(&right).enumerate().find(|(_, (left, right))| left != right);
    let Some((at, (&first, &second))) = pair else { return left.len() < right.len() };
    match (is_letter(first), is_letter(second)) {
        (true, true) => return first < second,
        (false, false) => {}
        (_, letter) => return letter,
    }
    // A zero counts only if a number with another digit is being written already.
    let before = left.get(..at).unwrap_or_default();
    let mut digits = before.iter().rev().take_while(|character| is_digit(**character));
    let zero = first == '0' || second == '0';
    let start = i64::from(zero && digits.any(|digit| *digit != '0'));
    let (left_number, left_length) = number(&left, at, start);
    let (right_number, right_length) = number(&right, at, start);
    if left_number != right_number {
        left_number < right_number
    } else if left_length != right_length {
        left_length < right_length
    } else {
        first < second
    }
}

/// The number that goes on at a place, and how many digits of it there are.
fn number(text: &[char], at: usize, start: i64) -> (i64, usize) {
    let digits = text.get(at..).unwrap_or_default();
    let digits = digits.iter().take_while(|character| is_digit(**character));
    digits.fold((start, 0), |(number, length), digit| {
        let digit = i64::from(u32::from(*digit)) - i64::from(u32::from('0'));
        (number.wrapping_mul(10).wrapping_add(digit), length + 1)
    })
}
