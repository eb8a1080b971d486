use mesh_api::Reason;
use mesh_api::integrator::IstioGatewayReference;
use mesh_api::istio::GatewayServer;

use super::world::{World, binding, deleted, gateway, naming, reason, request, server, verdict};
use crate::{ChainFacts, ObjectKey};

/// Bindings `public` and `other`, each to a Gateway of that name with these servers; both are run by `pods`.
fn world(public: &[GatewayServer], other: &[GatewayServer], pods: [&str; 2]) -> World {
    let mut world = World::new().bound([
        binding("public", |_| {}),
        binding("other", |spec| {
            spec.gateway.istio_gateway =
                Some(IstioGatewayReference { namespace: "istio-system".into(), name: "other".into() });
        }),
    ]);
    for ((name, servers), pods) in [("public", public), ("other", other)].into_iter().zip(pods) {
        let key = ObjectKey::new("istio-system", name);
        world.gateways.insert(key.clone(), gateway(servers));
        world.chains.insert(key, ChainFacts { pods: Some(pods.to_owned()), ..ChainFacts::default() });
    }
    world
}

#[test]
fn a_host_is_served_by_one_gateway_of_the_same_pods_and_port() {
    let plain = [server(80, "HTTP", "", &["*"])];
    let tls = [server(443, "HTTPS", "SIMPLE", &["*"])];
    let redirecting = [server(80, "HTTP", "redirect", &["*"]), server(443, "HTTPS", "SIMPLE", &["*"])];
    let handed_through = [server(80, "TLS", "PASSTHROUGH", &["*"]), server(443, "HTTPS", "SIMPLE", &["*"])];
    for (public, other, pods, conflict) in [
        (&plain[..], &plain[..], ["p", "p"], true),
        (&plain, &plain, ["p", "q"], false),
        (&plain, &tls, ["p", "p"], false),
        (&plain, &redirecting, ["p", "p"], true),
        (&plain, &handed_through, ["p", "p"], false),
    ] {
        for (first, second) in [("public", "other"), ("other", "public")] {
            // In one namespace as well: Istio mixes the routes whoever wrote them.
            for namespace in ["a", "b"] {
                let younger = format!("{namespace}/young");
                let output = world(public, other, pods)
                    .with(naming(second, request(&younger, 2, &["x.example"], &["/"])))
                    .with(naming(first, request("a/old", 1, &["x.example"], &["/"])))
                    .compile();
                assert_eq!(reason(&output, "a/old"), Reason::Ready);
                let accepted = &verdict(&output, &younger).accepted;
                assert_eq!(
                    accepted.reason == Reason::HostConflict,
                    conflict,
                    "{pods:?} {public:?} {other:?}"
                );
                if conflict {
                    assert!(accepted.message.contains("a/old") && accepted.message.contains("port 80"));
                    assert_eq!(output.virtual_services.len(), 1);
                }
            }
        }
    }
}

#[test]
fn a_host_that_its_gateway_gives_up_is_free_for_the_other() {
    let plain = [server(80, "HTTP", "", &["*"])];
    let output = world(&plain, &plain, ["p", "p"])
        .with(deleted(naming("public", request("a/old", 1, &["x.example"], &["/"]))))
        .with(naming("other", request("b/young", 2, &["x.example"], &["/"])))
        .compile();
    assert_eq!(reason(&output, "b/young"), Reason::Ready);
    // Only the host that is taken is refused.
    let output = world(&plain, &plain, ["p", "p"])
        .with(naming("public", request("a/old", 1, &["x.example"], &["/"])))
        .with(naming("other", request("b/young", 2, &["x.example", "y.example"], &["/"])))
        .compile();
    assert_eq!(output.virtual_services.len(), 2);
    assert_eq!(verdict(&output, "b/young").urls, ["http://y.example"]);
}
