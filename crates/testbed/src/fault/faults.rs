//! The handle by which a test sets faults and reads counters while the proxy runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::{mpsc, watch};

use super::request::{Request, Verb};
use super::rule::{Active, Cut, Fault, Limit, Match, Rule, Stage, Victim};
use super::status::Failure;

/// Names a rule that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u64);

/// How an expired resource version is told to the client that starts a watch from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The answer is 410 Gone, as proxies and aggregated API servers may give it. A watcher of
    /// kube-runtime 5 does not recover from that by itself: it watches from the same version for ever.
    Status,
    /// The answer is 200, and the stream's one event is an `ERROR` of code 410, as kube-apiserver gives it.
    /// Lists get a 410 all the same.
    Event,
}

/// Faults and counters of one proxy. Clones share them; every method may be called at any time and holds
/// from the next request on.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    /// Told after each request was counted, for those who wait.
    counted: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    rules: BTreeMap<RuleId, Active>,
    expired: Option<(u64, Expiry)>,
    requests: BTreeMap<(Verb, String), u64>,
    writes: u64,
    watches: BTreeMap<u64, OpenWatch>,
}

#[derive(Debug)]
struct OpenWatch {
    request: Request,
    cut: mpsc::UnboundedSender<Cut>,
}

/// What is to happen to one request.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) delay: Duration,
    pub(super) ending: Option<(Stage, Ending)>,
    pub(super) watch: Option<(Limit, Cut)>,
}

/// How a request ends other than by the API server's answer.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Answer(Failure),
    /// A watch is answered 200 with an `ERROR` event.
    ErrorEvent(Failure),
    HangUp,
    Kill(Victim),
}

impl Default for Faults {
    fn default() -> Self {
        Self { state: Arc::default(), counted: watch::Sender::new(0) }
    }
}

impl Faults {
    /// Puts a rule in force, after those that are. Of the rules that hit a request all delays are served,
    /// and the first fault that ends it does.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.lock();
        let id = RuleId(state.draw());
        state.rules.insert(id, Active::new(rule));
        id
    }

    /// Takes a rule out of force. One that is not in force is no error.
    pub fn remove(&self, id: RuleId) {
        self.lock().rules.remove(&id);
    }

    /// Takes all rules out of force, and forgets what has expired. Counters stay.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.rules.clear();
        state.expired = None;
    }

    /// How many requests a rule has hit; 0 once it is removed.
    pub fn hits(&self, id: RuleId) -> u64 {
        self.lock().rules.get(&id).map_or(0, |active| active.hits)
    }

    /// Waits until a rule has hit this many requests. Does not return if that never happens or the rule is
    /// removed: the caller sets a time limit.
    pub async fn hit(&self, id: RuleId, hits: u64) {
        let mut counted = self.counted.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = counted.wait_for(|_| self.hits(id) >= hits).await;
    }

    /// From now on resource versions below this one are expired: watches from them, and pages of lists at
    /// them, are answered 410. It has no effect on watches that are open: see [`Faults::cut_watches`].
    ///
    /// A client that lists anew gets the present version, so the version given here must not be above that:
    /// write something, and take the version of what came back.
    pub fn expire_before(&self, resource_version: u64, how: Expiry) {
        self.lock().expired = Some((resource_version, how));
    }

    /// Ends the open watches that are selected, and says how many.
    pub fn cut_watches(&self, select: &Match, cut: Cut) -> usize {
        let state = self.lock();
        let selected = state.watches.values().filter(|open| select.matches(&open.request));
        selected.filter(|open| open.cut.send(cut).is_ok()).count()
    }

    /// How many watches that are selected are open.
    pub fn open_watches(&self, select: &Match) -> usize {
        self.lock().watches.values().filter(|open| select.matches(&open.request)).count()
    }

    /// How many requests came in, by verb and `resource` or `resource/subresource`; paths that are no
    /// resource are under the empty name. Those that a fault kept from the API server are counted too.
    pub fn requests(&self) -> BTreeMap<(Verb, String), u64> {
        self.lock().requests.clone()
    }

    /// How many requests of one verb on one `resource` or `resource/subresource` came in.
    pub fn count(&self, verb: Verb, resource: &str) -> u64 {
        self.lock().requests.get(&(verb, resource.to_owned())).copied().unwrap_or_default()
    }

    /// How many requests came in that asked for a stored change: see [`Request::is_write`].
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Counts a request, and decides what befalls it.
    pub(super) fn decide(&self, request: &Request) -> Verdict {
        let verdict = self.lock().decide(request);
        self.counted.send_modify(|count| *count += 1);
        verdict
    }

    /// Enters an open watch, which leaves when the guard is dropped.
    pub(super) fn open_watch(&self, request: Request) -> (WatchGuard, mpsc::UnboundedReceiver<Cut>) {
        let (cut, cuts) = mpsc::unbounded_channel();
        let mut state = self.lock();
        let id = state.draw();
        state.watches.insert(id, OpenWatch { request, cut });
        (WatchGuard { faults: self.clone(), id }, cuts)
    }

    /// A panic elsewhere leaves counters and rules whole, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a watch in the list of open ones.
