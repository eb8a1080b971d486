//! Our own check of every object before it is written.
//!
//! Nobody else protects the gateway from a bad one: Istio's webhook may be absent or let an object pass, and one bad
//! `VirtualService` can empty the whole configuration of a gateway. The compiler is not supposed to make any of the
//! faults that are looked for here.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::io;

use mesh_api::istio::{HeaderMatches, HttpMatch, HttpRoute, StringMatch, VirtualService};
use mesh_api::names;
use mesh_api::syntax::{is_dns_label, is_host, path_problem};
use regex_syntax::ParserBuilder;
use thiserror::Error;

use crate::guard::{ProviderId, TokenKey};

/// The largest object that is written, in bytes of JSON. The API server takes 1.5 MiB and keeps its own notes in it.
pub const MAX_BYTES: usize = 1024 * 1024;
/// The longest regular expression that istiod's webhook accepts, in bytes.
const MAX_REGEX: usize = 1024;
/// The longest header name.
const MAX_HEADER: usize = 64;

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {fault}")]
pub struct Problem {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub fault: String,
}

fn problem(field: impl Into<String>, fault: impl Into<String>) -> Problem {
    Problem { field: field.into(), fault: fault.into() }
}

/// Everything that is wrong with the `VirtualService`.
///
/// The rules are Istio's own validation of the fields we use, and ours: one concrete host and gateway, never `mesh`,
/// route names without a user's text, segment-safe prefixes, full destinations or an answer of the gateway's own, and
/// for each route with a login the token of its provider, followed by the same paths without it, which answer 503.
pub fn validate(object: &VirtualService, token_key: &TokenKey) -> Vec<Problem> {
    validate_of_size(object, json_size(object), token_key)
}

/// Everything that is wrong with the `VirtualService`, which takes so many bytes as JSON (see [`json_size`]).
pub(crate) fn validate_of_size(
    object: &VirtualService,
    size: serde_json::Result<usize>,
    token_key: &TokenKey,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if !is_dns_label(name) {
        problems.push(problem("metadata.name", format!("{name:?} is not a DNS label")));
    }
    if !object.metadata.namespace.as_deref().is_some_and(is_dns_label) {
        problems.push(problem("metadata.namespace", "it must be the integrator's namespace"));
    }
    match &object.spec.hosts[..] {
        [host] if is_host(host) => {}
        hosts => problems.push(problem("spec.hosts", format!("it must be one host, not {hosts:?}"))),
    }
    match &object.spec.gateways[..] {
        [gateway] if is_gateway(gateway) => {}
        gateways => problems
            .push(problem("spec.gateways", format!("it must be one namespace/name, not {gateways:?}"))),
    }
    check_export(&object.spec.export_to, &mut problems);
    if object.spec.http.is_empty() {
        problems.push(problem("spec.http", "it has no route"));
    }
    let matches = object.spec.http.iter().map(|route| route.matches.len()).sum();
    let mut seen = HashSet::with_capacity(matches);
    let mut tokens = Tokens { key: token_key, last: None };
    for (position, route) in object.spec.http.iter().enumerate() {
        let rest = object.spec.http.get(position + 1..).unwrap_or_default();
        let mut check = Check { position, problems: &mut problems };
        check.route(route, rest, &mut tokens, &mut seen);
    }
    match size {
        Ok(size) if size <= MAX_BYTES => {}
        Ok(size) => problems.push(problem("", format!("{size} bytes are more than {MAX_BYTES}"))),
        Err(error) => problems.push(problem("", format!("it cannot be written as JSON: {error}"))),
    }
    problems
}

/// How many bytes an object takes as JSON.
pub(crate) fn json_size(object: &VirtualService) -> serde_json::Result<usize> {
    let mut size = Size(0);
    serde_json::to_writer(&mut size, object)?;
    Ok(size.0)
}

/// A match that is looked up by its path, since few have the same. It is compared as a whole.
#[derive(PartialEq, Eq)]
pub(crate) struct ByUri<'m>(pub(crate) &'m HttpMatch);

