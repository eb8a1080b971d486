//! The lines of an audit log (API group `audit.k8s.io/v1`, kind Event), as far as they tell of writes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;

use crate::fault::{Verb, is_review};

/// One line of the log.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry<'a> {
    #[serde(rename = "auditID", borrow)]
    audit_id: Cow<'a, str>,
    #[serde(rename = "requestURI", borrow)]
    request_uri: Cow<'a, str>,
    #[serde(borrow)]
    stage: Cow<'a, str>,
    #[serde(borrow)]
    verb: Cow<'a, str>,
    #[serde(borrow)]
    user: User<'a>,
    #[serde(borrow)]
    impersonated_user: Option<User<'a>>,
    #[serde(borrow, default)]
    user_agent: Cow<'a, str>,
    #[serde(borrow)]
    object_ref: Option<ObjectRef<'a>>,
    response_status: Option<ResponseStatus>,
    #[serde(borrow, default)]
    request_received_timestamp: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct User<'a> {
    #[serde(borrow, default)]
    username: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef<'a> {
    #[serde(borrow)]
    api_group: Cow<'a, str>,
    #[serde(borrow)]
    resource: Cow<'a, str>,
    #[serde(borrow)]
    subresource: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl<'a> Entry<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    /// Whether the request named this object in its path.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.object_ref.as_ref().is_some_and(|object| object.name == name)
    }

    /// The write that the line tells of, if it is one.
    fn write(&self) -> Option<Write> {
        let object = self.object_ref.as_ref()?;
        let verb: Verb = self.verb.parse().ok()?;
        let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
        let dry_run =
            form_urlencoded::parse(query.as_bytes()).any(|(key, value)| key == "dryRun" && !value.is_empty());
        if !verb.is_mutating() || dry_run || is_review(&object.api_group) {
            return None;
        }
        let user = self.impersonated_user.as_ref().unwrap_or(&self.user);
        Some(Write {
            verb,
            user: user.username.clone().into_owned(),
            user_agent: self.user_agent.clone().into_owned(),
            group: object.api_group.clone().into_owned(),
            resource: object.resource.clone().into_owned(),
            subresource: object.subresource.clone().into_owned(),
            namespace: object.namespace.clone().into_owned(),
            name: object.name.clone().into_owned(),
            code: if self.is_complete() {
                self.response_status.as_ref().map(|status| status.code)
            } else {
                None
            },
            uri: self.request_uri.clone().into_owned(),
            received: self.request_received_timestamp.clone().into_owned(),
        })
    }

    fn is_complete(&self) -> bool {
        matches!(self.stage.as_ref(), "ResponseComplete" | "Panic")
    }
}

/// A mutating request that somebody made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What was asked; a server-side apply is a `patch`.
    pub verb: Verb,
    /// Who asked: the impersonated user where there is one.
    pub user: String,
    /// The client's `User-Agent`.
    pub user_agent: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource such as `status`; empty for none.
    pub subresource: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Object name; empty for collections, and where the server had yet to generate it.
    pub name: String,
    /// HTTP status of the answer; absent while the request is under way.
    pub code: Option<u16>,
    /// Path and query, which tell the field manager of an apply.
    pub uri: String,
    /// When the server received it, RFC 3339 with microseconds.
    pub received: String,
}

impl Write {
    /// Whether this keeps an existing Lease of that name, or takes it over. Creating it is no renewal.
    pub(super) fn is_renewal_of(&self, namespace: &str, name: &str) -> bool {
        matches!(self.verb, Verb::Update | Verb::Patch)
            && (self.group.as_str(), self.resource.as_str()) == ("coordination.k8s.io", "leases")
            && (self.namespace.as_str(), self.name.as_str()) == (namespace, name)
            && self.code != Some(201)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.received, self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if self.namespace.is_empty() {
            write!(f, " {}", self.name)?;
        } else {
            write!(f, " {}/{}", self.namespace, self.name)?;
        }
        write!(f, " by {} ({}): ", self.user, self.user_agent)?;
        match self.code {
            Some(code) => write!(f, "{code}"),
            None => f.write_str("under way"),
        }
    }
}

/// Writes in the order of their first line, each of which later lines complete.
#[derive(Debug, Default)]
pub(super) struct Writes {
    found: Vec<Write>,
    by_id: HashMap<String, Found>,
    under_way: usize,
}

/// Where a request's write is, if it is one that is still to be completed.
#[derive(Debug)]
struct Found {
    index: usize,
    complete: bool,
}

impl Writes {
    /// Takes a line of the interval that is asked for.
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        if self.by_id.contains_key(entry.audit_id.as_ref()) {
            return self.complete(entry);
        }
        // A line that completes a request received before the interval would be taken for a new one, were
        // it not for its stage.
        if entry.is_complete() {
            return;
        }
        if let Some(write) = entry.write() {
            let index = self.found.len();
            self.found.push(write);
            self.by_id.insert(entry.audit_id.clone().into_owned(), Found { index, complete: false });
            self.under_way += 1;
        }
    }

    /// Takes a line of after the interval: it may complete a request, but adds none.
    pub(super) fn complete(&mut self, entry: &Entry<'_>) {
        let Some(found) = self.by_id.get_mut(entry.audit_id.as_ref()) else { return };
        if !entry.is_complete() || found.complete {
            return;
        }
        found.complete = true;
        self.under_way -= 1;
        if let (Some(place), Some(write)) = (self.found.get_mut(found.index), entry.write()) {
            *place = write;
        }
    }

    /// Whether some of the writes found are not complete.
    pub(super) fn under_way(&self) -> bool {
        self.under_way > 0
    }
}

