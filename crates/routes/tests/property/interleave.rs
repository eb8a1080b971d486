//! What can be promised while the cluster changes from one reading of the requests to the next.
//!
//! A host on a gateway is one object, and one object is written at once. So whatever was written and whatever not, and
//! whatever the chain holds, each host on each gateway is answered wholly as one of the two readings says, or not at all:
//!
//! 1. A request that the reading in place protects is forwarded only after the check of the provider that this reading
//!    names, in its present form or in the one before.
//! 2. So a request that both readings protect is never forwarded without a check, at any moment.
//! 3. A request that only one of them protects is forwarded without a check only while the object of the other is in
//!    place. Nobody can do better: until the new object is written and taken up, the old one is what there is.
//! 4. A host whose object is absent is nobody's, since no object of ours has a wildcard.
//!
//! What is *not* promised: that an open route strips the identity headers of a provider whose first use, on another host,
//! was written a moment before. The object in place strips what its own reading says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mesh_api::istio::VirtualService;
use mesh_api::syntax::is_host;
use proptest::collection::vec;
use proptest::prelude::*;
use routes::eval::{Answer, ChainState};
use routes::guard::{Provider, ProviderId};
use routes::{ChainFacts, ObjectKey, Output, virtual_service_name};

use crate::agree::does;
use crate::ask::{Draw, draws, entries};
use crate::generate::{Features, world};
use crate::reading::{Reading, Said};
use crate::world::{Chains, GATEWAYS, World, gateway_key, holds};

/// Two worlds, of which the second has some of the first and some of its own.
fn two_worlds() -> impl Strategy<Value = (World, World)> {
    let features = prop_oneof![Just(Features::ALL), Just(Features::ONE_HOST)];
    features.prop_flat_map(|features| {
        (world(features), world(features), vec(prop::bool::weighted(0.3), 6)).prop_map(
            |(old, other, takes)| {
                let mut new = old.clone();
                if takes[0] {
                    new.providers = other.providers;
                }
                if takes[1] {
                    new.bindings = other.bindings;
                }
                if takes[2] {
                    new.services = other.services;
                }
                if takes[3] {
                    new.grants = other.grants;
                }
                // Some of the old requests stay, and some come.
                if takes[4] {
                    new.requests.truncate(old.requests.len() / 2);
                    let known: BTreeSet<_> =
                        new.requests.iter().map(|one| one.metadata.name.clone()).collect();
                    new.requests
                        .extend(other.requests.into_iter().filter(|one| !known.contains(&one.metadata.name)));
                } else {
                    for (mine, theirs) in new.requests.iter_mut().zip(other.requests) {
                        mine.spec = theirs.spec;
                    }
                }
                if takes[5] {
                    new.claims = other.claims;
                }
                (old, new)
            },
        )
    })
}

/// Which state of each object is in place, what the chain holds, and what the integrator knows of it.
#[derive(Clone, Debug)]
struct Moment {
    /// Old, new or absent, in turn for the objects.
    in_place: Vec<u8>,
    /// Absent, broken or in force.
    chain: u8,
    held: Vec<bool>,
    proved: Vec<bool>,
}

fn moment() -> impl Strategy<Value = Moment> {
    let bits = || vec(prop::bool::weighted(0.7), 12);
    (vec(0..5_u8, 12), 0..6_u8, bits(), bits()).prop_map(|(in_place, chain, held, proved)| Moment {
        in_place,
        chain,
        held,
        proved,
    })
}

