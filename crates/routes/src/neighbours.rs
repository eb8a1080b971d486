//! What a route must refuse because of what stands beside it.
//!
//! The gateway and a backend may read one path differently: an encoded slash, a second slash, a parameter after a
//! semicolon, another case. On a host where some paths ask for a login and others do not, such a path could reach the
//! protected resource through the open route. So an open prefix refuses it.

use std::collections::BTreeSet;

use std::fmt::Write as _;

use mesh_api::integrator::{Method, PathMatch, PathMatchType};
use mesh_api::istio::{HttpMatch, StringMatch};

use crate::entries::method_match;
use crate::guard::Provider;

/// The longest regular expression that istiod's webhook accepts, in bytes.
const MAX_REGEX: usize = 1024;

/// What some backends decode, cut off or merge once more: encoded slash, backslash, dot, percent, question mark and
/// semicolon, control characters, overlong UTF-8, parameters, empty segments, a blank at the end of a segment.
const AMBIGUOUS: &str = "(?i:%2f|%5c|%2e|%25|%3f|%3b|%[01][0-9a-f]|%7f|%c0|%c1)|;|//|\\\\|%20/";
/// The same where Istio does not normalize paths: dot segments, and encoded letters, digits, `-`, `_` and `~`.
const NOT_NORMALIZED: &str = "|/[.][.]?/|(?i:%2d|%3[0-9]|%4[1-9a-f]|%5[0-9a]|%5f|%6[1-9a-f]|%7[0-9a]|%7e)";

/// The paths below an open prefix that it must refuse on a host with protected paths. Nothing if they cannot be told:
/// the prefix is too long for a regular expression.
fn refused_below(prefix: &str, not_normalized: bool) -> Option<HttpMatch> {
    let base = escaped(without_root(prefix));
    let (more, dots) = if not_normalized { (NOT_NORMALIZED, "|(?:.*/)?[.][.]?(?:/.*)?") } else { ("", "") };
    let regex = format!("{base}/(?:/.*|.*(?:{AMBIGUOUS}{more}).*|.*%20{dots})");
    regex_match(regex)
}

/// The other spellings of a path at or below a prefix (of everything below it if it is a prefix itself), as far as they
/// are at or below that prefix as it is spelt: what is spelt otherwise is another route's, or nobody's. Nothing if they
/// cannot be told: the path is too long for a regular expression.
fn spellings(prefix: &str, kind: PathMatchType, value: &str) -> Option<Vec<HttpMatch>> {
    let (prefix, value) = (without_root(prefix), without_root(value));
    let Some(rest) = value.get(prefix.len()..) else { return Some(Vec::new()) };
    if value.is_empty() {
        return Some(Vec::new());
    }
    let below = format!("{}/", value.trim_end_matches('/'));
    let slashed = !value.ends_with('/');
    let has_letters = prefix.bytes().any(|byte| byte.is_ascii_alphabetic());
    let tail = match kind {
        PathMatchType::PathPrefix => "(?:/.*)?",
        PathMatchType::Exact => "/?",
    };
    let encoded = encodings(rest);
    let mut matches = Vec::new();
    // Where the prefix can be spelt in one way only, plain comparisons do, which cost less.
    if !has_letters {
        matches.push(ignoring_case(StringMatch::Exact(value.to_owned())));
        match kind {
            PathMatchType::PathPrefix => matches.push(ignoring_case(StringMatch::Prefix(below))),
            // An exact path covers itself with a slash.
            PathMatchType::Exact if slashed => matches.push(ignoring_case(StringMatch::Exact(below))),
            PathMatchType::Exact => {}
        }
    }
    if has_letters || encoded.is_some() {
        let rest = encoded.unwrap_or_else(|| escaped(rest));
        matches.push(regex_match(format!("{}(?i:{rest}){tail}", escaped(prefix)))?);
    }
    Some(matches)
}

/// A path that is not free to all, and for which methods; for every method if there are none.
pub(crate) struct Guarded<'p> {
    pub(crate) path: &'p PathMatch,
    pub(crate) methods: &'p BTreeSet<Method>,
}

