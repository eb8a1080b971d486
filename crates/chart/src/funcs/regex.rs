//! Sprig's functions of regular expressions.

mod syntax;

use ::regex::{Captures, Regex, RegexBuilder};

use super::args;
use super::split::string_list;
use super::table;
use super::text::{Category, is};
use crate::Failure;
use crate::fmt::quote;
use crate::value::{Ctx, Element, Value};

table! {
    "regexMatch" (Str, Str) => |ctx, args| match compile(ctx, args::text(args, 0)) {
        Ok(pattern) => Ok(Value::Bool(is_match(ctx, &pattern, args::text(args, 1))?)),
        Err(Refused::Go(_)) => Ok(Value::Bool(false)),
        Err(Refused::Failure(failure)) => Err(failure),
    },
    "mustRegexMatch" (Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(Refused::plain)?;
        Ok(Value::Bool(is_match(ctx, &pattern, args::text(args, 1))?))
    },
    "regexFindAll" (Str, Str, Int) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(|refused| refused.panic(args::text(args, 0)))?;
        find_all(ctx, &pattern, args)
    },
    "mustRegexFindAll" (Str, Str, Int) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(Refused::plain)?;
        find_all(ctx, &pattern, args)
    },
    "regexFind" (Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(|refused| refused.panic(args::text(args, 0)))?;
        find(ctx, &pattern, args::text(args, 1))
    },
    "mustRegexFind" (Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(Refused::plain)?;
        find(ctx, &pattern, args::text(args, 1))
    },
    "regexReplaceAll" (Str, Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(|refused| refused.panic(args::text(args, 0)))?;
        replace_all(ctx, &pattern, args, true)
    },
    "mustRegexReplaceAll" (Str, Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(Refused::plain)?;
        replace_all(ctx, &pattern, args, true)
    },
    "regexReplaceAllLiteral" (Str, Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(|refused| refused.panic(args::text(args, 0)))?;
        replace_all(ctx, &pattern, args, false)
    },
    "mustRegexReplaceAllLiteral" (Str, Str, Str) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(Refused::plain)?;
        replace_all(ctx, &pattern, args, false)
    },
    "regexSplit" (Str, Str, Int) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(|refused| refused.panic(args::text(args, 0)))?;
        split(ctx, &pattern, args)
    },
    "mustRegexSplit" (Str, Str, Int) => |ctx, args| {
        let pattern = compile(ctx, args::text(args, 0)).map_err(Refused::plain)?;
        split(ctx, &pattern, args)
    },
    "regexQuoteMeta" (Str) => |ctx, args| {
        let text = args::text(args, 0);
        let mut out = String::with_capacity(text.len());
        for character in text.chars() {
            if "\\.+*?()|[]{}^$".contains(character) {
                out.push('\\');
            }
            out.push(character);
        }
        ctx.text(out)
    },
}

/// Why a pattern does not compile.
enum Refused {
    /// Go refuses it too, in these words.
    Go(String),
    /// A limit, or what only this renderer does not know.
    Failure(Failure),
}

impl Refused {
    /// The error of `regexp.Compile`.
    fn plain(self) -> Failure {
        match self {
            Self::Go(message) => Failure::error(message),
            Self::Failure(failure) => failure,
        }
    }

    /// The panic of `regexp.MustCompile`.
    fn panic(self, pattern: &str) -> Failure {
        match self {
            Self::Go(message) => {
                let shown = if pattern
                    .chars()
                    .any(|c| c == '`' || c == '\u{feff}' || c == '\x7f' || (c < ' ' && c != '\t'))
                {
                    quote(pattern.as_bytes())
                } else {
                    format!("`{pattern}`")
                };
                Failure::error(format!("regexp: Compile({shown}): {message}"))
            }
            Self::Failure(failure) => failure,
        }
    }
}

/// A pattern, and the names of its groups from the first on.
struct Pattern {
    regex: Regex,
    names: Vec<Option<String>>,
    weight: usize,
}

impl Pattern {
    /// Notes a search through what is left of a text. Each may go to the end and yet find something short, and each byte may
    /// meet every part of the pattern.
    fn note(&self, ctx: &mut Ctx, left: usize) -> Result<(), Failure> {
        let parts = (self.weight / 1_000).saturating_add(1);
        ctx.step((left / 64).saturating_mul(parts).saturating_add(1))
    }
}

fn compile(ctx: &mut Ctx, pattern: &str) -> Result<Pattern, Refused> {
    ctx.step(pattern.len().saturating_mul(20).saturating_add(100)).map_err(Refused::Failure)?;
    let translated = syntax::translate(ctx, pattern)?;
    let built = RegexBuilder::new(&translated.pattern).nest_limit(1_000).size_limit(10 << 20).build();
    match built {
        Ok(regex) => Ok(Pattern { regex, names: translated.names, weight: translated.weight }),
        Err(::regex::Error::CompiledTooBig(_)) => {
            Err(Refused::Go(format!("error parsing regexp: expression too large: `{pattern}`")))
        }
        Err(_) => Err(Refused::Failure(Failure::error(format!(
            "this renderer does not know the regular expression `{pattern}`"
        )))),
    }
}

fn is_match(ctx: &mut Ctx, pattern: &Pattern, text: &str) -> Result<bool, Failure> {
    pattern.note(ctx, text.len())?;
    Ok(pattern.regex.is_match(text))
}