/// The providers of both readings, by their ids.
fn providers(readings: [&Reading<'_>; 2]) -> BTreeMap<ProviderId, Provider> {
    let all = readings.into_iter().flat_map(Reading::providers);
    all.map(|provider| (provider.id(), provider.clone())).collect()
}

/// What the integrator knows when it compiles the second time: the chain as it was made for the first.
fn chains(old: &Reading<'_>, moment: &Moment) -> Chains {
    let known: BTreeMap<ProviderId, Provider> =
        old.providers().map(|provider| (provider.id(), provider.clone())).collect();
    let proved: BTreeSet<ProviderId> =
        known.keys().zip(&moment.proved).filter(|(_, proved)| **proved).map(|(id, _)| id.clone()).collect();
    let facts = ChainFacts { holds: proved.clone(), ready: proved, known, ..ChainFacts::default() };
    (0..GATEWAYS.len()).map(|place| (gateway_key(place), facts.clone())).collect()
}

type Objects = BTreeMap<String, Arc<VirtualService>>;

fn objects(output: &Output) -> Objects {
    let named = output.virtual_services.iter();
    named.map(|object| (object.metadata.name.clone().unwrap_or_default(), Arc::clone(object))).collect()
}

/// The objects in place, each with the reading that it is of.
fn in_place(old: &Objects, new: &Objects, moment: &Moment) -> BTreeMap<String, (usize, Arc<VirtualService>)> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let states = moment.in_place.iter().cycle();
    let placed = names.into_iter().zip(states).filter_map(|(name, state)| {
        let object = match state {
            0 | 1 => (0, old.get(name)?),
            2 | 3 => (1, new.get(name)?),
            _ => return None,
        };
        Some((name.clone(), (object.0, Arc::clone(object.1))))
    });
    placed.collect()
}

fn hold(old: &World, new: &World, moment: &Moment, draws: &[Draw]) -> Result<(), TestCaseError> {
    let readings = [Reading::new(old), Reading::new(new)];
    let ids = providers([&readings[0], &readings[1]]);
    let before = old.compile();
    let after = new.compile_with(&chains(&readings[0], moment));
    let placed = in_place(&objects(&before), &objects(&after), moment);
    let chain = match moment.chain {
        0 => ChainState::Absent,
        1 => ChainState::Broken,
        _ => holds(ids.keys().zip(&moment.held).filter(|(_, held)| **held).map(|(id, _)| id)),
    };
    let asks: Vec<_> = draws.iter().map(|draw| draw.ask(&[old, new])).collect();
    for (place, entry) in entries(old) {
        let evaluator = old.evaluator(place, placed.values().map(|(_, object)| object.as_ref()), old.paths());
        for ask in &asks {
            for login in [true, false] {
                let answer = evaluator.answer(&entry, &ask.request, &chain, login);
                let Answer::Forward(forward) = &answer else { continue };
                let context = || format!("{ask:?} at {entry:?} of {:?}: {answer:#?}", GATEWAYS[place]);
                let Some(path) = old.paths().apply(&ask.request.path) else {
                    prop_assert!(false, "{}", context());
                    continue;
                };
                prop_assert!(is_host(&ask.host), "{}", context());
                let say = |reading: &Reading<'_>| {
                    reading.says(place, entry.port, &ask.host, &path, &ask.request.method)
                };
                let said = readings.each_ref().map(say);
                let login_of = |said: &Said| match said {
                    Said::Served(served) => served.login.clone(),
                    _ => None,
                };
                if said.iter().all(|said| login_of(said).is_some() || *said == Said::Closed) {
                    prop_assert!(forward.check.is_some(), "both readings protect {}", context());
                }
                let name = virtual_service_name(&gateway_key(place), &ask.host);
                let Some((reading, _)) = placed.get(&name) else {
                    prop_assert!(false, "the object is absent: {}", context());
                    continue;
                };
                let Said::Served(served) = &said[*reading] else {
                    prop_assert!(false, "said {:?}: {}", said[*reading], context());
                    continue;
                };
                let checked: Option<ObjectKey> = forward.check.as_ref().and_then(|check| {
                    let found = ids.iter().find(|(id, _)| id.to_string() == *check);
                    found.map(|(_, provider)| provider.key.clone())
                });
                prop_assert_eq!(&checked, &served.login, "{}", context());
                prop_assert!(login || checked.is_none(), "{}", context());
                prop_assert!(does(served, forward, true), "said {:#?}: {}", served, context());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(96))]

    #[test]
    fn nothing_opens_between_two_readings((old, new) in two_worlds(), moment in moment(), draws in draws()) {
        hold(&old, &new, &moment, &draws)?;
    }
}
