//! Sprig's functions of words: cases, wrapping, abbreviation.

use super::args;
use super::strings::map_chars;
use super::table;
use super::text::{Category, cut, is, to_lower, to_title, to_upper};
use crate::Failure;
use crate::value::{Ctx, Value};

table! {
    "title" (Str) => title,
    "untitle" (Str) => untitle,
    "swapcase" (Str) => swapcase,
    "snakecase" (Str) => |ctx, args| lower_words(ctx, args::text(args, 0), '_'),
    "kebabcase" (Str) => |ctx, args| lower_words(ctx, args::text(args, 0), '-'),
    "camelcase" (Str) => camelcase,
    "nospace" (Raw) => nospace,
    "initials" (Raw) => initials,
    "abbrev" (Int, Raw) => |ctx, args| {
        let (width, text) = (args::int(args, 0), args::bytes(args, 1));
        let bytes = if width < 4 { text.to_vec() } else { abbreviate(text, 0, width)? };
        args::string(ctx, bytes)
    },
    "abbrevboth" (Int, Int, Raw) => |ctx, args| {
        let (left, right, text) = (args::int(args, 0), args::int(args, 1), args::bytes(args, 2));
        let bytes = if right < 4 || left > 0 && right < 7 {
            text.to_vec()
        } else {
            abbreviate(text, left, right)?
        };
        args::string(ctx, bytes)
    },
    "wrap" (Int, Raw) => |ctx, args| wrap(ctx, args::bytes(args, 1), args::int(args, 0), b"", false),
    "wrapWith" (Int, Raw, Raw) => |ctx, args| {
        wrap(ctx, args::bytes(args, 2), args::int(args, 0), args::bytes(args, 1), true)
    },
}

/// `strings.Title`.
fn title(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut previous = ' ';
    let text: String = args::text(args, 0)
        .chars()
        .map(|character| {
            let starts = is_separator(previous);
            previous = character;
            if starts { to_title(character) } else { character }
        })
        .collect();
    ctx.text(text)
}

fn is_separator(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_alphanumeric() && character != '_';
    }
    !is(character, Category::Letter) && !is(character, Category::Digit) && character.is_whitespace()
}

fn untitle(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut starts = true;
    let text: String = args::text(args, 0)
        .chars()
        .map(|character| {
            if character.is_whitespace() {
                starts = true;
                character
            } else if std::mem::take(&mut starts) {
                to_lower(character)
            } else {
                character
            }
        })
        .collect();
    ctx.text(text)
}

fn swapcase(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut starts = true;
    let text: String = args::text(args, 0)
        .chars()
        .map(|character| {
            if is(character, Category::Upper) || is(character, Category::Title) {
                starts = false;
                to_lower(character)
            } else if is(character, Category::Lower) {
                if std::mem::take(&mut starts) { to_title(character) } else { to_upper(character) }
            } else {
                starts = character.is_whitespace();
                character
            }
        })
        .collect();
    ctx.text(text)
}

/// Whether goutils takes a byte, which it mistakes for a character, for white space.
fn is_space_byte(byte: u8) -> bool {
    char::from(byte).is_whitespace()
}

fn nospace(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let text = args::bytes(args, 0);
    if !text.iter().any(|&byte| is_space_byte(byte)) {
        return args::string(ctx, text.to_vec());
    }
    let kept: String =
        text.iter().filter(|&&byte| !is_space_byte(byte)).map(|&byte| char::from(byte)).collect();
    ctx.text(kept)
}

fn initials(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let mut starts = true;
    let kept: String = args::bytes(args, 0)
        .iter()
        .filter(|&&byte| {
            let is_space = is_space_byte(byte);
            let kept = starts && !is_space;
            starts = is_space;
            kept
        })
        .map(|&byte| char::from(byte))
        .collect();
    ctx.text(kept)
}

