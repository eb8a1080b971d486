//! What the pods hold of a chain, and what is to be done about it: pure, the time given.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use routes::guard::{Provider, ProviderId};
use tokio::time::Instant;

/// How long it usually takes until the pods have what was written: istiod waits for more changes before it pushes.
pub(super) const USUAL_PUSH: Duration = Duration::from_secs(5);
/// For how long after a start what the routes use counts as held: what was in force before need not be doubted, and a
/// restart must not write.
pub(super) const BENEFIT: Duration = Duration::from_secs(20);
/// For how long a pod that joins others that hold the chain does not count: Istio makes a pod ready when it has its
/// configuration.
const JOINING: Duration = Duration::from_secs(10);
/// After how long a pod that cannot be asked counts as holding what is written: twice the usual time.
const UNASKABLE: Duration = Duration::from_secs(2 * USUAL_PUSH.as_secs());
/// After how long what no route needs is taken out of a chain, if nothing else is to be written before.
pub(super) const SURPLUS: Duration = Duration::from_mins(10);

/// The `EnvoyFilter` of a chain as it is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LiveChain {
    /// There is none.
    Absent,
    /// It is as we wrote it, with these providers.
    Intact(BTreeMap<ProviderId, Provider>),
    /// Somebody changed it. It says that it has these providers, each of which its own id vouches for.
    Changed(BTreeMap<ProviderId, Provider>),
}

impl LiveChain {
    fn providers(&self) -> Option<&BTreeMap<ProviderId, Provider>> {
        match self {
            Self::Intact(providers) => Some(providers),
            Self::Absent | Self::Changed(_) => None,
        }
    }
}

/// What a pod said of a chain, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// It has the chain that is in the cluster.
    Proved,
    /// It has not been asked for it yet.
    Unasked,
    /// It cannot be asked, for as long as that is tried.
    CannotAsk {
        /// Since when.
        since: Instant,
    },
    /// It answers, but not as one that has it, for as long as it is asked.
    Missing {
        /// Since when.
        since: Instant,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing.
    Keep,
    /// The chain with these providers is to be written.
    Write(BTreeMap<ProviderId, Provider>),
    /// It is not needed any more.
    Delete,
}

/// What the pods hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    /// The providers whose check every pod holds.
    pub(super) holds: BTreeSet<ProviderId>,
    /// Those that no connection can miss any more.
    pub(super) ready: BTreeSet<ProviderId>,
}

#[derive(Debug)]
struct Pod {
    holds: BTreeSet<ProviderId>,
    proved: bool,
    first_seen: Instant,
    /// It came when others held the chain already.
    joined: bool,
}

/// What is remembered of one chain.
#[derive(Debug)]
pub(super) struct ChainState {
    started: Instant,
    pods: BTreeMap<String, Pod>,
    held_since: BTreeMap<ProviderId, Instant>,
    /// When it was last written.
    pub(super) written: Option<Instant>,
    surplus_since: Option<Instant>,
    /// What was in it when it was last as we wrote it.
    last: Option<BTreeMap<ProviderId, Provider>>,
    next: Option<Instant>,
}

impl ChainState {
    /// Nothing is known of the chain but when it was last written, if that can be told.
    pub(super) fn new(now: Instant, written: Option<Instant>) -> Self {
        Self {
            started: now,
            pods: BTreeMap::new(),
            held_since: BTreeMap::new(),
            written,
            surplus_since: None,
            last: None,
            next: None,
        }
    }