#[derive(Debug)]
pub(super) struct WatchGuard {
    faults: Faults,
    id: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.faults.lock().watches.remove(&self.id);
    }
}

impl State {
    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn decide(&mut self, request: &Request) -> Verdict {
        *self.requests.entry((request.verb, request.full_resource())).or_default() += 1;
        self.writes += u64::from(request.is_write());
        let mut verdict = Verdict::default();
        // Each rule counts what it selects, also where another one ends the request first: which request is
        // the n-th does not depend on the rules beside it.
        for active in self.rules.values_mut() {
            if !active.hit(request) {
                continue;
            }
            let ending = match active.rule.fault.clone() {
                Fault::Delay(time) => {
                    verdict.delay += time;
                    continue;
                }
                Fault::EndWatch(limit, cut) => {
                    verdict.watch.get_or_insert((limit, cut));
                    continue;
                }
                Fault::Answer(failure, stage) => (stage, Ending::Answer(failure)),
                Fault::HangUp(stage) => (stage, Ending::HangUp),
                Fault::Kill(victim, stage) => (stage, Ending::Kill(victim)),
            };
            verdict.ending.get_or_insert(ending);
        }
        if verdict.ending.is_none()
            && let Some(ending) = self.expired.and_then(|(horizon, how)| expiry(request, horizon, how))
        {
            verdict.ending = Some((Stage::Before, ending));
        }
        verdict
    }
}

/// How a request ends that reads at a version below the horizon.
fn expiry(request: &Request, horizon: u64, how: Expiry) -> Option<Ending> {
    let version = match request.verb {
        // No version, or 0, asks for any state at hand, and is never too old.
        Verb::Watch => request.resource_version.parse().ok().filter(|version| *version != 0)?,
        Verb::List if !request.continue_token.is_empty() => continued_version(&request.continue_token)?,
        _ => return None,
    };
    (version < horizon).then_some(match how {
        Expiry::Event if request.verb == Verb::Watch => Ending::ErrorEvent(Failure::Expired),
        _ => Ending::Answer(Failure::Expired),
    })
}

