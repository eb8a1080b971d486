//! Constraints of versions.

use std::cmp::Ordering;
use std::sync::LazyLock;

use ::regex::Regex;

use super::{Version, compare_pre};
use crate::fmt::quote;

const LONGEST: usize = 512;
const MOST_GROUPS: usize = 32;

/// One comparison.
#[derive(Debug)]
pub(super) struct Constraint {
    operator: String,
    version: Version,
    /// Which numbers were left out or are an `x`.
    dirty: bool,
    minor_dirty: bool,
    patch_dirty: bool,
}

/// The patterns of the Go module.
struct Patterns {
    one: Regex,
    range: Regex,
    find: Regex,
    valid: Regex,
}

fn patterns() -> Option<&'static Patterns> {
    static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
        let version = concat!(
            r"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?",
            r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?",
            r"(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?"
        );
        let operators = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";
        let space = r"[\t\n\x0C\r ]";
        Some(Patterns {
            one: Regex::new(&format!("^{space}*({operators}){space}*({version}){space}*$")).ok()?,
            range: Regex::new(&format!("{space}*({version}){space}+-{space}+({version}){space}*")).ok()?,
            find: Regex::new(&format!("({operators}){space}*({version})")).ok()?,
            valid: Regex::new(&format!(
                "^({space}*({operators}){space}*({version}){space}*)((?:{space}+|,{space}*)({operators}){space}*({version}){space}*)*$"
            ))
            .ok()?,
        })
    });
    PATTERNS.as_ref()
}

/// `semver.NewConstraint`: alternatives, of which each holds if all of its comparisons do.
pub(super) fn parse(text: &str) -> Result<Vec<Vec<Constraint>>, String> {
    let patterns = patterns().ok_or("constraint parser error")?;
    if text.len() > LONGEST {
        return Err(format!("constraint string is too long (max {LONGEST} bytes)"));
    }
    let mut rewritten = text.to_owned();
    for range in patterns.range.captures_iter(text) {
        let group = |group| range.get(group).map_or("", |group| group.as_str());
        let comparisons = format!(">= {}, <= {} ", group(1), group(11));
        rewritten = rewritten.replacen(group(0), &comparisons, 1);
    }
    let alternatives: Vec<&str> = rewritten.split("||").collect();
    if alternatives.len() > MOST_GROUPS {
        return Err(format!("too many constraint groups (max {MOST_GROUPS})"));
    }
    let mut out = Vec::with_capacity(alternatives.len());
    for alternative in alternatives {
        if !patterns.valid.is_match(alternative) {
            return Err(format!("improper constraint: {}", quote(alternative.as_bytes())));
        }
        let found = patterns.find.find_iter(alternative).map(|found| parse_one(patterns, found.as_str()));
        out.push(found.collect::<Result<Vec<Constraint>, String>>()?);
    }
    Ok(out)
}

fn parse_one(patterns: &Patterns, text: &str) -> Result<Constraint, String> {
    let found = patterns.one.captures(text);
    let found = found.ok_or_else(|| format!("improper constraint: {}", quote(text.as_bytes())))?;
    let group = |group| found.get(group).map_or("", |group| group.as_str());
    let is_any = |part: &str| matches!(part.strip_prefix('.').unwrap_or(part), "" | "x" | "X" | "*");
    let (major, minor, patch, pre) = (group(3), group(4), group(5), group(6));
    let (version, minor_dirty, patch_dirty) = if is_any(major) {
        (format!("0.0.0{pre}"), false, false)
    } else if is_any(minor) {
        (format!("{major}.0.0{pre}"), true, false)
    } else if is_any(patch) {
        (format!("{major}{minor}.0{pre}"), false, true)
    } else {
        (group(2).to_owned(), false, false)
    };
    let dirty = is_any(major) || is_any(minor) || is_any(patch);
    let version = Version::parse(&version).map_err(|_| "constraint parser error")?;
    Ok(Constraint { operator: group(1).to_owned(), version, dirty, minor_dirty, patch_dirty })
}

/// Whether a version meets one of the alternatives.
pub(super) fn check(alternatives: &[Vec<Constraint>], version: &Version) -> bool {
    alternatives.iter().any(|constraints| {
        // Versions before a release count only where the constraint names one.
        let with_pre = constraints.iter().any(|constraint| !constraint.version.pre.is_empty());
        (version.pre.is_empty() || with_pre) && constraints.iter().all(|constraint| constraint.holds(version))
    })
}

impl Constraint {
    fn holds(&self, version: &Version) -> bool {
        let own = &self.version;
        let order = version.compare(own);
        match self.operator.as_str() {
            "!=" => self.not_equal(version, order),
            ">" => {
                if !self.dirty || version.major != own.major {
                    return if self.dirty { version.major > own.major } else { order.is_gt() };
                }
                if self.minor_dirty {
                    false
                } else if self.patch_dirty {
                    version.minor > own.minor
                } else {
                    order.is_gt()
                }
            }
            "<" => order.is_lt(),
            ">=" | "=>" => order.is_ge(),
            "<=" | "=<" => {
                if !self.dirty {
                    return order.is_le();
                }
                version.major <= own.major
                    && !(version.major == own.major && version.minor > own.minor && !self.minor_dirty)
            }
            "~" | "~>" => self.tilde(version, order),
            "^" => self.caret(version, order),
            _ if self.dirty => self.tilde(version, order),
            _ => order.is_eq(),
        }
    }

    fn not_equal(&self, version: &Version, order: Ordering) -> bool {
        let own = &self.version;
        if self.dirty {
            if own.major != version.major || (own.minor != version.minor && !self.minor_dirty) {
                return true;
            }
            if self.minor_dirty {
                return false;
            }
            if own.patch != version.patch && !self.patch_dirty {
                return true;
            }
            if self.patch_dirty {
                return (!version.pre.is_empty() || !own.pre.is_empty())
                    && compare_pre(&version.pre, &own.pre).is_ne();
            }
        }
        order.is_ne()
    }

    fn tilde(&self, version: &Version, order: Ordering) -> bool {
        let own = &self.version;
        if order.is_lt() {
            return false;
        }
        if (own.major, own.minor, own.patch) == (0, 0, 0) && !self.minor_dirty && !self.patch_dirty {
            return true;
        }
        version.major == own.major && (version.minor == own.minor || self.minor_dirty)
    }

    fn caret(&self, version: &Version, order: Ordering) -> bool {
        let own = &self.version;
        if order.is_lt() {
            return false;
        }
        if own.major > 0 || self.minor_dirty {
            return version.major == own.major;
        }
        if version.major > 0 {
            return false;
        }
        if own.minor > 0 || self.patch_dirty {
            return version.minor == own.minor;
        }
        version.minor == 0 && version.patch == own.patch
    }
}