    /// When the answer of [`ChainState::observe`] or [`ChainState::decide`] may change by itself.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn again_at(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Notes what the ready pods answered, each by its uid; `used` are the providers that live routes demand.
    pub(super) fn observe(
        &mut self,
        live: &LiveChain,
        pods: &BTreeMap<String, Held>,
        used: &BTreeSet<ProviderId>,
        drain: Duration,
        now: Instant,
    ) -> Holdings {
        self.next = None;
        if let LiveChain::Intact(providers) = live {
            self.last = Some(providers.clone());
        }
        let none = BTreeMap::new();
        let written: BTreeSet<ProviderId> = live.providers().unwrap_or(&none).keys().cloned().collect();
        let benefit = now < self.started + BENEFIT;
        if benefit {
            self.again_at(self.started + BENEFIT);
        }
        self.pods.retain(|uid, _| pods.contains_key(uid));
        let settled = self.pods.values().any(|pod| pod.proved);
        for (uid, held) in pods {
            let pod = self.pods.entry(uid.clone()).or_insert_with(|| Pod {
                holds: if benefit { used.clone() } else { BTreeSet::new() },
                proved: false,
                first_seen: now,
                joined: settled,
            });
            // Whatever it holds now, what is no longer written it will not hold for long.
            pod.holds.retain(|id| written.contains(id));
            match *held {
                Held::Proved => {
                    pod.holds.clone_from(&written);
                    pod.proved = true;
                }
                Held::CannotAsk { since } if now >= since + UNASKABLE => pod.holds.clone_from(&written),
                Held::Missing { since } if now >= since + UNASKABLE && !benefit => {
                    // It was asked again and again, and does not have it.
                    pod.holds.clear();
                    pod.proved = true;
                }
                Held::Unasked if !benefit && !pod.proved && now >= pod.first_seen + UNASKABLE => {
                    pod.holds.clear();
                }
                _ => {}
            }
        }
        let mut deadlines: Vec<Instant> = Vec::new();
        let counted = self.pods.values().filter(|pod| {
            let joining = pod.joined && !pod.proved && now < pod.first_seen + JOINING;
            if joining {
                deadlines.push(pod.first_seen + JOINING);
            }
            !joining
        });
        let mut holds: Option<BTreeSet<ProviderId>> = None;
        for pod in counted {
            holds = Some(match holds {
                None => pod.holds.clone(),
                Some(holds) => holds.intersection(&pod.holds).cloned().collect(),
            });
        }
        for held in pods.values() {
            if let Held::CannotAsk { since } | Held::Missing { since } = *held
                && now < since + UNASKABLE
            {
                deadlines.push(since + UNASKABLE);
            }
        }
        let holds = holds.unwrap_or_default();
        self.held_since.retain(|id, _| holds.contains(id));
        for id in &holds {
            self.held_since.entry(id.clone()).or_insert(now);
        }
        // What live routes demand was ready when they came to demand it. Were it to be waited for again after a restart, a
        // repair or with a new pod, routes would go back to an older form of the provider, and forth again.
        let mut ready: BTreeSet<ProviderId> = used.intersection(&written).cloned().collect();
        for (id, since) in &self.held_since {
            if now >= *since + drain {
                ready.insert(id.clone());
            } else {
                deadlines.push(*since + drain);
            }
        }
        for at in deadlines {
            self.again_at(at);
        }
        Holdings { holds, ready }
    }

