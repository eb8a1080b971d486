//! The syntax of hosts, paths and names, as the admission rules of the CRDs say it.
//!
//! Admission can be passed by: an object may be older than a rule, or come from a file. So the same rules exist here as
//! code, and everything that is compiled goes through them.

/// The longest host, as in DNS.
pub const MAX_HOST_LENGTH: usize = 253;
/// The longest label of a host, as in DNS; also the longest name of a namespace or Service.
pub const MAX_LABEL_LENGTH: usize = 63;
/// The longest path of a route. Istio sets no limit; URLs beyond this are cut by common clients and proxies.
pub const MAX_PATH_LENGTH: usize = 1024;
/// The placeholders of a host template.
pub const PLACEHOLDERS: [&str; 3] = ["{name}", "{namespace}", "{domain}"];

/// Whether this is a DNS-1123 label: lower-case letters, digits and inner dashes, at most 63 characters.
pub fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_LENGTH
        && bytes.first().is_some_and(|b| alphanumeric(*b))
        && bytes.last().is_some_and(|b| alphanumeric(*b))
        && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-')
}

/// Whether this is a host that a request may ask for: a lower-case DNS name that is no IPv4 address and no wildcard.
pub fn is_host(text: &str) -> bool {
    text.len() <= MAX_HOST_LENGTH
        && text.split('.').all(is_dns_label)
        && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Whether this is a pattern of hosts: `*`, `*.` followed by a host, or a host.
pub fn is_host_pattern(text: &str) -> bool {
    text == "*" || is_host(text.strip_prefix("*.").unwrap_or(text))
}

/// Whether the pattern covers the host. As in Istio and the Gateway API, `*.example.com` covers every host below
/// `example.com`, however many labels deep, and not `example.com` itself.
pub fn pattern_covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => pattern == host,
    }
}

/// What is wrong with the path of a route, or `None`.
///
/// Refused is what Envoy would never match or what it and a backend may read differently: relative paths, queries and
/// fragments, empty and dot segments (Istio's gateways resolve them before routing), and encoded slashes, backslashes,
/// dots and NULs.
pub fn path_problem(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("it must begin with /");
    }
    if path.len() > MAX_PATH_LENGTH {
        return Some("it must have at most 1024 characters");
    }
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._~!$&'()*+,;=:@%-".contains(&b)) {
        return Some("it may hold only letters, digits and /._~!$&'()*+,;=:@%-");
    }
    if path.contains("//") {
        return Some("it must not hold an empty segment (//)");
    }
    if path.split('/').any(|segment| segment == "." || segment == "..") {
        return Some("it must not hold a . or .. segment");
    }
    for (position, _) in path.match_indices('%') {
        let code = path.get(position + 1..position + 3).unwrap_or_default().to_ascii_lowercase();
        if code.len() != 2 || !code.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some("each % must be followed by two hexadecimal digits");
        }
        if ["2f", "5c", "2e", "00"].contains(&code.as_str()) {
            return Some("it must not hold an encoded slash, backslash, dot or NUL");
        }
    }
    None
}

/// What is wrong with a host template, or `None`.
pub fn template_problem(template: &str) -> Option<&'static str> {
    if !template.contains("{name}") {
        return Some("it must hold {name}");
    }
    if !template.ends_with(".{domain}") {
        return Some("it must end in .{domain}");
    }
    let mut rest = template.to_owned();
    for placeholder in PLACEHOLDERS {
        if template.matches(placeholder).count() > 1 {
            return Some("it must hold each placeholder at most once");
        }
        rest = rest.replace(placeholder, "");
    }
    if rest.contains(['{', '}']) {
        return Some("its placeholders are {name}, {namespace} and {domain}");
    }
    if !rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-') {
        return Some("beside its placeholders it may hold only lower-case letters, digits, dots and dashes");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let long_label = "a".repeat(63);
        let long_host = [long_label.as_str(); 4].join(".");
        for host in ["a", "shop.example.com", "a-b.c", "xn--bcher-kva.example", "1.example", &long_host[2..]]
        {
            assert!(is_host(host), "{host}");
        }
        for host in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "A.b",
            "a_b",
            "*.a",
            "*",
            "a:80",
            "1.2.3.4",
            "a b",
            "bücher.example",
            &format!("a{long_label}"),
            &long_host,
        ] {
            assert!(!is_host(host), "{host}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, host, covers) in [
            ("*", "a", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.example.com", "badexample.com", false),
            ("a.example.com", "a.example.com", true),
            ("a.example.com", "b.a.example.com", false),
        ] {
            assert!(is_host_pattern(pattern));
            assert_eq!(pattern_covers(pattern, host), covers, "{pattern} {host}");
        }
        for pattern in ["", "*a", "*.", "a.*", "*.*.a", "**"] {
            assert!(!is_host_pattern(pattern), "{pattern}");
        }
    }

    #[test]
    fn paths() {
        for path in
            ["/", "/app", "/app/", "/a%20b", "/a;x=1", "/.well-known/x", "/a..b", "/~u/(x)", "/%C3%A9"]
        {
            assert_eq!(path_problem(path), None, "{path}");
        }
        for path in [
            "", "app", "//", "/a//b", "/.", "/a/..", "/a/./b", "/a?b", "/a#b", "/a b", "/a\\b", "/é", "/%",
            "/%2", "/%zz", "/a%2Fb", "/a%2fb", "/%5c", "/%2e", "/%00", "/a\nb", "/%é",
        ] {
            assert!(path_problem(path).is_some(), "{path}");
        }
        assert!(path_problem(&format!("/{}", "a".repeat(1023))).is_none());
        assert!(path_problem(&format!("/{}", "a".repeat(1024))).is_some());
    }

    #[test]
    fn templates() {
        for template in ["{name}.{namespace}.{domain}", "{name}.{domain}", "{namespace}-{name}.x.{domain}"] {
            assert_eq!(template_problem(template), None, "{template}");
        }
        for template in [
            "",
            "{namespace}.{domain}",
            "{name}",
            "{name}.example.com",
            "{name}.{team}.{domain}",
            "{name}.{name}.{domain}",
            "{name}_{namespace}.{domain}",
            "{Name}.{domain}",
            "{name}{domain}",
            "{name}.{.{domain}",
        ] {
            assert!(template_problem(template).is_some(), "{template}");
        }
    }
}
