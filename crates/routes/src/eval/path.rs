//! How Envoy reads the target of a request.

/// How Envoy rewrites a path before it chooses a route.
///
/// Istio's mesh config `pathNormalization`: `DEFAULT` is `BASE`. `MERGE_SLASHES`, `DECODE_AND_MERGE_SLASHES` and the
/// `connectionSettings` of a proxy (1.31) are not known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathNormalization {
    /// `NONE`: it is left as it is, apart from a fragment.
    None,
    /// `BASE`, by an Envoy older than the fix of CVE-2026-73551 (1.36.10, 1.37.6, 1.38.4, 1.39.1): dot segments are
    /// resolved, encoded ones too, `\` becomes `/`, unreserved characters are decoded. `..;x` is a name like any other.
    BaseUnpatched,
    /// `BASE`, by an Envoy with that fix, after which `/..;x/` is `/../` and `/.;x/` is `/./`.
    #[default]
    Base,
}

impl PathNormalization {
    /// The path, with its query, by which a request for this target is routed and which a Service gets, or nothing if
    /// Envoy refuses it. A host in the target is dropped.
    pub fn apply(self, target: &str) -> Option<String> {
        match read("GET", target, self) {
            Sent::Path { path, .. } => Some(path),
            Sent::Unroutable | Sent::Refused => None,
        }
    }
}

/// What a target turns out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// A path to be routed, with its query; and the host, where the target named one.
    Path {
        /// The host of the absolute form.
        host: Option<String>,
        /// Path and query, normalized.
        path: String,
    },
    /// Nothing that could be routed: 404.
    Unroutable,
    /// Refused with 400.
    Refused,
}

/// Reads a target: absolute form, fragment, characters, normalization.
pub(super) fn read(method: &str, target: &str, normalization: PathNormalization) -> Sent {
    if target.bytes().any(|byte| byte <= 0x20 || byte == 0x7f) {
        return Sent::Refused;
    }
    if target == "*" {
        return if method == "OPTIONS" { Sent::Unroutable } else { Sent::Refused };
    }
    let (host, path) = match absolute(target) {
        Some((host, path)) => (Some(host.to_owned()), path),
        None if target.starts_with('/') => (None, target),
        None => return Sent::Refused,
    };
    if !path.starts_with('/') {
        return Sent::Unroutable;
    }
    // Istio has Envoy cut a fragment off (`http_reject_path_with_fragment: false`), query and all after it.
    let path = path.split('#').next().unwrap_or_default();
    match normalize(path, normalization) {
        Some(path) => Sent::Path { host, path },
        None => Sent::Refused,
    }
}

/// Host and path of the absolute form.
fn absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at_checked(end)?;
    Some((host, if path.is_empty() { "/" } else { path }))
}

/// Path and query as they are routed, or nothing if Envoy refuses them.
fn normalize(path: &str, normalization: PathNormalization) -> Option<String> {
    let (bare, query) = match path.find('?') {
        Some(at) => path.split_at_checked(at)?,
        None => (path, ""),
    };
    let canonical = match normalization {
        PathNormalization::None => bare.to_owned(),
        PathNormalization::BaseUnpatched => canonical(bare)?,
        PathNormalization::Base => canonical(&without_dot_parameters(bare))?,
    };
    Some(format!("{canonical}{query}"))
}

/// Cuts the parameters off segments that are one or two plain dots (CVE-2026-73551). Encoded dots are not looked at.
fn without_dot_parameters(path: &str) -> String {
    let cut = path.split('/').map(|segment| match segment.split_once(';') {
        Some((dots @ ("." | ".."), _)) => dots,
        _ => segment,
    });
    cut.collect::<Vec<_>>().join("/")
}

/// The path as Chromium's URL library writes it, which is what Envoy's `normalize_path` does.
/// Source: Envoy `PathUtil::canonicalPath`, googleurl `url::CanonicalizePath`.
fn canonical(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut output: Vec<u8> = Vec::with_capacity(bytes.len());
    // Where a percent sign was written that begins no valid code.
    let mut lone_percent: Option<usize> = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if let Some(dot) = dot_at(bytes, at) {
            at += dot;
            if output.last() == Some(&b'/') {
                at += after_dot(bytes, at, &mut output);
            } else {
                output.push(b'.');
            }
            continue;
        }
        at += 1;
        match byte {
            b'\\' => output.push(b'/'),
            b'%' => match code_at(bytes, at) {
                None => {
                    lone_percent = Some(output.len());
                    output.push(b'%');
                }
                Some(0) => return None,
                Some(code) => {
                    at += 2;
                    if is_unreserved(code) {
                        output.push(code);
                        keep_percent_lone(&mut output, lone_percent, bytes, at);
                    } else {
                        output.extend(bytes.get(at.checked_sub(3)?..at)?);
                    }
                }
            },
            0 => return None,
            _ if must_be_encoded(byte) => output.extend(format!("%{byte:02X}").as_bytes()),
            _ => output.push(byte),
        }
    }
    String::from_utf8(output).ok()
}

/// The length of a dot, plain or encoded, that begins here.
fn dot_at(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'.' => Some(1),
        b'%' if code_at(bytes, at + 1) == Some(b'.') => Some(3),
        _ => None,
    }
}

/// The value of the two hexadecimal digits that begin here.
fn code_at(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |offset| bytes.get(at + offset).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Handles a dot that follows a slash; `at` is behind it. Gives the number of bytes consumed.
fn after_dot(bytes: &[u8], at: usize, output: &mut Vec<u8>) -> usize {
    let ends = |at: usize| match bytes.get(at) {
        None => Some(0),
        Some(b'/' | b'\\') => Some(1),
        Some(_) => None,
    };
    if let Some(slash) = ends(at) {
        return slash;
    }
    if let Some(dot) = dot_at(bytes, at)
        && let Some(slash) = ends(at + dot)
    {
        output.pop();
        let parent = output.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        output.truncate(parent);
        if output.is_empty() {
            output.push(b'/');
        }
        return dot + slash;
    }
    output.push(b'.');
    0
}

/// Where what was just decoded would make a code of a percent sign before it, that sign is encoded.
fn keep_percent_lone(output: &mut Vec<u8>, lone_percent: Option<usize>, bytes: &[u8], next: usize) {
    let Some(percent) = lone_percent else { return };
    let follows = output.len().saturating_sub(percent + 1);
    let completes = match follows {
        2 => code_at(output, percent + 1).is_some(),
        1 => match (output.get(percent + 1), bytes.get(next)) {
            (Some(first), Some(second)) => first.is_ascii_hexdigit() && second.is_ascii_hexdigit(),
            _ => false,
        },
        _ => false,
    };
    if completes {
        output.splice(percent..=percent, *b"%25");
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_~".contains(&byte)
}

fn must_be_encoded(byte: u8) -> bool {
    byte <= 0x20 || byte >= 0x7f || b"\"#<>?^`{|}".contains(&byte)
}
