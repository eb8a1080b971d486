//! Which hosts a binding gives to a request: by its template, and by pattern.

use std::collections::BTreeMap;

use mesh_api::Reason;
use mesh_api::integrator::{AllowedHost, HostPolicy};
use mesh_api::syntax::{is_dns_label, pattern_covers};

use crate::output::Finding;
use crate::text;

/// Who asks for a host, of which binding.
pub(crate) struct Asker<'a> {
    pub(crate) binding: &'a str,
    pub(crate) policy: &'a HostPolicy,
    pub(crate) namespace: &'a str,
    pub(crate) labels: &'a BTreeMap<String, String>,
    /// The request.
    pub(crate) name: &'a str,
    /// The integrator's own namespace.
    pub(crate) own: &'a str,
}

impl Asker<'_> {
    /// The host that the template gives to the request, or why there is none.
    pub(crate) fn template_host(&self) -> Result<String, Finding> {
        let Some(domain) = &self.policy.domain else {
            let message = format!(
                "spec.hosts is empty and binding {} has no domain to make a host from: set spec.hosts, or \
                 spec.hosts.domain of the binding",
                self.binding
            );
            return Err(Finding::bad(Reason::NoHost, message));
        };
        Ok(self.render(domain))
    }

    fn render(&self, domain: &str) -> String {
        let template = self.policy.template.replace("{domain}", domain);
        template.replace("{namespace}", self.namespace).replace("{name}", self.name)
    }

    /// Whether the request may have the host and, if so, whether it is shared among namespaces.
    ///
    /// A pattern that is the very host decides before all. Then come the hosts of the template: each belongs to the
    /// namespace it is made from, whatever a wildcard says. Then the most specific wildcard decides alone, so that an
    /// owner can take out of a wide pattern what a narrower one gives to fewer.
    pub(crate) fn admit(&self, host: &str) -> Result<bool, Finding> {
        let covering = self.policy.allowed.iter().filter(|rule| pattern_covers(&rule.pattern, host));
        // The longest pattern that covers a host is the most specific, and the host itself is the longest.
        let decisive = covering.min_by_key(|rule| (!is_exact(rule), std::cmp::Reverse(rule.pattern.len())));
        if let Some(rule) = decisive.filter(|rule| is_exact(rule)) {
            return self.by_rule(rule, host);
        }
        if let Some(domain) = &self.policy.domain {
            let owners = template_owners(&self.policy.template, domain, host);
            if self.render(domain) == host || owners.contains(&self.namespace) {
                return Ok(false);
            }
            if let Some(owner) = owners.first() {
                let message = format!(
                    "host {host} is kept for namespace {owner} by the template of binding {}: use another host, or \
                     have this very host listed in spec.hosts.allowed of the binding",
                    self.binding
                );
                return Err(Finding::bad(Reason::HostReserved, message));
            }
        }
        match decisive {
            Some(rule) => self.by_rule(rule, host),
            None => Err(self.not_allowed(host)),
        }
    }

    fn by_rule(&self, rule: &AllowedHost, host: &str) -> Result<bool, Finding> {
        if self.rule_admits(rule) { Ok(rule.shared) } else { Err(self.not_allowed(host)) }
    }

    fn rule_admits(&self, rule: &AllowedHost) -> bool {
        rule.namespaces.as_ref().is_none_or(|set| set.admits(self.namespace, self.labels, self.own))
    }

    fn not_allowed(&self, host: &str) -> Finding {
        let template = self.policy.domain.as_deref().map(|domain| self.render(domain));
        let patterns =
            self.policy.allowed.iter().filter(|rule| self.rule_admits(rule)).map(|rule| rule.pattern.clone());
        let mut allowed: Vec<String> = template.into_iter().chain(patterns).collect();
        allowed.sort();
        let allowed = if allowed.is_empty() { "none".to_owned() } else { text::list(allowed, ", ") };
        let message = format!(
            "binding {} does not allow host {host} to namespace {}: use one in spec.hosts that it does ({allowed}), or have this one \
             added to spec.hosts.allowed of the binding",
            self.binding, self.namespace
        );
        Finding::bad(Reason::HostNotAllowed, message)
    }
}

fn is_exact(rule: &AllowedHost) -> bool {
    !rule.pattern.starts_with('*')
}

/// The namespaces that the template could have made this host for. More than one where the text between name and
/// namespace may be part of either, as in `{name}-{namespace}`. None where the template does not hold `{namespace}`.
fn template_owners<'a>(template: &str, domain: &str, host: &'a str) -> Vec<&'a str> {
    let Some(shape) = template.strip_suffix("{domain}") else { return Vec::new() };
    let Some(rest) = host.strip_suffix(domain) else { return Vec::new() };
    let (Some(name_at), Some(namespace_at)) = (shape.find("{name}"), shape.find("{namespace}")) else {
        return Vec::new();
    };
    let name_first = name_at < namespace_at;
    let (first, second) = if name_first { ("{name}", "{namespace}") } else { ("{namespace}", "{name}") };
    let Some((before, shape)) = shape.split_once(first) else { return Vec::new() };
    let Some((between, after)) = shape.split_once(second) else { return Vec::new() };
    let Some(middle) = rest.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) else {
        return Vec::new();
    };
    let cuts = (0..=middle.len()).filter_map(|at| {
        let (left, right) = middle.split_at_checked(at)?;
        let right = right.strip_prefix(between)?;
        Some(if name_first { (left, right) } else { (right, left) })
    });
    let owners =
        cuts.filter(|(name, namespace)| is_dns_label(namespace) && name.split('.').all(is_dns_label));
    owners.map(|(_, namespace)| namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::template_owners;

    #[test]
    fn owners_of_template_hosts() {
        let none: [&str; 0] = [];
        for (template, host, owners) in [
            ("{name}.{namespace}.{domain}", "shop.team-a.apps.example", &["team-a"][..]),
            ("{name}.{namespace}.{domain}", "v2.shop.team-a.apps.example", &["team-a"]),
            ("{name}.{namespace}.{domain}", "team-a.apps.example", &none),
            ("{name}.{namespace}.{domain}", "shop.team-a.other.example", &none),
            ("{name}.{namespace}.{domain}", "shop.team-a.badapps.example", &none),
            ("{namespace}.{name}.{domain}", "team-a.shop.apps.example", &["team-a"]),
            ("{name}-{namespace}.{domain}", "a-b-c.apps.example", &["b-c", "c"]),
            ("{name}{namespace}.{domain}", "abc.apps.example", &["bc", "c"]),
            ("x-{name}.y.{namespace}.z.{domain}", "x-shop.y.team-a.z.apps.example", &["team-a"]),
            ("x-{name}.y.{namespace}.z.{domain}", "shop.y.team-a.z.apps.example", &none),
            ("{name}.{domain}", "shop.apps.example", &none),
        ] {
            assert_eq!(template_owners(template, "apps.example", host), owners, "{template} {host}");
        }
    }
}
