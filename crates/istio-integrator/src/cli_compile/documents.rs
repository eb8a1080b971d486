//! The objects in YAML files, as input of the compile.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use mesh_api::gateway_api::ReferenceGrant;
use mesh_api::istio::{EnvoyFilter, Gateway, ServiceEntry};
use mesh_api::{AuthProvider, GatewayBinding, IngressRequest};
use routes::guard::{Chain, GuardedGateway, TokenKey, groups, pod_sets};
use routes::{
    ChainFacts, Compiler, ForeignRoutes, GatewayFacts, Grants, Input, ObjectKey, Output, ServiceFacts,
    Settings,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::observe;

/// Tokens and markers in compiled files are derived from this, since the integrator's own key is not for files. They are
/// worth nothing in a cluster.
const EXAMPLE_KEY: TokenKey = TokenKey::new([0; 32]);

/// The namespace of an object that names none, as for `kubectl`.
const DEFAULT_NAMESPACE: &str = "default";

/// Everything that files hold.
#[derive(Debug)]
pub(super) struct Documents {
    bindings: Vec<GatewayBinding>,
    requests: Vec<IngressRequest>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    services: BTreeMap<ObjectKey, ServiceFacts>,
    gateways: BTreeMap<ObjectKey, GatewayFacts>,
    /// The labels of each Gateway's pods.
    selectors: BTreeMap<ObjectKey, BTreeMap<String, String>>,
    providers: Vec<AuthProvider>,
    grants: Grants,
    claims: BTreeMap<String, Vec<ObjectKey>>,
    foreign: Vec<ForeignRoutes>,
    written: BTreeMap<String, Option<Time>>,
    chains: BTreeMap<ObjectKey, ChainFacts>,
    token_key: TokenKey,
    /// What was read already, to refuse the same object twice.
    seen: BTreeSet<String>,
    /// Objects of kinds that play no part, as the user would name them.
    ignored: Vec<String>,
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            bindings: Vec::new(),
            requests: Vec::new(),
            namespaces: BTreeMap::new(),
            services: BTreeMap::new(),
            gateways: BTreeMap::new(),
            selectors: BTreeMap::new(),
            providers: Vec::new(),
            // Whether a cluster serves the kind cannot be seen in files: what grants they hold counts.
            grants: Grants { served: true, list: Vec::new() },
            claims: BTreeMap::new(),
            foreign: Vec::new(),
            written: BTreeMap::new(),
            chains: BTreeMap::new(),
            token_key: EXAMPLE_KEY,
            seen: BTreeSet::new(),
            ignored: Vec::new(),
        }
    }
}

impl Documents {
    /// Adds the documents of one file. `source` is its name in messages.
    ///
    /// # Errors
    /// What is not YAML, not an object, of the wrong form, or there twice.
    pub(super) fn read(&mut self, source: &str, text: &str) -> anyhow::Result<()> {
        // The budget guards against hostile input, and these are the user's own files, of any size.
        let options = serde_saphyr::options! { budget: None };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple_with_options(text, options).with_context(|| source.to_owned())?;
        for (position, document) in documents.into_iter().enumerate() {
            self.add(document).with_context(|| format!("{source}, document {}", position + 1))?;
        }
        Ok(())
    }

    /// The objects that play no part in the compile, such as the workloads that stand beside a request in its file.
    pub(super) fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// What the documents compile to, and the guard chains for this root namespace, by which the logins would be in force.
    pub(super) fn compile(
        &mut self,
        settings: &Settings,
        root_namespace: &str,
    ) -> (Output, Vec<EnvoyFilter>) {
        let mut compiler = Compiler::default();
        // Those that bindings name, as the operator does: a file may hold others.
        let named = self.bindings.iter().filter_map(|binding| binding.spec.gateway.istio_gateway.as_ref());
        let gateways = named.filter_map(|named| {
            let key = ObjectKey::new(&named.namespace, &named.name);
            let selector = self.selectors.get(&key)?.clone();
            Some((key, GuardedGateway { selector, pods: BTreeSet::new() }))
        });
        let gateways = gateways.collect();
        let groups = groups(&gateways);
        for (gateway, pods) in pod_sets(&gateways, &groups) {
            self.chains.entry(gateway).or_default().pods = Some(pods);
        }
        let wanted = compiler.compile(&self.input(settings)).chains;
        let mut chains: BTreeMap<BTreeMap<String, String>, Chain> = BTreeMap::new();
        for (gateway, group) in groups {
            let Some(providers) = wanted.get(&gateway).cloned() else { continue };
            let facts = self.chains.entry(gateway).or_default();
            match group {
                Ok(selector) => {
                    facts.chain = Some(Ok(Chain::name(&selector)));
                    facts.holds.extend(providers.keys().cloned());
                    let chain = chains
                        .entry(selector.clone())
                        .or_insert_with(|| Chain { selector, ..Chain::default() });
                    chain.providers.extend(providers);
                }
                Err(finding) => facts.chain = Some(Err(finding)),
            }
        }
        let filters = chains
            .values()
            .map(|chain| chain.envoy_filter(root_namespace, &settings.namespace, &self.token_key))
            .collect();
        (compiler.compile(&self.input(settings)), filters)
    }

