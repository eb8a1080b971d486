//! Which Gateways share a chain.

use std::collections::{BTreeMap, BTreeSet};

use mesh_api::Reason;

use crate::input::ObjectKey;
use crate::output::Finding;

/// A Gateway that needs a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardedGateway {
    /// The labels of its pods.
    pub selector: BTreeMap<String, String>,
    /// The pods that carry them now.
    pub pods: BTreeSet<ObjectKey>,
}

/// The selector of the chain that each Gateway's pods get, or why there is none.
///
/// Two chains on one pod undo each other, so there is one for each set of pods. A Gateway whose selector demands more labels
/// than another's is covered by the other's chain, whether it has pods or not. Of Gateways with selectors that do not contain
/// one another, pods that are there decide: they share a chain if one has all pods of the other, have one each if they have
/// none in common, and none otherwise.
pub fn groups(
    gateways: &BTreeMap<ObjectKey, GuardedGateway>,
) -> BTreeMap<ObjectKey, Result<BTreeMap<String, String>, Finding>> {
    let mut pods: BTreeMap<&BTreeMap<String, String>, (BTreeSet<&ObjectKey>, &ObjectKey)> = BTreeMap::new();
    for (key, gateway) in gateways {
        let (all, _) = pods.entry(&gateway.selector).or_insert_with(|| (BTreeSet::new(), key));
        all.extend(&gateway.pods);
    }
    gateways
        .iter()
        .map(|(key, gateway)| {
            let group = if gateway.selector.is_empty() {
                Err(everywhere(key))
            } else {
                broadest(&gateway.selector, &pods).map_err(|other| overlap(key, other))
            };
            (key.clone(), group)
        })
        .collect()
}

/// What the pods of each Gateway are called, by what [`groups()`] said of these Gateways: two Gateways have one name where they
/// share pods, or may come to.
pub fn pod_sets(
    gateways: &BTreeMap<ObjectKey, GuardedGateway>,
    groups: &BTreeMap<ObjectKey, Result<BTreeMap<String, String>, Finding>>,
) -> BTreeMap<ObjectKey, String> {
    // An empty selector means every proxy, and so has pods in common with every other.
    let everywhere = gateways.values().any(|gateway| gateway.selector.is_empty());
    let name = |group: &Result<BTreeMap<String, String>, Finding>| match group {
        _ if everywhere => "everywhere".to_owned(),
        Ok(selector) => super::Chain::name(selector),
        Err(_) => "overlapping".to_owned(),
    };
    groups.iter().map(|(key, group)| (key.clone(), name(group))).collect()
}

type Pods<'g> = BTreeMap<&'g BTreeMap<String, String>, (BTreeSet<&'g ObjectKey>, &'g ObjectKey)>;

/// Goes from a selector to one whose chain covers it, as long as there is one; an error names a Gateway that overlaps.
fn broadest<'g>(
    selector: &'g BTreeMap<String, String>,
    pods: &Pods<'g>,
) -> Result<BTreeMap<String, String>, &'g ObjectKey> {
    let mut current = selector;
    // Each step leads to fewer labels, to more pods, or among equal sets of pods to a smaller text, so it ends.
    loop {
        let Some((own, _)) = pods.get(current) else { return Ok(current.clone()) };
        let mut next = None;
        for (&other, (theirs, gateway)) in pods {
            if other == current || other.is_empty() {
                continue;
            }
            let broader = other.iter().all(|(key, value)| current.get(key) == Some(value));
            let narrower = current.iter().all(|(key, value)| other.get(key) == Some(value));
            if broader {
                next = next.or(Some(other));
            } else if !narrower && !own.is_disjoint(theirs) {
                if own == theirs {
                    next = next.or((other < current).then_some(other));
                } else if own.is_subset(theirs) {
                    next = next.or(Some(other));
                } else if !theirs.is_subset(own) {
                    return Err(gateway);
                }
            }
        }
        match next {
            Some(other) => current = other,
            None => return Ok(current.clone()),
        }
    }
}

