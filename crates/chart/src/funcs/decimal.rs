//! `shopspring/decimal`, as far as sprig's arithmetic of floats needs it.

use std::cmp::Ordering;

use crate::Failure;
use crate::fmt::float;
use crate::value::Ctx;

/// How many digits a quotient has after the point.
const PRECISION: i64 = 16;

/// A decimal number of any length.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    /// From the lowest on, without zeros at the end.
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// The shortest decimal number that reads as this one.
    pub(super) fn new(value: f64) -> Result<Self, Failure> {
        if !value.is_finite() {
            let text = float(value, 'g', None);
            return Err(Failure::error(format!("Cannot create a Decimal from {text}")));
        }
        let text = format!("{:e}", value.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let digits = mantissa.bytes().rev().filter(u8::is_ascii_digit).map(|byte| byte - b'0');
        let exponent: i64 = exponent.parse().unwrap_or_default();
        let exponent = exponent - i64::try_from(decimals).unwrap_or_default();
        Ok(Self { negative: value < 0.0, digits: trimmed(digits.collect()), exponent })
    }

    /// The closest float.
    pub(super) fn float(&self) -> f64 {
        let sign = if self.negative && !self.digits.is_empty() { "-" } else { "" };
        let digits: String = self.digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect();
        format!("{sign}0{digits}e{}", self.exponent).parse().unwrap_or_default()
    }

    pub(super) fn add(&self, ctx: &mut Ctx, other: &Self) -> Result<Self, Failure> {
        let exponent = self.exponent.min(other.exponent);
        let left = shifted(ctx, &self.digits, self.exponent - exponent)?;
        let right = shifted(ctx, &other.digits, other.exponent - exponent)?;
        let (negative, digits) = if self.negative == other.negative {
            (self.negative, sum(&left, &right))
        } else {
            match compare(&left, &right) {
                Ordering::Less => (other.negative, difference(&right, &left)),
                _ => (self.negative, difference(&left, &right)),
            }
        };
        Ok(Self { negative: negative && !digits.is_empty(), digits, exponent })
    }

    pub(super) fn sub(&self, ctx: &mut Ctx, other: &Self) -> Result<Self, Failure> {
        let other = Self { negative: !other.negative, ..other.clone() };
        self.add(ctx, &other)
    }

    pub(super) fn mul(&self, ctx: &mut Ctx, other: &Self) -> Result<Self, Failure> {
        ctx.step(self.digits.len().saturating_mul(other.digits.len()))?;
        let mut sums = vec![0_u64; self.digits.len().saturating_add(other.digits.len())];
        for (place, left) in self.digits.iter().enumerate() {
            for (more, right) in other.digits.iter().enumerate() {
                if let Some(sum) = sums.get_mut(place.saturating_add(more)) {
                    *sum += u64::from(left * right);
                }
            }
        }
        let mut carry = 0;
        let mut digits = Vec::with_capacity(sums.len());
        for sum in sums {
            let sum = sum + carry;
            digits.push(u8::try_from(sum % 10).unwrap_or_default());
            carry = sum / 10;
        }
        let negative = self.negative != other.negative;
        Ok(Self { negative, digits: trimmed(digits), exponent: self.exponent + other.exponent })
    }

    /// Rounds half away from zero, at the precision of decimals.
    pub(super) fn div(&self, ctx: &mut Ctx, other: &Self) -> Result<Self, Failure> {
        if other.digits.is_empty() {
            return Err(Failure::error("decimal division by 0"));
        }
        let places = self.exponent - other.exponent + PRECISION;
        let dividend = shifted(ctx, &self.digits, places.max(0))?;
        let divisor = shifted(ctx, &other.digits, (-places).max(0))?;
        ctx.step(dividend.len().saturating_mul(divisor.len()))?;
        let mut quotient = Vec::with_capacity(dividend.len());
        let mut remainder: Vec<u8> = Vec::new();
        for &digit in dividend.iter().rev() {
            remainder.insert(0, digit);
            remainder = trimmed(remainder);
            let mut count = 0;
            while compare(&remainder, &divisor) != Ordering::Less {
                remainder = difference(&remainder, &divisor);
                count += 1;
            }
            quotient.push(count);
        }
        quotient.reverse();
        let mut quotient = trimmed(quotient);
        if compare(&sum(&remainder, &remainder), &divisor) != Ordering::Less {
            quotient = sum(&quotient, &[1]);
        }
        let negative = self.negative != other.negative;
        Ok(Self { negative, digits: quotient, exponent: -PRECISION })
    }
}

fn trimmed(mut digits: Vec<u8>) -> Vec<u8> {
    while digits.last() == Some(&0) {
        digits.pop();
    }
    digits
}

/// Times ten to this power.
fn shifted(ctx: &mut Ctx, digits: &[u8], places: i64) -> Result<Vec<u8>, Failure> {
    if digits.is_empty() {
        return Ok(Vec::new());
    }
    let zeros = usize::try_from(places).unwrap_or_default();
    ctx.room(zeros.saturating_add(digits.len()))?;
    let mut out = vec![0; zeros];
    out.extend_from_slice(digits);
    Ok(out)
}

fn compare(left: &[u8], right: &[u8]) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.iter().rev().cmp(right.iter().rev()))
}

fn sum(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(left.len().max(right.len()).saturating_add(1));
    let mut carry = 0;
    for place in 0..left.len().max(right.len()) {
        let sum = left.get(place).unwrap_or(&0) + right.get(place).unwrap_or(&0) + carry;
        out.push(sum % 10);
        carry = sum / 10;
    }
    out.push(carry);
    trimmed(out)
}

/// The left less the right, which is not larger.
fn difference(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(left.len());
    let mut borrow = 0;
    for (place, digit) in left.iter().enumerate() {
        let minus = right.get(place).unwrap_or(&0) + borrow;
        borrow = u8::from(*digit < minus);
        out.push(digit + 10 * borrow - minus);
    }
    trimmed(out)
}