    /// The input of the compile.
    fn input<'a>(&'a self, settings: &'a Settings) -> Input<'a> {
        Input {
            settings,
            istio_served: true,
            bindings: self.bindings.iter().collect(),
            requests: self.requests.iter().collect(),
            namespaces: &self.namespaces,
            services: &self.services,
            gateways: &self.gateways,
            providers: self.providers.iter().collect(),
            grants: &self.grants,
            claims: &self.claims,
            foreign: &self.foreign,
            written: &self.written,
            chains: &self.chains,
            token_key: &self.token_key,
        }
    }

    fn add(&mut self, document: Value) -> anyhow::Result<()> {
        if document.is_null() {
            return Ok(());
        }
        let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (field("apiVersion"), field("kind"));
        if version.is_empty() || kind.is_empty() {
            bail!("this is no Kubernetes object: apiVersion or kind is missing");
        }
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, kind.as_str()) {
            ("", "List") => {
                let items = document.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
                items.into_iter().try_for_each(|item| self.add(item))
            }
            (mesh_api::names::INTEGRATOR_GROUP, "GatewayBinding") => {
                let mut object: GatewayBinding = decode(document, true)?;
                self.register(&kind, &mut object.metadata, false)?;
                self.bindings.push(object);
                Ok(())
            }
            (mesh_api::names::INTEGRATOR_GROUP, "IngressRequest") => {
                let mut object: IngressRequest = decode(document, true)?;
                self.register(&kind, &mut object.metadata, true)?;
                self.requests.push(object);
                Ok(())
            }
            (mesh_api::names::INTEGRATOR_GROUP, "AuthProvider") => {
                let mut object: AuthProvider = decode(document, true)?;
                self.register(&kind, &mut object.metadata, true)?;
                self.providers.push(object);
                Ok(())
            }
            ("gateway.networking.k8s.io", "ReferenceGrant") => {
                let mut object: ReferenceGrant = decode(document, false)?;
                self.register(&kind, &mut object.metadata, true)?;
                self.grants.list.push(observe::grant(&object));
                Ok(())
            }
            ("networking.istio.io", "ServiceEntry") => {
                let mut object: ServiceEntry = decode(document, false)?;
                let key = self.register(&kind, &mut object.metadata, true)?;
                for host in observe::claimed_hosts(&object.spec) {
                    self.claims.entry(host).or_default().push(key.clone());
                }
                Ok(())
            }
            ("", "Service") => {
                let mut object: Service = decode(document, false)?;
                let key = self.register(&kind, &mut object.metadata, true)?;
                self.services.insert(key, ServiceFacts::from(&object));
                Ok(())
            }
            ("", "Namespace") => {
                let mut object: Namespace = decode(document, false)?;
                let key = self.register(&kind, &mut object.metadata, false)?;
                self.namespaces.insert(key.name, object.metadata.labels.unwrap_or_default());
                Ok(())
            }
            ("networking.istio.io", "Gateway") => {
                let mut object: Gateway = decode(document, false)?;
                let key = self.register(&kind, &mut object.metadata, true)?;
                self.selectors.insert(key.clone(), object.spec.selector.clone());
                self.gateways.insert(key, GatewayFacts::from(&object));
                Ok(())
            }
            // A slip in the name of one of our own kinds must not pass as something of somebody else.
            (mesh_api::names::INTEGRATOR_GROUP, other) => {
                bail!(
                    "there is no kind {other} in {version}: it is AuthProvider, GatewayBinding or IngressRequest"
                )
            }
            _ => {
                let name =
                    document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
                self.ignored.push(format!("{kind} of {version} ({name})"));
                Ok(())
            }
        }
    }

    /// Completes the metadata as the API server would, and refuses what is there twice.
    fn register(
        &mut self,
        kind: &str,
        metadata: &mut ObjectMeta,
        namespaced: bool,
    ) -> anyhow::Result<ObjectKey> {
        let name = metadata.name.clone().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| anyhow!("{kind}: metadata.name is missing"))?;
        if namespaced {
            metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
        } else {
            metadata.namespace = None;
        }
        let key = ObjectKey::new(metadata.namespace.clone().unwrap_or_default(), name);
        let shown = if namespaced { key.to_string() } else { key.name.clone() };
        if !self.seen.insert(format!("{kind} {shown}")) {
            bail!("{kind} {shown} is there twice: remove one");
        }
        if metadata.creation_timestamp.is_none() {
            // Of objects that were never in a cluster the one that stands first is the oldest, and all are older than
            // any that were.
            let position = i64::try_from(self.seen.len()).unwrap_or(i64::MAX);
            metadata.creation_timestamp = jiff::Timestamp::from_second(position).ok().map(Time);
        }
        Ok(key)
    }
}

