//! What a container may learn of its Pod: `fieldRef` and `resourceFieldRef`. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use kube::ResourceExt as _;

use super::quantity;
use crate::node::without_limit;

/// A Pod with what only its node knows.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    /// The Pod.
    pub(crate) pod: &'a Pod,
    /// Its address.
    pub(crate) pod_ip: Option<Ipv4Addr>,
    /// The node's address.
    pub(crate) host_ip: Ipv4Addr,
}

impl Fields<'_> {
    /// The value of a `fieldRef`. The error is for the Pod's status.
    pub(crate) fn field(&self, selector: &ObjectFieldSelector) -> Result<String, String> {
        let path = selector.field_path.as_str();
        let spec = self.pod.spec.as_ref();
        let pod_ip = || self.pod_ip.map(|ip| ip.to_string()).unwrap_or_default();
        if let Some((map, key)) = subscript(path) {
            let entries = match map {
                "metadata.labels" => self.pod.labels(),
                "metadata.annotations" => self.pod.annotations(),
                _ => return Err(format!("fieldRef {path:?}: only labels and annotations have keys")),
            };
            return Ok(entries.get(key).cloned().unwrap_or_default());
        }
        Ok(match path {
            "metadata.name" => self.pod.name_any(),
            "metadata.namespace" => self.pod.namespace().unwrap_or_default(),
            "metadata.uid" => self.pod.uid().unwrap_or_default(),
            "metadata.labels" => lines(self.pod.labels()),
            "metadata.annotations" => lines(self.pod.annotations()),
            "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            "spec.serviceAccountName" => {
                spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
            }
            "status.hostIP" | "status.hostIPs" => self.host_ip.to_string(),
            "status.podIP" | "status.podIPs" => pod_ip(),
            _ => return Err(format!("fieldRef {path:?} is not supported")),
        })
    }

    /// The value of a `resourceFieldRef`, which names a container unless `own` is the one that asks.
    pub(crate) fn resource(
        &self,
        selector: &ResourceFieldSelector,
        own: Option<&Container>,
    ) -> Result<String, String> {
        let name = selector.container_name.as_deref().filter(|name| !name.is_empty());
        let spec = self.pod.spec.as_ref();
        let all = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
        let container = match name {
            Some(name) => all.into_iter().find(|container| container.name == name),
            None => own,
        };
        let container =
            container.ok_or_else(|| format!("resourceFieldRef names no container of the Pod: {name:?}"))?;
        let (list, resource) = selector
            .resource
            .split_once('.')
            .ok_or_else(|| format!("resourceFieldRef {:?} is not supported", selector.resource))?;
        let resources = container.resources.as_ref();
        let quantity = match list {
            "limits" => resources
                .and_then(|resources| resources.limits.as_ref()?.get(resource))
                .map(|quantity| quantity.0.clone())
                .or_else(|| without_limit(resource)),
            "requests" => resources
                .and_then(|resources| resources.requests.as_ref()?.get(resource))
                .map(|quantity| quantity.0.clone())
                .or_else(|| Some("0".to_owned())),
            _ => None,
        };
        let divisor = selector.divisor.as_ref().map(|divisor| divisor.0.as_str());
        quantity
            .and_then(|quantity| quantity::divided(&quantity, divisor))
            .map(|number| number.to_string())
            .ok_or_else(|| format!("resourceFieldRef {:?} is not supported", selector.resource))
    }
}

/// `labels['key']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// Labels or annotations as a downward API volume shows them.
fn lines(entries: &BTreeMap<String, String>) -> String {
    entries.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web", "a": "\"q\""}},
            "spec": {"nodeName": "n", "serviceAccountName": "sa", "containers": [
                {"name": "one", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}},
                {"name": "two"}]},
        }))
        .unwrap();
        let fields = Fields {
            pod: &pod,
            pod_ip: Some(Ipv4Addr::new(10, 244, 0, 2)),
            host_ip: Ipv4Addr::new(10, 244, 0, 1),
        };
        for (path, expected) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u"),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['absent']", ""),
            ("metadata.labels", "a=\"\\\"q\\\"\"\napp=\"web\""),
            ("spec.nodeName", "n"),
            ("spec.serviceAccountName", "sa"),
            ("status.podIP", "10.244.0.2"),
            ("status.hostIP", "10.244.0.1"),
        ] {
            let selector =
                ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
            assert_eq!(fields.field(&selector).as_deref(), Ok(expected), "{path}");
        }
        let selector =
            ObjectFieldSelector { field_path: "spec.priority".to_owned(), ..ObjectFieldSelector::default() };
        assert!(fields.field(&selector).is_err());

        let processors = std::thread::available_parallelism().unwrap().to_string();
        for (container, resource, divisor, expected) in [
            ("one", "limits.cpu", "0", "2"),
            ("one", "limits.memory", "1Mi", "1024"),
            ("two", "limits.cpu", "1", processors.as_str()),
            ("two", "requests.memory", "1", "0"),
        ] {
            let selector = json!({"containerName": container, "resource": resource, "divisor": divisor});
            let selector: ResourceFieldSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(fields.resource(&selector, None).as_deref(), Ok(expected), "{container} {resource}");
        }
    }
}
