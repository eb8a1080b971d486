//! The order in which objects arrive does not matter.

use proptest::prelude::*;

use crate::generate::{Features, world};
use crate::world::World;

/// A world, and the same in another order.
fn shuffled() -> impl Strategy<Value = (World, World)> {
    world(Features::ALL).prop_flat_map(|world| {
        let lists = (
            Just(world.requests.clone()).prop_shuffle(),
            Just(world.bindings.clone()).prop_shuffle(),
            Just(world.providers.clone()).prop_shuffle(),
            Just(world.grants.list.clone()).prop_shuffle(),
        );
        lists.prop_map(move |(requests, bindings, providers, grants)| {
            let mut other = World { bindings, requests, providers, ..world.clone() };
            other.grants.list = grants;
            (world.clone(), other)
        })
    })
}

proptest! {
    #![proptest_config(crate::cases(48))]

    #[test]
    fn the_order_of_arrival_does_not_matter((world, other) in shuffled()) {
        let (output, again) = (world.compile(), other.compile());
        let bytes = |output: &routes::Output| {
            let objects: Vec<_> = output.virtual_services.iter().map(AsRef::as_ref).collect();
            serde_json::to_string(&objects).expect("JSON")
        };
        prop_assert_eq!(bytes(&output), bytes(&again));
        prop_assert_eq!(output, again);
    }
}