impl IntoIterator for Writes {
    type Item = Write;
    type IntoIter = std::vec::IntoIter<Write>;

    fn into_iter(self) -> Self::IntoIter {
        self.found.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line {
        id: &'static str,
        stage: &'static str,
        verb: &'static str,
        uri: &'static str,
        object: &'static str,
        more: &'static str,
    }

    const LEASE: &str = r#"{"resource":"leases","namespace":"a","name":"l","apiGroup":"coordination.k8s.io","apiVersion":"v1"}"#;
    const DEFAULT: Line = Line {
        id: "1",
        stage: "RequestReceived",
        verb: "patch",
        uri: "/x",
        object: r#"{"resource":"events","namespace":"a","name":"e","apiVersion":"v1"}"#,
        more: "",
    };

    impl Line {
        fn json(&self) -> String {
            let Self { id, stage, verb, uri, object, more } = self;
            format!(
                r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"{id}","stage":"{stage}","requestURI":"{uri}","verb":"{verb}","user":{{"username":"u","groups":["g"]}},"sourceIPs":["127.0.0.1"],"userAgent":"quote \" kube","objectRef":{object},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z"{more}}}"#
            )
        }
    }

    const OK: &str = r#","responseStatus":{"metadata":{},"code":200}"#;
    const CREATED: &str = r#","responseStatus":{"metadata":{},"code":201}"#;

    fn writes(lines: &[Line]) -> Vec<Write> {
        let mut writes = Writes::default();
        for line in lines {
            writes.add(&Entry::parse(line.json().as_bytes()).unwrap());
        }
        writes.into_iter().collect()
    }

    #[test]
    fn a_request_is_one_write_however_many_lines_it_has() {
        let found = writes(&[
            DEFAULT,
            Line { id: "2", verb: "delete", ..DEFAULT },
            Line { stage: "ResponseComplete", more: OK, ..DEFAULT },
        ]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].verb, found[0].code), (Verb::Patch, Some(200)));
        assert_eq!((found[1].verb, found[1].code), (Verb::Delete, None));
        assert_eq!(found[0].user_agent, "quote \" kube");
        assert_eq!(
            found[0].to_string(),
            "2026-01-01T00:00:00.000000Z patch events a/e by u (quote \" kube): 200"
        );
    }

    #[test]
    fn one_received_before_the_interval_is_not_of_it() {
        assert_eq!(writes(&[Line { stage: "ResponseComplete", more: OK, ..DEFAULT }]), []);
    }

    #[test]
    fn reads_dry_runs_and_reviews_are_no_writes() {
        let review = r#"{"resource":"tokenreviews","apiGroup":"authentication.k8s.io","apiVersion":"v1"}"#;
        let none = [
            Line { verb: "get", ..DEFAULT },
            Line { verb: "watch", ..DEFAULT },
            Line { verb: "connect", ..DEFAULT },
            Line { uri: "/x?fieldManager=f&dryRun=All", ..DEFAULT },
            Line { verb: "create", object: review, ..DEFAULT },
            Line { verb: "create", object: "null", ..DEFAULT },
        ];
        for line in none {
            let json = line.json();
            assert_eq!(writes(&[line]), [], "{json}");
        }
        for verb in ["create", "update", "patch", "delete", "deletecollection"] {
            assert_eq!(writes(&[Line { verb, uri: "/x?dryRun=", ..DEFAULT }]).len(), 1, "{verb}");
        }
    }

    #[test]
    fn the_impersonated_user_is_the_one_who_writes() {
        let more = r#","impersonatedUser":{"username":"other"},"responseStatus":{"code":200}"#;
        let found = writes(&[DEFAULT, Line { stage: "ResponseComplete", more, ..DEFAULT }]);
        assert_eq!(found[0].user, "other");
    }

    #[test]
    fn renewing_a_lease_is_not_creating_it() {
        let lease = Line { object: LEASE, ..DEFAULT };
        let done = |more| Line { object: LEASE, stage: "ResponseComplete", more, ..DEFAULT };
        let renewal = |lines: &[Line]| writes(lines)[0].is_renewal_of("a", "l");
        assert!(renewal(&[DEFAULT.of(LEASE), done(OK)]));
        assert!(!renewal(&[DEFAULT.of(LEASE), done(CREATED)]), "an apply that creates");
        assert!(!renewal(&[Line { verb: "create", ..DEFAULT.of(LEASE) }]));
        assert!(!renewal(&[Line { verb: "delete", ..DEFAULT.of(LEASE) }]));
        assert!(!writes(&[lease])[0].is_renewal_of("b", "l"));
    }

    impl Line {
        fn of(self, object: &'static str) -> Self {
            Self { object, ..self }
        }
    }
}
