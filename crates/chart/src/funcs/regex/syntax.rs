//! Go's syntax of regular expressions in that of Rust, and the errors of Go's parser.

use ::regex::Regex;

use super::Refused;
use crate::value::Ctx;

/// A pattern for Rust, with its groups unnamed, and their names.
pub(super) struct Translated {
    pub(super) pattern: String,
    pub(super) names: Vec<Option<String>>,
    /// About how large the pattern is with its repeats spelt out.
    pub(super) weight: usize,
}

/// How often repeats may multiply.
const MOST_REPEATS: u64 = 1_000;

/// An open group.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Whether something stands before that can be repeated.
    has_atom: bool,
    /// How often repeats multiply within the last atom, and within the group so far.
    atom: u64,
    most: u64,
}

struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    out: String,
    names: Vec<Option<String>>,
    groups: Vec<Group>,
}

/// Translates, or says what Go says.
pub(super) fn translate(ctx: &mut Ctx, pattern: &str) -> Result<Translated, Refused> {
    let mut parser = Parser {
        whole: pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len().saturating_mul(4)),
        names: Vec::new(),
        groups: vec![Group::default()],
    };
    let mut last_repeat: Option<&str> = None;
    while let Some(character) = parser.rest.chars().next() {
        ctx.step(1).map_err(Refused::Failure)?;
        ctx.depth(u32::try_from(parser.groups.len()).unwrap_or(u32::MAX)).map_err(Refused::Failure)?;
        let before = parser.rest;
        last_repeat = if parser.next(character, last_repeat)? { Some(before) } else { None };
    }
    if parser.groups.len() > 1 {
        return Err(error("missing closing )", pattern));
    }
    let outer = parser.groups.pop().unwrap_or_default();
    let repeats = usize::try_from(outer.most.max(outer.atom)).unwrap_or(usize::MAX);
    let weight = pattern.len().saturating_mul(repeats.max(1));
    Ok(Translated { pattern: parser.out, names: parser.names, weight })
}

fn error(what: &str, expression: &str) -> Refused {
    Refused::Go(format!("error parsing regexp: {what}: `{expression}`"))
}

/// The part of a text before its tail.
fn until<'t>(text: &'t str, tail: &str) -> &'t str {
    text.get(..text.len().saturating_sub(tail.len())).unwrap_or(text)
}

