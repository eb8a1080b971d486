//! What the bindings say, and whether it can be acted on.

use std::sync::Arc;

use mesh_api::integrator::{GatewayType, HostPolicy};
use mesh_api::syntax::{is_host, is_host_pattern, template_problem};
use mesh_api::{GatewayBinding, Reason};

use crate::age::Age;
use crate::input::{GatewayFacts, Input, ObjectKey};
use crate::output::Finding;
use crate::servers;

/// A binding that was read.
pub(crate) struct Binding<'a> {
    pub(crate) object: &'a GatewayBinding,
    pub(crate) name: &'a str,
    /// The gateway, or why what the binding says cannot be acted on.
    pub(crate) gateway: Result<Arc<ObjectKey>, Finding>,
    /// The facts about its gateway, if it exists.
    pub(crate) facts: Option<&'a GatewayFacts>,
    pub(crate) ready: Finding,
}

/// The bindings, the oldest first.
pub(crate) fn read<'a>(input: &Input<'a>) -> Vec<Binding<'a>> {
    let mut live: Vec<&GatewayBinding> = input
        .bindings
        .iter()
        .copied()
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
        .collect();
    live.sort_by(|a, b| Age::of(&a.metadata).cmp(&Age::of(&b.metadata)));
    live.into_iter().map(|object| read_one(object, input)).collect()
}

fn read_one<'a>(object: &'a GatewayBinding, input: &Input<'a>) -> Binding<'a> {
    let gateway = gateway_of(object).map(Arc::new);
    let facts =
        gateway.as_ref().ok().and_then(|key| input.gateways.get(key.as_ref())).filter(|facts| !facts.gone);
    let ready = match &gateway {
        Err(finding) => finding.clone(),
        Ok(key) => readiness(key, facts, input),
    };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    Binding { object, name, gateway, facts, ready }
}

fn gateway_of(binding: &GatewayBinding) -> Result<ObjectKey, Finding> {
    if let Some(problem) = policy_problem(&binding.spec.hosts) {
        return Err(Finding::bad(Reason::InvalidSpec, format!("spec.hosts.{problem}")));
    }
    match (binding.spec.gateway.kind, &binding.spec.gateway.istio_gateway) {
        (GatewayType::IstioGateway, Some(reference)) => {
            Ok(ObjectKey::new(&reference.namespace, &reference.name))
        }
        (GatewayType::IstioGateway, None) => {
            Err(Finding::bad(Reason::InvalidSpec, "spec.gateway.istioGateway must name the Gateway"))
        }
    }
}

fn policy_problem(policy: &HostPolicy) -> Option<String> {
    if let Some(domain) = policy.domain.as_deref().filter(|domain| !is_host(domain)) {
        return Some(format!("domain: {domain:?} is not a lower-case DNS name"));
    }
    if let Some(problem) = template_problem(&policy.template) {
        return Some(format!("template: {problem}, and it is {:?}", policy.template));
    }
    let (position, rule) =
        policy.allowed.iter().enumerate().find(|(_, rule)| !is_host_pattern(&rule.pattern))?;
    Some(format!(
        "allowed[{position}].pattern: {:?} is neither a host, nor *. and a host, nor *",
        rule.pattern
    ))
}

/// Whether the gateway is there.
fn readiness(key: &ObjectKey, facts: Option<&GatewayFacts>, input: &Input<'_>) -> Finding {
    if !input.istio_served {
        let message =
            "the cluster serves no Gateway and VirtualService of networking.istio.io: install Istio";
        return Finding::bad(Reason::IstioNotFound, message);
    }
    let Some(facts) = facts else {
        let message = format!("Gateway {key} does not exist: create it or correct spec.gateway.istioGateway");
        return Finding::bad(Reason::GatewayNotFound, message);
    };
    if let Some(finding) = servers::reach_problem(key, facts, input.settings) {
        return finding;
    }
    if facts.has_pods == Some(false) {
        let message = format!(
            "no pod carries the labels of spec.selector of Gateway {key}: deploy a gateway with them or correct it"
        );
        return Finding::bad(Reason::GatewayWithoutPods, message);
    }
    Finding::good(Reason::Ready, format!("Gateway {key} serves it"))
}
