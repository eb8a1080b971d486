//! Sprig's functions of URLs, after Go's `net/url`.

mod address;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::args;
use super::table;
use crate::Failure;
use crate::fmt::{kind, quote};
use crate::value::{Ctx, MapRef, Value};

table! {
    "urlParse" (Str) => url_parse,
    "urlJoin" (Map) => url_join,
}

/// The part of a URL that something is escaped for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Fragment,
}

/// Whether Go writes a byte as an escape there.
fn is_escaped(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    let plain: &[u8] = match part {
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::Path => b"$&+,/:;=@",
        Part::User => b"$&+,;=",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    !plain.contains(&byte)
}

fn escape(text: &[u8], part: Part) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if is_escaped(byte, part) {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            out.push(byte);
        }
    }
    out
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let wrong = |bytes: &[u8]| format!("invalid URL escape {}", quote(bytes));
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' {
            let digit = |place: usize| tail.get(place).and_then(|&digit| char::from(digit).to_digit(16));
            let three = rest.get(..rest.len().min(3)).unwrap_or_default();
            let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(wrong(three)) };
            let value = u8::try_from(high * 16 + low).unwrap_or_default();
            if three != b"%25"
                && ((part == Part::Host && high < 8)
                    || (part == Part::Zone && value != b' ' && is_escaped(value, Part::Host)))
            {
                return Err(wrong(three));
            }
            out.push(value);
            rest = tail.get(2..).unwrap_or_default();
            continue;
        }
        if matches!(part, Part::Host | Part::Zone) && byte < 0x80 && is_escaped(byte, part) {
            return Err(format!("invalid character {} in host name", quote(&[byte])));
        }
        out.push(byte);
        rest = tail;
    }
    Ok(out)
}

/// A URL, in bytes where escapes may give any.
#[derive(Debug, Default)]
struct Url {
    scheme: String,
    opaque: Vec<u8>,
    /// Name and password.
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    host: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    fragment: Vec<u8>,
}

/// `url.Parse`, with the text of its error.
fn parse(text: &str) -> Result<Url, String> {
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url =
        parse_start(before).map_err(|error| format!("parse {}: {error}", quote(before.as_bytes())))?;
    url.fragment = unescape(fragment, Part::Fragment)
        .map_err(|error| format!("parse {}: {error}", quote(text.as_bytes())))?;
    Ok(url)
}

fn parse_start(text: &str) -> Result<Url, String> {
    let mut url = Url::default();
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text == "*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query.as_bytes().to_vec();
    let mut rest = rest;
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.as_bytes().to_vec();
            return Ok(url);
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if let Some(after) =
        rest.strip_prefix("//").filter(|_| !url.scheme.is_empty() || !rest.starts_with("///"))
    {
        let end = after.find('/').unwrap_or(after.len());
        let (authority, path) = after.split_at(end);
        parse_authority(&mut url, authority)?;
        rest = path;
    }
    url.path = unescape(rest, Part::Path)?;
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if place > 0 => {}
            b':' if place == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok(text.split_once(':').unwrap_or(("", text))),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_authority(url: &mut Url, authority: &str) -> Result<(), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    url.host = parse_host(&url.scheme, host)?;
    let Some(user) = user else { return Ok(()) };
    if !user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    url.user = Some(match user.split_once(':') {
        None => (unescape(user, Part::User)?, None),
        Some((name, password)) => (unescape(name, Part::User)?, Some(unescape(password, Part::User)?)),
    });
    Ok(())
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    let invalid_port = |port: &str| format!("invalid port {} after host", quote(port.as_bytes()));
    match host.rfind('[') {
        Some(1..) => return Err("invalid IP-literal".to_owned()),
        Some(_) => {
            let inner = host.get(1..).unwrap_or_default();
            let Some((name, port)) = inner.rsplit_once(']') else {
                return Err("missing ']' in host".to_owned());
            };
            if !is_port(port) {
                return Err(invalid_port(port));
            }
            let port = unescape(port, Part::Host)?;
            let name = match name.find("%25") {
                None => unescape(name, Part::Host)?,
                Some(zone) => {
                    let (name, zone) = name.split_at(zone);
                    [unescape(name, Part::Host)?, unescape(zone, Part::Zone)?].concat()
                }
            };
            if address::is_ipv4(&name).map_err(|error| format!("invalid host: {error}"))? {
                return Err("invalid IP-literal".to_owned());
            }
            return Ok([b"[", name.as_slice(), b"]", &port].concat());
        }
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        let colon = if matches!(scheme, "http" | "https") { first } else { last };
        let port = host.get(colon..).unwrap_or_default();
        if !is_port(port) {
            return Err(invalid_port(port));
        }
    }
    unescape(host, Part::Host)
}

