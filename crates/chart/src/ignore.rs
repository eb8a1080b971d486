//! `.helmignore`.

use crate::Failure;

/// The rules of a `.helmignore` file, and Helm's own for hidden files among templates.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    pattern: String,
    negate: bool,
    folder: bool,
    /// Whether the pattern is for the whole path, not for the last name only.
    whole: bool,
}

impl Rules {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut rules = Vec::new();
        for line in text.lines().chain(["templates/.?*"]) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.contains("**") {
                return Err(Failure::error("double-star (**) syntax is not supported"));
            }
            if matches(line, "abc").is_none() {
                return Err(Failure::error("syntax error in pattern"));
            }
            let (negate, rest) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
            let (folder, rest) = rest.strip_suffix('/').map_or((false, rest), |rest| (true, rest));
            let (rooted, rest) = rest.strip_prefix('/').map_or((false, rest), |rest| (true, rest));
            let whole = rooted || rest.contains('/');
            rules.push(Rule { pattern: rest.to_owned(), negate, folder, whole });
        }
        Ok(Self(rules))
    }

    /// Whether a path from the chart's folder is to be left out. The first rule that says so decides.
    pub(crate) fn ignores(&self, path: &str, is_folder: bool) -> bool {
        self.0.iter().any(|rule| {
            let name = if rule.whole { path } else { path.rsplit('/').next().unwrap_or(path) };
            let wrong_kind = rule.folder && !is_folder;
            let matched = matches(&rule.pattern, name).unwrap_or(false);
            if rule.negate { wrong_kind || !matched } else { !wrong_kind && matched }
        })
    }
}

/// Go's `path.Match`: `*` and `?` do not match `/`. `None` if the pattern is malformed.
pub(crate) fn matches(pattern: &str, name: &str) -> Option<bool> {
    let pattern: Vec<Token> = tokens(pattern)?;
    let name: Vec<char> = name.chars().collect();
    // Positions of the pattern that can be reached with what was read of the name: linear in both, where backtracking is not.
    let mut at: Vec<bool> = vec![false; pattern.len().saturating_add(1)];
    if let Some(first) = at.first_mut() {
        *first = true;
    }
    let skip_stars = |at: &mut Vec<bool>| {
        for position in 0..pattern.len() {
            if at.get(position) == Some(&true) && matches!(pattern.get(position), Some(Token::Star)) {
                if let Some(next) = at.get_mut(position.saturating_add(1)) {
                    *next = true;
                }
            }
        }
    };
    skip_stars(&mut at);
    for character in name {
        let mut next = vec![false; at.len()];
        for (position, token) in pattern.iter().enumerate() {
            if at.get(position) != Some(&true) {
                continue;
            }
            let to = match token {
                Token::Star if character != '/' => Some(position),
                token if token.takes(character) => Some(position.saturating_add(1)),
                _ => None,
            };
            if let Some(reached) = to.and_then(|to| next.get_mut(to)) {
                *reached = true;
            }
        }
        at = next;
        skip_stars(&mut at);
    }
    Some(at.last() == Some(&true))
}

#[derive(Debug)]
enum Token {
    Star,
    Any,
    One(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Token {
    fn takes(&self, character: char) -> bool {
        match self {
            Token::Star => false,
            Token::Any => character != '/',
            Token::One(one) => *one == character,
            Token::Class { negated, ranges } => {
                character != '/'
                    && *negated != ranges.iter().any(|(from, to)| (*from..=*to).contains(&character))
            }
        }
    }
}

fn tokens(pattern: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        tokens.push(match character {
            '*' => Token::Star,
            '?' => Token::Any,
            '\\' => Token::One(characters.next()?),
            '[' => {
                let negated = characters.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                while ranges.is_empty() || characters.next_if_eq(&']').is_none() {
                    let mut one = || match characters.next()? {
                        '\\' => characters.next(),
                        '-' | ']' => None,
                        other => Some(other),
                    };
                    let from = one()?;
                    let to = if characters.next_if_eq(&'-').is_some() {
                        match characters.next()? {
                            '\\' => characters.next()?,
                            '-' | ']' => return None,
                            other => other,
                        }
                    } else {
                        from
                    };
                    ranges.push((from, to));
                }
                Token::Class { negated, ranges }
            }
            other => Token::One(other),
        });
    }
    Some(tokens)
}