/// The version that a `continue` token reads at. The token is opaque to clients, but not to the API server
/// whose place is taken here: it is JSON in URL-safe base64 (k8s.io/apiserver, `pkg/storage/continue.go`).
fn continued_version(token: &str) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Token {
        rv: i64,
    }
    let json = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
    let token: Token = serde_json::from_slice(&json).ok()?;
    // -1 marks a list that goes on at whatever version is present.
    u64::try_from(token.rv).ok()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::rule::When;
    use super::*;

    fn get(path: &str, query: &str) -> Request {
        Request::parse(&Method::GET, path, query)
    }

    fn post() -> Request {
        Request::parse(&Method::POST, "/api/v1/namespaces/a/configmaps", "")
    }

    #[test]
    fn delays_add_up_and_the_first_ending_wins() {
        let faults = Faults::default();
        faults.add(Rule::new(Match::any(), Fault::Delay(Duration::from_secs(1))));
        let second = faults.add(Rule::new(Match::writes(), Fault::HangUp(Stage::After)).when(When::Nth(2)));
        let always = faults.add(Rule::new(Match::writes(), Fault::Answer(Failure::Conflict, Stage::Before)));
        faults.add(Rule::new(Match::any(), Fault::Delay(Duration::from_secs(2))));

        let verdict = faults.decide(&post());
        assert_eq!(verdict.delay, Duration::from_secs(3));
        assert!(matches!(verdict.ending, Some((Stage::Before, Ending::Answer(Failure::Conflict)))));
        let verdict = faults.decide(&post());
        assert!(matches!(verdict.ending, Some((Stage::After, Ending::HangUp))));
        assert_eq!((faults.hits(second), faults.hits(always)), (1, 2));

        faults.remove(always);
        assert!(faults.decide(&post()).ending.is_none());
        faults.clear();
        assert_eq!(faults.decide(&post()).delay, Duration::ZERO);
    }

    #[test]
    fn requests_and_writes_are_counted() {
        let faults = Faults::default();
        for request in [post(), post(), get("/api/v1/pods", ""), get("/version", "")] {
            faults.decide(&request);
        }
        assert_eq!(faults.count(Verb::Create, "configmaps"), 2);
        assert_eq!(faults.count(Verb::List, "pods"), 1);
        assert_eq!(faults.count(Verb::Get, ""), 1);
        assert_eq!((faults.writes(), faults.requests().len()), (2, 3));
    }

    #[test]
    fn old_versions_expire_for_watches_and_pages() {
        let faults = Faults::default();
        let watch = |version| get("/api/v1/pods", &format!("watch=true&resourceVersion={version}"));
        let page = |rv: i64| {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"x"}}"#);
            get("/api/v1/pods", &format!("continue={}", URL_SAFE_NO_PAD.encode(json)))
        };
        let gone = |request: &Request| faults.decide(request).ending.map(|(_, ending)| format!("{ending:?}"));
        assert_eq!(gone(&watch("9")), None);

        faults.expire_before(10, Expiry::Event);
        assert_eq!(gone(&watch("9")).as_deref(), Some("ErrorEvent(Expired)"));
        assert_eq!(gone(&page(9)).as_deref(), Some("Answer(Expired)"));
        for current in
            [watch("10"), watch("0"), watch(""), page(10), page(-1), get("/api/v1/pods", "resourceVersion=9")]
        {
            assert_eq!(gone(&current), None, "{current:?}");
        }
        faults.expire_before(10, Expiry::Status);
        assert_eq!(gone(&watch("9")).as_deref(), Some("Answer(Expired)"));
        faults.clear();
        assert_eq!(gone(&watch("9")), None);
    }

    #[test]
    fn open_watches_are_cut_by_choice() {
        let faults = Faults::default();
        let (_pods, mut cuts) = faults.open_watch(get("/api/v1/pods", "watch=true"));
        let (services, _) = faults.open_watch(get("/api/v1/services", "watch=true"));
        assert_eq!(faults.open_watches(&Match::any()), 2);
        assert_eq!(faults.cut_watches(&Match::any().resource("pods"), Cut::Abort), 1);
        assert_eq!(cuts.try_recv().unwrap(), Cut::Abort);
        drop(services);
        assert_eq!(faults.open_watches(&Match::any()), 1);
    }

    #[tokio::test]
    async fn hits_can_be_waited_for() {
        let faults = Faults::default();
        let id = faults.add(Rule::new(Match::writes(), Fault::HangUp(Stage::Before)));
        let waiting = tokio::spawn({
            let faults = faults.clone();
            async move { faults.hit(id, 2).await }
        });
        faults.decide(&post());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        faults.decide(&post());
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    }
}
