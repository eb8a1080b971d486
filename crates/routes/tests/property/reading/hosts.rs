//! Which binding serves a request, and which hosts it gets.

use std::collections::BTreeSet;

use mesh_api::integrator::HostPolicy;
use mesh_api::syntax::{is_dns_label, is_host, pattern_covers};
use mesh_api::{GatewayBinding, IngressRequest};

use super::{Asked, Reading, gateway_of, name_of, namespace_of, redirects, serves, template_host};
use crate::world::{OWN, gateway_key};

impl<'w> Reading<'w> {
    pub(super) fn binding_of(&self, request: &IngressRequest) -> Option<&'w GatewayBinding> {
        let admits = |binding: &&&GatewayBinding| {
            let labels = self.world.namespaces.get(namespace_of(request)).cloned().unwrap_or_default();
            binding.spec.namespaces.admits(namespace_of(request), &labels, OWN)
        };
        if let Some(reference) = &request.spec.binding_ref {
            let named = |binding: &&&GatewayBinding| {
                binding.metadata.name.as_deref() == Some(reference.name.as_str())
            };
            return self.bindings.iter().find(named).filter(|binding| admits(binding)).copied();
        }
        let mut defaults = self.bindings.iter().filter(|binding| binding.spec.default).filter(admits);
        let gives_all = |binding: &&&GatewayBinding| {
            if request.spec.hosts.is_empty() {
                return binding.spec.hosts.domain.is_some();
            }
            request.spec.hosts.iter().all(|host| self.admits_host(binding, request, host).is_some())
        };
        defaults.clone().find(gives_all).or_else(|| defaults.next()).copied()
    }

    /// Whether the binding gives the host to the request and, if so, whether it is shared.
    pub(super) fn admits_host(
        &self,
        binding: &GatewayBinding,
        request: &IngressRequest,
        host: &str,
    ) -> Option<bool> {
        let policy = &binding.spec.hosts;
        let covering = policy.allowed.iter().filter(|rule| pattern_covers(&rule.pattern, host));
        let best = covering.max_by_key(|rule| (!rule.pattern.starts_with('*'), rule.pattern.len()));
        let by_pattern = || {
            let labels = self.world.namespaces.get(namespace_of(request)).cloned().unwrap_or_default();
            let rule = best?;
            let admitted =
                rule.namespaces.as_ref().is_none_or(|set| set.admits(namespace_of(request), &labels, OWN));
            admitted.then_some(rule.shared)
        };
        if best.is_some_and(|rule| rule.pattern == host) {
            return by_pattern();
        }
        if template_host(policy, namespace_of(request), name_of(request)).as_deref() == Some(host) {
            return Some(false);
        }
        match Self::template_namespaces(policy, host) {
            owners if owners.is_empty() => by_pattern(),
            owners => owners.contains(namespace_of(request)).then_some(false),
        }
    }

    /// The namespaces for which the template makes this host, for some name. Tried one by one; any DNS label that the
    /// host holds may be a namespace.
    pub(super) fn template_namespaces(policy: &HostPolicy, host: &str) -> BTreeSet<String> {
        let Some(domain) = &policy.domain else { return BTreeSet::new() };
        if !policy.template.contains("{namespace}") {
            return BTreeSet::new();
        }
        let mut owners = BTreeSet::new();
        for start in 0..host.len() {
            for end in start + 1..=host.len() {
                let namespace = &host[start..end];
                if !is_dns_label(namespace) {
                    continue;
                }
                let shape = policy.template.replace("{domain}", domain).replace("{namespace}", namespace);
                let Some((before, after)) = shape.split_once("{name}") else { continue };
                let name = host.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                if name.is_some_and(|name| name.split('.').all(is_dns_label)) {
                    owners.insert(namespace.to_owned());
                }
            }
        }
        owners
    }

    /// The routes that ask for this host on this gateway, by the age of their requests, of those that may have it.
    pub(super) fn claims(&self, gateway: usize, host: &str) -> Vec<Asked<'w>> {
        let mut claims = Vec::new();
        let mut owner: Option<(&str, bool)> = None;
        for request in &self.requests {
            let Some(binding) = self.binding_of(request) else { continue };
            if gateway_of(binding).as_ref() != Some(&gateway_key(gateway)) {
                continue;
            }
            let asks = if request.spec.hosts.is_empty() {
                template_host(&binding.spec.hosts, namespace_of(request), name_of(request)).as_deref()
                    == Some(host)
            } else {
                request.spec.hosts.iter().any(|one| one == host)
            };
            if !asks || !is_host(host) || !self.reachable(gateway, host) {
                continue;
            }
            let Some(shared) = self.admits_host(binding, request, host) else { continue };
            let (first, first_shared) = *owner.get_or_insert((namespace_of(request), shared));
            if first == namespace_of(request) || (first_shared && shared) {
                claims.extend(request.spec.routes.iter().map(|route| Asked { request, binding, route }));
            }
        }
        claims
    }

    /// Whether a server of the gateway answers for the host with more than a redirect.
    pub(super) fn reachable(&self, gateway: usize, host: &str) -> bool {
        let servers = &self.world.servers[gateway];
        servers.is_empty() || servers.iter().any(|server| !redirects(server) && serves(server, gateway, host))
    }
}
