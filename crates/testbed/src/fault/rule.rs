//! Which requests a fault befalls, when, and what it does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::request::{Request, Verb};
use super::status::Failure;

/// Selects requests. Every condition that is set must hold; [`Match::any`] sets none.
#[derive(Clone, Debug, Default)]
pub struct Match {
    verbs: Vec<Verb>,
    group: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    user_agent: Option<String>,
    writes: bool,
    without: Vec<String>,
}

impl Match {
    /// Every request, those to paths that are no resource (`/version`, discovery) included.
    pub fn any() -> Self {
        Self::default()
    }

    /// Every request that asks for a stored change: see [`Request::is_write`].
    pub fn writes() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Every watch.
    pub fn watches() -> Self {
        Self::any().verbs([Verb::Watch])
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: impl IntoIterator<Item = Verb>) -> Self {
        self.verbs = verbs.into_iter().collect();
        self
    }

    /// Only this API group; empty for the core group.
    #[must_use]
    pub fn group(mut self, group: &str) -> Self {
        self.group = Some(group.to_owned());
        self
    }

    /// Only this plural resource: `deployments` means the resource and all its subresources,
    /// `deployments/status` that subresource alone.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Not this resource, written as for [`Match::resource`]. May be said several times.
    #[must_use]
    pub fn without(mut self, resource: &str) -> Self {
        self.without.push(resource.to_owned());
        self
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only the object of this name, on collections those that select it by `metadata.name`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only clients whose `User-Agent` contains this.
    #[must_use]
    pub fn user_agent(mut self, part: &str) -> Self {
        self.user_agent = Some(part.to_owned());
        self
    }

    /// Whether the request is selected.
    pub fn matches(&self, request: &Request) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        (self.verbs.is_empty() || self.verbs.contains(&request.verb))
            && is(&self.group, &request.group)
            && is(&self.namespace, &request.namespace)
            && is(&self.name, &request.name)
            && self.resource.as_deref().is_none_or(|wanted| names_resource(wanted, request))
            && self.user_agent.as_deref().is_none_or(|part| request.user_agent.contains(part))
            && (!self.writes || request.is_write())
            && !self.without.iter().any(|resource| names_resource(resource, request))
    }
}

fn names_resource(wanted: &str, request: &Request) -> bool {
    match wanted.split_once('/') {
        Some((resource, subresource)) => request.resource == resource && request.subresource == subresource,
        None => request.resource == wanted,
    }
}

/// Which of the matching requests, counted from 1 since the rule was added, are hit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// All.
    Always,
    /// The n-th alone.
    Nth(u64),
    /// The n-th and all after it.
    From(u64),
    /// Each n-th.
    Every(u64),
    /// Each with this probability, drawn from a generator of the rule's own, so that the same seed and the
    /// same order of requests give the same hits.
    Chance {
        /// 0 for never, 1 for always.
        probability: f64,
        /// Where the generator starts.
        seed: u64,
    },
}

/// Whether a fault comes before the request reaches the API server or after its answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The API server never sees the request.
    Before,
    /// The API server has carried the request out; the client is not told.
    After,
}

/// How an open watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The stream ends well, as when the server's own timeout passes.
    Close,
    /// The connection breaks, as when the server dies.
    Abort,
    /// An `ERROR` event with code 410, then the end, as when etcd has compacted the version away.
    Expire,
}

/// How long a watch lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Until this many events were passed on, bookmarks included. Counted in JSON streams alone.
    Events(u64),
    /// Until this many bytes were passed on. With [`Cut::Expire`] the last whole event before.
    Bytes(u64),
    /// Until this much time has passed.
    Time(Duration),
}

/// Who dies of [`Fault::Kill`].
#[derive(Clone)]
pub enum Victim {
    /// The process of this id, by SIGKILL. The connection is held until it is dead.
    Process(i32),
    /// Whatever the function ends; it gets the request that was the cause, and must not block.
    Call(Arc<dyn Fn(&Request) + Send + Sync>),
}

impl fmt::Debug for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "Process({pid})"),
            Self::Call(_) => f.write_str("Call"),
        }
    }
}

/// What befalls a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request waits this long, then goes on to the rules that follow. Delays of several rules add up.
    Delay(Duration),
    /// The client gets this error.
    Answer(Failure, Stage),
    /// The connection closes without an answer.
    HangUp(Stage),
    /// A watch ends early; nothing happens to other verbs.
    EndWatch(Limit, Cut),
    /// The client dies, and its connection closes without an answer.
    Kill(Victim, Stage),
}

/// A fault with the requests that it befalls.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(super) select: Match,
    pub(super) when: When,
    pub(super) fault: Fault,
}

