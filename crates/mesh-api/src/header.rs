//! The syntax of headers, durations and the paths of auth services, as the admission rules of the CRDs say it.

use std::time::Duration;

/// The longest header name.
pub const MAX_HEADER_LENGTH: usize = 64;
/// The most dashes of an identity header: every mixture of `-` and `_` is removed from what clients send, which doubles
/// with each.
pub const MAX_IDENTITY_DASHES: usize = 4;
/// The most identity headers of a provider.
pub const MAX_IDENTITY_HEADERS: usize = 16;
/// The most headers that a provider asks for.
pub const MAX_REQUEST_HEADERS: usize = 32;
/// The most own paths of a provider.
pub const MAX_OWN_PATHS: usize = 16;
/// The longest own path, or path prefix, of a provider.
pub const MAX_OWN_PATH_LENGTH: usize = 128;

/// Headers that Envoy or Istio themselves act on or set, beside those with a reserved prefix.
const RESERVED: [&str; 5] =
    ["x-request-id", "x-client-trace-id", "x-real-ip", "x-original-url", "x-rewrite-url"];
/// How the names of headers begin that Envoy, Istio, tracers or the guard chain act on.
const RESERVED_PREFIXES: [&str; 6] = ["x-forwarded-", "x-envoy-", "x-ii-", "x-b3-", "x-istio-", "x-ot-"];

/// Reads a duration as the Gateway API writes it: up to four numbers with a unit of `h`, `m`, `s` or `ms`, such as `1m30s`.
///
/// Source: GEP-2257.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 500ms, 10s or 1m30s");
    let mut rest = text;
    let mut total = Duration::ZERO;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        if !(1..=5).contains(&digits) {
            return Err(wrong());
        }
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (unit, tail) = if let Some(tail) = tail.strip_prefix("ms") {
            (Duration::from_millis(number), tail)
        } else if let Some(tail) = tail.strip_prefix('s') {
            (Duration::from_secs(number), tail)
        } else if let Some(tail) = tail.strip_prefix('m') {
            (Duration::from_secs(60 * number), tail)
        } else if let Some(tail) = tail.strip_prefix('h') {
            (Duration::from_secs(3600 * number), tail)
        } else {
            return Err(wrong());
        };
        total += unit;
        rest = tail;
        if rest.is_empty() {
            return Ok(total);
        }
    }
    Err(wrong())
}

/// The duration as protobuf's JSON form, which Istio and Envoy take, writes it: seconds with at most three decimals.
pub fn istio_duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        millis => format!("{}.{millis:03}s", duration.as_secs()),
    }
}

/// What is wrong with a header name, or `None`: a lower-case token of RFC 9110 without the characters that no header in use
/// has, and no header of HTTP itself.
pub fn header_name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > MAX_HEADER_LENGTH {
        return Some("it must have from 1 to 64 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Some("it may hold only lower-case letters, digits and dashes");
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Some("it must begin and end with a letter or digit");
    }
    if ["host", "connection", "transfer-encoding", "content-length", "te", "upgrade"].contains(&name) {
        return Some("it is a header of the connection itself");
    }
    if name.starts_with("x-ii-") {
        return Some("headers that begin with x-ii- are the guard chain's own");
    }
    None
}

/// What is wrong with the name of an identity header, or `None`.
pub fn identity_header_problem(name: &str) -> Option<&'static str> {
    if let Some(problem) = header_name_problem(name) {
        return Some(problem);
    }
    if !name.starts_with("x-") {
        return Some("an identity header must begin with x-");
    }
    if name.bytes().filter(|b| *b == b'-').count() > MAX_IDENTITY_DASHES {
        return Some("an identity header may hold at most 4 dashes");
    }
    if RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Some("Envoy, Istio or backends act on this header by themselves");
    }
    None
}

/// Every spelling of a header name in which dashes may be underscores, sorted: backends in some languages read both as one.
pub fn dash_spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![String::with_capacity(name.len())];
    for c in name.chars() {
        if c == '-' {
            let underscored: Vec<String> = spellings.iter().map(|spelling| format!("{spelling}_")).collect();
            for spelling in &mut spellings {
                spelling.push('-');
            }
            spellings.extend(underscored);
        } else {
            for spelling in &mut spellings {
                spelling.push(c);
            }
        }
    }
    spellings.sort();
    spellings
}

/// What is wrong with a path of an auth service's own, or `None`: a path, or a prefix if it ends in a slash.
pub fn own_path_problem(path: &str) -> Option<&'static str> {
    if path.len() > MAX_OWN_PATH_LENGTH {
        return Some("it must have at most 128 characters");
    }
    if path == "/" {
        return Some("it would be every path");
    }
    plain_path_problem(path)
}

/// What is wrong with what is put before the path when an auth service is asked, or `None`.
pub fn path_prefix_problem(prefix: &str) -> Option<&'static str> {
    if prefix.is_empty() {
        return None;
    }
    if prefix.len() > MAX_OWN_PATH_LENGTH {
        return Some("it must have at most 128 characters");
    }
    if prefix.ends_with('/') {
        return Some("it must not end in a slash, since the path that follows begins with one");
    }
    plain_path_problem(prefix)
}

fn plain_path_problem(path: &str) -> Option<&'static str> {
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._~-".contains(&b)) {
        return Some("it may hold only letters, digits and /._~-");
    }
    crate::syntax::path_problem(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, millis, written) in [
            ("1ms", 1, "0.001s"),
            ("500ms", 500, "0.500s"),
            ("2s", 2000, "2s"),
            ("1m30s", 90_000, "90s"),
            ("1h1m1s1ms", 3_661_001, "3661.001s"),
            ("0s", 0, "0s"),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(istio_duration(read), written);
        }
        for wrong in ["", "s", "1", "1.5s", "-1s", "1d", "100000s", "1s1s1s1s1s", " 1s", "1s ", "1\u{661}s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn header_names_are_checked() {
        for good in ["cookie", "authorization", "x-user", "a"] {
            assert_eq!(header_name_problem(good), None, "{good}");
        }
        let long = "x".repeat(65);
        for bad in
            ["", "X-User", "x_user", "x user", "x\u{1}", "host", ":path", "-x", "x-", "x-ii-guard", &long]
        {
            assert!(header_name_problem(bad).is_some(), "{bad}");
        }
        for good in ["x-user", "x-auth-request-user-id"] {
            assert_eq!(identity_header_problem(good), None, "{good}");
        }
        for bad in [
            "user",
            "authorization",
            "x-a-b-c-d-e",
            "x-forwarded-user",
            "x-envoy-original-path",
            "x-request-id",
        ] {
            assert!(identity_header_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn every_spelling_is_listed() {
        assert_eq!(dash_spellings("user"), ["user"]);
        assert_eq!(dash_spellings("x-a-b"), ["x-a-b", "x-a_b", "x_a-b", "x_a_b"]);
        assert_eq!(dash_spellings("x-a-b-c-d").len(), 16);
    }

    #[test]
    fn own_paths_are_checked() {
        for good in ["/ping", "/oauth2/", "/a/b.c"] {
            assert_eq!(own_path_problem(good), None, "{good}");
        }
        for bad in ["", "/", "ping", "/a//b", "/a/../b", "/a;b", "/%41", "/a?b"] {
            assert!(own_path_problem(bad).is_some(), "{bad}");
        }
        assert_eq!((path_prefix_problem(""), path_prefix_problem("/check")), (None, None));
        assert!(path_prefix_problem("/check/").is_some() && path_prefix_problem("check").is_some());
    }
}
