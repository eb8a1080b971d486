//! A container's environment, as kubelet makes it. Pure but for fetching.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Service};
use kube::ResourceExt as _;

use super::fields::Fields;
use crate::objects::Objects;

/// Data of a `ConfigMap` or Secret; none if there is no such object.
type Contents = Option<BTreeMap<String, String>>;

/// The `ConfigMaps` and Secrets that an environment refers to, by name.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    config_maps: BTreeMap<String, Contents>,
    secrets: BTreeMap<String, Contents>,
}

impl Sources {
    /// Fetches everything that `container` refers to.
    pub(crate) async fn fetch(
        objects: &Objects,
        namespace: &str,
        container: &Container,
    ) -> kube::Result<Self> {
        let mut sources = Self::default();
        let from = container.env_from.iter().flatten();
        let values = container.env.iter().flatten().filter_map(|env| env.value_from.as_ref());
        let maps = from.clone().filter_map(|from| Some(&from.config_map_ref.as_ref()?.name));
        let maps =
            maps.chain(values.clone().filter_map(|from| Some(&from.config_map_key_ref.as_ref()?.name)));
        for name in maps {
            let found = objects.config_map(namespace, name).await?;
            sources.config_maps.insert(name.clone(), found.map(|map| map.data.clone().unwrap_or_default()));
        }
        let secrets = from.filter_map(|from| Some(&from.secret_ref.as_ref()?.name));
        let secrets = secrets.chain(values.filter_map(|from| Some(&from.secret_key_ref.as_ref()?.name)));
        for name in secrets {
            let found = objects.secret(namespace, name).await?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let data = found.map(|secret| {
                secret.data.iter().flatten().map(|(key, value)| (key.clone(), text(&value.0))).collect()
            });
            sources.secrets.insert(name.clone(), data);
        }
        Ok(sources)
    }
}

/// A container's own variables: `envFrom`, then `env`, each of which may refer to those before it and to `services`.
/// The error is what the Pod's status says.
pub(crate) fn variables(
    container: &Container,
    sources: &Sources,
    fields: Fields<'_>,
    services: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let namespace = fields.pod.namespace().unwrap_or_default();
    let mut result = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let (kind, name, optional, contents) = if let Some(source) = &from.config_map_ref {
            ("configmap", &source.name, source.optional, sources.config_maps.get(&source.name))
        } else if let Some(source) = &from.secret_ref {
            ("secret", &source.name, source.optional, sources.secrets.get(&source.name))
        } else {
            continue;
        };
        match contents.and_then(Option::as_ref) {
            Some(data) => {
                result.extend(data.iter().map(|(key, value)| (format!("{prefix}{key}"), value.clone())));
            }
            None if optional == Some(true) => {}
            None => return Err(format!("{kind} {name:?} not found")),
        }
    }
    for variable in container.env.iter().flatten() {
        let value = if let Some(from) = &variable.value_from {
            referenced(from, container, sources, fields, &namespace)?
        } else {
            let text = variable.value.as_deref().unwrap_or_default();
            Some(expand(text, |name| result.get(name).or_else(|| services.get(name)).cloned()))
        };
        if let Some(value) = value {
            result.insert(variable.name.clone(), value);
        }
    }
    Ok(result)
}

/// The value that `valueFrom` names; none for an optional one that is not there.
fn referenced(
    from: &EnvVarSource,
    container: &Container,
    sources: &Sources,
    fields: Fields<'_>,
    namespace: &str,
) -> Result<Option<String>, String> {
    if let Some(field) = &from.field_ref {
        return fields.field(field).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        return fields.resource(resource, Some(container)).map(Some);
    }
    let (lower, upper, name, key, optional, contents) = if let Some(source) = &from.config_map_key_ref {
        (
            "configmap",
            "ConfigMap",
            &source.name,
            &source.key,
            source.optional,
            sources.config_maps.get(&source.name),
        )
    } else if let Some(source) = &from.secret_key_ref {
        ("secret", "Secret", &source.name, &source.key, source.optional, sources.secrets.get(&source.name))
    } else {
        return Err("valueFrom is of no supported kind".to_owned());
    };
    match contents.and_then(Option::as_ref) {
        None if optional == Some(true) => Ok(None),
        None => Err(format!("{lower} {name:?} not found")),
        Some(data) => match data.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if optional == Some(true) => Ok(None),
            None => Err(format!("couldn't find key {key} in {upper} {namespace}/{name}")),
        },
    }
}

/// Replaces `$(NAME)` by the variable's value; unknown ones stay as they are, and `$$` is a dollar sign.
pub(crate) fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => result.push_str(&value),
                None => result.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            result.push('$');
        }
    }
    result + rest
}

