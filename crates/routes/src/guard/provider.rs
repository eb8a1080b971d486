//! A provider as it goes into a chain: every field of it checked and bounded.

use std::fmt;
use std::time::Duration;

use mesh_api::AuthProvider;
use mesh_api::header::{
    MAX_IDENTITY_HEADERS, MAX_OWN_PATHS, MAX_REQUEST_HEADERS, duration, header_name_problem,
    identity_header_problem, own_path_problem, path_prefix_problem,
};
use mesh_api::integrator::{AuthProviderType, ExtAuthz, ExtAuthzProtocol};
use mesh_api::syntax::{is_dns_label, is_host};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::emit::hexadecimal;
use crate::input::ObjectKey;

/// The shortest time that a provider may be given.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
/// The longest time that a provider may be given.
const MAX_TIMEOUT: Duration = Duration::from_mins(1);
/// The hexadecimal digits of an id: 128 bits, so that nobody finds a second provider with the same one.
const ID_DIGITS: usize = 32;

/// A provider, resolved to what the gateway needs to ask it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    /// Its namespace and name.
    #[serde(with = "key_text")]
    pub key: ObjectKey,
    /// The uid of the object: another of the same name is another provider.
    pub uid: String,
    /// The full DNS name of its Service.
    pub host: String,
    /// The port of the Service.
    pub port: u16,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u32,
    /// The headers that it gets of the client's request, sorted.
    pub request_headers: Vec<String>,
    /// The headers of its answer that the backend gets, sorted.
    pub identity_headers: Vec<String>,
    /// What is put before the path when it is asked.
    pub path_prefix: String,
    /// Paths of its own pages, sorted; prefixes end in a slash.
    pub own_paths: Vec<String>,
}

impl Provider {
    /// Resolves what the object says; `cluster_domain` is the domain of Services.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with the field. Admission refuses most of that; an object may be older than
    /// a rule.
    pub fn resolve(object: &AuthProvider, cluster_domain: &str) -> Result<Self, Vec<String>> {
        let (AuthProviderType::ExtAuthz, Some(spec)) = (object.spec.kind, &object.spec.ext_authz) else {
            return Err(vec!["spec.extAuthz must be set when type is ExtAuthz".to_owned()]);
        };
        let ExtAuthzProtocol::HTTP = spec.protocol;
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let timeout = duration(&spec.timeout);
        let provider = Self {
            key: ObjectKey::new(namespace, name),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            host: format!("{}.{namespace}.svc.{cluster_domain}", spec.service),
            port: spec.port,
            timeout_ms: timeout.as_ref().ok().map_or(0, |timeout| millis(*timeout)),
            request_headers: sorted(&spec.request_headers),
            identity_headers: sorted(&spec.identity_headers),
            path_prefix: spec.path_prefix.clone(),
            own_paths: sorted(&spec.own_paths),
        };
        let mut problems = provider.problems();
        if let Err(problem) = timeout {
            problems.retain(|problem| !problem.starts_with("timeout"));
            problems.push(format!("timeout: {problem}"));
        }
        problems.extend(repeated(spec));
        if problems.is_empty() {
            return Ok(provider);
        }
        Err(problems.into_iter().map(|problem| format!("spec.extAuthz.{problem}")).collect())
    }

    /// Everything that is wrong with it, each with the field. Whatever passes may go into a chain: one bad value there
    /// would make Envoy refuse the listener.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut note = |field: &str, problem: String| problems.push(format!("{field}: {problem}"));
        let service = self.host.split('.').next().unwrap_or_default();
        if !is_dns_label(service) || !is_dns_label(&self.key.namespace) || !is_host(&self.host) {
            note("service", format!("{:?} is not the name of a Service", self.host));
        }
        if self.port == 0 {
            note("port", "it must be from 1 to 65535".to_owned());
        }
        let range = millis(MIN_TIMEOUT)..=millis(MAX_TIMEOUT);
        if !range.contains(&self.timeout_ms) {
            note("timeout", "it must be from 1ms to 60s".to_owned());
        }
        let lists = [
            ("requestHeaders", &self.request_headers, MAX_REQUEST_HEADERS),
            ("identityHeaders", &self.identity_headers, MAX_IDENTITY_HEADERS),
            ("ownPaths", &self.own_paths, MAX_OWN_PATHS),
        ];
        for (field, list, most) in lists {
            if list.len() > most {
                note(field, format!("it must have at most {most} entries"));
            }
            for entry in list {
                let problem = match field {
                    "requestHeaders" => header_name_problem(entry),
                    "identityHeaders" => identity_header_problem(entry),
                    _ => own_path_problem(entry),
                };
                if let Some(problem) = problem {
                    note(field, format!("{entry:?}: {problem}"));
                }
            }
        }
        // A header that a client sets and the service reads would be taken from the request before it is asked.
        for header in self.identity_headers.iter().filter(|header| self.request_headers.contains(header)) {
            note("identityHeaders", format!("{header:?} is one of requestHeaders as well"));
        }
        if let Some(problem) = path_prefix_problem(&self.path_prefix) {
            note("pathPrefix", format!("{:?}: {problem}", self.path_prefix));
        }
        problems
    }

    /// Its id: a digest of all of it, so that a changed provider is another one.
    pub fn id(&self) -> ProviderId {
        let mut hasher = Sha256::new();
        let mut text = |text: &str| {
            hasher.update(text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        };
        for part in [&self.key.namespace, &self.key.name, &self.uid, &self.host, &self.path_prefix] {
            text(part);
        }
        text(&self.port.to_string());
        text(&self.timeout_ms.to_string());
        for list in [&self.request_headers, &self.identity_headers, &self.own_paths] {
            text(&list.len().to_string());
            for entry in list {
                text(entry);
            }
        }
        let mut digits = hexadecimal(&hasher.finalize());
        digits.truncate(ID_DIGITS);
        ProviderId(digits)
    }

    /// How Istio calls the cluster of its Service.
    pub(crate) fn cluster(&self) -> String {
        format!("outbound|{}||{}", self.port, self.host)
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn sorted(list: &[String]) -> Vec<String> {
    let mut list = list.to_vec();
    list.sort();
    list.dedup();
    list
}

fn repeated(spec: &ExtAuthz) -> Vec<String> {
    let lists = [
        ("requestHeaders", &spec.request_headers),
        ("identityHeaders", &spec.identity_headers),
        ("ownPaths", &spec.own_paths),
    ];
    let repeated = lists.into_iter().filter(|(_, list)| sorted(list).len() != list.len());
    repeated.map(|(field, _)| format!("{field}: an entry is there twice")).collect()
}

/// The id of a provider: 32 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId(String);

impl ProviderId {
    /// Reads an id; nothing if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let valid =
            text.len() == ID_DIGITS && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        valid.then(|| Self(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A namespace and name as `namespace/name`.
mod key_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::input::ObjectKey;

    pub(super) fn serialize<S: Serializer>(key: &ObjectKey, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectKey, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (namespace, name) =
            text.split_once('/').ok_or_else(|| D::Error::custom("it is not namespace/name"))?;
        Ok(ObjectKey::new(namespace, name))
    }
}
