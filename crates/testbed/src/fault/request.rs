//! What a request to the API server asks for, read from its method and path alone.
//!
//! The rules are those of the API server's own `RequestInfoFactory` (k8s.io/apiserver), so that a verb
//! here means what it means in RBAC rules and in the audit log.

use std::fmt;
use std::str::FromStr;

use http::Method;

/// A verb of the Kubernetes API, as RBAC and the audit log spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow the changes of a collection or of one object.
    Watch,
    /// POST: a new object, or a subresource such as `pods/binding`.
    Create,
    /// PUT: replace an object.
    Update,
    /// PATCH: change an object; a server-side apply is one too.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// All verbs that ask for a change.
    pub const MUTATING: [Self; 5] =
        [Self::Create, Self::Update, Self::Patch, Self::Delete, Self::DeleteCollection];

    /// Whether the verb asks for a change.
    pub fn is_mutating(self) -> bool {
        Self::MUTATING.contains(&self)
    }

    /// The name that RBAC rules and the audit log use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the verbs of [`Verb`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no verb on Kubernetes resources")]
pub struct UnknownVerb(String);

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Self, UnknownVerb> {
        Ok(match text {
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            other => return Err(UnknownVerb(other.to_owned())),
        })
    }
}

/// One request, as far as its method, path, query, `User-Agent` and body tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked. On paths that are no resource (`/version`, discovery, `/readyz`) the nearest verb.
    pub verb: Verb,
    /// The path without the query.
    pub path: String,
    /// API group; empty for the core group and for paths that are no resource.
    pub group: String,
    /// Plural resource name; empty for paths that are no resource.
    pub resource: String,
    /// Subresource such as `status`; empty for none.
    pub subresource: String,
    /// Namespace; empty for cluster-scoped objects and for collections over all namespaces. A request for
    /// one Namespace object names that namespace here too, as the API server has it.
    pub namespace: String,
    /// Object name; empty for collections, and for a `create` whose body is no JSON or leaves the name to
    /// the server.
    pub name: String,
    /// Nothing is to be stored (`dryRun` is given).
    pub dry_run: bool,
    /// The version that a watch starts from or a list asks for; empty for none.
    pub resource_version: String,
    /// The `continue` token of a paged list; empty for none.
    pub continue_token: String,
    /// The client's `User-Agent`; empty for none.
    pub user_agent: String,
}

/// Query parameters that change what a request means.
#[derive(Default)]
struct Query {
    watch: bool,
    field_name: String,
    dry_run: bool,
    resource_version: String,
    continue_token: String,
}

impl Query {
    fn parse(text: &str) -> Self {
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            match key.as_ref() {
                "watch" => query.watch = !matches!(value.as_ref(), "0" | "false" | "False" | "FALSE"),
                "fieldSelector" => {
                    let name = value.split(',').find_map(|term| {
                        let term = term.trim().strip_prefix("metadata.name=")?;
                        Some(term.strip_prefix('=').unwrap_or(term))
                    });
                    name.unwrap_or_default().clone_into(&mut query.field_name);
                }
                "dryRun" => query.dry_run = !value.is_empty(),
                "resourceVersion" => query.resource_version = value.into_owned(),
                "continue" => query.continue_token = value.into_owned(),
                _ => {}
            }
        }
        query
    }
}

impl Request {
    /// Reads a request line. Path segments that a resource cannot have are ignored, as the API server does.
    pub fn parse(method: &Method, path: &str, query: &str) -> Self {
        let query = Query::parse(query);
        let mut request = Self {
            verb: match *method {
                Method::POST => Verb::Create,
                Method::PUT => Verb::Update,
                Method::PATCH => Verb::Patch,
                Method::DELETE => Verb::Delete,
                _ => Verb::Get,
            },
            path: path.to_owned(),
            group: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            dry_run: query.dry_run,
            resource_version: query.resource_version,
            continue_token: query.continue_token,
            user_agent: String::new(),
        };
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, mut rest) = match segments.as_slice() {
            ["api", _version, rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _version, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => return request,
        };
        group.clone_into(&mut request.group);
        let mut watch = query.watch;
        if let ["watch", after @ ..] = rest {
            // The path form that was deprecated in 1.11 and is still served.
            watch = true;
            rest = after;
        }
        if let ["namespaces", namespace, after @ ..] = rest {
            (*namespace).clone_into(&mut request.namespace);
            if !matches!(after, [] | ["status" | "finalize", ..]) {
                rest = after;
            }
        }
        let mut parts = rest.iter().map(|part| (*part).to_owned());
        request.resource = parts.next().unwrap_or_default();
        request.name = parts.next().unwrap_or_default();
        request.subresource = parts.next().unwrap_or_default();
        if request.name.is_empty() {
            match request.verb {
                Verb::Get => request.verb = Verb::List,
                Verb::Delete => request.verb = Verb::DeleteCollection,
                _ => {}
            }
            if matches!(request.verb, Verb::List | Verb::DeleteCollection) {
                request.name = query.field_name;
            }
        }
        if watch && matches!(request.verb, Verb::Get | Verb::List) {
            request.verb = Verb::Watch;
        }
        request
    }

