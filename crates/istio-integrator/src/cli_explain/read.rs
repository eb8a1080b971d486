//! Reads the cluster, as far as the caller may.

use std::{collections::BTreeMap, fmt::Debug};

use anyhow::{Context as _, bail};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Pod, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::ListParams,
    core::{DynamicObject, PartialObjectMeta},
};
use mesh_api::{
    AuthProvider, GatewayBinding, IngressRequest,
    gateway_api::ReferenceGrant,
    integrator::{AuthProviderStatus, GatewayBindingStatus, IngressRequestStatus, NamespacesFrom},
    istio::{EnvoyFilter, Gateway, ServiceEntry, VirtualService},
};
use operator_kit::{
    apply::{Identity, Ownership},
    client::{CALL_TIMEOUT, CallError, bounded},
};
use routes::ObjectKey;
use serde::de::DeserializeOwned;

use super::world::{Gap, SeenLease, World};
use crate::{
    guard::{self, ObservedPod},
    listing::{is_forbidden, list},
    observe::{self, resource},
    stale_crds,
};

const IDENTITY: Identity =
    Identity { manager: mesh_api::names::INTEGRATOR, managed_by: mesh_api::names::INTEGRATOR };

/// Where to look.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The name of the request.
    pub(super) request: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// The integrator's namespace.
    pub(super) integrator: String,
    /// The name of its lease.
    pub(super) lease: String,
    /// The mesh's root namespace, where it is not found.
    pub(super) root: String,
}

/// What a list brought.
enum Listed<K> {
    /// All of it.
    Wide(Vec<K>),
    /// That of the namespace alone; a gap says so.
    Narrow(Vec<K>),
    /// Nothing may be read; a gap says so.
    Nothing,
    /// The cluster does not serve the kind.
    NotServed,
}

impl<K> Listed<K> {
    fn items(self) -> Vec<K> {
        match self {
            Self::Wide(items) | Self::Narrow(items) => items,
            Self::Nothing | Self::NotServed => Vec::new(),
        }
    }
}

/// How a kind is read, and what it means if that fails.
struct Want {
    kind: &'static str,
    /// What it means if only a namespace may be read.
    narrowed: &'static str,
    /// What it means if nothing may be read.
    lost: &'static str,
    decisive: bool,
}

/// Reads everything that bears on the request.
///
/// # Errors
/// The request does not exist or may not be read, or the API server cannot be reached.
pub(super) async fn read(client: Client, places: &Places) -> anyhow::Result<World> {
    let mut reader = Reader { client, places, world: World::default() };
    reader.request().await?;
    reader.ours().await?;
    reader.core().await?;
    reader.gateways().await?;
    reader.istio().await?;
    reader.operator().await?;
    Ok(reader.world)
}

struct Reader<'p> {
    client: Client,
    places: &'p Places,
    world: World,
}

