//! The patterns of `.Files.Glob`: those of the Go package gobwas/glob, with `/` as separator.

/// A pattern. `*` stays within a folder, `**` does not; `?`, `[a-z]`, `[!a]` and `{one,other}` as in shells.
#[derive(Debug)]
pub(crate) struct Glob(Option<regex::Regex>);

impl Glob {
    /// A pattern that is malformed matches every path without a folder, as in Helm, whose replacement for it has no separator
    /// and so matches everything.
    pub(crate) fn new(pattern: &str) -> Self {
        Self(translate(pattern).and_then(|expression| regex::Regex::new(&expression).ok()))
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|expression| expression.is_match(path))
    }
}

fn translate(pattern: &str) -> Option<String> {
    let mut out = String::from("(?s)^");
    let mut open = 0_u32;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '*' if characters.next_if_eq(&'*').is_some() => out.push_str(".*"),
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '{' => {
                open = open.saturating_add(1);
                out.push_str("(?:");
            }
            '}' if open > 0 => {
                open = open.saturating_sub(1);
                out.push(')');
            }
            ',' if open > 0 => out.push('|'),
            '[' => {
                let negated = characters.next_if_eq(&'!').is_some();
                let mut class = String::new();
                loop {
                    match characters.next()? {
                        ']' => break,
                        '\\' => class.push_str(&regex::escape(&characters.next()?.to_string())),
                        '-' => class.push('-'),
                        other => class.push_str(&regex::escape(&other.to_string())),
                    }
                }
                if class.is_empty() {
                    return None;
                }
                out.push_str(if negated { "[^" } else { "[" });
                out.push_str(&class);
                out.push(']');
            }
            '\\' => out.push_str(&regex::escape(&characters.next()?.to_string())),
            other => out.push_str(&regex::escape(&other.to_string())),
        }
    }
    (open == 0).then(|| out + "$")
}