/// Variables that tell of Services: `kubernetes` always, the namespace's own if `links` (Docker links' names
/// included, as kubelet has them). `fallback` is the API server's address until its Service is known.
pub(crate) fn service_variables(
    services: &[Arc<Service>],
    namespace: &str,
    links: bool,
    fallback: Option<Ipv4Addr>,
) -> BTreeMap<String, String> {
    let mut result = BTreeMap::new();
    if let Some(address) = fallback {
        result.insert("KUBERNETES_SERVICE_HOST".to_owned(), address.to_string());
        result.insert("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned());
    }
    for service in services {
        let (of, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let is_api_server = of == "default" && name == "kubernetes";
        let Some(spec) = &service.spec else { continue };
        let address: Option<Ipv4Addr> = spec.cluster_ip.as_deref().and_then(|address| address.parse().ok());
        let (Some(address), Some(ports)) = (address, &spec.ports) else { continue };
        if !(is_api_server || links && of == namespace) {
            continue;
        }
        let prefix = variable_name(&name);
        let mut insert = |key: String, value: String| result.insert(key, value);
        insert(format!("{prefix}_SERVICE_HOST"), address.to_string());
        for (at, port) in ports.iter().enumerate() {
            let number = port.port;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            let url = format!("{}://{address}:{number}", protocol.to_lowercase());
            if at == 0 {
                insert(format!("{prefix}_SERVICE_PORT"), number.to_string());
                insert(format!("{prefix}_PORT"), url.clone());
            }
            if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                insert(format!("{prefix}_SERVICE_PORT_{}", variable_name(name)), number.to_string());
            }
            let link = format!("{prefix}_PORT_{number}_{protocol}");
            insert(format!("{link}_PROTO"), protocol.to_lowercase());
            insert(format!("{link}_PORT"), number.to_string());
            insert(format!("{link}_ADDR"), address.to_string());
            insert(link, url);
        }
    }
    result
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn expansion_follows_kubernetes() {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        for (text, expected) in [
            ("x", "x"),
            ("$(A)", "1"),
            ("<$(A)$(A)>", "<11>"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("a$", "a$"),
            ("$()", "$()"),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }

    fn sources() -> Sources {
        let data = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        Sources {
            config_maps: [("cm".to_owned(), data(&[("k", "v"), ("l", "w")])), ("gone".to_owned(), None)]
                .into(),
            secrets: [("s".to_owned(), data(&[("p", "secret")]))].into(),
        }
    }

    fn resolve(container: serde_json::Value) -> Result<BTreeMap<String, String>, String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}})).unwrap();
        let fields = Fields { pod: &pod, pod_ip: None, host_ip: Ipv4Addr::LOCALHOST };
        let mut container = container;
        container["name"] = "c".into();
        let services = [("WEB_SERVICE_HOST".to_owned(), "10.96.0.9".to_owned())].into();
        variables(&serde_json::from_value(container).unwrap(), &sources(), fields, &services)
    }

    #[test]
    fn variables_come_from_everywhere_and_build_on_each_other() {
        let found = resolve(json!({
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}},
                        {"configMapRef": {"name": "gone", "optional": true}}],
            "env": [
                {"name": "A", "value": "$(P_k)-$(WEB_SERVICE_HOST)-$(LATER)"},
                {"name": "LATER", "value": "x"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "no", "optional": true}}},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "P_l", "value": "mine"},
            ],
        }))
        .unwrap();
        let expected = [
            ("P_k", "v"),
            ("P_l", "mine"),
            ("p", "secret"),
            ("A", "v-10.96.0.9-$(LATER)"),
            ("LATER", "x"),
            ("B", "secret"),
            ("N", "p"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn what_is_missing_is_named_as_kubelet_names_it() {
        let key = |kind: &str, name: &str, key: &str| json!({"env": [{"name": "X", "valueFrom": {kind: {"name": name, "key": key}}}]});
        for (container, expected) in [
            (json!({"envFrom": [{"configMapRef": {"name": "gone"}}]}), "configmap \"gone\" not found"),
            (key("configMapKeyRef", "gone", "k"), "configmap \"gone\" not found"),
            (key("secretKeyRef", "never", "k"), "secret \"never\" not found"),
            (key("configMapKeyRef", "cm", "z"), "couldn't find key z in ConfigMap ns/cm"),
            (key("secretKeyRef", "s", "z"), "couldn't find key z in Secret ns/s"),
        ] {
            assert_eq!(resolve(container).unwrap_err(), expected);
        }
    }

    #[test]
    fn services_are_told_of() {
        let service = |namespace: &str, name: &str, ip: &str| -> Arc<Service> {
            let service = json!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": ip, "ports": [{"name": "http-web", "port": 80}, {"port": 90}]}});
            Arc::new(serde_json::from_value(service).unwrap())
        };
        let services = [
            service("default", "kubernetes", "10.96.0.1"),
            service("ns", "my-web", "10.96.0.2"),
            service("ns", "headless", "None"),
            service("other", "far", "10.96.0.3"),
        ];
        let with = service_variables(&services, "ns", true, None);
        assert_eq!(with["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
        assert_eq!(with["MY_WEB_SERVICE_PORT_HTTP_WEB"], "80");
        assert_eq!(with["MY_WEB_PORT"], "tcp://10.96.0.2:80");
        assert_eq!(with["MY_WEB_PORT_90_TCP_ADDR"], "10.96.0.2");
        assert!(!with.keys().any(|name| name.starts_with("FAR") || name.starts_with("HEADLESS")));
        let without = service_variables(&services, "ns", false, None);
        assert!(without.keys().all(|name| name.starts_with("KUBERNETES_")));
        let early = service_variables(&[], "ns", true, Some(Ipv4Addr::new(10, 96, 0, 1)));
        assert_eq!(early["KUBERNETES_SERVICE_PORT"], "443");
    }
}