/// The object of a document. With `strict`, fields that its kind does not have are refused, as `kubectl` does.
fn decode<T: DeserializeOwned + Serialize>(document: Value, strict: bool) -> anyhow::Result<T> {
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let given = strict.then(|| document.get("spec").cloned()).flatten();
    let object: T = serde_json::from_value(document).with_context(|| format!("{kind} {name}"))?;
    if let Some(given) = given {
        let known = serde_json::to_value(&object).context("an object as JSON")?;
        if let Some(field) = unknown_field(&given, known.get("spec").unwrap_or(&Value::Null), "spec") {
            bail!("{kind} {name}: there is no field {field}");
        }
    }
    Ok(object)
}

/// The first field that was given and is not known, that is: did not survive being read. What is empty says nothing,
/// and may be left out when it is written.
fn unknown_field(given: &Value, known: &Value, path: &str) -> Option<String> {
    match (given, known) {
        (Value::Object(given), _) => {
            given.iter().filter(|(_, value)| !is_empty(value)).find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match known.get(name) {
                    Some(known) => unknown_field(value, known, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(given), Value::Array(known)) => {
            given.iter().zip(known).enumerate().find_map(|(position, (given, known))| {
                unknown_field(given, known, &format!("{path}[{position}]"))
            })
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<Documents> {
        let mut documents = Documents::default();
        documents.read("test.yaml", text)?;
        Ok(documents)
    }

    #[test]
    fn what_is_read() {
        let text = "
---
# a comment only
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {team: red}}}
- {apiVersion: v1, kind: Service, metadata: {name: shop}, spec: {ports: [{port: 80}]}}
---
apiVersion: networking.istio.io/v1beta1
kind: Gateway
metadata: {name: public, namespace: istio-system}
spec: {selector: {istio: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*'], name: x}]}
";
        let documents = read(text).unwrap();
        assert_eq!(documents.namespaces["a"]["team"], "red");
        assert_eq!(documents.services[&ObjectKey::new("default", "shop")].ports[0].number, 80);
        assert_eq!(documents.gateways[&ObjectKey::new("istio-system", "public")].servers[0].hosts, ["*"]);
    }

    #[test]
    fn what_is_refused() {
        let group = "apiVersion: integrator.istio-operators.io/v1alpha1";
        let request = format!("{group}\nkind: IngressRequest\nmetadata: {{name: shop}}\nspec: ");
        for (text, message) in [
            ("a: [", "test.yaml"),
            ("- a", "apiVersion or kind is missing"),
            ("{apiVersion: v1, kind: Service, metadata: {}}", "metadata.name is missing"),
            ("{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: 1}}", "Service a"),
            (
                &format!("{group}\nkind: IngressRequets\nmetadata: {{name: a}}"),
                "there is no kind IngressRequets",
            ),
            (
                "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: a}}",
                "document 2: Namespace a is there twice",
            ),
            (
                &format!("{request}{{routes: [{{backends: [{{service: a, port: 80, share: 1}}]}}]}}"),
                "spec.routes[0].backends[0].share",
            ),
            (&format!("{request}{{login: {{type: None}}, routes: []}}"), "there is no field spec.login"),
            (
                &format!("{request}{{routes: [{{backends: [{{service: a, port: 99999}}]}}]}}"),
                "IngressRequest shop",
            ),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(message), "{error}");
        }
        let empty =
            format!("{request}{{hosts: [], bindingRef: null, routes: [{{path: {{}}, backends: []}}]}}");
        assert!(read(&empty).is_ok(), "what is empty says nothing");
    }

    #[test]
    fn what_plays_no_part_is_told() {
        let text = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: g}}";
        let ignored = read(text).unwrap().ignored().to_vec();
        assert_eq!(ignored, ["Deployment of apps/v1 (web)", "Gateway of gateway.networking.k8s.io/v1 (g)"]);
    }

    #[test]
    fn what_stands_first_is_older() {
        let object = |name: &str, more: &str| {
            format!(
                "---\n{{apiVersion: integrator.istio-operators.io/v1alpha1, kind: IngressRequest, metadata: {{name: {name}{more}}}, spec: {{routes: []}}}}\n"
            )
        };
        let old = object("c", ", creationTimestamp: '2020-01-01T00:00:00Z'");
        let documents = read(&format!("{old}{}{}", object("b", ""), object("a", ""))).unwrap();
        let mut requests: Vec<_> = documents.requests.iter().map(|request| &request.metadata).collect();
        requests.sort_by_key(|metadata| metadata.creation_timestamp.clone());
        let names: Vec<_> = requests.iter().filter_map(|metadata| metadata.name.as_deref()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }
}