/// All that an open prefix with these methods must refuse beside these paths. Nothing if it cannot be told. A match without
/// a method is for all the methods of the open prefix.
pub(crate) fn refused_by(
    open: &PathMatch,
    methods: &BTreeSet<Method>,
    guarded: &[Guarded<'_>],
    not_normalized: bool,
) -> Option<Vec<HttpMatch>> {
    let mut matches = vec![refused_below(&open.value, not_normalized)?];
    for Guarded { path, methods: asked } in guarded {
        // The very path is guarded for other methods, which are matched before.
        if *path == open || !is_below(&path.value, &open.value) {
            continue;
        }
        let both: BTreeSet<Method> = methods.intersection(asked).copied().collect();
        let method = match (methods.is_empty(), asked.is_empty()) {
            (_, true) => None,
            (true, false) => method_match(asked, true),
            (false, false) if both.is_empty() => continue,
            (false, false) => method_match(&both, false),
        };
        let spelt = spellings(&open.value, path.kind, &path.value)?;
        matches.extend(spelt.into_iter().map(|entry| HttpMatch { method: method.clone(), ..entry }));
    }
    Some(matches)
}

/// Whether the protected path lies at or below the open prefix, whatever the case of its letters.
fn is_below(protected: &str, prefix: &str) -> bool {
    let (protected, prefix) = (protected.as_bytes(), without_root(prefix).as_bytes());
    protected.split_at_checked(prefix.len()).is_some_and(|(start, rest)| {
        start.eq_ignore_ascii_case(prefix) && rest.first().is_none_or(|byte| *byte == b'/')
    })
}

/// The paths of a protected route that lead to the auth service's own pages. Nothing if they cannot be told: a path is too
/// long for a regular expression.
pub(crate) fn own_pages(
    route: &PathMatch,
    provider: &Provider,
    not_normalized: bool,
) -> Option<Vec<HttpMatch>> {
    let mut matches = Vec::new();
    for page in &provider.own_paths {
        let Some(page) = asked_path(&provider.path_prefix, page) else { continue };
        let within = match route.kind {
            PathMatchType::Exact => covers(&page, &route.value),
            PathMatchType::PathPrefix => {
                covers(&page, &route.value) || is_below(page.trim_end_matches('/'), &route.value)
            }
        };
        if !within {
            continue;
        }
        if covers(&page, &route.value) {
            // Every path of the route is one of the service's own.
            matches = match (route.kind, route.value.as_str()) {
                (PathMatchType::PathPrefix, "/") => vec![plain(StringMatch::Prefix("/".to_owned()))],
                (PathMatchType::PathPrefix, value) => vec![
                    plain(StringMatch::Exact(value.to_owned())),
                    plain(StringMatch::Prefix(format!("{value}/"))),
                ],
                (PathMatchType::Exact, value) => vec![
                    plain(StringMatch::Exact(value.to_owned())),
                    plain(StringMatch::Exact(format!("{}/", value.trim_end_matches('/')))),
                ],
            };
            return Some(matches);
        }
        // A page that ends in a slash is a prefix; one that does not may be asked with a slash.
        let kind = if page.ends_with('/') { PathMatchType::PathPrefix } else { PathMatchType::Exact };
        matches.extend(spellings(&route.value, kind, page.trim_end_matches('/'))?);
        let segment = page.split('/').find(|segment| !segment.is_empty()).unwrap_or_default();
        let (segment, more) = (escaped(segment), if not_normalized { NOT_NORMALIZED } else { "" });
        let ambiguous = format!("(?:{AMBIGUOUS}{more})");
        matches.push(regex_match(format!(
            "{}/(?i:.*{ambiguous}.*{segment}.*|.*{segment}.*{ambiguous}.*|/.*{segment}.*)",
            escaped(without_root(&route.value))
        ))?);
    }
    Some(matches)
}

/// The path that a client asks for when the service gets this page of its own; `/` if it gets one whatever it is.
fn asked_path(prefix: &str, page: &str) -> Option<String> {
    if covers(page, prefix) && !prefix.is_empty() {
        return Some("/".to_owned());
    }
    let rest = page.strip_prefix(prefix)?;
    rest.starts_with('/').then(|| rest.to_owned())
}

/// Whether a page (a prefix if it ends in a slash) covers the path and, if that is a prefix, everything below it.
fn covers(page: &str, path: &str) -> bool {
    let bare = page.trim_end_matches('/');
    if page.ends_with('/') {
        path.strip_prefix(bare).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    } else {
        path == bare
    }
}

/// A regular expression for the ways to write a path with its reserved characters encoded or not, or nothing if there is
/// only one. What is unreserved is decoded by the gateway.
fn encodings(path: &str) -> Option<String> {
    let mut regex = String::new();
    let mut several = false;
    let mut rest = path.chars();
    while let Some(c) = rest.next() {
        let code = if c == '%' {
            let digits: String = rest.by_ref().take(2).collect();
            u8::from_str_radix(&digits, 16).ok()?
        } else {
            u8::try_from(c).ok()?
        };
        let literal = char::from(code);
        if code.is_ascii_alphanumeric() || code == b'/' {
            regex.push(literal);
        } else if b"-._~".contains(&code) {
            regex.push_str(&escaped(literal.encode_utf8(&mut [0; 4])));
        } else if code.is_ascii_graphic() {
            several = true;
            let literal = escaped(literal.encode_utf8(&mut [0; 4]));
            // Writing to a String cannot fail.
            let _ = write!(regex, "(?:{literal}|%{code:02x})");
        } else {
            let _ = write!(regex, "%{code:02x}");
        }
    }
    several.then_some(regex)
}

fn without_root(prefix: &str) -> &str {
    if prefix == "/" { "" } else { prefix }
}

fn escaped(text: &str) -> String {
    regex::escape(text)
}

fn plain(uri: StringMatch) -> HttpMatch {
    HttpMatch { uri: Some(uri), ..HttpMatch::default() }
}

fn ignoring_case(uri: StringMatch) -> HttpMatch {
    HttpMatch { ignore_uri_case: true, ..plain(uri) }
}

fn regex_match(regex: String) -> Option<HttpMatch> {
    (regex.len() <= MAX_REGEX).then(|| plain(StringMatch::Regex(regex)))
}