fn overlap(key: &ObjectKey, other: &ObjectKey) -> Finding {
    let message = format!(
        "Gateways {key} and {other} select some pods in common, and neither selects all of the other's, so that no guard chain \
         can cover them: make their spec.selector equal, or such that they share no pod"
    );
    Finding::bad(Reason::OverlappingGateways, message)
}

fn everywhere(key: &ObjectKey) -> Finding {
    let message = format!(
        "spec.selector of Gateway {key} is empty, by which Istio means every proxy of the mesh: name the labels of the \
         gateway's pods, since a guard chain for every proxy is refused"
    );
    Finding::bad(Reason::OverlappingGateways, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(labels: &[&str], pods: &[&str]) -> GuardedGateway {
        GuardedGateway {
            selector: labels
                .iter()
                .map(|label| label.split_once('=').unwrap())
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            pods: pods.iter().map(|pod| ObjectKey::new("gw", *pod)).collect(),
        }
    }

    /// The labels of the chain of each Gateway, or `!` where there is none.
    fn grouped(list: &[GuardedGateway]) -> Vec<String> {
        let keyed = list
            .iter()
            .enumerate()
            .map(|(n, gateway)| (ObjectKey::new("ns", format!("g{n}")), gateway.clone()));
        groups(&keyed.collect())
            .into_values()
            .map(|group| match group {
                Ok(selector) => {
                    selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
                }
                Err(_) => "!".to_owned(),
            })
            .collect()
    }

    #[test]
    fn gateways_share_a_chain_where_their_pods_do() {
        let (a, ab, b) = (&["a=1"][..], &["a=1", "b=1"][..], &["b=1"][..]);
        for (list, expected) in [
            (vec![gateway(a, &["p"])], vec!["a=1"]),
            (vec![gateway(a, &["p"]), gateway(a, &["p"])], vec!["a=1", "a=1"]),
            // By the labels alone, so that pods may come and go.
            (vec![gateway(a, &[]), gateway(ab, &[])], vec!["a=1", "a=1"]),
            (vec![gateway(ab, &["p"]), gateway(a, &["p", "q"])], vec!["a=1", "a=1"]),
            (vec![gateway(a, &["p"]), gateway(b, &["q"])], vec!["a=1", "b=1"]),
            (vec![gateway(a, &["p"]), gateway(b, &["p"])], vec!["a=1", "a=1"]),
            (vec![gateway(a, &["p"]), gateway(b, &["p", "q"])], vec!["b=1", "b=1"]),
            (vec![gateway(a, &["p", "q"]), gateway(b, &["q", "r"])], vec!["!", "!"]),
            (vec![gateway(&[], &["p"])], vec!["!"]),
            (
                vec![gateway(ab, &["p"]), gateway(a, &["p"]), gateway(b, &["p", "q"])],
                vec!["b=1", "b=1", "b=1"],
            ),
        ] {
            assert_eq!(grouped(&list), expected, "{list:?}");
        }
        let sets = |list: &[GuardedGateway]| {
            let keyed = list.iter().enumerate();
            let keyed = keyed.map(|(n, gateway)| (ObjectKey::new("ns", format!("g{n}")), gateway.clone()));
            let keyed = keyed.collect();
            pod_sets(&keyed, &groups(&keyed)).into_values().collect::<Vec<_>>()
        };
        let apart = sets(&[gateway(a, &["p"]), gateway(b, &["q"])]);
        assert_ne!(apart[0], apart[1]);
        for together in [
            [gateway(a, &["p"]), gateway(ab, &[])],
            [gateway(a, &["p", "q"]), gateway(b, &["q", "r"])],
            [gateway(&[], &[]), gateway(b, &[])],
        ] {
            let together = sets(&together);
            assert_eq!(together[0], together[1]);
        }
        let list = [gateway(a, &["p", "q"]), gateway(b, &["q", "r"])];
        let keyed = list
            .iter()
            .enumerate()
            .map(|(n, gateway)| (ObjectKey::new("ns", format!("g{n}")), gateway.clone()));
        let message = groups(&keyed.collect()).into_values().next().unwrap().unwrap_err().message;
        assert!(message.contains("ns/g0") && message.contains("ns/g1"), "{message}");
    }
}
