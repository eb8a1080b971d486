//! Which login a route asks for.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use mesh_api::integrator::{AuthType, RequestAuth, Route};
use mesh_api::{AuthProvider, IngressRequest, Reason};

use crate::age::Age;
use crate::bindings::Binding;
use crate::grants::{GrantIndex, Target};
use crate::guard::{Provider, ProviderId};
use crate::input::{Input, ObjectKey};
use crate::output::Finding;

/// The most providers of one namespace, by default.
pub const MAX_PROVIDERS_PER_NAMESPACE: usize = 5;
/// The most providers of one guard chain, by default.
pub const MAX_PROVIDERS_PER_GATEWAY: usize = 100;

/// A provider with its id, which takes a while to work out and is asked for again and again.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub(crate) id: ProviderId,
    pub(crate) provider: Provider,
}

impl Identified {
    pub(crate) fn new(provider: Provider) -> Self {
        Self { id: provider.id(), provider }
    }
}

impl std::ops::Deref for Identified {
    type Target = Provider;

    fn deref(&self) -> &Provider {
        &self.provider
    }
}

/// The login that a route asks for.
#[derive(Clone, Debug)]
pub(crate) enum RouteAuth {
    /// None.
    Open,
    /// One that cannot be had: the route answers 503. The provider is there where it is known which one was meant: its
    /// identity headers stay its own, since the backend believes them whoever cannot be asked for the moment.
    Closed(Finding, Option<Arc<Identified>>),
    /// That of a provider.
    Protected(Arc<Identified>),
}

impl RouteAuth {
    /// Whether anybody is let through without a login.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// The provider that it asks for, whether or not that can be asked.
    pub(crate) fn provider(&self) -> Option<&Arc<Identified>> {
        match self {
            Self::Protected(provider) | Self::Closed(_, Some(provider)) => Some(provider),
            Self::Open | Self::Closed(_, None) => None,
        }
    }

    fn closed(finding: Finding) -> Self {
        Self::Closed(finding, None)
    }

    pub(crate) fn refusal(&self) -> Option<&Finding> {
        match self {
            Self::Closed(finding, _) => Some(finding),
            Self::Open | Self::Protected(_) => None,
        }
    }
}

/// A provider that was read.
pub(crate) struct ReadProvider<'a> {
    pub(crate) object: &'a AuthProvider,
    pub(crate) key: ObjectKey,
    /// What it says, or why it cannot be acted on.
    pub(crate) accepted: Result<Arc<Identified>, Finding>,
    /// Whether its Service is there and nobody else's; only looked at if it is accepted.
    pub(crate) resolved: Result<(), Finding>,
}

impl ReadProvider<'_> {
    fn usable(&self) -> Result<&Arc<Identified>, &Finding> {
        let provider = self.accepted.as_ref()?;
        self.resolved.as_ref()?;
        Ok(provider)
    }
}

/// The providers, by namespace and name.
pub(crate) struct Providers<'a> {
    pub(crate) list: BTreeMap<ObjectKey, ReadProvider<'a>>,
}

impl<'a> Providers<'a> {
    pub(crate) fn read(input: &Input<'a>) -> Self {
        let mut live: Vec<&AuthProvider> = input
            .providers
            .iter()
            .copied()
            .filter(|provider| provider.metadata.deletion_timestamp.is_none())
            .collect();
        live.sort_by(|a, b| Age::of(&a.metadata).cmp(&Age::of(&b.metadata)));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut list = BTreeMap::new();
        for object in live {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            let key = ObjectKey::new(namespace, object.metadata.name.as_deref().unwrap_or_default());
            let count = counts.entry(namespace).or_default();
            *count += 1;
            let accepted = if *count > input.settings.max_providers_per_namespace {
                let message = format!(
                    "namespace {namespace} has more than {} AuthProviders, and this one is younger than those: delete \
                     others, or have --max-providers-per-namespace raised",
                    input.settings.max_providers_per_namespace
                );
                Err(Finding::bad(Reason::TooManyProviders, message))
            } else {
                resolve(object, &key, input)
            };
            let resolved = match &accepted {
                Ok(provider) => service(provider, input),
                Err(finding) => Err(finding.clone()),
            };
            list.insert(key.clone(), ReadProvider { object, key, accepted, resolved });
        }
        Self { list }
    }