impl<'p> Parser<'p> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        if let Some(group) = self.groups.last_mut() {
            group.has_atom = true;
            group.most = group.most.max(group.atom);
            group.atom = 1;
        }
    }

    fn literal(&mut self, code: u32) {
        let text = match char::from_u32(code) {
            Some(_) => hex(code),
            // A surrogate matches nothing.
            None => "[^\\x{0}-\\x{10FFFF}]".to_owned(),
        };
        self.atom(&text);
    }

    /// Translates what comes next; whether it was a repeat.
    fn next(&mut self, character: char, last_repeat: Option<&'p str>) -> Result<bool, Refused> {
        match character {
            '(' if self.rest.starts_with("(?") => self.flags()?,
            '(' => {
                self.names.push(None);
                self.open("(");
                self.skip(1);
            }
            '|' => {
                self.out.push('|');
                if let Some(group) = self.groups.last_mut() {
                    group.most = group.most.max(group.atom);
                    (group.has_atom, group.atom) = (false, 0);
                }
                self.skip(1);
            }
            ')' => self.close()?,
            '^' | '$' | '.' => {
                self.atom(character.encode_utf8(&mut [0; 4]));
                self.skip(1);
            }
            '[' => self.class()?,
            '*' | '+' | '?' => {
                let (before, after) = (self.rest, self.rest.get(1..).unwrap_or_default());
                self.repeat(before, after, last_repeat, 1)?;
                return Ok(true);
            }
            '{' => {
                let Some((least, most, after)) = counts(self.rest) else {
                    self.literal(u32::from('{'));
                    self.skip(1);
                    return Ok(false);
                };
                let before = self.rest;
                if least > MOST_REPEATS || most.is_some_and(|most| most > MOST_REPEATS || least > most) {
                    return Err(error("invalid repeat count", until(before, after)));
                }
                self.repeat(before, after, last_repeat, most.unwrap_or(least))?;
                return Ok(true);
            }
            '\\' => self.escape()?,
            _ => {
                self.literal(u32::from(character));
                self.skip(character.len_utf8());
            }
        }
        Ok(false)
    }

    fn open(&mut self, text: &str) {
        self.out.push_str(text);
        self.groups.push(Group::default());
    }

    fn close(&mut self) -> Result<(), Refused> {
        if self.groups.len() < 2 {
            return Err(error("unexpected )", self.whole));
        }
        let inner = self.groups.pop().unwrap_or_default();
        self.atom(")");
        if let Some(group) = self.groups.last_mut() {
            group.atom = inner.most.max(inner.atom).max(1);
        }
        self.skip(1);
        Ok(())
    }

    fn repeat(
        &mut self,
        before: &str,
        after: &'p str,
        last: Option<&str>,
        times: u64,
    ) -> Result<(), Refused> {
        let lazy = after.starts_with('?');
        let after = after.strip_prefix('?').unwrap_or(after);
        if let Some(last) = last {
            return Err(error("invalid nested repetition operator", until(last, after)));
        }
        let Some(group) = self.groups.last_mut().filter(|group| group.has_atom) else {
            return Err(error("missing argument to repetition operator", until(before, after)));
        };
        if times >= 2 {
            group.atom = group.atom.saturating_mul(times);
            if group.atom > MOST_REPEATS {
                return Err(error("invalid repeat count", until(before, after)));
            }
        }
        let operator = until(before, after);
        self.out.push_str(if lazy { operator.trim_end_matches('?') } else { operator });
        // The trimmed operator `??` has lost both of its marks.
        if lazy {
            self.out.push_str(if operator.starts_with('?') { "??" } else { "?" });
        }
        self.rest = after;
        Ok(())
    }

    /// A group with a name, without capture, or with flags.
    fn flags(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        let named = if start.starts_with("(?P<") && start.len() > 4 {
            start.get(4..)
        } else if start.starts_with("(?<") && start.len() > 3 {
            start.get(3..)
        } else {
            None
        };
        if let Some(named) = named {
            let Some((name, rest)) = named.split_once('>') else {
                return Err(error("invalid named capture", start));
            };
            if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
                return Err(error("invalid named capture", until(start, rest)));
            }
            self.names.push(Some(name.to_owned()));
            self.open("(");
            self.rest = rest;
            return Ok(());
        }
        let mut rest = start.get(2..).unwrap_or_default();
        let mut negative = false;
        let mut saw_flag = false;
        let mut set: Vec<(char, bool)> = Vec::new();
        while let Some(character) = rest.chars().next() {
            rest = rest.get(character.len_utf8()..).unwrap_or_default();
            match character {
                'i' | 'm' | 's' | 'U' => {
                    set.retain(|(flag, _)| *flag != character);
                    set.push((character, !negative));
                    saw_flag = true;
                }
                '-' if !negative => {
                    negative = true;
                    saw_flag = false;
                }
                ':' | ')' if !negative || saw_flag => {
                    let flags = |on: bool| {
                        set.iter().filter(|flag| flag.1 == on).map(|flag| flag.0).collect::<String>()
                    };
                    let (on, off) = (flags(true), flags(false));
                    let off = if off.is_empty() { off } else { format!("-{off}") };
                    if character == ':' {
                        self.open(&format!("(?{on}{off}:"));
                    } else if !set.is_empty() {
                        self.out.extend(["(?", &on, &off, ")"]);
                    }
                    self.rest = rest;
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(error("invalid or unsupported Perl syntax", until(start, rest)))
    }

    fn escape(&mut self) -> Result<(), Refused> {
        let marked = self.rest.as_bytes().get(1).copied();
        let text = match marked {
            Some(b'A') => "\\A",
            Some(b'z') => "\\z",
            Some(b'b') => "(?-u:\\b)",
            Some(b'B') => "(?-u:\\B)",
            Some(b'C') => return Err(error("invalid escape sequence", "\\C")),
            Some(b'Q') => {
                let quoted = self.rest.get(2..).unwrap_or_default();
                let (text, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
                for character in text.chars() {
                    self.literal(u32::from(character));
                }
                self.rest = rest;
                return Ok(());
            }
            _ => "",
        };
        if !text.is_empty() {
            self.atom(text);
            self.skip(2);
            return Ok(());
        }
        if let Some((class, rest)) = class_escape(self.rest)? {
            self.atom(&format!("[{class}]"));
            self.rest = rest;
            return Ok(());
        }
        let (code, rest) = character_escape(self.rest)?;
        self.literal(code);
        self.rest = rest;
        Ok(())
    }

    /// A class in brackets.
    fn class(&mut self) -> Result<(), Refused> {
        let start = self.rest;
        let mut rest = start.get(1..).unwrap_or_default();
        let negated = rest.starts_with('^');
        rest = rest.strip_prefix('^').unwrap_or(rest);
        let mut content = String::new();
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if rest.len() > 2
                && let Some(named) = rest.strip_prefix("[:")
                && let Some((name, after)) = named.split_once(":]")
            {
                if !is_posix_class(name) {
                    return Err(error("invalid character class range", &format!("[:{name}:]")));
                }
                content.extend(["[:", name, ":]"]);
                rest = after;
                continue;
            }
            if let Some((class, after)) = class_escape(rest)? {
                content.push_str(&class);
                rest = after;
                continue;
            }
            let range = rest;
            let (low, after) = class_character(rest, start)?;
            rest = after;
            let mut high = low;
            if rest.len() >= 2 && rest.starts_with('-') && !rest.starts_with("-]") {
                (high, rest) = class_character(rest.get(1..).unwrap_or_default(), start)?;
                if high < low {
                    return Err(error("invalid character class range", until(range, rest)));
                }
            }
            // Surrogates match nothing.
            let low = if (0xd800..=0xdfff).contains(&low) { 0xe000 } else { low };
            let high = if (0xd800..=0xdfff).contains(&high) { 0xd7ff } else { high };
            if low <= high {
                content.extend([hex(low), "-".to_owned(), hex(high)]);
            }
        }
        let content = if content.is_empty() { "[^\\x{0}-\\x{10FFFF}]" } else { &content };
        let sign = if negated { "^" } else { "" };
        self.atom(&format!("[{sign}{content}]"));
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(())
    }
}

fn hex(code: u32) -> String {
    format!("\\x{{{code:X}}}")
}

fn is_posix_class(name: &str) -> bool {
    let name = name.strip_prefix('^').unwrap_or(name);
    matches!(
        name,
        "alnum"
            | "alpha"
            | "ascii"
            | "blank"
            | "cntrl"
            | "digit"
            | "graph"
            | "lower"
            | "print"
            | "punct"
            | "space"
            | "upper"
            | "word"
            | "xdigit"
    )
}

/// A class like `\d` or `\pL`, for use within brackets, and the rest.
fn class_escape(text: &str) -> Result<Option<(String, &str)>, Refused> {
    let Some(rest) = text.strip_prefix('\\').and_then(|rest| rest.get(1..)) else { return Ok(None) };
    let class = match text.as_bytes().get(1) {
        Some(b'd') => "0-9",
        Some(b'D') => "[^0-9]",
        Some(b's') => "\\t\\n\\x0C\\r\\x20",
        Some(b'S') => "[^\\t\\n\\x0C\\r\\x20]",
        Some(b'w') => "0-9A-Za-z_",
        Some(b'W') => "[^0-9A-Za-z_]",
        Some(sign @ (b'p' | b'P')) => return unicode_class(text, rest, *sign == b'P').map(Some),
        _ => return Ok(None),
    };
    Ok(Some((class.to_owned(), rest)))
}

fn unicode_class<'t>(text: &'t str, after: &'t str, negated: bool) -> Result<(String, &'t str), Refused> {
    let (name, rest) = if let Some(braced) = after.strip_prefix('{') {
        braced.split_once('}').ok_or_else(|| error("invalid character class range", text))?
    } else {
        let width = after.chars().next().map_or(0, char::len_utf8);
        after.split_at(width)
    };
    if name.is_empty() && after.is_empty() {
        // Go takes `\p` at the end for an escape.
        return Err(error("invalid character class range", text));
    }
    let wrong = || error("invalid character class range", until(text, rest));
    let plain = name.strip_prefix('^').unwrap_or(name);
    let negated = negated != (plain.len() != name.len());
    if plain.is_empty() || !plain.chars().all(|c| c == '_' || c.is_ascii_alphabetic()) {
        return Err(wrong());
    }
    let class = format!("\\{}{{{plain}}}", if negated { 'P' } else { 'p' });
    Regex::new(&class).map_err(|_| wrong())?;
    Ok((class, rest))
}

