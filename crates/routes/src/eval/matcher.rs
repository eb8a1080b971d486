//! Whether a route matches, as Envoy decides it from what istiod makes of a `VirtualService`.

use std::fmt;

use mesh_api::istio::{HttpMatch, StringMatch};
use regex::bytes::{Regex, RegexBuilder};

use super::request::Seen;

/// How headers are called that istiod turns into claims of a token. There is no token here.
const CLAIMS: &str = "@request.auth.claims";
/// How istiod understands a regular expression that is a lone star, which RE2 does not have: the header is there.
const PRESENT: &str = "*";

/// One `match` of a route, ready to be compared.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    path: PathTest,
    headers: Vec<HeaderTest>,
}

#[derive(Clone, Debug)]
enum PathTest {
    Exact { path: String, ignore_case: bool },
    Prefix { path: String, ignore_case: bool },
    Regex(Regex),
}

#[derive(Clone, Debug)]
struct HeaderTest {
    name: String,
    test: Test,
    /// Whether it must fail (`withoutHeaders`).
    invert: bool,
}

#[derive(Clone, Debug)]
enum Test {
    Present,
    Exact(String),
    Prefix(String),
    Regex(Regex),
    /// A claim of a token, which no request here has.
    Claim,
}

/// A regular expression that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadRegex(String);

impl fmt::Display for BadRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no regular expression that is understood here", self.0)
    }
}

impl Matcher {
    /// What matches everything, as a route without `match` does.
    pub(super) fn everything() -> Self {
        Self { path: PathTest::Prefix { path: "/".to_owned(), ignore_case: false }, headers: Vec::new() }
    }

    /// Source: istiod `TranslateRouteMatch`.
    pub(super) fn new(entry: &HttpMatch) -> Result<Self, BadRegex> {
        let ignore_case = entry.ignore_uri_case;
        let path = match &entry.uri {
            None => PathTest::Prefix { path: "/".to_owned(), ignore_case },
            Some(StringMatch::Exact(path)) => PathTest::Exact { path: path.clone(), ignore_case },
            Some(StringMatch::Prefix(path)) => PathTest::Prefix { path: path.clone(), ignore_case },
            // Envoy takes no notice of the case flag of a regular expression.
            Some(StringMatch::Regex(regex)) => PathTest::Regex(full(regex)?),
        };
        let mut headers = Vec::new();
        for (name, value) in entry.headers.iter() {
            headers.push(HeaderTest::new(name, value, false)?);
        }
        for (name, value) in entry.without_headers.iter() {
            headers.push(HeaderTest::new(name, value, true)?);
        }
        if let Some(method) = &entry.method {
            headers.push(HeaderTest::new(":method", method, false)?);
        }
        Ok(Self { path, headers })
    }

    /// Whether istiod takes it for a route that catches all, moves it behind all others of the host and drops what
    /// follows it in its object. Source: istiod `IsCatchAllRoute`.
    pub(super) fn catches_all(&self) -> bool {
        let every_path = match &self.path {
            PathTest::Prefix { path, .. } => path == "/",
            PathTest::Regex(regex) => regex.as_str() == whole(".*"),
            PathTest::Exact { .. } => false,
        };
        every_path && self.headers.is_empty()
    }

    /// The length of the part of the path, given without its query, that a rewrite replaces; nothing if the route does
    /// not match.
    pub(super) fn matches(&self, path: &str, seen: &Seen) -> Option<usize> {
        let length = self.path.matches(path)?;
        self.headers.iter().all(|header| header.holds(seen)).then_some(length)
    }
}

impl PathTest {
    fn matches(&self, path: &str) -> Option<usize> {
        match self {
            Self::Exact { path: exact, ignore_case } => {
                let equal = if *ignore_case { path.eq_ignore_ascii_case(exact) } else { path == exact };
                equal.then_some(path.len())
            }
            Self::Prefix { path: prefix, ignore_case } => {
                let start = path.get(..prefix.len())?;
                let equal = if *ignore_case { start.eq_ignore_ascii_case(prefix) } else { start == prefix };
                equal.then_some(prefix.len())
            }
            Self::Regex(regex) => regex.is_match(path.as_bytes()).then_some(path.len()),
        }
    }
}

impl HeaderTest {
    fn new(name: &str, value: &StringMatch, invert: bool) -> Result<Self, BadRegex> {
        let name = name.to_ascii_lowercase();
        let test = match value {
            _ if name.starts_with(CLAIMS) => Test::Claim,
            StringMatch::Regex(regex) if regex == PRESENT => Test::Present,
            StringMatch::Regex(regex) => Test::Regex(full(regex)?),
            StringMatch::Exact(text) => Test::Exact(text.clone()),
            StringMatch::Prefix(text) => Test::Prefix(text.clone()),
        };
        Ok(Self { name, test, invert })
    }

    /// A header that is absent fails a plain test whatever it is. An inverted one compares an empty text instead, so that
    /// `withoutHeaders` with a regular expression that matches nothing at all is not met by its absence.
    /// Source: istiod sets `treat_missing_header_as_empty`; Envoy `HeaderUtility::HeaderDataBaseImpl`.
    fn holds(&self, seen: &Seen) -> bool {
        if matches!(self.test, Test::Claim) {
            return self.invert;
        }
        let value = seen.get(&self.name);
        if matches!(self.test, Test::Present) {
            return value.is_some() != self.invert;
        }
        let Some(value) = value.or_else(|| self.invert.then(String::new)) else { return false };
        let met = match &self.test {
            Test::Exact(text) => value == *text,
            Test::Prefix(text) => value.starts_with(text.as_str()),
            Test::Regex(regex) => regex.is_match(value.as_bytes()),
            Test::Present | Test::Claim => false,
        };
        met != self.invert
    }
}

/// The expression that matches when all of a text does.
fn full(regex: &str) -> Result<Regex, BadRegex> {
    // RE2's classes such as \d and \w are of ASCII; only an expression that names other characters needs Unicode.
    let built = |unicode| RegexBuilder::new(&whole(regex)).unicode(unicode).build();
    // A parenthesis too many must not end the group that is put around it.
    Regex::new(regex).map_err(|_| BadRegex(regex.to_owned()))?;
    built(false).or_else(|_| built(true)).map_err(|_| BadRegex(regex.to_owned()))
}

fn whole(regex: &str) -> String {
    format!(r"\A(?:{regex})\z")
}