impl Hash for ByUri<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uri.hash(state);
    }
}

/// The tokens of providers, as the key says. Most routes of an object ask for one and the same.
struct Tokens<'k> {
    key: &'k TokenKey,
    last: Option<(ProviderId, StringMatch)>,
}

impl Tokens<'_> {
    /// The token of the provider with these digits as its id; nothing if they are no id.
    fn of(&mut self, digits: &str) -> Option<&StringMatch> {
        if self.last.as_ref().is_none_or(|(id, _)| id.as_str() != digits) {
            let id = ProviderId::parse(digits)?;
            let token = StringMatch::Exact(self.key.token(&id));
            self.last = Some((id, token));
        }
        self.last.as_ref().map(|(_, token)| token)
    }
}

/// Counts the bytes that are written to it.
struct Size(usize);

impl io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_gateway(text: &str) -> bool {
    text.split_once('/').is_some_and(|(namespace, name)| {
        is_dns_label(namespace) && name.len() <= 253 && name.split('.').all(is_dns_label)
    })
}

fn check_export(entries: &[String], problems: &mut Vec<Problem>) {
    let distinct: BTreeSet<&String> = entries.iter().collect();
    if entries.is_empty() || distinct.len() != entries.len() {
        problems.push(problem("spec.exportTo", "it must name each namespace once"));
    }
    if entries.len() > 1 && entries.iter().any(|entry| entry == "*") {
        problems.push(problem("spec.exportTo", "* must stand alone"));
    }
    for entry in entries {
        if entry != "*" && entry != "." && !is_dns_label(entry) {
            problems.push(problem("spec.exportTo", format!("{entry:?} is not a namespace")));
        }
    }
}

/// How many expressions are remembered: what many hosts have in common, in a few megabytes at most.
const REMEMBERED: usize = 4096;

thread_local! {
    /// Expressions that were read. To read one takes a third of all the time that a host takes, and hosts have many in common.
    static READ: RefCell<HashSet<String>> = RefCell::default();
}

/// Whether an expression can be read.
///
/// The regex crate reads what RE2 reads, but for a few forms that the compiler does not make. It is only read: to make it
/// ready for use takes a hundred times as long. Letters of other alphabets play no part in a path.
fn readable(regex: &str) -> Result<(), String> {
    if READ.with_borrow(|read| read.contains(regex)) {
        return Ok(());
    }
    ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .build()
        .parse(regex)
        .map_err(|error| error.to_string())?;
    READ.with_borrow_mut(|read| {
        if read.len() >= REMEMBERED {
            read.clear();
        }
        read.insert(regex.to_owned());
    });
    Ok(())
}

/// What the name of a route says.
enum Verdict<'r> {
    Open,
    Protected(&'r str),
    Probe,
}

fn verdict(name: &str) -> Option<Verdict<'_>> {
    let is_hash = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(hash) = name.strip_prefix(names::OPEN_ROUTE_PREFIX) {
        return is_hash(hash).then_some(Verdict::Open);
    }
    if let Some(hash) = name.strip_prefix(names::PROBE_ROUTE_PREFIX) {
        return is_hash(hash).then_some(Verdict::Probe);
    }
    let (id, hash) = name.strip_prefix(names::AUTH_ROUTE_PREFIX)?.split_once('.')?;
    (is_hash(id) && is_hash(hash)).then_some(Verdict::Protected(id))
}

/// Checks one route.
struct Check<'p> {
    /// The place of the route.
    position: usize,
    problems: &'p mut Vec<Problem>,
}