fn class_character<'t>(text: &'t str, whole: &str) -> Result<(u32, &'t str), Refused> {
    let Some(character) = text.chars().next() else { return Err(error("missing closing ]", whole)) };
    if character == '\\' {
        return character_escape(text);
    }
    Ok((u32::from(character), text.get(character.len_utf8()..).unwrap_or_default()))
}

/// An escape of one character, as Go reads it.
fn character_escape(text: &str) -> Result<(u32, &str), Refused> {
    let mut rest = text.get(1..).unwrap_or_default();
    let next = |rest: &mut &str| {
        let character = rest.chars().next()?;
        *rest = rest.get(character.len_utf8()..).unwrap_or_default();
        Some(character)
    };
    let Some(character) = next(&mut rest) else {
        return Err(error("trailing backslash at end of expression", ""));
    };
    let octal = |rest: &str| rest.starts_with(|c: char| c.is_digit(8));
    let code = match character {
        '1'..='7' if !octal(rest) => None,
        '0'..='7' => {
            let mut code = u32::from(character) - u32::from('0');
            for _ in 1..3 {
                if !octal(rest) {
                    break;
                }
                code = code * 8 + next(&mut rest).and_then(|digit| digit.to_digit(8)).unwrap_or_default();
            }
            Some(code)
        }
        'x' => hex_escape(&mut rest),
        'a' => Some(7),
        'f' => Some(12),
        'n' => Some(10),
        'r' => Some(13),
        't' => Some(9),
        'v' => Some(11),
        _ if character.is_ascii() && !character.is_ascii_alphanumeric() => Some(u32::from(character)),
        _ => None,
    };
    code.map(|code| (code, rest)).ok_or_else(|| error("invalid escape sequence", until(text, rest)))
}

