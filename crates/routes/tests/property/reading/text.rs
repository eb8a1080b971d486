//! Paths and durations.

use std::time::Duration;

use mesh_api::integrator::{PathMatchType, Route};
use mesh_api::syntax::path_problem;

pub(super) fn without_last_slash(path: &str) -> String {
    match path.strip_suffix('/') {
        None | Some("") => path.to_owned(),
        Some(bare) => bare.to_owned(),
    }
}

pub(super) fn is_at_or_below(path: &str, prefix: &str) -> bool {
    prefix == "/" || path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a protected path covers this one, with the slash that an exact one covers too.
pub(super) fn covers_strictly(exact: bool, guarded: &str, path: &str) -> bool {
    if exact {
        return path == guarded || path.strip_suffix('/') == Some(guarded);
    }
    // What lies below a protected root is spelt right whatever it is.
    guarded != "/" && is_at_or_below(path, guarded)
}

/// Whether rewrite and timeout can be acted on.
pub(super) fn fields_are_sound(route: &Route) -> bool {
    let rewrite = route.rewrite.as_ref().is_none_or(|rewrite| {
        route.path.kind == PathMatchType::PathPrefix && path_problem(&rewrite.value).is_none()
    });
    let limits = Duration::from_millis(1)..=Duration::from_hours(24);
    let timeout =
        route.timeout.as_deref().is_none_or(|text| duration(text).is_some_and(|it| limits.contains(&it)));
    rewrite && timeout
}

/// `/c` becomes the value, `/c/x` the value and `/x`.
pub(super) fn rewritten(route: &Route, path: &str) -> String {
    let Some(rewrite) = &route.rewrite else { return path.to_owned() };
    let (bare, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let (prefix, value) = (without_last_slash(&route.path.value), without_last_slash(&rewrite.value));
    let rest = if prefix == "/" { bare } else { &bare[prefix.len()..] };
    let whole = format!("{}{rest}", if value == "/" { "" } else { &value });
    format!("{}{query}", if whole.is_empty() { "/" } else { &whole })
}

/// A duration of hours, minutes, seconds and milliseconds, each once.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    for (unit, milliseconds) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        if !number.is_empty() && &tail[..end] == unit {
            total += Duration::from_millis(number.parse::<u64>().ok()? * milliseconds);
            rest = &tail[end..];
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(total)
}

/// The text with those percent codes decoded of which the byte is one of these.
pub(crate) fn decoded(text: &str, which: impl Fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut output = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(code) = code.filter(|code| bytes[at] == b'%' && which(*code)) {
            output.push(code);
            at += 3;
        } else {
            output.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&output).into_owned()
}
