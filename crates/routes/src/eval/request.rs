//! A request as a client sends it.

/// A request as a client sends it, apart from its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method, as sent.
    pub method: String,
    /// `Host` or `:authority`, as sent: any case, with a port or without.
    pub host: String,
    /// The target as sent: a path with its query and fragment, or the absolute form `http://host/path`, whose host
    /// counts instead of `host` (HTTP/1.1, RFC 9112 section 3.2.2).
    pub path: String,
    /// Names and values as sent, without those of `host`.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// `GET` of this path of this host, without headers.
    pub fn get(host: impl Into<String>, path: impl Into<String>) -> Self {
        Self { method: "GET".to_owned(), host: host.into(), path: path.into(), headers: Vec::new() }
    }

    /// The same with another method.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// The headers by which Envoy chooses a route, with the pseudo-headers of HTTP/2.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    fields: Vec<(String, String)>,
}

impl Seen {
    /// What Envoy sees of this request once its host and path are known; nothing if a value holds what no header may.
    pub(super) fn of(request: &Request, host: &str, path: &str) -> Option<Self> {
        let mut fields = vec![
            (":method".to_owned(), request.method.clone()),
            (":authority".to_owned(), host.to_owned()),
            (":path".to_owned(), path.to_owned()),
        ];
        for (name, value) in &request.headers {
            // Blanks around a value are no part of it (RFC 9110 section 5.5).
            let value = value.trim_matches([' ', '\t']);
            if value.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
                return None;
            }
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Some(Self { fields })
    }

    /// The values of a header, in lower case, joined by commas as Envoy joins them to match.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let name = if name == "host" { ":authority" } else { name };
        let mut values =
            self.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let first = values.next()?;
        Some(values.fold(first.to_owned(), |joined, value| format!("{joined},{value}")))
    }

    /// Removes a header in every mixture of dashes and underscores.
    pub(super) fn remove_spellings(&mut self, name: &str) {
        self.fields.retain(|(field, _)| field.replace('_', "-") != name);
    }

    /// Sets a header.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.fields.retain(|(field, _)| field != name);
        self.fields.push((name.to_owned(), value.to_owned()));
    }
}