impl Reader<'_> {
    async fn request(&mut self) -> anyhow::Result<()> {
        let Places { request, namespace, .. } = self.places;
        let resource = resource::<IngressRequest>();
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let found = bounded(CALL_TIMEOUT, api.get_opt(request)).await;
        let Some(object) = found.with_context(|| format!("reading IngressRequest {namespace}/{request}"))?
        else {
            let there = list(&api, None).await.map(|objects| {
                objects.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>().join(", ")
            });
            let there = there.ok().filter(|names| !names.is_empty());
            bail!(
                "IngressRequest {namespace}/{request} does not exist; in namespace {namespace} there {}",
                there.map_or_else(|| "is none".to_owned(), |names| format!("is {names}"))
            );
        };
        self.world.generation = object.metadata.generation;
        let (key, entry) = observe::custom::<IngressRequest, IngressRequestStatus>(object);
        self.world.key = Some(ObjectKey::new(key.namespace, key.name));
        self.world.status = entry.value.status.clone();
        self.world.request = Some(entry.value.object.clone());
        Ok(())
    }

    async fn ours(&mut self) -> anyhow::Result<()> {
        let want = Want {
            kind: "IngressRequests",
            narrowed: "whether a request of another namespace has the same host or path is not known",
            lost: "whether another request has the same host or path is not known",
            decisive: false,
        };
        let (wide, narrow) = self.scopes::<IngressRequest>();
        let requests = self.list(&want, &wide, Some(&narrow), None).await?.items().into_iter();
        let requests = requests.map(observe::custom::<IngressRequest, IngressRequestStatus>);
        self.world.requests = requests.filter_map(|(_, entry)| entry.value.object.clone().ok()).collect();
        let key = self.world.key.clone();
        let is_it = |request: &IngressRequest| {
            key.as_ref().is_some_and(|key| {
                request.name_any() == key.name && request.namespace().as_ref() == Some(&key.namespace)
            })
        };
        if !self.world.requests.iter().any(is_it)
            && let Some(Ok(request)) = &self.world.request
        {
            self.world.requests.push(request.clone());
        }
        let want = Want {
            kind: "GatewayBindings",
            narrowed: "",
            lost: "which binding serves the request is known from its status only",
            decisive: true,
        };
        let bindings = Api::<DynamicObject>::all_with(self.client.clone(), &resource::<GatewayBinding>());
        let bindings = self.list(&want, &bindings, None, None).await?.items().into_iter();
        let bindings = bindings.map(observe::custom::<GatewayBinding, GatewayBindingStatus>);
        self.world.bindings = bindings.filter_map(|(_, entry)| entry.value.object.clone().ok()).collect();
        let asks = self.asks_for_login();
        let want = Want {
            kind: "AuthProviders",
            narrowed: "a provider in another namespace counts as missing",
            lost: "what becomes of routes that ask for a login is known from the status only",
            decisive: asks,
        };
        let (wide, narrow) = self.scopes::<AuthProvider>();
        let providers = self.list(&want, &wide, Some(&narrow), None).await?;
        let narrowed = matches!(providers, Listed::Narrow(_));
        let providers =
            providers.items().into_iter().map(observe::custom::<AuthProvider, AuthProviderStatus>);
        self.world.providers = providers.filter_map(|(_, entry)| entry.value.object.clone().ok()).collect();
        self.mark_last(narrowed && asks);
        Ok(())
    }

    async fn core(&mut self) -> anyhow::Result<()> {
        let namespace = self.places.namespace.clone();
        let want = Want {
            kind: "Services",
            narrowed: "Services of other namespaces, such as a gateway's with its address, are not seen",
            lost: "whether the Services that the request names exist is known from its status only",
            decisive: true,
        };
        let wide: Api<Service> = Api::all(self.client.clone());
        let narrow: Api<Service> = Api::namespaced(self.client.clone(), &namespace);
        let services = self.list(&want, &wide, Some(&narrow), None).await?;
        let narrowed = matches!(services, Listed::Narrow(_));
        self.world.services = services.items();
        let reaches_out = self.names_other_namespaces() || self.asks_for_login();
        self.mark_last(narrowed && reaches_out);
        let by_label = self.world.bindings.iter().any(|binding| {
            binding.spec.namespaces.from == NamespacesFrom::Selector
                || binding.spec.hosts.allowed.iter().any(|allowed| {
                    allowed.namespaces.as_ref().is_some_and(|chosen| chosen.from == NamespacesFrom::Selector)
                })
        });
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(self.client.clone());
        match bounded(CALL_TIMEOUT, namespaces.list_metadata(&ListParams::default())).await {
            Ok(found) => {
                let labels = found.items.into_iter();
                self.world.namespaces = labels
                    .map(|object| (object.name_any(), object.metadata.labels.unwrap_or_default()))
                    .collect();
            }
            Err(error) if is_forbidden(&error) => {
                // The labels of its own namespace are those that count.
                match bounded(CALL_TIMEOUT, namespaces.get_metadata(&namespace)).await {
                    Ok(own) => {
                        self.world.namespaces.insert(namespace, own.metadata.labels.unwrap_or_default());
                    }
                    Err(_) if by_label => self.gap(
                        "the labels of the namespace".to_owned(),
                        &error,
                        "whether a binding that chooses namespaces by label admits this one is known from the status only",
                        true,
                    ),
                    Err(_) => {}
                }
            }
            Err(error) => return Err(error).context("listing Namespaces"),
        }
        let want = Want {
            kind: "ReferenceGrants",
            narrowed: "grants of other namespaces are not seen",
            lost: "whether a Service or provider of another namespace may be named is known from the status only",
            decisive: self.names_other_namespaces(),
        };
        let grants = Api::<DynamicObject>::all_with(self.client.clone(), &resource::<ReferenceGrant>());
        let grants = self.list(&want, &grants, None, None).await?;
        self.world.grants.served = !matches!(grants, Listed::NotServed);
        let grants = grants.items().into_iter().filter_map(typed::<ReferenceGrant>);
        self.world.grants.list = grants.map(|grant| observe::grant(&grant)).collect();
        Ok(())
    }

    /// The Gateways that bindings name, each by its name, and their pods.
    async fn gateways(&mut self) -> anyhow::Result<()> {
        let named: std::collections::BTreeSet<ObjectKey> = self
            .world
            .bindings
            .iter()
            .filter_map(|binding| binding.spec.gateway.istio_gateway.as_ref())
            .map(|reference| ObjectKey::new(&reference.namespace, &reference.name))
            .collect();
        self.world.istio_served = true;
        for key in named {
            let resource = resource::<Gateway>();
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &resource);
            let gateway = match bounded(CALL_TIMEOUT, api.get_opt(&key.name)).await {
                Ok(Some(object)) => typed::<Gateway>(object),
                Ok(None) => {
                    // The object may be missing, or its kind.
                    let probe = bounded(CALL_TIMEOUT, api.list(&ListParams::default().limit(1))).await;
                    self.world.istio_served &= !probe.is_err_and(|error| error.is_not_found());
                    None
                }
                Err(error) if is_forbidden(&error) => {
                    self.gap(
                        format!("Gateway {key}"),
                        &error,
                        "whether it accepts the hosts is known from the status only",
                        true,
                    );
                    None
                }
                Err(error) => return Err(error).with_context(|| format!("reading Gateway {key}")),
            };
            let Some(gateway) = gateway else { continue };
            let selector = gateway.spec.selector.clone();
            self.world.gateways.insert(key.clone(), gateway.spec);
            self.pods(&key, &selector).await?;
        }
        Ok(())
    }

    async fn pods(&mut self, gateway: &ObjectKey, selector: &BTreeMap<String, String>) -> anyhow::Result<()> {
        if selector.is_empty() {
            return Ok(());
        }
        let query =
            selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let want = Want {
            kind: "pods of the gateway",
            narrowed: "pods of the gateway in other namespaces are not seen",
            lost: "whether the gateway has pods is not known",
            decisive: false,
        };
        let wide: Api<Pod> = Api::all(self.client.clone());
        let narrow: Api<Pod> = Api::namespaced(self.client.clone(), &gateway.namespace);
        let pods = match self.list(&want, &wide, Some(&narrow), Some(&query)).await? {
            Listed::Wide(pods) => pods,
            // None in one namespace does not mean that there is none.
            Listed::Narrow(pods) if !pods.is_empty() => pods,
            _ => return Ok(()),
        };
        let pods = pods.iter().map(ObservedPod::read).map(|(key, entry)| (key, entry.value.as_ref().clone()));
        self.world.pods.insert(gateway.clone(), pods.collect());
        Ok(())
    }

    async fn istio(&mut self) -> anyhow::Result<()> {
        let own = self.places.integrator.clone();
        let want = Want {
            kind: "VirtualServices",
            narrowed: "VirtualServices of others that could come first are not seen",
            lost: "the VirtualServices that hold the routes, and those of others that could come first, are not seen",
            decisive: false,
        };
        let resource = resource::<VirtualService>();
        let wide = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let narrow = Api::<DynamicObject>::namespaced_with(self.client.clone(), &own, &resource);
        let found = self.list(&want, &wide, Some(&narrow), None).await?;
        if !matches!(found, Listed::Nothing) {
            let mut routes = BTreeMap::new();
            for object in found.items() {
                let (key, entry) = observe::routes(&object, IDENTITY);
                let value = entry.value.as_ref().clone();
                if matches!(value.live.ownership, Ownership::Foreign(_)) {
                    self.world.foreign.push(value.foreign.clone());
                }
                if key.namespace == own {
                    routes.insert(key.name, value);
                }
            }
            self.world.routes = Some(routes);
        }
        let want = Want {
            kind: "ServiceEntries",
            narrowed: "",
            lost: "whether one claims the name of an auth service is not known",
            decisive: false,
        };
        let entries = Api::<DynamicObject>::all_with(self.client.clone(), &self::resource::<ServiceEntry>());
        for entry in self
            .list(&want, &entries, None, None)
            .await?
            .items()
            .into_iter()
            .filter_map(typed::<ServiceEntry>)
        {
            let key = ObjectKey::new(entry.namespace().unwrap_or_default(), entry.name_any());
            for host in observe::claimed_hosts(&entry.spec) {
                self.world.claims.entry(host).or_default().push(key.clone());
            }
        }
        let want = Want {
            kind: "EnvoyFilters",
            narrowed: "guard chains outside the root namespace are not seen",
            lost: "whether the guard chain is there is known from the status only",
            decisive: false,
        };
        let resource = self::resource::<EnvoyFilter>();
        let wide = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let narrow = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.places.root, &resource);
        let chains = self.list(&want, &wide, Some(&narrow), None).await?;
        if !matches!(chains, Listed::Nothing) {
            let chains = chains.items();
            let chains = chains.iter().map(|object| guard::chain(object, IDENTITY, &self.places.integrator));
            let chains = chains
                .filter_map(|(key, entry)| Some((key, entry.value.as_ref().as_ref()?.as_ref().clone())));
            self.world.chains = Some(chains.collect());
        }
        Ok(())
    }

    async fn operator(&mut self) -> anyhow::Result<()> {
        let Places { integrator, lease, .. } = self.places;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), integrator);
        match bounded(CALL_TIMEOUT, leases.get_opt(lease)).await {
            Ok(found) => {
                let spec = found.and_then(|lease| lease.spec);
                self.world.lease = spec.map_or(SeenLease::Absent, SeenLease::Present);
            }
            Err(error) if is_forbidden(&error) => self.gap(
                format!("Lease {integrator}/{lease}"),
                &error,
                "whether an integrator runs is not known",
                false,
            ),
            Err(error) => return Err(error).with_context(|| format!("reading Lease {integrator}/{lease}")),
        }
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for (name, ours) in stale_crds::compiled_in() {
            match bounded(CALL_TIMEOUT, crds.get_opt(&name)).await {
                Ok(found) => {
                    self.world.crds.insert(name, stale_crds::compare(found.as_ref(), &ours));
                }
                Err(error) if is_forbidden(&error) => {
                    self.gap(
                        "CustomResourceDefinitions".to_owned(),
                        &error,
                        "whether they are those of this version is not known",
                        false,
                    );
                    break;
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("reading CustomResourceDefinition {name}"));
                }
            }
        }
        Ok(())
    }

    fn scopes<K: kube::Resource<DynamicType = ()>>(&self) -> (Api<DynamicObject>, Api<DynamicObject>) {
        let resource = resource::<K>();
        let wide = Api::all_with(self.client.clone(), &resource);
        (wide, Api::namespaced_with(self.client.clone(), &self.places.namespace, &resource))
    }

    /// Lists in all namespaces, or, where that is forbidden, in one.
    async fn list<K>(
        &mut self,
        want: &Want,
        wide: &Api<K>,
        narrow: Option<&Api<K>>,
        labels: Option<&str>,
    ) -> anyhow::Result<Listed<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let forbidden = match list(wide, labels).await {
            Ok(found) => return Ok(Listed::Wide(found)),
            Err(error) if error.is_not_found() => return Ok(Listed::NotServed),
            Err(error) if is_forbidden(&error) => error,
            Err(error) => return Err(error).with_context(|| format!("listing {}", want.kind)),
        };
        if let Some(narrow) = narrow
            && let Ok(found) = list(narrow, labels).await
        {
            self.gap(format!("{} of all namespaces", want.kind), &forbidden, want.narrowed, false);
            return Ok(Listed::Narrow(found));
        }
        self.gap(want.kind.to_owned(), &forbidden, want.lost, want.decisive);
        Ok(Listed::Nothing)
    }

    fn gap(&mut self, what: String, error: &CallError, effect: &'static str, decisive: bool) {
        self.world.gaps.push(Gap { what, error: error.to_string(), effect, decisive });
    }

    /// Makes the last gap decisive where what it hides plays a part.
    fn mark_last(&mut self, decisive: bool) {
        if let Some(gap) = self.world.gaps.last_mut() {
            gap.decisive |= decisive;
        }
    }

    fn names_other_namespaces(&self) -> bool {
        let Some(Ok(request)) = &self.world.request else { return false };
        let own = Some(&self.places.namespace);
        let auths =
            request.spec.routes.iter().filter_map(|route| route.auth.as_ref()).chain([&request.spec.auth]);
        let providers = auths.filter_map(|auth| auth.provider_ref.as_ref()?.namespace.as_ref());
        let backends = request.spec.routes.iter().flat_map(|route| &route.backends);
        let mut named = backends.filter_map(|backend| backend.namespace.as_ref()).chain(providers);
        named.any(|namespace| Some(namespace) != own)
    }

    fn asks_for_login(&self) -> bool {
        let Some(Ok(request)) = &self.world.request else { return false };
        let mut auths =
            request.spec.routes.iter().filter_map(|route| route.auth.as_ref()).chain([&request.spec.auth]);
        auths.any(|auth| auth.provider_ref.is_some())
            || self.world.bindings.iter().any(|binding| binding.spec.auth.default_provider_ref.is_some())
    }
}

fn typed<K: DeserializeOwned>(object: DynamicObject) -> Option<K> {
    serde_json::to_value(object).and_then(serde_json::from_value).ok()
}