fn find(ctx: &mut Ctx, pattern: &Pattern, text: &str) -> Result<Value, Failure> {
    pattern.note(ctx, text.len())?;
    ctx.text(pattern.regex.find(text).map_or("", |found| found.as_str()))
}

/// The width of the character at this place, 0 at the end.
fn width(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
}

/// Go's `allMatches`: at most this many if not negative.
fn all_matches(
    ctx: &mut Ctx,
    pattern: &Pattern,
    text: &str,
    most: i64,
) -> Result<Vec<(usize, usize)>, Failure> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut matches = Vec::new();
    let mut at = 0;
    let mut previous_end = None;
    while matches.len() < most && at <= text.len() {
        pattern.note(ctx, text.len().saturating_sub(at))?;
        let Some(found) = pattern.regex.find_at(text, at) else { break };
        let accepted = found.end() != at || Some(found.start()) != previous_end;
        at = if found.end() == at {
            let width = width(text, at);
            if width > 0 { at.saturating_add(width) } else { text.len().saturating_add(1) }
        } else {
            found.end()
        };
        previous_end = Some(found.end());
        if accepted {
            matches.push((found.start(), found.end()));
        }
    }
    Ok(matches)
}

fn find_all(ctx: &mut Ctx, pattern: &Pattern, args: &[Value]) -> Result<Value, Failure> {
    let text = args::text(args, 1);
    let matches = all_matches(ctx, pattern, text, args::int(args, 2))?;
    if matches.is_empty() {
        return Ok(args::nil_slice(Element::NilStr));
    }
    let found = matches.into_iter().map(|(start, end)| text.get(start..end).unwrap_or_default());
    string_list(ctx, found.map(|text| text.as_bytes().to_vec()).collect())
}

fn split(ctx: &mut Ctx, pattern: &Pattern, args: &[Value]) -> Result<Value, Failure> {
    let (text, most) = (args::text(args, 1), args::int(args, 2));
    if most == 0 {
        return Ok(args::nil_slice(Element::NilStr));
    }
    if !args::text(args, 0).is_empty() && text.is_empty() {
        return string_list(ctx, vec![Vec::new()]);
    }
    let most = usize::try_from(most).ok();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for (start, stop) in all_matches(ctx, pattern, text, args::int(args, 2))? {
        if most.is_some_and(|most| parts.len() >= most.saturating_sub(1)) {
            break;
        }
        end = start;
        if stop != 0 {
            parts.push(text.get(begin..end).unwrap_or_default().as_bytes().to_vec());
        }
        begin = stop;
    }
    if end != text.len() {
        parts.push(text.get(begin..).unwrap_or_default().as_bytes().to_vec());
    }
    string_list(ctx, parts)
}

/// Go's `replaceAll`.
fn replace_all(ctx: &mut Ctx, pattern: &Pattern, args: &[Value], expands: bool) -> Result<Value, Failure> {
    let (text, replacement) = (args::text(args, 1), args::text(args, 2));
    let mut out = String::with_capacity(text.len());
    let (mut last_end, mut at) = (0, 0);
    while at <= text.len() {
        pattern.note(ctx, text.len().saturating_sub(at))?;
        let Some(found) = pattern.regex.captures_at(text, at) else { break };
        let Some(whole) = found.get(0) else { break };
        out.push_str(text.get(last_end..whole.start()).unwrap_or_default());
        if whole.end() > last_end || whole.start() == 0 {
            let before = out.len();
            if expands {
                expand(ctx, &mut out, replacement, pattern, &found)?;
            } else {
                out.push_str(replacement);
            }
            ctx.room(out.len().saturating_sub(before))?;
        }
        last_end = whole.end();
        let width = width(text, at);
        at = if at.saturating_add(width) > whole.end() {
            at.saturating_add(width)
        } else if at.saturating_add(1) > whole.end() {
            at.saturating_add(1)
        } else {
            whole.end()
        };
    }
    out.push_str(text.get(last_end..).unwrap_or_default());
    ctx.text(out)
}

/// Go's `expand`: `$1`, `${1}` and names.
fn expand(
    ctx: &mut Ctx,
    out: &mut String,
    template: &str,
    pattern: &Pattern,
    found: &Captures<'_>,
) -> Result<(), Failure> {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        ctx.step(1)?;
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = reference(rest) else {
            out.push('$');
            continue;
        };
        rest = after;
        let is_number =
            name.bytes().all(|byte| byte.is_ascii_digit()) && !(name.starts_with('0') && name.len() > 1);
        let position = match name.parse::<usize>() {
            Ok(number) if is_number => Some(number),
            _ => pattern.names.iter().enumerate().find_map(|(position, other)| {
                let position = position.saturating_add(1);
                (other.as_deref() == Some(name) && found.get(position).is_some()).then_some(position)
            }),
        };
        if let Some(group) = position.and_then(|position| found.get(position)) {
            ctx.room(group.len())?;
            out.push_str(group.as_str());
        }
    }
    out.push_str(rest);
    Ok(())
}

/// The name at the start of what follows a dollar, and the rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{');
    let from = inner.unwrap_or(text);
    let fits = |c: char| c == '_' || is(c, Category::Letter) || is(c, Category::Digit);
    let end = from.find(|c| !fits(c)).unwrap_or(from.len());
    let (name, rest) = from.split_at(end);
    if name.is_empty() {
        return None;
    }
    let rest = if inner.is_some() { rest.strip_prefix('}')? } else { rest };
    Some((name, rest))
}
