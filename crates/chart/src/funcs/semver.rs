//! Sprig's functions of versions, after `Masterminds/semver`.

mod constraint;

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::LazyLock;

use ::regex::Regex;

use super::args;
use super::table;
use crate::Failure;
use crate::fmt::quote;
use crate::value::{Ctx, Host, Signature, Type, Value};

table! {
    "semver" (Str) => |_, args| {
        let version = Version::parse(args::text(args, 0)).map_err(Failure::error)?;
        Ok(Value::Host(Rc::new(version)))
    },
    "semverCompare" (Str, Str) => |ctx, args| {
        let (constraint, version) = (args::text(args, 0), args::text(args, 1));
        ctx.step(constraint.len().saturating_add(version.len()).saturating_mul(4))?;
        let constraints = constraint::parse(constraint).map_err(Failure::error)?;
        let version = Version::parse(version).map_err(Failure::error)?;
        Ok(Value::Bool(constraint::check(&constraints, &version)))
    },
}

/// The longest version.
const LONGEST: usize = 256;

/// A `*semver.Version`.
#[derive(Clone, Debug, Default)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    pub(super) pre: String,
    metadata: String,
    original: String,
}

fn segment(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        format!(
            "error parsing version segment: strconv.ParseUint: parsing {}: value out of range",
            quote(text.as_bytes())
        )
    })
}

impl Version {
    /// `semver.NewVersion`, which takes versions that leave out numbers or start with a `v`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(concat!(
                r"^v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?",
                r"(?:-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?",
                r"(?:\+([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?$"
            ))
            .ok()
        });
        if text.len() > LONGEST {
            return Err(format!("version string is too long (max {LONGEST} bytes)"));
        }
        let found = PATTERN.as_ref().and_then(|pattern| pattern.captures(text));
        let found = found.ok_or("invalid semantic version")?;
        let group = |group| found.get(group).map_or("", |group| group.as_str());
        let version = Self {
            major: segment(group(1))?,
            minor: segment(group(2))?,
            patch: segment(group(3))?,
            pre: group(4).to_owned(),
            metadata: group(5).to_owned(),
            original: text.to_owned(),
        };
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if version.pre.split('.').any(|part| part.len() > 1 && part.starts_with('0') && is_number(part)) {
            return Err("version segment starts with 0".to_owned());
        }
        Ok(version)
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let numbers = (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch));
        numbers.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_pre(&self.pre, &other.pre),
        })
    }
}

/// Compares what stands behind the dash, part by part.
pub(super) fn compare_pre(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let (one, other) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (one, other) => (one.unwrap_or_default(), other.unwrap_or_default()),
        };
        if one == other {
            continue;
        }
        if one.is_empty() || other.is_empty() {
            return if one.is_empty() { Ordering::Less } else { Ordering::Greater };
        }
        let number = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u64>().ok()).flatten()
        };
        return match (number(one), number(other)) {
            (None, None) if one > other => Ordering::Greater,
            (Some(one), Some(other)) if one > other => Ordering::Greater,
            (None, Some(_)) => Ordering::Greater,
            _ => Ordering::Less,
        };
    }
}

const NONE: Signature = Signature { params: &[], variadic: None };
const ONE: Signature = Signature { params: &[Type::Host("*semver.Version")], variadic: None };

impl Host for Version {
    fn type_name(&self) -> &'static str {
        "*semver.Version"
    }

    fn kind(&self) -> &'static str {
        "ptr"
    }

    fn truth(&self) -> bool {
        true
    }

    fn method(&self, name: &str) -> Option<&'static Signature> {
        match name {
            "Major" | "Minor" | "Patch" | "Prerelease" | "Metadata" | "Original" | "String" => Some(&NONE),
            "Compare" | "Equal" | "LessThan" | "LessThanEqual" | "GreaterThan" | "GreaterThanEqual" => {
                Some(&ONE)
            }
            _ => None,
        }
    }

    fn call(&self, ctx: &mut Ctx, name: &str, args: &[Value]) -> Result<Value, Failure> {
        // Go's are unsigned; no template can tell.
        let number = |number: u64| Ok(Value::Int64(i64::try_from(number).unwrap_or(i64::MAX)));
        match name {
            "Major" => return number(self.major),
            "Minor" => return number(self.minor),
            "Patch" => return number(self.patch),
            "Prerelease" => return ctx.text(&self.pre),
            "Metadata" => return ctx.text(&self.metadata),
            "Original" => return ctx.text(&self.original),
            "String" => return ctx.text(self.display()),
            _ => {}
        }
        let Value::Host(other) = args::any(args, 0) else {
            return Err(Failure::error(args::NIL_DEREFERENCE));
        };
        let other = Self::parse(&other.display()).map_err(Failure::error)?;
        let order = self.compare(&other);
        Ok(match name {
            "Compare" => Value::Int(match order {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            }),
            "Equal" => Value::Bool(order.is_eq()),
            "LessThan" => Value::Bool(order.is_lt()),
            "LessThanEqual" => Value::Bool(order.is_le()),
            "GreaterThan" => Value::Bool(order.is_gt()),
            "GreaterThanEqual" => Value::Bool(order.is_ge()),
            _ => return Err(Failure::error(format!("*semver.Version has no method {name}"))),
        })
    }

    fn display(&self) -> String {
        let mut out = format!("{}.{}.{}", self.major, self.minor, self.patch);
        for (mark, text) in [('-', &self.pre), ('+', &self.metadata)] {
            if !text.is_empty() {
                out.push(mark);
                out.push_str(text);
            }
        }
        out
    }

    fn plain(&self, _: &mut Ctx) -> Result<Value, Failure> {
        Ok(Value::str(self.display()))
    }
}