    /// The login at a provider; `referrer` says which field names it.
    fn login(&self, key: &ObjectKey, referrer: impl FnOnce() -> String) -> RouteAuth {
        let Some(provider) = self.list.get(key) else {
            let referrer = referrer();
            let message = format!("AuthProvider {key} does not exist: create it, or correct {referrer}");
            return RouteAuth::closed(Finding::bad(Reason::ProviderNotFound, message));
        };
        match provider.usable() {
            Ok(provider) => RouteAuth::Protected(Arc::clone(provider)),
            Err(finding) => {
                let message = format!("AuthProvider {key} cannot be asked: {}", finding.message);
                let finding = Finding::bad(Reason::ProviderInvalid, message);
                RouteAuth::Closed(finding, provider.accepted.as_ref().ok().cloned())
            }
        }
    }
}

fn resolve(object: &AuthProvider, key: &ObjectKey, input: &Input<'_>) -> Result<Arc<Identified>, Finding> {
    match Provider::resolve(object, &input.settings.cluster_domain) {
        Ok(provider) => Ok(Arc::new(Identified::new(provider))),
        Err(problems) => {
            let message = format!("AuthProvider {key}: {}", problems.join("; "));
            Err(Finding::bad(Reason::InvalidSpec, message))
        }
    }
}

/// Whether the provider's Service is there, and its host name not claimed by a `ServiceEntry`: Istio would send the
/// checks to whoever claims it.
fn service(provider: &Provider, input: &Input<'_>) -> Result<(), Finding> {
    if let Some(claimants) = input.claims.get(&provider.host).filter(|claimants| !claimants.is_empty()) {
        let message = format!(
            "host name {} of the provider's Service is claimed by ServiceEntry {}: have it deleted, since logins would be \
             decided by whoever it names",
            provider.host,
            crate::text::list(claimants, ", ")
        );
        return Err(Finding::bad(Reason::ProviderClaimed, message));
    }
    let name = provider.host.split('.').next().unwrap_or_default();
    let key = ObjectKey::new(&provider.key.namespace, name);
    let Some(facts) = input.services.get(&key) else {
        let message = format!("Service {key} does not exist: create it, or correct spec.extAuthz.service");
        return Err(Finding::bad(Reason::ProviderServiceNotFound, message));
    };
    if facts.external_name {
        let message = format!(
            "Service {key} is of type ExternalName: name one with endpoints in the cluster in spec.extAuthz.service"
        );
        return Err(Finding::bad(Reason::UnsupportedService, message));
    }
    if !facts.ports.iter().any(|port| port.number == provider.port && port.tcp) {
        let message = format!("Service {key} has no TCP port {}: correct spec.extAuthz.port", provider.port);
        return Err(Finding::bad(Reason::PortNotFound, message));
    }
    Ok(())
}

/// Which field says what the login is.
#[derive(Clone, Copy)]
enum Field {
    /// That of the route at this place.
    Route(usize),
    /// That of the request.
    Request,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Route(position) => write!(f, "spec.routes[{position}].auth"),
            Self::Request => f.write_str("spec.auth"),
        }
    }
}

/// Resolves the logins of a request's routes.
pub(crate) struct AuthResolver<'r, 'a> {
    pub(crate) providers: &'r Providers<'a>,
    pub(crate) grants: &'r GrantIndex<'a>,
}

impl AuthResolver<'_, '_> {
    /// The login of a route of this request, which is served by this binding.
    pub(crate) fn of_route(
        &self,
        request: &IngressRequest,
        route: &Route,
        position: usize,
        binding: &Binding<'_>,
    ) -> RouteAuth {
        match route.auth.as_ref().filter(|auth| auth.kind != AuthType::Inherit) {
            Some(auth) => self.explicit(auth, request, Field::Route(position), binding),
            None if request.spec.auth.kind != AuthType::Inherit => {
                self.explicit(&request.spec.auth, request, Field::Request, binding)
            }
            None => inherited(binding, self.providers),
        }
    }