/// `goutils.AbbreviateFull`, whose errors sprig drops.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Result<Vec<u8>, Failure> {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if text.is_empty() || width < 4 {
        return Ok(Vec::new());
    }
    if length <= width {
        return Ok(text.to_vec());
    }
    let shown = width - 3;
    let mut offset = offset.min(length);
    if length.wrapping_sub(offset) < shown {
        offset = length - shown;
    }
    if offset <= 4 {
        return Ok([cut(text, 0, Some(shown))?, b"..."].concat());
    }
    if width < 7 {
        return Ok(Vec::new());
    }
    if offset.saturating_add(shown) < length {
        let rest = abbreviate(cut(text, offset, None)?, 0, shown)?;
        return Ok([b"...".as_slice(), &rest].concat());
    }
    Ok([b"...", cut(text, length - shown, None)?].concat())
}

/// `goutils.WrapCustom`, which counts bytes.
fn wrap(ctx: &mut Ctx, text: &[u8], width: i64, line_end: &[u8], long_words: bool) -> Result<Value, Failure> {
    let width = usize::try_from(width).unwrap_or_default().max(1);
    let line_end = if line_end.is_empty() { b"\n" } else { line_end };
    let mut out = Vec::with_capacity(text.len());
    let mut offset = 0_usize;
    while text.len().saturating_sub(offset) > width {
        ctx.step(1)?;
        if text.get(offset) == Some(&b' ') {
            offset += 1;
            continue;
        }
        let end = offset.saturating_add(width);
        let line = text.get(offset..=end).unwrap_or_default();
        let next = if let Some(space) = line.iter().rposition(|&byte| byte == b' ') {
            out.extend_from_slice(line.get(..space).unwrap_or_default());
            offset.saturating_add(space).saturating_add(1)
        } else if long_words {
            out.extend_from_slice(text.get(offset..end).unwrap_or_default());
            end
        } else {
            let rest = text.get(end..).unwrap_or_default();
            let Some(space) = rest.iter().position(|&byte| byte == b' ') else {
                out.extend_from_slice(text.get(offset..).unwrap_or_default());
                offset = text.len();
                break;
            };
            let space = end.saturating_add(space);
            out.extend_from_slice(text.get(offset..space).unwrap_or_default());
            space.saturating_add(1)
        };
        ctx.step(next.saturating_sub(offset) / 16)?;
        offset = next;
        ctx.room(line_end.len())?;
        out.extend_from_slice(line_end);
    }
    out.extend_from_slice(text.get(offset..).unwrap_or_default());
    args::string(ctx, out)
}

fn is_connector(character: char) -> bool {
    character == '-' || character == '_' || character.is_whitespace()
}

/// `xstrings.ToPascalCase`.
fn camelcase(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let text = args::text(args, 0);
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    let Some(start) = characters.by_ref().find(|&character| {
        if is_connector(character) {
            out.push(character);
        }
        !is_connector(character)
    }) else {
        // The last connector is written twice where nothing follows.
        out.extend(text.chars().last());
        return ctx.text(out);
    };
    let mut first_is_upper = is(start, Category::Upper);
    let mut current = to_upper(start);
    for character in characters {
        let previous = std::mem::replace(&mut current, character);
        if is_connector(current) && is_connector(previous) {
            out.push(previous);
            continue;
        }
        if is_connector(previous) {
            first_is_upper = is(current, Category::Upper);
            current = to_upper(current);
        } else {
            if first_is_upper {
                if is(current, Category::Upper) {
                    current = to_lower(current);
                } else {
                    first_is_upper = false;
                }
            }
            out.push(previous);
        }
    }
    out.push(current);
    ctx.text(out)
}

/// The kinds of words of xstrings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Invalid,
    Number,
    Upper,
    Alphabet,
    Connector,
    Punctuation,
    Other,
}

/// Letters, but for those of Chinese, as xstrings has it.
fn is_alphabet(character: char) -> bool {
    is(character, Category::Letter)
        && !matches!(u32::from(character), 0x4e00..=0x9fcc | 0x3400..=0x4d85 | 0x20000..=0x2b81d)
}

/// Counts the characters from a place on that pass.
fn run(characters: &[char], passes: impl Fn(char) -> bool) -> usize {
    characters.iter().take_while(|&&character| passes(character)).count()
}