    /// Takes the name of an object to be created from the JSON body, where the path cannot have it.
    #[must_use]
    pub fn with_body(mut self, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(serde::Deserialize)]
        struct Metadata {
            #[serde(default)]
            name: String,
        }
        if self.verb == Verb::Create
            && self.name.is_empty()
            && let Ok(object) = serde_json::from_slice::<Object>(body)
        {
            self.name = object.metadata.name;
        }
        self
    }

    /// Whether the request asks for a stored change: a mutating verb on a resource, and no dry run.
    ///
    /// Reviews of `authentication.k8s.io` and `authorization.k8s.io` are created but never stored: they
    /// are questions, and count as reads.
    pub fn is_write(&self) -> bool {
        self.verb.is_mutating() && !self.resource.is_empty() && !self.dry_run && !is_review(&self.group)
    }

    /// `resource` or `resource/subresource`; empty for paths that are no resource.
    pub fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// Whether every resource of this API group is a question in the guise of a `create`.
pub(crate) fn is_review(group: &str) -> bool {
    matches!(group, "authentication.k8s.io" | "authorization.k8s.io")
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.resource.is_empty() {
            return write!(f, "{} {}", self.verb, self.path);
        }
        write!(f, "{} {}", self.verb, self.full_resource())?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &Method, uri: &str) -> Request {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        Request::parse(method, path, query)
    }

    #[test]
    fn reads_verb_and_object_as_the_api_server_does() {
        let cases = [
            (Method::GET, "/api/v1/pods", "list pods"),
            (Method::GET, "/api/v1/pods?watch=true", "watch pods"),
            (Method::GET, "/api/v1/watch/namespaces/a/pods", "watch pods a/"),
            (Method::GET, "/api/v1/pods?watch=false", "list pods"),
            (Method::GET, "/api/v1/namespaces/a/pods/p", "get pods a/p"),
            (Method::GET, "/api/v1/namespaces/a/pods/p/log", "get pods/log a/p"),
            (Method::GET, "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "list pods a/p"),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name=p",
                "watch pods a/p",
            ),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces a/a"),
            (Method::GET, "/api/v1/namespaces", "list namespaces"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize a/a"),
            (Method::POST, "/api/v1/namespaces/a/configmaps", "create configmaps a/"),
            (Method::DELETE, "/api/v1/namespaces/a/configmaps", "deletecollection configmaps a/"),
            (Method::DELETE, "/apis/apps/v1/namespaces/a/deployments/d", "delete deployments.apps a/d"),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/status",
                "patch deployments/status.apps a/d",
            ),
            (Method::GET, "/apis/apps/v1", "get /apis/apps/v1"),
            (Method::GET, "/api/v1", "get /api/v1"),
            (Method::GET, "/version", "get /version"),
        ];
        for (method, uri, wanted) in cases {
            assert_eq!(parse(&method, uri).to_string(), wanted, "{method} {uri}");
        }
    }

    #[test]
    fn a_field_selector_on_another_field_names_nothing() {
        let request = parse(&Method::GET, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn,metadata.name!%3Dp");
        assert_eq!(request.name, "");
        let request =
            parse(&Method::GET, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn,metadata.name%3D%3Dp");
        assert_eq!(request.name, "p");
    }

    #[test]
    fn a_created_object_is_named_by_its_body() {
        let request = parse(&Method::POST, "/api/v1/namespaces/a/configmaps");
        assert_eq!(request.clone().with_body(br#"{"metadata":{"name":"c"}}"#).name, "c");
        assert_eq!(request.clone().with_body(br#"{"metadata":{"generateName":"c-"}}"#).name, "");
        assert_eq!(request.with_body(b"k8s\0protobuf").name, "");
    }

    #[test]
    fn writes_are_what_is_stored() {
        assert!(parse(&Method::PATCH, "/api/v1/namespaces/a/events/e").is_write());
        assert!(!parse(&Method::PATCH, "/api/v1/namespaces/a/events/e?dryRun=All").is_write());
        assert!(!parse(&Method::GET, "/api/v1/namespaces/a/events/e").is_write());
        assert!(!parse(&Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").is_write());
        assert!(!parse(&Method::POST, "/version").is_write());
    }

    #[test]
    fn versions_and_tokens_are_decoded() {
        let request = parse(&Method::GET, "/api/v1/pods?resourceVersion=17&continue=ab%3D&limit=5");
        assert_eq!((request.resource_version.as_str(), request.continue_token.as_str()), ("17", "ab="));
    }

    #[test]
    fn verbs_read_back() {
        for verb in [Verb::Get, Verb::List, Verb::Watch].into_iter().chain(Verb::MUTATING) {
            assert_eq!(verb.as_str().parse::<Verb>().unwrap(), verb);
        }
        assert!("connect".parse::<Verb>().is_err());
    }
}
