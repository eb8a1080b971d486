//! The whole compile, in the order of its steps.

use std::collections::BTreeMap;

use crate::bindings;
use crate::input::{Input, ObjectKey};
use crate::output::Output;
use crate::prepare::{self, Prepared};
use crate::table::{self, Claimant};
use crate::verdict::{self, Hosts};
use crate::{emit, validate};

/// Compiles requests to `VirtualServices`, and says what became of each request and binding.
pub fn compile(input: &Input<'_>) -> Output {
    let bindings = bindings::read(input);
    let requests = prepare::prepare(input, &bindings);
    let mut output = Output::default();
    let mut hosts = Hosts::default();
    for ((gateway, host), claimants) in by_gateway_and_host(&requests) {
        let mut table = table::build(host, &claimants);
        let name = emit::virtual_service_name(gateway, host);
        let routes = std::mem::take(&mut table.routes);
        // Without a valid path there is no route, and an object without routes would be invalid.
        if !routes.is_empty() {
            let facts = input.gateways.get(gateway);
            let object = emit::virtual_service(gateway, facts, host, routes, input.settings);
            let problems = validate::validate(&object);
            if problems.is_empty() {
                output.virtual_services.push(object);
            } else {
                verdict::withhold(&mut table, &name, &problems);
                output.withheld.push(name.clone());
            }
        }
        hosts.record(table, &name);
    }
    output.virtual_services.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    output.withheld.sort();
    output.requests = verdict::requests(&requests, &bindings, &hosts);
    output.bindings = verdict::bindings(&bindings, &requests, &output.requests);
    output
}

/// The admitted claims, the oldest first, by gateway and host.
fn by_gateway_and_host<'a>(
    requests: &'a [Prepared<'a>],
) -> BTreeMap<(&'a ObjectKey, &'a str), Vec<Claimant<'a>>> {
    let mut groups: BTreeMap<(&ObjectKey, &str), Vec<Claimant<'_>>> = BTreeMap::new();
    for (request, prepared) in requests.iter().enumerate() {
        let Ok(choice) = &prepared.choice else { continue };
        for (claim, claimed) in prepared.claims.iter().enumerate() {
            let Ok(admission) = &claimed.admission else { continue };
            let claimant = Claimant { request, claim, prepared, admission };
            groups.entry((&choice.gateway, claimed.host.as_str())).or_default().push(claimant);
        }
    }
    groups
}
