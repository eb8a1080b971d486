//! What was read of the cluster, and what could not be.

use std::collections::BTreeMap;

use k8s_openapi::api::{coordination::v1::LeaseSpec, core::v1::Service};
use mesh_api::{
    AuthProvider, GatewayBinding, IngressRequest, integrator::IngressRequestStatus, istio::GatewaySpec,
};
use operator_kit::cache::Key;
use routes::{ForeignRoutes, Grants, ObjectKey};
use serde::Serialize;

use crate::{
    guard::{ObservedChain, ObservedPod},
    observe::ObservedRoutes,
    stale_crds::Standing,
};

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gap {
    /// What: a kind and where.
    pub(super) what: String,
    /// The API server's answer.
    pub(super) error: String,
    /// What that means for the answer.
    pub(super) effect: &'static str,
    /// Whether no verdict can be computed without it.
    #[serde(skip)]
    pub(super) decisive: bool,
}

/// What was seen of the integrator's lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum SeenLease {
    /// It could not be read.
    #[default]
    Unread,
    /// There is none.
    Absent,
    /// It says this.
    Present(LeaseSpec),
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) key: Option<ObjectKey>,
    /// The request that is explained; or why it is none.
    pub(super) request: Option<Result<IngressRequest, String>>,
    /// Its generation.
    pub(super) generation: Option<i64>,
    /// Its status as stored.
    pub(super) status: IngressRequestStatus,
    /// Every request that could be read, that one included.
    pub(super) requests: Vec<IngressRequest>,
    pub(super) bindings: Vec<GatewayBinding>,
    pub(super) providers: Vec<AuthProvider>,
    pub(super) services: Vec<Service>,
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether the cluster serves Istio's kinds.
    pub(super) istio_served: bool,
    /// The Gateways that bindings name, as far as they exist.
    pub(super) gateways: BTreeMap<ObjectKey, GatewaySpec>,
    /// Their pods; a Gateway whose pods could not be read is not listed.
    pub(super) pods: BTreeMap<ObjectKey, BTreeMap<Key, ObservedPod>>,
    pub(super) grants: Grants,
    pub(super) claims: BTreeMap<String, Vec<ObjectKey>>,
    /// The `VirtualServices` in the integrator's namespace; nothing where they could not be read.
    pub(super) routes: Option<BTreeMap<String, ObservedRoutes>>,
    /// `VirtualServices` elsewhere.
    pub(super) foreign: Vec<ForeignRoutes>,
    /// Guard chains; nothing where they could not be read.
    pub(super) chains: Option<BTreeMap<Key, ObservedChain>>,
    /// The integrator's lease.
    pub(super) lease: SeenLease,
    /// The CRDs that could be read.
    pub(super) crds: BTreeMap<String, Standing>,
    /// What could not be read.
    pub(super) gaps: Vec<Gap>,
}