/// The next word: its kind and its length.
fn next_word(characters: &[char]) -> (Word, usize) {
    let Some((&first, rest)) = characters.split_first() else { return (Word::Invalid, 0) };
    let (word, more) = if is_connector(first) {
        (Word::Connector, run(rest, is_connector))
    } else if is(first, Category::Punctuation) {
        (Word::Punctuation, run(rest, |character| is(character, Category::Punctuation)))
    } else if is(first, Category::Upper) {
        let upper = run(rest, |character| is(character, Category::Upper));
        let more = if upper > 0 {
            // Of `HTTPStatus`, the S belongs to the next word.
            let next = rest.get(upper).copied();
            if next.is_some_and(is_alphabet) { upper - 1 } else { upper }
        } else {
            run(rest, |character| is_alphabet(character) && !is(character, Category::Upper))
        };
        (Word::Upper, more)
    } else if is_alphabet(first) {
        (Word::Alphabet, run(rest, |character| is_alphabet(character) && !is(character, Category::Upper)))
    } else if is(first, Category::Number) {
        (Word::Number, run(rest, |character| is(character, Category::Number)))
    } else {
        let passes = |character| {
            !is_connector(character)
                && !is_alphabet(character)
                && !is(character, Category::Number)
                && !is(character, Category::Punctuation)
        };
        (Word::Other, run(rest, passes))
    };
    (word, more.saturating_add(1))
}

/// Words as they are read.
struct Words<'w> {
    rest: &'w [char],
    kind: Word,
    word: &'w [char],
}

impl Words<'_> {
    fn next(&mut self) {
        let (kind, length) = next_word(self.rest);
        let (word, rest) = self.rest.split_at_checked(length).unwrap_or_default();
        (self.kind, self.word, self.rest) = (kind, word, rest);
    }
}

/// `xstrings.ToSnakeCase` and `ToKebabCase`.
fn lower_words(ctx: &mut Ctx, text: &str, connector: char) -> Result<Value, Failure> {
    ctx.step(text.len())?;
    let characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return map_chars(ctx, text, to_lower);
    }
    let mut out = String::with_capacity(text.len());
    let mut words = Words { rest: &characters, kind: Word::Invalid, word: &[] };
    words.next();
    while !words.rest.is_empty() {
        if words.kind != Word::Connector {
            write_lower(&mut out, words.kind, words.word, connector);
        }
        let (previous, last) = (words.kind, words.word);
        words.next();
        match previous {
            Word::Number => {
                while matches!(words.kind, Word::Alphabet | Word::Number) {
                    write_lower(&mut out, words.kind, words.word, connector);
                    words.next();
                }
                if !matches!(words.kind, Word::Invalid | Word::Punctuation | Word::Connector) {
                    out.push(connector);
                }
            }
            Word::Connector => write_lower(&mut out, previous, last, connector),
            Word::Punctuation => {}
            _ => after_letters(&mut out, &mut words, connector),
        }
    }
    write_lower(&mut out, words.kind, words.word, connector);
    ctx.text(out)
}

/// Whether numbers that follow letters belong to them.
fn after_letters(out: &mut String, words: &mut Words<'_>, connector: char) {
    if words.kind != Word::Number {
        if !matches!(words.kind, Word::Connector | Word::Punctuation) {
            out.push(connector);
        }
        return;
    }
    if words.rest.is_empty() {
        return;
    }
    let number = words.word;
    words.next();
    if words.kind != Word::Alphabet {
        write_lower(out, Word::Number, number, connector);
        if !matches!(words.kind, Word::Connector | Word::Punctuation) {
            out.push(connector);
        }
        return;
    }
    out.push(connector);
    write_lower(out, Word::Number, number, connector);
    while matches!(words.kind, Word::Alphabet | Word::Number) {
        write_lower(out, words.kind, words.word, connector);
        words.next();
    }
    if !matches!(words.kind, Word::Invalid | Word::Connector | Word::Punctuation) {
        out.push(connector);
    }
}

fn write_lower(out: &mut String, kind: Word, word: &[char], connector: char) {
    for &character in word {
        out.push(match kind {
            Word::Upper | Word::Connector if is_connector(character) => connector,
            Word::Upper | Word::Connector if is(character, Category::Upper) => to_lower(character),
            _ => character,
        });
    }
}