impl Check<'_> {
    fn note(&mut self, part: &str, fault: impl Into<String>) {
        self.problems.push(problem(format!("spec.http[{}]{part}", self.position), fault));
    }

    fn route<'r>(
        &mut self,
        route: &'r HttpRoute,
        rest: &[HttpRoute],
        tokens: &mut Tokens<'_>,
        seen: &mut HashSet<ByUri<'r>>,
    ) {
        if route.matches.is_empty() {
            self.note(".match", "it matches everything");
        }
        for (position, entry) in route.matches.iter().enumerate() {
            self.path(entry, route, position);
            self.method(entry, position);
            // Two of the same make the later one dead.
            if !seen.insert(ByUri(entry)) {
                let text = serde_json::to_string(entry).unwrap_or_default();
                self.note(
                    &format!(".match[{position}]"),
                    format!("{text} is matched by an earlier route, so that this one is dead"),
                );
            }
        }
        self.target(route);
        self.headers(route);
        match verdict(&route.name) {
            None => self.note(".name", format!("{:?} is not a name of ours", route.name)),
            Some(Verdict::Open) => self.unguarded(route),
            Some(Verdict::Probe) => {
                self.unguarded(route);
                if route.direct_response.as_ref().is_none_or(|answer| answer.status != 503) {
                    self.note(".directResponse", "without a guard chain it must answer 503");
                }
            }
            Some(Verdict::Protected(id)) => self.protected(route, rest, id, tokens),
        }
    }

    /// No route that needs no login may depend on the guard header.
    fn unguarded(&mut self, route: &HttpRoute) {
        if route.matches.iter().any(|entry| !entry.headers.is_empty() || !entry.without_headers.is_empty()) {
            self.note(".match", "it depends on a header");
        }
    }

    fn protected(&mut self, route: &HttpRoute, rest: &[HttpRoute], id: &str, tokens: &mut Tokens<'_>) {
        let Some(token) = tokens.of(id) else {
            return self.note(".name", format!("{id:?} is not the id of a provider"));
        };
        let only_guard =
            |headers: &HeaderMatches| headers.len() == 1 && headers.get(names::GUARD_HEADER) == Some(token);
        if route.route.is_empty() {
            let bare = route
                .matches
                .iter()
                .all(|entry| only_guard(&entry.without_headers) && entry.headers.is_empty());
            if !bare || route.direct_response.as_ref().is_none_or(|answer| answer.status != 503) {
                self.note("", "the refusal of a protected route must answer 503 to whoever lacks the token");
            }
            return;
        }
        let guarded =
            route.matches.iter().all(|entry| only_guard(&entry.headers) && entry.without_headers.is_empty());
        if !guarded {
            self.note(".match", "a protected route must demand the token of its provider on each path");
        }
        let removed = route.headers.as_ref().and_then(|headers| headers.request.as_ref());
        if !removed.is_some_and(|request| request.remove.iter().any(|name| name == names::GUARD_HEADER)) {
            self.note(".headers.request.remove", "the token would reach the backend");
        }
        for (position, entry) in route.matches.iter().enumerate() {
            let refuses = |other: &HttpMatch| {
                let HttpMatch { uri, ignore_uri_case, method, headers, without_headers } = other;
                (uri, ignore_uri_case, method) == (&entry.uri, &entry.ignore_uri_case, &entry.method)
                    && headers.is_empty()
                    && *without_headers == entry.headers
            };
            let found = rest.iter().find(|other| other.matches.iter().any(refuses)).is_some_and(|other| {
                other.direct_response.as_ref().is_some_and(|answer| answer.status == 503)
            });
            if !found {
                self.note(
                    &format!(".match[{position}]"),
                    "whoever lacks the token is not refused by a later entry of the same path",
                );
            }
        }
    }

    fn path(&mut self, entry: &HttpMatch, route: &HttpRoute, position: usize) {
        let part = || format!(".match[{position}].uri");
        let (exact, path) = match &entry.uri {
            Some(StringMatch::Exact(path)) => (true, path.as_str()),
            Some(StringMatch::Prefix(path)) => (false, path.as_str()),
            Some(StringMatch::Regex(regex)) => {
                if !route.route.is_empty() {
                    self.note(&part(), "a regular expression may only refuse");
                }
                return self.regex(part, regex);
            }
            None => return self.note(&part(), "it matches every path"),
        };
        if !exact && !path.ends_with('/') {
            self.note(&part(), format!("prefix {path:?} does not end a segment"));
        }
        // The slash that ends a prefix does not count as part of the path that a user wrote.
        let written = if exact || path == "/" { path } else { path.strip_suffix('/').unwrap_or(path) };
        let empty = path.ends_with("//").then_some("it must not hold an empty segment (//)");
        if let Some(fault) = path_problem(written).or(empty) {
            self.note(&part(), format!("{path:?}: {fault}"));
        }
    }

    fn regex(&mut self, part: impl Fn() -> String, regex: &str) {
        if regex.len() > MAX_REGEX {
            self.note(&part(), format!("a regular expression of {} bytes is refused by Istio", regex.len()));
        }
        if let Err(fault) = readable(regex) {
            self.note(&part(), format!("{regex:?} is not a regular expression: {fault}"));
        }
    }

    fn method(&mut self, entry: &HttpMatch, position: usize) {
        let part = || format!(".match[{position}].method");
        let text = match &entry.method {
            None => return,
            Some(StringMatch::Exact(text)) => text.as_str(),
            Some(StringMatch::Regex(regex)) => {
                regex.strip_prefix("(?i:").and_then(|rest| rest.strip_suffix(')')).unwrap_or(regex)
            }
            Some(StringMatch::Prefix(_)) => return self.note(&part(), "a method has no prefix"),
        };
        if text.is_empty() || !text.split('|').all(|name| name.bytes().all(|b| b.is_ascii_uppercase())) {
            self.note(&part(), format!("{text:?} is not a list of methods"));
        }
    }

    fn target(&mut self, route: &HttpRoute) {
        match (&route.route[..], &route.direct_response) {
            ([], Some(response)) => {
                if !(200..=599).contains(&response.status) {
                    self.note(".directResponse.status", format!("{} is no answer", response.status));
                }
            }
            ([_, ..], None) => {
                let weights: Option<Vec<u32>> = route.route.iter().map(|entry| entry.weight).collect();
                match (route.route.len(), weights) {
                    (1, None) => {}
                    (1, Some(_)) => self.note(".route[0].weight", "a single destination needs none"),
                    (_, Some(weights)) if weights.iter().all(|weight| (1..=1_000_000).contains(weight)) => {}
                    _ => self
                        .note(".route", "each of several destinations must have a weight from 1 to 1000000"),
                }
                for (position, entry) in route.route.iter().enumerate() {
                    let destination = &entry.destination;
                    let part = || format!(".route[{position}].destination");
                    if !is_host(&destination.host) || !destination.host.contains('.') {
                        let fault = format!("{:?} is not a full name", destination.host);
                        self.note(&format!("{}.host", part()), fault);
                    }
                    if destination.port.is_none_or(|port| port.number == 0) {
                        self.note(&format!("{}.port", part()), "it has no port");
                    }
                }
            }
            _ => self.note("", "it must have destinations, or an answer of the gateway's own"),
        }
        if let Some(uri) = route.rewrite.as_ref().and_then(|rewrite| rewrite.uri.as_deref())
            && let Some(fault) = path_problem(uri)
        {
            self.note(".rewrite.uri", format!("{uri:?}: {fault}"));
        }
        if let Some(timeout) = &route.timeout
            && !is_istio_duration(timeout)
        {
            self.note(".timeout", format!("{timeout:?} is not a duration"));
        }
    }

    fn headers(&mut self, route: &HttpRoute) {
        let operations = route.headers.iter().flat_map(|headers| [&headers.request, &headers.response]);
        for operations in operations.flatten() {
            for name in operations.remove.iter().chain(operations.set.keys()) {
                let token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
                if name.is_empty() || name.len() > MAX_HEADER || !name.bytes().all(token) || name == "host" {
                    self.note(".headers", format!("{name:?} is not a header that may be changed"));
                }
            }
        }
    }
}

/// Whether this is a number of seconds or milliseconds, as the compiler writes durations.
fn is_istio_duration(text: &str) -> bool {
    let number = text.strip_suffix("ms").or_else(|| text.strip_suffix('s'));
    number.is_some_and(|number| {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        whole.len() <= 8 && digits(whole) && fraction.len() <= 9 && digits(fraction)
    })
}
