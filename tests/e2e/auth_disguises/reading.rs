//! How a careless backend might read a path: whatever some server somewhere decodes, cuts off, merges or ignores.

/// What is protected, by a careless reading of method and target, in the world of [`super`].
///
/// A blank in front of a segment and an encoded `#` are taken as they are: both stand in honest paths, and are not refused.
pub(crate) fn is_protected(method: &str, target: &str) -> bool {
    // Once decoded, twice decoded and so on: each is somebody's reading.
    let mut text = target.to_owned();
    for round in 0..5 {
        // A fragment is cut off where it is one.
        let read = if round == 0 { text.split('#').next().unwrap_or_default() } else { &text };
        if names_protected(method, &segments(read)) {
            return true;
        }
        text = decoded(&text);
    }
    false
}

fn names_protected(method: &str, segments: &[String]) -> bool {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments[..] {
        ["secret"] | ["pub", "exact"] | ["admin", ..] | ["pub", "private", ..] => true,
        ["form", ..] => method.eq_ignore_ascii_case("POST"),
        _ => false,
    }
}

/// The segments of a path in small letters: without scheme, host, query, parameters, blanks and empty ones, dots resolved.
fn segments(target: &str) -> Vec<String> {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |start| &rest[start..]),
        _ => target,
    };
    let path = path.split(['?', '\0']).next().unwrap_or_default();
    let mut segments = Vec::new();
    for segment in path.split(['/', '\\']) {
        let segment = segment.split(';').next().unwrap_or_default().trim_end();
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other.to_lowercase()),
        }
    }
    segments
}

/// Decodes once, and reads what is no UTF-8 as the overlong spelling of a letter where it is one.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let code = if first == b'%' {
            more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())
        } else {
            None
        };
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = &more[2..];
        } else {
            bytes.push(first);
            rest = more;
        }
    }
    let mut plain = Vec::new();
    let mut rest = &bytes[..];
    while let Some((&first, more)) = rest.split_first() {
        if let (0xc0 | 0xc1, [second, more @ ..]) = (first, more) {
            plain.push((first & 1) << 6 | (second & 0x3f));
            rest = more;
        } else {
            plain.push(first);
            rest = more;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