    fn explicit(
        &self,
        auth: &RequestAuth,
        request: &IngressRequest,
        field: Field,
        binding: &Binding<'_>,
    ) -> RouteAuth {
        let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
        match (auth.kind, &auth.provider_ref) {
            (AuthType::None, _) if binding.object.spec.auth.required => {
                let message = format!(
                    "binding {} requires a login, and {field}.type is None: set it to Inherit or Provider",
                    binding.name
                );
                RouteAuth::closed(Finding::bad(Reason::AuthRequired, message))
            }
            (AuthType::None, _) => RouteAuth::Open,
            (AuthType::Inherit, _) => inherited(binding, self.providers),
            (AuthType::Provider, None) => {
                let message =
                    format!("{field}.providerRef must name the provider, since its type is Provider");
                RouteAuth::closed(Finding::bad(Reason::InvalidSpec, message))
            }
            (AuthType::Provider, Some(reference)) => {
                let key = ObjectKey::new(
                    reference.namespace.as_deref().unwrap_or(namespace),
                    reference.name.as_str(),
                );
                match self.grants.check(namespace, Target::Provider, &key) {
                    Ok(()) => self.providers.login(&key, || format!("{field}.providerRef")),
                    Err(finding) => RouteAuth::closed(finding),
                }
            }
        }
    }

    /// The default provider of a binding, if there is one that can be asked.
    pub(crate) fn default_provider(&self, binding: &Binding<'_>) -> Option<Arc<Identified>> {
        let reference = binding.object.spec.auth.default_provider_ref.as_ref()?;
        let provider = self.providers.list.get(&ObjectKey::new(&reference.namespace, &reference.name))?;
        provider.accepted.as_ref().ok().cloned()
    }
}

fn inherited(binding: &Binding<'_>, providers: &Providers<'_>) -> RouteAuth {
    let auth = &binding.object.spec.auth;
    match &auth.default_provider_ref {
        Some(reference) => {
            let key = ObjectKey::new(&reference.namespace, &reference.name);
            providers.login(&key, || format!("spec.auth.defaultProviderRef of binding {}", binding.name))
        }
        None if auth.required => {
            let message = format!(
                "binding {} requires a login and has no default provider: set spec.auth.type to Provider and name one \
                 in spec.auth.providerRef",
                binding.name
            );
            RouteAuth::closed(Finding::bad(Reason::AuthRequired, message))
        }
        None => RouteAuth::Open,
    }
}

/// The identity headers that routes must not pass on as clients send them, by the namespace of the backend.
#[derive(Default)]
pub(crate) struct IdentityHeaders<'h> {
    /// Sorted.
    by_namespace: HashMap<&'h str, Vec<&'h str>>,
    /// The namespaces and the providers, by where they are, that were noted: thousands of routes say the same.
    noted: HashSet<(&'h str, usize)>,
}

impl<'h> IdentityHeaders<'h> {
    /// Notes that a route to these namespaces is protected by this provider.
    pub(crate) fn note(&mut self, namespaces: &[&'h str], provider: &'h Provider) {
        let place = std::ptr::from_ref(provider).addr();
        for namespace in namespaces {
            if provider.identity_headers.is_empty() || !self.noted.insert((namespace, place)) {
                continue;
            }
            let headers = self.by_namespace.entry(namespace).or_default();
            headers.extend(provider.identity_headers.iter().map(String::as_str));
            headers.sort_unstable();
            headers.dedup();
        }
    }

    /// The headers for a route to these namespaces, sorted.
    pub(crate) fn of<'s>(&'s self, namespaces: &[&str]) -> Cow<'s, [&'h str]> {
        let mut lists = namespaces.iter().filter_map(|namespace| self.by_namespace.get::<str>(namespace));
        let Some(first) = lists.next() else { return Cow::Borrowed(&[]) };
        let mut all = Cow::Borrowed(first.as_slice());
        for more in lists {
            all.to_mut().extend(more);
        }
        if let Cow::Owned(all) = &mut all {
            all.sort_unstable();
            all.dedup();
        }
        all
    }
}
