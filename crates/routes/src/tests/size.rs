use mesh_api::Reason;

use super::world::{World, reason, request, table, verdict};
use crate::{MAX_BYTES, MAX_ROUTES};

fn paths(name: &str, count: usize, length: usize) -> Vec<String> {
    (0..count).map(|number| format!("/{name}{number}{}", "x".repeat(length))).collect()
}

fn with(world: World, name: &str, second: i64, paths: &[String]) -> World {
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    world.with(request(&format!("a/{name}"), second, &["x.example"], &paths))
}

#[test]
fn the_youngest_are_refused_when_a_host_has_too_many_routes() {
    let mut world = World::new();
    // 15 times 64 are 960: the next 64 would be too many, a few still fit.
    for number in 0..16 {
        world = with(world, &format!("r{number}"), number, &paths(&format!("r{number}-"), 64, 0));
    }
    let world = with(world, "few", 100, &paths("few-", 40, 0));
    let world = with(world, "one", 101, &paths("one-", 1, 0));
    let output = world.compile();
    assert_eq!(table(&output, "x.example").len(), MAX_ROUTES);
    for number in 0..15 {
        assert_eq!(reason(&output, &format!("a/r{number}")), Reason::Ready);
    }
    for refused in ["a/r15", "a/one"] {
        let verdict = verdict(&output, refused);
        assert_eq!(verdict.accepted.reason, Reason::HostFull);
        assert!(verdict.virtual_services.is_empty(), "not one of its routes is served");
    }
    assert_eq!(reason(&output, "a/few"), Reason::Ready);
    assert!(output.withheld.is_empty());
}

#[test]
fn the_youngest_are_refused_when_an_object_would_be_too_large() {
    let mut world = World::new();
    for number in 0..10 {
        world = with(world, &format!("r{number}"), number, &paths(&format!("r{number}-"), 64, 1000));
    }
    let output = world.compile();
    let bytes = serde_json::to_vec(output.virtual_services[0].as_ref()).unwrap().len();
    assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES * 8 / 10, "{bytes}");
    assert!(output.withheld.is_empty(), "the guard refuses requests before the object is refused as a whole");
    let states: Vec<Reason> = (0..10).map(|number| reason(&output, &format!("a/r{number}"))).collect();
    let served = states.iter().take_while(|reason| **reason == Reason::Ready).count();
    assert!(served > 0 && states[served..].iter().all(|reason| *reason == Reason::HostFull), "{states:?}");
}