    /// Decides what is to be done, so that the chain holds what is `wanted` and, until the routes have left them, the
    /// providers that are `used`. Each write costs connections: additions are batched, and what is too much waits for them.
    pub(super) fn decide(
        &mut self,
        wanted: &BTreeMap<ProviderId, Provider>,
        live: &LiveChain,
        used: &BTreeSet<ProviderId>,
        interval: Duration,
        now: Instant,
    ) -> Decision {
        let none = BTreeMap::new();
        let (present, claimed) = match live {
            LiveChain::Absent if wanted.is_empty() => return Decision::Keep,
            LiveChain::Absent => (None, &none),
            LiveChain::Changed(claimed) => (None, claimed),
            LiveChain::Intact(present) => (Some(present), present),
        };
        // A check stays until the routes have left it, also where the chain is made anew.
        let before = present.or(self.last.as_ref()).unwrap_or(claimed);
        let mut content = wanted.clone();
        for (id, provider) in before.iter().filter(|(id, _)| used.contains(id)) {
            content.entry(id.clone()).or_insert_with(|| provider.clone());
        }
        let settle = |content: BTreeMap<_, _>| {
            if content.is_empty() { Decision::Delete } else { Decision::Write(content) }
        };
        // Every time: until it is there, the routes answer 503.
        let Some(present) = present else { return settle(content) };
        if content.keys().eq(present.keys()) {
            self.surplus_since = None;
            return Decision::Keep;
        }
        let due = if content.keys().any(|id| !present.contains_key(id)) {
            self.written.map_or(now, |written| written + interval)
        } else {
            *self.surplus_since.get_or_insert(now) + SURPLUS
        };
        if now < due {
            self.again_at(due);
            return Decision::Keep;
        }
        self.surplus_since = None;
        settle(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use routes::ObjectKey;

    const DRAIN: Duration = Duration::from_secs(45);
    const MINUTE: Duration = Duration::from_mins(1);

    fn provider(name: &str) -> Provider {
        Provider {
            key: ObjectKey::new("auth", name),
            uid: "u".into(),
            host: format!("{name}.auth.svc.cluster.local"),
            port: 9000,
            timeout_ms: 1500,
            request_headers: Vec::new(),
            identity_headers: Vec::new(),
            path_prefix: String::new(),
            own_paths: Vec::new(),
        }
    }

    fn providers(names: &[&str]) -> BTreeMap<ProviderId, Provider> {
        names.iter().map(|name| provider(name)).map(|provider| (provider.id(), provider)).collect()
    }

    fn ids(names: &[&str]) -> BTreeSet<ProviderId> {
        providers(names).into_keys().collect()
    }

    fn intact(names: &[&str]) -> LiveChain {
        LiveChain::Intact(providers(names))
    }

    fn pods(list: &[(&str, Held)]) -> BTreeMap<String, Held> {
        list.iter().map(|(uid, held)| ((*uid).to_owned(), *held)).collect()
    }

    #[test]
    fn what_every_pod_proved_is_held_and_ready_after_the_drain_time() {
        let start = Instant::now();
        let now = start + BENEFIT;
        let mut state = ChainState::new(start, None);
        let live = intact(&["one"]);
        let half = pods(&[("a", Held::Proved), ("b", Held::Unasked)]);
        assert_eq!(state.observe(&live, &half, &ids(&[]), DRAIN, now), Holdings::default());
        let all = pods(&[("a", Held::Proved), ("b", Held::Proved)]);
        let held = state.observe(&live, &all, &ids(&[]), DRAIN, now);
        assert_eq!((held.holds, held.ready), (ids(&["one"]), ids(&[])));
        assert_eq!(state.next(), Some(now + DRAIN));
        let held = state.observe(&live, &all, &ids(&[]), DRAIN, now + DRAIN);
        assert_eq!(held.ready, ids(&["one"]));
        // Another is added: until that is proved, the first is held all the same.
        let both = intact(&["one", "two"]);
        let later = now + DRAIN + MINUTE;
        let waiting = pods(&[("a", Held::Unasked), ("b", Held::Proved)]);
        assert_eq!(state.observe(&both, &waiting, &ids(&[]), DRAIN, later).ready, ids(&["one"]));
        // A pod that joins is given a little time, and then it counts.
        let joined = pods(&[("a", Held::Proved), ("b", Held::Proved), ("c", Held::Unasked)]);
        assert_eq!(state.observe(&both, &joined, &ids(&[]), DRAIN, later).holds, ids(&["one", "two"]));
        assert!(state.observe(&both, &joined, &ids(&[]), DRAIN, later + JOINING).holds.is_empty());
        // Deleted or changed by others, nothing is held.
        let again = pods(&[("a", Held::Proved), ("b", Held::Proved)]);
        assert!(state.observe(&LiveChain::Absent, &again, &ids(&[]), DRAIN, later).holds.is_empty());
    }

    #[test]
    fn a_restart_doubts_nothing_at_first() {
        let start = Instant::now();
        let mut state = ChainState::new(start, None);
        let live = intact(&["one", "two"]);
        let pending = pods(&[("a", Held::Unasked)]);
        let held = state.observe(&live, &pending, &ids(&["one"]), DRAIN, start);
        assert_eq!((held.holds, held.ready), (ids(&["one"]), ids(&["one"])), "as far as routes demand it");
        let later = start + BENEFIT;
        assert!(
            state.observe(&live, &pending, &ids(&["one"]), DRAIN, later).holds.is_empty(),
            "but not for ever"
        );
    }

    #[test]
    fn a_pod_that_cannot_be_asked_is_believed_after_a_while() {
        let start = Instant::now();
        let mut state = ChainState::new(start, None);
        let since = start + BENEFIT;
        let deaf = pods(&[("a", Held::CannotAsk { since })]);
        let live = intact(&["one"]);
        assert!(state.observe(&live, &deaf, &ids(&[]), DRAIN, since).holds.is_empty());
        assert_eq!(state.next(), Some(since + UNASKABLE));
        assert_eq!(state.observe(&live, &deaf, &ids(&[]), DRAIN, since + UNASKABLE).holds, ids(&["one"]));
    }

    #[test]
    fn what_routes_demand_stays_ready_and_stays_in_a_chain_that_is_made_anew() {
        let start = Instant::now();
        let mut state = ChainState::new(start, None);
        let (used, wanted) = (ids(&["old"]), providers(&["new"]));
        let now = start + BENEFIT;
        let all = pods(&[("a", Held::Proved)]);
        let live = intact(&["new", "old"]);
        // Without a wait: routes that demand it would leave it, and come back.
        assert_eq!(state.observe(&live, &all, &used, DRAIN, now).ready, ids(&["old"]));
        let missing = pods(&[("a", Held::Missing { since: start })]);
        let held = state.observe(&live, &missing, &used, DRAIN, now);
        assert_eq!((held.holds, held.ready), (ids(&[]), ids(&["old"])));
        // The routes still demand the old form when somebody deletes or changes the chain.
        let both = Decision::Write(providers(&["new", "old"]));
        assert_eq!(state.decide(&wanted, &LiveChain::Absent, &used, MINUTE, now), both);
        assert_eq!(state.decide(&wanted, &LiveChain::Changed(providers(&[])), &used, MINUTE, now), both);
        // After a restart, what the changed chain says of itself has to do, as far as routes demand it.
        let mut state = ChainState::new(start, None);
        let claims = LiveChain::Changed(providers(&["foreign", "old"]));
        assert_eq!(state.decide(&wanted, &claims, &used, MINUTE, now), both);
        // What nobody needs is not repaired.
        assert_eq!(state.decide(&providers(&[]), &claims, &ids(&[]), MINUTE, now), Decision::Delete);
    }

    #[test]
    fn additions_wait_for_a_minute_and_removals_for_additions() {
        let now = Instant::now();
        let mut state = ChainState::new(now, Some(now));
        let (one, both, none) = (providers(&["one"]), providers(&["one", "two"]), providers(&[]));
        let nobody = ids(&[]);
        assert_eq!(state.decide(&none, &LiveChain::Absent, &nobody, MINUTE, now), Decision::Keep);
        assert_eq!(
            state.decide(&one, &LiveChain::Absent, &nobody, MINUTE, now),
            Decision::Write(one.clone())
        );
        assert_eq!(
            state.decide(&one, &LiveChain::Changed(none.clone()), &nobody, MINUTE, now),
            Decision::Write(one.clone())
        );
        assert_eq!(state.decide(&one, &intact(&["one"]), &nobody, MINUTE, now), Decision::Keep);
        assert_eq!(state.decide(&both, &intact(&["one"]), &nobody, MINUTE, now), Decision::Keep);
        assert_eq!(state.next(), Some(now + MINUTE));
        let later = now + MINUTE;
        assert_eq!(
            state.decide(&both, &intact(&["one"]), &nobody, MINUTE, later),
            Decision::Write(both.clone())
        );
        // What is too much goes with the next addition, unless routes still use it, or by itself after a while.
        let three = providers(&["three", "two"]);
        assert_eq!(
            state.decide(&three, &intact(&["one", "two"]), &nobody, MINUTE, later),
            Decision::Write(three.clone())
        );
        assert_eq!(
            state.decide(&three, &intact(&["one", "two"]), &ids(&["one"]), MINUTE, later),
            Decision::Write(providers(&["one", "three", "two"]))
        );
        assert_eq!(state.decide(&one, &intact(&["one", "two"]), &nobody, MINUTE, later), Decision::Keep);
        let much_later = later + SURPLUS;
        assert_eq!(
            state.decide(&one, &intact(&["one", "two"]), &nobody, MINUTE, much_later),
            Decision::Write(one)
        );
        assert_eq!(state.decide(&none, &intact(&["two"]), &nobody, MINUTE, much_later), Decision::Keep);
        assert_eq!(
            state.decide(&none, &intact(&["two"]), &nobody, MINUTE, much_later + SURPLUS),
            Decision::Delete
        );
    }
}