impl Rule {
    /// Befalls every selected request, unless [`Rule::when`] says otherwise.
    pub fn new(select: Match, fault: Fault) -> Self {
        Self { select, when: When::Always, fault }
    }

    /// Befalls only some of the selected requests.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }
}

/// A rule in force, with what it has seen.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) rule: Rule,
    seen: u64,
    pub(super) hits: u64,
    random: SplitMix64,
}

impl Active {
    pub(super) fn new(rule: Rule) -> Self {
        let seed = match rule.when {
            When::Chance { seed, .. } => seed,
            _ => 0,
        };
        Self { rule, seen: 0, hits: 0, random: SplitMix64(seed) }
    }

    /// Counts the request, and tells whether the rule's fault befalls it.
    pub(super) fn hit(&mut self, request: &Request) -> bool {
        if !self.rule.select.matches(request) {
            return false;
        }
        if matches!(self.rule.fault, Fault::EndWatch(..)) && request.verb != Verb::Watch {
            return false;
        }
        self.seen += 1;
        let hit = match self.rule.when {
            When::Always => true,
            When::Nth(n) => self.seen == n,
            When::From(n) => self.seen >= n,
            When::Every(n) => n != 0 && self.seen.is_multiple_of(n),
            When::Chance { probability, .. } => self.random.next_unit() < probability,
        };
        self.hits += u64::from(hit);
        hit
    }
}

/// Sebastiano Vigna's splitmix64: small, good enough, and the same on every machine and in every release.
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to but without 1.
    fn next_unit(&mut self) -> f64 {
        let high = u32::try_from(self.next() >> 32).unwrap_or_default();
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn request(method: &Method, path: &str) -> Request {
        let mut request = Request::parse(method, path, "");
        request.user_agent = "istio-integrator/0.1".to_owned();
        request
    }

    #[test]
    fn every_condition_must_hold() {
        let patch = request(&Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/d/status");
        let matching = [
            Match::any(),
            Match::writes(),
            Match::any().verbs([Verb::Patch, Verb::Update]),
            Match::any().group("apps").resource("deployments").namespace("a").name("d"),
            Match::any().resource("deployments/status"),
            Match::any().user_agent("integrator"),
            Match::writes().without("leases").without("deployments/scale"),
        ];
        for select in matching {
            assert!(select.matches(&patch), "{select:?}");
        }
        let others = [
            Match::watches(),
            Match::any().group(""),
            Match::any().resource("deployments/scale"),
            Match::any().resource("pods"),
            Match::any().namespace("b"),
            Match::any().name("e"),
            Match::any().user_agent("kubectl"),
            Match::writes().without("deployments"),
        ];
        for select in others {
            assert!(!select.matches(&patch), "{select:?}");
        }
        assert!(!Match::writes().matches(&request(&Method::GET, "/api/v1/pods")));
    }

    fn hits(when: When, requests: usize) -> Vec<usize> {
        let mut active = Active::new(Rule::new(Match::writes(), Fault::HangUp(Stage::Before)).when(when));
        let write = request(&Method::POST, "/api/v1/namespaces/a/pods");
        let read = request(&Method::GET, "/api/v1/namespaces/a/pods");
        (1..=requests)
            .filter(|_| {
                assert!(!active.hit(&read), "a request that does not match is not counted");
                active.hit(&write)
            })
            .collect()
    }

    #[test]
    fn only_the_chosen_ones_are_hit() {
        assert_eq!(hits(When::Always, 3), [1, 2, 3]);
        assert_eq!(hits(When::Nth(2), 5), [2]);
        assert_eq!(hits(When::From(4), 5), [4, 5]);
        assert_eq!(hits(When::Every(2), 5), [2, 4]);
        assert_eq!(hits(When::Every(0), 5), Vec::<usize>::new());
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed_and_near_its_probability() {
        let chance = |probability, seed| hits(When::Chance { probability, seed }, 10_000);
        assert_eq!(chance(0.25, 7), chance(0.25, 7));
        assert_ne!(chance(0.25, 7), chance(0.25, 8));
        assert!((2_300..2_700).contains(&chance(0.25, 7).len()));
        assert_eq!((chance(0.0, 7).len(), chance(1.0, 7).len()), (0, 10_000));
    }

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs for seed 1234567 of the reference implementation.
        let mut random = SplitMix64(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn ending_a_watch_befalls_watches_alone() {
        let mut active = Active::new(Rule::new(Match::any(), Fault::EndWatch(Limit::Events(1), Cut::Close)));
        assert!(!active.hit(&request(&Method::GET, "/api/v1/pods")));
        assert!(active.hit(&request(&Method::GET, "/api/v1/watch/pods")));
        assert_eq!(active.hits, 1);
    }
}
