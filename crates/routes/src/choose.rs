//! Which binding serves a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use mesh_api::{IngressRequest, Reason};

use crate::bindings::Binding;
use crate::hosts::Asker;
use crate::input::ObjectKey;
use crate::output::Finding;
use crate::text;

/// The binding that serves a request.
pub(crate) struct Choice {
    /// Its place in the list of bindings.
    pub(crate) binding: usize,
    /// Its gateway.
    pub(crate) gateway: Arc<ObjectKey>,
    /// Younger default bindings that would serve the request as well.
    pub(crate) also: Vec<usize>,
}

/// Where a request comes from.
pub(crate) struct Origin<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// The integrator's own namespace.
    pub(crate) own: &'a str,
}

impl<'a> Origin<'a> {
    pub(crate) fn asks(&self, binding: &Binding<'a>) -> Asker<'a> {
        Asker {
            binding: binding.name,
            policy: &binding.object.spec.hosts,
            namespace: self.namespace,
            labels: self.labels,
            name: self.name,
            own: self.own,
        }
    }

    fn admitted_by(&self, binding: &Binding<'_>) -> bool {
        binding.object.spec.namespaces.admits(self.namespace, self.labels, self.own)
    }
}

/// The binding that the request names, else the oldest default one that admits its namespace and all its hosts, else
/// the oldest default one that admits its namespace, so that the verdict can say what is wrong with the hosts.
pub(crate) fn choose(
    request: &IngressRequest,
    origin: &Origin<'_>,
    bindings: &[Binding<'_>],
) -> Result<Choice, Finding> {
    if let Some(reference) = &request.spec.binding_ref {
        return choose_named(&reference.name, origin, bindings);
    }
    let usable = |(_, binding): &(usize, &Binding<'_>)| {
        binding.object.spec.default && binding.gateway.is_ok() && origin.admitted_by(binding)
    };
    let admitting: Vec<(usize, &Binding<'_>)> = bindings.iter().enumerate().filter(usable).collect();
    let fitting: Vec<(usize, &Binding<'_>)> =
        admitting.iter().copied().filter(|(_, binding)| fits(request, origin, binding)).collect();
    let candidates = if fitting.is_empty() { &admitting[..] } else { &fitting[..] };
    let Some(((position, binding), rest)) = candidates.split_first() else {
        return Err(no_binding(origin, bindings));
    };
    let also =
        if fitting.is_empty() { Vec::new() } else { rest.iter().map(|(position, _)| *position).collect() };
    let gateway = binding.gateway.clone()?;
    Ok(Choice { binding: *position, gateway, also })
}

fn choose_named(name: &str, origin: &Origin<'_>, bindings: &[Binding<'_>]) -> Result<Choice, Finding> {
    let Some((position, binding)) = bindings.iter().enumerate().find(|(_, binding)| binding.name == name)
    else {
        let message = format!(
            "GatewayBinding {name} does not exist: correct spec.bindingRef.name, or create it; there {}",
            existing(bindings)
        );
        return Err(Finding::bad(Reason::BindingNotFound, message));
    };
    let gateway = binding.gateway.clone().map_err(|finding| {
        let message = format!("GatewayBinding {name} is refused: {}", finding.message);
        Finding::bad(Reason::BindingInvalid, message)
    })?;
    if !origin.admitted_by(binding) {
        let message = format!(
            "GatewayBinding {name} does not serve namespace {}: have it admitted in spec.namespaces of the binding, or \
             name another binding in spec.bindingRef",
            origin.namespace
        );
        return Err(Finding::bad(Reason::NamespaceNotAllowed, message));
    }
    Ok(Choice { binding: position, gateway, also: Vec::new() })
}

fn fits(request: &IngressRequest, origin: &Origin<'_>, binding: &Binding<'_>) -> bool {
    let asker = origin.asks(binding);
    if request.spec.hosts.is_empty() {
        return asker.template_host().is_ok();
    }
    request.spec.hosts.iter().all(|host| asker.admit(host).is_ok())
}

fn no_binding(origin: &Origin<'_>, bindings: &[Binding<'_>]) -> Finding {
    let message = format!(
        "no default GatewayBinding serves namespace {}: set spec.bindingRef.name, or have the namespace admitted by \
         one with default: true; there {}",
        origin.namespace,
        existing(bindings)
    );
    Finding::bad(Reason::NoBinding, message)
}

fn existing(bindings: &[Binding<'_>]) -> String {
    if bindings.is_empty() {
        return "is none".to_owned();
    }
    let described = bindings.iter().map(|binding| {
        let default = if binding.object.spec.default { " (default)" } else { "" };
        let refused = if binding.gateway.is_err() { " (refused)" } else { "" };
        format!("{}{default}{refused}", binding.name)
    });
    let mut described: Vec<String> = described.collect();
    described.sort();
    format!("is {}", text::list(described, ", "))
}