fn user_text((name, password): &(Vec<u8>, Option<Vec<u8>>)) -> Vec<u8> {
    let mut out = escape(name, Part::User);
    if let Some(password) = password {
        out.push(b':');
        out.extend(escape(password, Part::User));
    }
    out
}

/// A host without its port and brackets.
fn hostname(host: &[u8]) -> &[u8] {
    let mut name = host;
    if let Some(colon) = host.iter().rposition(|&byte| byte == b':') {
        let (before, port) = host.split_at(colon);
        if std::str::from_utf8(port).is_ok_and(is_port) {
            name = before;
        }
    }
    let inner = name.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]"));
    inner.unwrap_or(name)
}

fn url_parse(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let text = args::text(args, 0);
    ctx.step(text.len())?;
    let url = parse(text).map_err(|error| Failure::error(format!("unable to parse url: {error}")))?;
    let parts = [
        ("scheme", url.scheme.into_bytes()),
        ("hostname", hostname(&url.host).to_vec()),
        ("host", url.host),
        ("path", url.path),
        ("query", url.query),
        ("opaque", url.opaque),
        ("fragment", url.fragment),
        ("userinfo", url.user.as_ref().map(user_text).unwrap_or_default()),
    ];
    let mut entries = BTreeMap::new();
    for (key, bytes) in parts {
        entries.insert(Rc::from(key), args::string(ctx, bytes)?);
    }
    ctx.dict(entries)
}

fn entry(ctx: &Ctx, map: MapRef, key: &str) -> Result<Vec<u8>, Failure> {
    match ctx.heap.get(map, key) {
        None => Ok(Vec::new()),
        Some(Value::Nil) => Err(Failure::error(args::NIL_DEREFERENCE)),
        Some(value @ (Value::Str(_) | Value::Raw(_))) => {
            Ok(args::bytes(std::slice::from_ref(value), 0).to_vec())
        }
        Some(value) => {
            let kind = kind(value);
            Err(Failure::error(format!(
                "unable to parse {key} key, must be of type string, but {kind} found"
            )))
        }
    }
}

fn url_join(ctx: &mut Ctx, args: &[Value]) -> Result<Value, Failure> {
    let map = args::map(args, 0);
    let scheme = entry(ctx, map, "scheme")?;
    let host = entry(ctx, map, "host")?;
    let path = entry(ctx, map, "path")?;
    let query = entry(ctx, map, "query")?;
    let opaque = entry(ctx, map, "opaque")?;
    let fragment = entry(ctx, map, "fragment")?;
    let userinfo = entry(ctx, map, "userinfo")?;
    let user = if userinfo.is_empty() {
        None
    } else {
        let text = format!("proto://{}@host", String::from_utf8_lossy(&userinfo));
        let parsed = parse(&text)
            .map_err(|error| Failure::error(format!("unable to parse userinfo in dict: {error}")))?;
        parsed.user
    };
    let mut out = scheme.clone();
    if !scheme.is_empty() {
        out.push(b':');
    }
    if opaque.is_empty() {
        if !host.is_empty() || user.is_some() || (!scheme.is_empty() && !path.is_empty()) {
            out.extend_from_slice(b"//");
        }
        if let Some(user) = &user {
            out.extend(user_text(user));
            out.push(b'@');
        }
        out.extend(escape(&host, Part::Host));
        let path = if path == b"*" { path } else { escape(&path, Part::Path) };
        if path.first().is_some_and(|&byte| byte != b'/') && !host.is_empty() {
            out.push(b'/');
        }
        if out.is_empty()
            && path.split(|&byte| byte == b'/').next().is_some_and(|first| first.contains(&b':'))
        {
            out.extend_from_slice(b"./");
        }
        out.extend(path);
    } else {
        out.extend(opaque);
    }
    if !query.is_empty() {
        out.push(b'?');
        out.extend(query);
    }
    if !fragment.is_empty() {
        out.push(b'#');
        out.extend(escape(&fragment, Part::Fragment));
    }
    args::string(ctx, out)
}
