//! What a route must refuse because of what stands beside it.
//!
//! The gateway and a backend may read one path differently: an encoded slash, a second slash, a parameter after a
//! semicolon, another case. On a host where some paths ask for a login and others do not, such a path could reach the
//! protected resource through the open route. So an open prefix refuses it.

use mesh_api::integrator::{PathMatch, PathMatchType};
use mesh_api::istio::{HttpMatch, StringMatch};

use crate::guard::Provider;

/// The longest regular expression that istiod's webhook accepts, in bytes.
const MAX_REGEX: usize = 1024;

/// What some backends decode, cut off or merge once more: encoded slash, backslash, dot, percent and question mark,
/// overlong UTF-8, parameters, empty segments, a blank at the end of a segment.
const AMBIGUOUS: &str = "(?i:%2f|%5c|%2e|%25|%3f|%c0|%c1)|;|//|\\\\|%20/";
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

/// The other spellings of a protected path (of everything below it if it is a prefix) that an open prefix would serve.
/// Nothing if they cannot be told: the path is too long for a regular expression.
fn spellings(protected: &PathMatch) -> Option<Vec<HttpMatch>> {
    let value = without_root(&protected.value);
    if value.is_empty() {
        return Some(Vec::new());
    }
    let mut matches = vec![ignoring_case(StringMatch::Exact(value.to_owned()))];
    let below = format!("{}/", value.trim_end_matches('/'));
    match protected.kind {
        PathMatchType::PathPrefix => matches.push(ignoring_case(StringMatch::Prefix(below.clone()))),
        // An exact protected path covers itself with a slash.
        PathMatchType::Exact if !value.ends_with('/') => {
            matches.push(ignoring_case(StringMatch::Exact(below.clone())));
        }
        PathMatchType::Exact => {}
    }
    if let Some(encoded) = encodings(value) {
        let tail = match protected.kind {
            PathMatchType::PathPrefix => "(?:/.*)?",
            PathMatchType::Exact => "/?",
        };
        matches.push(regex_match(format!("(?i){encoded}{tail}"))?);
    }
    Some(matches)
}

/// All that an open prefix must refuse beside these protected paths. Nothing if it cannot be told.
pub(crate) fn refused_by<'p>(
    prefix: &str,
    protected: impl IntoIterator<Item = &'p PathMatch>,
    not_normalized: bool,
) -> Option<Vec<HttpMatch>> {
    let mut matches = vec![refused_below(prefix, not_normalized)?];
    for path in protected {
        if is_below(&path.value, prefix) {
            matches.extend(spellings(path)?);
        }
    }
    Some(matches)
}

/// Whether the protected path lies at or below the open prefix, whatever the case of its letters.
fn is_below(protected: &str, prefix: &str) -> bool {
    let (protected, prefix) = (protected.to_ascii_lowercase(), without_root(prefix).to_ascii_lowercase());
    protected.strip_prefix(&prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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
        matches.push(ignoring_case(StringMatch::Exact(page.trim_end_matches('/').to_owned())));
        matches.push(ignoring_case(match page.ends_with('/') {
            true => StringMatch::Prefix(page.clone()),
            false => StringMatch::Exact(format!("{page}/")),
        }));
        let segment = page.split('/').find(|segment| !segment.is_empty()).unwrap_or_default();
        let (segment, more) = (escaped(segment), if not_normalized { NOT_NORMALIZED } else { "" });
        let ambiguous = format!("(?:{AMBIGUOUS}{more})");
        matches.push(regex_match(format!(
            "(?i){}/(?:.*{ambiguous}.*{segment}.*|.*{segment}.*{ambiguous}.*|/.*{segment}.*)",
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
        let literal = escaped(&char::from(code).to_string());
        if code.is_ascii_alphanumeric() || b"/-._~".contains(&code) {
            regex.push_str(&literal);
        } else if code.is_ascii_graphic() {
            several = true;
            regex.push_str(&format!("(?:{literal}|%{code:02x})"));
        } else {
            regex.push_str(&format!("%{code:02x}"));
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
