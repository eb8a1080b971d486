//! Hosts on several Gateways of the same pods.
//!
//! istiod merges the servers that Gateways have on one port of their pods, and of a host that several of them serve it puts the
//! routes of all `VirtualServices` into one list. So a route by one Gateway could answer for another's, and open what is
//! protected there. Source: `mergeGateways` in Istio's `pilot/pkg/model/gateway.go` and `buildGatewayHTTPRouteConfig` in
//! `pilot/pkg/networking/core/gateway.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mesh_api::Reason;

use crate::input::{Input, ObjectKey};
use crate::output::Finding;
use crate::prepare::Prepared;
use crate::servers;

/// Refuses hosts that older requests have on another Gateway of the same pods and port. `requests` are in the order of age.
pub(crate) fn refuse(requests: &mut [Prepared<'_>], input: &Input<'_>) {
    let crowded = crowded(input);
    if crowded.is_empty() {
        return;
    }
    let mut holders: BTreeMap<(&str, String), Vec<Holder>> = BTreeMap::new();
    for prepared in requests {
        let Some(gateway) = prepared.choice.as_ref().ok().map(|choice| choice.gateway.clone()) else {
            continue;
        };
        let Some(pods) = crowded.get(gateway.as_ref()) else { continue };
        for claim in &mut prepared.claims {
            if claim.admission.is_err() {
                continue;
            }
            let holders = holders.entry((pods, claim.host.clone().into_owned())).or_default();
            if holders.iter().any(|holder| holder.gateway == gateway) {
                continue;
            }
            let ports = ports(&claim.host, &gateway, input);
            let taken =
                holders.iter().find_map(|holder| Some((holder, *holder.ports.intersection(&ports).next()?)));
            match taken {
                Some((holder, port)) => {
                    claim.admission = Err(conflict(&claim.host, &gateway, holder, port));
                }
                None => {
                    holders.push(Holder { gateway: gateway.clone(), ports, request: prepared.key.clone() });
                }
            }
        }
    }
}

/// A Gateway by which a host is served, on these ports.
struct Holder {
    gateway: Arc<ObjectKey>,
    ports: BTreeSet<u32>,
    /// The oldest request.
    request: ObjectKey,
}

/// The Gateways that share their pods with another, and what these pods are called.
fn crowded<'i>(input: &Input<'i>) -> BTreeMap<&'i ObjectKey, &'i str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let named = || input.chains.iter().filter_map(|(gateway, facts)| Some((gateway, facts.pods.as_deref()?)));
    for (_, pods) in named() {
        *counts.entry(pods).or_default() += 1;
    }
    named().filter(|(_, pods)| counts.get(pods).is_some_and(|count| *count > 1)).collect()
}

fn ports(host: &str, gateway: &ObjectKey, input: &Input<'_>) -> BTreeSet<u32> {
    let facts = input.gateways.get(gateway).filter(|facts| !facts.gone);
    facts.map(|facts| servers::ports(host, gateway, facts, input.settings)).unwrap_or_default()
}

fn conflict(host: &str, gateway: &ObjectKey, holder: &Holder, port: u32) -> Finding {
    let message = format!(
        "host {host} is served by Gateway {} for the older request {}, and Gateway {gateway} is of the same pods and has port \
         {port} as well, where Istio would mix the routes of both: use a binding to Gateway {}, or another host",
        holder.gateway, holder.request, holder.gateway
    );
    Finding::bad(Reason::HostConflict, message)
}
