//! Nothing panics, whatever is written: objects may be older than a rule of the CRDs, or come from a file.

use std::collections::BTreeMap;

use mesh_api::integrator::{DefaultProviderReference, Method};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use routes::eval::{ChainState, Entry, PathNormalization, Request};

use crate::ask::entries;
use crate::generate::{Features, world};
use crate::world::{GATEWAYS, World};

/// Texts of which no rule was asked.
fn text() -> impl Strategy<Value = String> {
    let bits = vec![
        "",
        "/",
        "//",
        ".",
        "..",
        "%",
        "%2",
        "%2f",
        "*",
        "*.",
        "{name}",
        "{namespace}",
        "{domain}",
        "\u{1}",
        "\0",
        "\u{e9}",
        "a",
        "-",
        "_",
        "x-ii-guard",
        "mesh",
        "#",
        "?",
        "[a&&",
        "(",
        "\\",
        " ",
        "1s",
        "9999999999999999999999h",
        "-1s",
        ":path",
        "host",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    prop_oneof![
        3 => vec(select(bits), 0..5).prop_map(|bits| bits.concat()),
        1 => any::<String>(),
        1 => Just("/".to_owned() + &"%25/".repeat(700)),
    ]
}

/// Writes texts into fields of a world, one after another.
fn scribble(world: &mut World, field: usize, text: &str) {
    let owned = text.to_owned();
    let request = world.requests.first_mut();
    let provider = world.providers.first_mut().and_then(|one| one.spec.ext_authz.as_mut());
    let binding = world.bindings.first_mut();
    match (field, request, provider, binding) {
        (0, Some(request), ..) => request.metadata.name = Some(owned),
        (1, Some(request), ..) => request.metadata.namespace = Some(owned),
        (2, Some(request), ..) => request.spec.hosts.push(owned),
        (3, Some(request), ..) => request.spec.routes[0].path.value = owned,
        (4, Some(request), ..) => request.spec.routes[0].backends[0].service = owned,
        (5, Some(request), ..) => request.spec.routes[0].backends[0].namespace = Some(owned),
        (6, Some(request), ..) => request.spec.routes[0].timeout = Some(owned),
        (7, Some(request), ..) => {
            if let Some(rewrite) = &mut request.spec.routes[0].rewrite {
                rewrite.value = owned;
            }
        }
        (8, Some(request), ..) => request.spec.routes[0].backends.clear(),
        (9, Some(request), ..) => request.spec.routes.clear(),
        (10, Some(request), ..) => {
            request.spec.routes[0].backends[0].weight = u32::MAX;
            request.spec.routes[0].backends[0].port = 0;
        }
        (11, Some(request), ..) => {
            request.metadata.name = None;
            request.metadata.namespace = None;
            request.metadata.creation_timestamp = None;
        }
        (12, Some(request), ..) => {
            let route = request.spec.routes[0].clone();
            request.spec.routes = std::iter::repeat_n(route, 1_001).collect();
        }
        (13, Some(request), ..) => {
            request.spec.routes[0].methods = std::iter::repeat_n(Method::Get, 40).collect();
            request.metadata.creation_timestamp = None;
        }
        (14, _, Some(provider), _) => provider.service = owned,
        (15, _, Some(provider), _) => provider.timeout = owned,
        (16, _, Some(provider), _) => provider.identity_headers.push(owned),
        (17, _, Some(provider), _) => provider.request_headers.push(owned),
        (18, _, Some(provider), _) => provider.path_prefix = owned,
        (19, _, Some(provider), _) => provider.own_paths.push(owned),
        (20, ..) => {
            if let Some(provider) = world.providers.first_mut() {
                provider.spec.ext_authz = None;
                provider.metadata.uid = None;
            }
        }
        (21, _, _, Some(binding)) => binding.spec.hosts.template = owned,
        (22, _, _, Some(binding)) => binding.spec.hosts.domain = Some(owned),
        (23, _, _, Some(binding)) => {
            if let Some(rule) = binding.spec.hosts.allowed.first_mut() {
                rule.pattern = owned;
            }
        }
        (24, _, _, Some(binding)) => binding.spec.gateway.istio_gateway = None,
        (25, _, _, Some(binding)) => {
            binding.spec.auth.default_provider_ref =
                Some(DefaultProviderReference { namespace: owned.clone(), name: owned });
        }
        (26, ..) => {
            if let Some(server) = world.servers[0].first_mut() {
                server.hosts.push(owned.clone());
                server.port.protocol = owned;
            }
        }
        (27, Some(request), ..) => {
            request.spec.routes[0].backends[0].weight = u32::MAX;
            let backend = request.spec.routes[0].backends[0].clone();
            request.spec.routes[0].backends.push(backend);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(crate::cases(96))]

    #[test]
    fn nothing_panics(
        mut world in world(Features::ALL),
        scribbles in vec((0..28_usize, text()), 1..4),
        request in (text(), text(), text(), text(), text()),
    ) {
        for (field, text) in &scribbles {
            // The field may be gone by an earlier change.
            let reachable = world.requests.first().is_none_or(|request| {
                request.spec.routes.first().is_some_and(|route| !route.backends.is_empty())
            });
            if reachable {
                scribble(&mut world, *field, text);
            }
        }
        let output = world.compile();
        for object in &output.virtual_services {
            prop_assert_eq!(routes::validate(object, &crate::world::key()), vec![]);
        }
        prop_assert_eq!(output.withheld, Vec::<String>::new(), "what the compiler makes passes its own check");
        let (method, host, path, name, value) = request;
        let request = Request::get(host, path).method(method).header(name, value);
        for place in 0..GATEWAYS.len() {
            for paths in [PathNormalization::None, PathNormalization::BaseUnpatched, PathNormalization::Base] {
                let services = output.virtual_services.iter().map(AsRef::as_ref);
                let evaluator = world.evaluator(place, services, paths);
                let chain = ChainState::Holds(BTreeMap::new());
                for (_, entry) in entries(&world) {
                    evaluator.answer(&entry, &request, &chain, true);
                }
                evaluator.answer(&Entry { port: 443, server_name: Some(String::new()) }, &request, &chain, true);
            }
        }
    }
}