/// What follows `\x`; leaves the rest where Go's parser stops.
fn hex_escape(rest: &mut &str) -> Option<u32> {
    let next = |rest: &mut &str| {
        let character = rest.chars().next()?;
        *rest = rest.get(character.len_utf8()..).unwrap_or_default();
        Some(character)
    };
    let first = next(rest)?;
    if first != '{' {
        let second = next(rest)?;
        return Some(first.to_digit(16)? * 16 + second.to_digit(16)?);
    }
    let mut code = 0_u32;
    let mut digits = 0;
    loop {
        let character = next(rest)?;
        if character == '}' {
            return (digits > 0).then_some(code);
        }
        code = code * 16 + character.to_digit(16)?;
        if code > 0x10_ffff {
            return None;
        }
        digits += 1;
    }
}

/// The least and most of `{2,3}`, and the rest; `None` if it is no repeat.
fn counts(text: &str) -> Option<(u64, Option<u64>, &str)> {
    let (least, rest) = count(text.strip_prefix('{')?)?;
    let Some(rest) = rest.strip_prefix(',') else {
        return Some((least, Some(least), rest.strip_prefix('}')?));
    };
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((least, None, rest));
    }
    let (most, rest) = count(rest)?;
    Some((least, Some(most), rest.strip_prefix('}')?))
}

fn count(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u64::MAX), rest))
}
