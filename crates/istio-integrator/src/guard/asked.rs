//! What the gateways' pods are asked, and what their answers make of conditions.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mesh_api::{ConditionType, Reason};
use operator_kit::cache::{Entry, Key, Wake};
use routes::{Finding, Listener, Marker, ObjectKey, RequestVerdict, Status};
use tokio::time::Instant;

use super::{
    GatewayView,
    observe::{ObservedPod, ObservedService, listens_at},
    state::{Held, USUAL_PUSH},
};
use crate::probe::{
    Answer, Limits, Outcome, Prober, Programmed, Question, Stored, Subject, Tally, Target, View, programmed,
};

/// For how long an answer other than the expected one is taken for a matter of time.
pub(super) const SETTLE: Duration = Duration::from_secs(2 * USUAL_PUSH.as_secs());

/// A chain as pods can be asked for it.
#[derive(Clone, Debug)]
pub(super) struct AskedChain {
    /// The chain.
    pub(super) key: Key,
    /// What a pod that holds it answers.
    pub(super) answer: String,
    /// The uid and version of its `EnvoyFilter`.
    pub(super) epoch: String,
}

/// The routes of one host.
#[derive(Debug)]
struct Host {
    question: Question,
    /// A pod that cannot be asked at all, and why.
    impossible: Option<String>,
}

/// Where the pods of a gateway are asked by one set of listeners.
#[derive(Clone, Debug)]
struct Places {
    targets: Arc<[Target]>,
    /// The port of the Gateway that each target stands for.
    ports: Vec<u16>,
    impossible: Option<String>,
}

/// Asks, and remembers what for.
#[derive(Debug)]
pub(super) struct Asked {
    prober: Prober,
    /// By the name of the `VirtualService`.
    hosts: BTreeMap<String, Host>,
    chains: BTreeMap<Key, BTreeSet<Subject>>,
    /// The names of pods, by uid.
    pods: BTreeMap<Arc<str>, Key>,
}

impl Asked {
    /// Nothing is asked yet.
    pub(super) fn start(wake: Wake) -> Self {
        Self {
            prober: Prober::start(Limits::default(), wake),
            hosts: BTreeMap::new(),
            chains: BTreeMap::new(),
            pods: BTreeMap::new(),
        }
    }

    /// Has each ready pod asked for the routes of each host, by each listener of the host, and for the chain by one host at
    /// each port. `markers` are by the name of their `VirtualService`.
    pub(super) fn want(
        &mut self,
        markers: &BTreeMap<String, Marker>,
        gateways: &BTreeMap<ObjectKey, GatewayView>,
        services: &BTreeMap<Key, Entry<ObservedService>>,
        chain_of: impl Fn(&ObjectKey) -> Option<AskedChain>,
    ) {
        let mut before = std::mem::take(&mut self.hosts);
        let mut places: BTreeMap<(&ObjectKey, &[Listener]), Option<Places>> = BTreeMap::new();
        let mut chains = ChainQuestions::default();
        let chain_by_gateway: BTreeMap<&ObjectKey, Option<AskedChain>> =
            gateways.keys().map(|gateway| (gateway, chain_of(gateway))).collect();
        self.pods.clear();
        for (pod, value) in gateways.values().filter_map(|view| view.pods.as_ref()).flatten() {
            self.pods.insert(value.uid.as_str().into(), pod.clone());
        }
        for (name, marker) in markers {
            let place = places
                .entry((&marker.gateway, &marker.listeners))
                .or_insert_with(|| places_of(gateways.get(&marker.gateway)?, &marker.listeners, services));
            let Some(place) = place else { continue };
            let question = match before.remove(name).map(|host| host.question) {
                Some(old) if *old.path == *marker.path && *old.expected == *marker.digest => {
                    Question { targets: Arc::clone(&place.targets), ..old }
                }
                _ => Question {
                    subject: Subject::Routes(marker.path.as_str().into()),
                    host: marker.host.as_str().into(),
                    path: marker.path.as_str().into(),
                    expected: marker.digest.as_str().into(),
                    epoch: "".into(),
                    targets: Arc::clone(&place.targets),
                },
            };
            let chain = chain_by_gateway.get(&marker.gateway).and_then(Option::as_ref);
            if let (Some(chain), Some(path)) = (chain, &marker.chain_path) {
                chains.add(chain, path, &question.host, place);
            }
            self.hosts.insert(name.clone(), Host { question, impossible: place.impossible.clone() });
        }
        self.chains = chains.subjects;
        let hosts = self.hosts.values().map(|host| host.question.clone());
        self.prober.want(hosts.chain(chains.questions.into_values()));
    }

    /// What this pod said of a chain, at all ports where it was asked.
    pub(super) fn held(&self, chain: &Key, pod: &str) -> Held {
        let view = self.prober.view();
        let subjects = self.chains.get(chain).into_iter().flatten();
        let standings = subjects.filter_map(|subject| view.standing(subject));
        let of_pod = standings.flat_map(|standing| standing.timed().collect::<Vec<_>>());
        let of_pod = of_pod.filter(|(target, ..)| *target.pod == *pod);
        // What is worst at one port holds of the pod.
        of_pod
            .map(|(_, outcome, since)| match outcome {
                Outcome::Proved => Held::Proved,
                Outcome::Unasked => Held::Unasked,
                Outcome::CannotAsk(_) => Held::CannotAsk { since },
                Outcome::NotYet(_) => Held::Missing { since },
            })
            .max()
            .unwrap_or(Held::Unasked)
    }

    /// Whether the gateway's pods hold the routes of a request; nothing if there are no pods to ask. `stored` are its
    /// conditions as they are.
    pub(super) fn programmed(
        &self,
        verdict: &RequestVerdict,
        stored: &[Condition],
        now: Instant,
    ) -> Option<Finding> {
        let before = stored.iter().find(|condition| {
            condition.type_ == ConditionType::Programmed.as_str()
                && condition.observed_generation == verdict.generation
        });
        let view = self.prober.view();
        let hosts: Vec<&Host> =
            verdict.virtual_services.iter().filter_map(|name| self.hosts.get(name)).collect();
        let tally = tally(&hosts, &view)?;
        drop(view);
        let impossible = hosts.iter().find_map(|host| host.impossible.as_ref());
        let says = before.map(|before| match before.status.as_str() {
            "True" => Stored::True,
            _ if before.reason == Reason::ProbeImpossible.as_str() => Stored::CannotAsk,
            _ => Stored::Other,
        });
        Some(match programmed(&tally, says, SETTLE, now).0 {
            Programmed::NoPods if impossible.is_none() => return None,
            Programmed::Keep => before.and_then(stored_finding).unwrap_or_else(pending),
            Programmed::Pending => pending(),
            Programmed::NotYet(target, answer) => {
                let (pod, answer) = (self.name(&target), told(&answer));
                finding(
                    Status::False,
                    Reason::NotProgrammed,
                    format!("pod {pod}: {answer}; it is asked again and again"),
                )
            }
            Programmed::CannotAsk(target, obstacle) => {
                cannot_ask(&format!("pod {}: {obstacle}", self.name(&target)))
            }
            Programmed::Proved | Programmed::NoPods => match impossible {
                Some(why) => cannot_ask(why),
                None => finding(
                    Status::True,
                    Reason::Programmed,
                    "every ready pod of the gateway holds the routes".to_owned(),
                ),
            },
        })
    }

    fn name(&self, target: &Target) -> String {
        self.pods.get(&target.pod).map_or_else(|| target.address.ip().to_string(), ToString::to_string)
    }

    /// When a verdict may change without any answer.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let view = self.prober.view();
        let chains = self.chains.values().flatten();
        let subjects = self.hosts.values().map(|host| &host.question.subject).chain(chains);
        let since = subjects.filter_map(|subject| view.standing(subject)?.tally().unproved_since);
        since.map(|since| since + SETTLE).filter(|until| *until > now).min()
    }
}

fn tally(hosts: &[&Host], view: &View<'_>) -> Option<Tally> {
    let tallies =
        hosts.iter().filter_map(|host| view.standing(&host.question.subject)).map(|known| known.tally());
    tallies.reduce(Tally::and)
}

/// The questions for chains: each pod is asked once at each port, by the first host that shows the chain there.
#[derive(Default)]
struct ChainQuestions {
    questions: BTreeMap<Subject, Question>,
    subjects: BTreeMap<Key, BTreeSet<Subject>>,
    covered: BTreeSet<(Key, Arc<str>, u16)>,
}

impl ChainQuestions {
    fn add(&mut self, chain: &AskedChain, path: &str, host: &Arc<str>, place: &Places) {
        let mut targets: BTreeMap<u16, Vec<Target>> = BTreeMap::new();
        for (target, port) in place.targets.iter().zip(&place.ports) {
            if self.covered.insert((chain.key.clone(), Arc::clone(&target.pod), *port)) {
                targets.entry(*port).or_default().push(target.clone());
            }
        }
        for (port, targets) in targets {
            let subject = Subject::Chain(path.into(), port);
            self.subjects.entry(chain.key.clone()).or_default().insert(subject.clone());
            let question = Question {
                subject: subject.clone(),
                host: Arc::clone(host),
                path: path.into(),
                expected: chain.answer.as_str().into(),
                epoch: chain.epoch.as_str().into(),
                targets: targets.into(),
            };
            self.questions.insert(subject, question);
        }
    }
}

/// Where the ready pods of a gateway are asked; nothing where its pods are not followed.
fn places_of(
    view: &GatewayView,
    listeners: &[Listener],
    services: &BTreeMap<Key, Entry<ObservedService>>,
) -> Option<Places> {
    let mut targets: Vec<(Target, u16)> = Vec::new();
    let mut impossible = None;
    for (pod, value) in view.pods.as_ref()?.iter().filter(|(_, pod)| pod.ready) {
        if listeners.is_empty() {
            impossible.get_or_insert_with(|| {
                format!("pod {pod}: every listener of the host demands a client certificate")
            });
        }
        for listener in listeners {
            match address(pod, value, listener.port, services) {
                Some(address) => {
                    let target = Target { pod: value.uid.as_str().into(), address, tls: listener.tls };
                    if !targets.iter().any(|(known, _)| *known == target) {
                        targets.push((target, listener.port));
                    }
                }
                None => {
                    impossible.get_or_insert_with(|| format!("pod {pod}: its address is not known"));
                }
            }
        }
    }
    let (targets, ports): (Vec<_>, Vec<_>) = targets.into_iter().unzip();
    Some(Places { targets: targets.into(), ports, impossible })
}

fn address(
    pod: &Key,
    value: &ObservedPod,
    port: u16,
    services: &BTreeMap<Key, Entry<ObservedService>>,
) -> Option<SocketAddr> {
    let first = Key { namespace: pod.namespace.clone(), name: String::new() };
    let in_namespace = services.range(first..).take_while(|(service, _)| service.namespace == pod.namespace);
    listens_at(value, port, in_namespace.map(|(_, service)| service.value.as_ref()))
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Other(_) => "it holds an older or newer state of the routes".to_owned(),
        Answer::Status(_) => answer.to_string(),
    }
}

/// The finding that a stored condition is.
fn stored_finding(condition: &Condition) -> Option<Finding> {
    let reason = *Reason::ALL.iter().find(|reason| reason.as_str() == condition.reason)?;
    let status = [Status::True, Status::False, Status::Unknown];
    let status = status.into_iter().find(|status| status.as_str() == condition.status)?;
    Some(Finding { status, reason, message: condition.message.clone() })
}

fn pending() -> Finding {
    let message = "the gateway's pods are being asked whether they hold the routes".to_owned();
    finding(Status::Unknown, Reason::ProbePending, message)
}

fn cannot_ask(why: &str) -> Finding {
    let message = format!(
        "the routes are written; whether the gateway holds them is not known, since not every pod can be asked ({why})"
    );
    finding(Status::Unknown, Reason::ProbeImpossible, message)
}

fn finding(status: Status, reason: Reason, message: String) -> Finding {
    Finding { status, reason, message }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Mutex};

    use mesh_api::names::CHAIN_HEADER;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;

    /// The answers of a pod, by path: the body and the chain's header.
    type Answers = Arc<Mutex<BTreeMap<String, (String, String)>>>;

    /// A pod of its own address, which listens on the port, or on one that it chooses.
    async fn pod(ip: &str, port: u16, answers: &Answers, tasks: &mut JoinSet<()>) -> (ObservedPod, u16) {
        let ip: IpAddr = ip.parse().unwrap();
        let listener = TcpListener::bind((ip, port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::clone(answers);
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default();
                let answer = match answers.lock().unwrap().get(path) {
                    Some((body, chain)) => format!(
                        "HTTP/1.1 200 OK\r\n{CHAIN_HEADER}: {chain}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    ),
                    None => "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned(),
                };
                drop(stream.write_all(answer.as_bytes()).await);
            }
        });
        (ObservedPod { uid: ip.to_string(), ip: Some(ip), ready: true, ..ObservedPod::default() }, port)
    }

    fn gateway() -> ObjectKey {
        ObjectKey::new("istio-system", "public")
    }

    fn marker(host: &str, digest: &str, listeners: &[Listener]) -> (String, Marker) {
        let path = format!("/marker/{host}");
        let marker = Marker {
            gateway: gateway(),
            host: host.to_owned(),
            listeners: listeners.to_vec(),
            chain_path: Some(format!("{path}/chain")),
            path,
            digest: digest.to_owned(),
        };
        (host.to_owned(), marker)
    }

    fn view(pods: &[&ObservedPod]) -> BTreeMap<ObjectKey, GatewayView> {
        let pods = pods.iter().map(|pod| {
            let key = Key { namespace: "gw".to_owned(), name: format!("pod-{}", pod.uid) };
            (key, Arc::new((*pod).clone()))
        });
        let view = GatewayView { pods: Some(pods.collect()), ..GatewayView::default() };
        [(gateway(), view)].into()
    }

    fn verdict(names: &[&str]) -> RequestVerdict {
        let finding = || finding(Status::True, Reason::Ready, String::new());
        RequestVerdict {
            key: ObjectKey::new("shop", "web"),
            generation: Some(3),
            accepted: finding(),
            resolved_refs: finding(),
            auth_in_force: finding(),
            ready: finding(),
            auth: None,
            binding: None,
            urls: Vec::new(),
            routes: Vec::new(),
            virtual_services: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn stored(status: &str, reason: Reason) -> [Condition; 1] {
        let condition = serde_json::json!({
            "type": "Programmed", "status": status, "reason": reason.as_str(), "message": "as before",
            "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        [serde_json::from_value(condition).unwrap()]
    }

    fn reason(asked: &Asked, stored: &[Condition]) -> (Status, Reason) {
        let found = asked.programmed(&verdict(&["x"]), stored, Instant::now()).unwrap();
        (found.status, found.reason)
    }

    async fn until(what: &str, done: impl Fn() -> bool) {
        let wait = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect(what);
    }

    #[tokio::test]
    async fn pods_are_asked_for_routes_and_for_the_chain_at_each_port() {
        let (answers, mut tasks) = (Answers::default(), JoinSet::new());
        // Two pods with two ports, of which the one lacks the chain at the second port.
        let (first, http) = pod("127.0.0.1", 0, &answers, &mut tasks).await;
        let (_, other) = pod("127.0.0.1", 0, &answers, &mut tasks).await;
        let deaf_to_chain = Answers::default();
        let (second, _) = pod("127.0.0.2", http, &answers, &mut tasks).await;
        pod("127.0.0.2", other, &deaf_to_chain, &mut tasks).await;
        let proof = |digest: &str, chain: &str| (digest.to_owned(), chain.to_owned());
        for known in [&answers, &deaf_to_chain] {
            known.lock().unwrap().insert("/marker/x".to_owned(), proof("1", ""));
        }
        answers.lock().unwrap().insert("/marker/x/chain".to_owned(), proof("", "c"));
        let listeners = [http, other].map(|port| Listener { port, tls: false });
        let chain = Key { namespace: "istio-system".to_owned(), name: "ii-guard-x".to_owned() };
        let of = |epoch: &str| {
            let (key, epoch) = (chain.clone(), epoch.to_owned());
            move |_: &ObjectKey| {
                Some(AskedChain { key: key.clone(), answer: "c".to_owned(), epoch: epoch.clone() })
            }
        };
        let mut asked = Asked::start(Wake::default());
        let want = |asked: &mut Asked, digest: &str, epoch: &str| {
            // A second host on the same listeners shows the chain too, and is not asked for it.
            let markers = [marker("x", digest, &listeners), marker("y", digest, &listeners)];
            asked.want(&markers.into(), &view(&[&first, &second]), &BTreeMap::new(), of(epoch));
        };
        want(&mut asked, "1", "1");
        assert_eq!(reason(&asked, &[]), (Status::Unknown, Reason::ProbePending));
        assert_eq!(reason(&asked, &stored("True", Reason::Programmed)), (Status::True, Reason::Programmed));
        until("routes", || reason(&asked, &[]) == (Status::True, Reason::Programmed)).await;
        until("chain", || asked.held(&chain, "127.0.0.1") == Held::Proved).await;
        until("no chain", || matches!(asked.held(&chain, "127.0.0.2"), Held::Missing { .. })).await;
        assert_eq!(asked.chains[&chain].len(), 2, "one host for each port");
        deaf_to_chain.lock().unwrap().insert("/marker/x/chain".to_owned(), proof("", "c"));
        until("chain at last", || asked.held(&chain, "127.0.0.2") == Held::Proved).await;
        // The chain was made anew, and what was proved of it before is no proof.
        answers.lock().unwrap().remove("/marker/x/chain");
        want(&mut asked, "1", "2");
        assert_eq!(asked.held(&chain, "127.0.0.1"), Held::Unasked);
        until("chain lost", || matches!(asked.held(&chain, "127.0.0.1"), Held::Missing { .. })).await;
        assert_eq!(
            reason(&asked, &[]),
            (Status::True, Reason::Programmed),
            "the routes are there all the same"
        );
        // Other routes, which the pods do not have yet: said at once of what is new, and after a while of what was proved.
        want(&mut asked, "2", "2");
        until("old routes", || reason(&asked, &[]).1 == Reason::NotProgrammed).await;
        let text = asked.programmed(&verdict(&["x"]), &[], Instant::now()).unwrap().message;
        assert!(text.contains("pod gw/pod-127.0.0.1: it holds an older or newer state"), "{text}");
        let before = stored("True", Reason::Programmed);
        assert_eq!(asked.programmed(&verdict(&["x"]), &before, Instant::now()).unwrap().message, "as before");
        let later = Instant::now() + SETTLE;
        assert_eq!(asked.programmed(&verdict(&["x"]), &before, later).unwrap().reason, Reason::NotProgrammed);
        assert!(asked.next(Instant::now()).is_some_and(|next| next < later));
    }

    #[tokio::test]
    async fn who_cannot_be_asked_is_said() {
        let mut asked = Asked::start(Wake::default());
        let nobody = ObservedPod {
            uid: "u".to_owned(),
            ip: Some("127.0.0.1".parse().unwrap()),
            ready: true,
            ..ObservedPod::default()
        };
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = Listener { port: gone.local_addr().unwrap().port(), tls: false };
        drop(gone);
        let want = |asked: &mut Asked, listeners: &[Listener], pods: &[&ObservedPod]| {
            asked.want(&[marker("x", "1", listeners)].into(), &view(pods), &BTreeMap::new(), |_| None);
        };
        want(&mut asked, &[listener], &[&nobody]);
        assert!(asked.programmed(&verdict(&["elsewhere"]), &[], Instant::now()).is_none());
        let impossible = (Status::Unknown, Reason::ProbeImpossible);
        let later = || Instant::now() + SETTLE;
        until("refused", || asked.programmed(&verdict(&["x"]), &[], later()).unwrap().reason == impossible.1)
            .await;
        let text = asked.programmed(&verdict(&["x"]), &[], later()).unwrap().message;
        assert!(text.contains("pod gw/pod-u: the pod refuses the connection"), "{text}");
        // A restart finds it said already, and writes nothing.
        let before = stored("Unknown", Reason::ProbeImpossible);
        assert_eq!(asked.programmed(&verdict(&["x"]), &before, Instant::now()).unwrap().message, "as before");
        want(&mut asked, &[], &[&nobody]);
        assert_eq!(reason(&asked, &[]), impossible);
        let text = asked.programmed(&verdict(&["x"]), &[], Instant::now()).unwrap().message;
        assert!(text.contains("every listener of the host demands a client certificate"), "{text}");
        let homeless = ObservedPod { ip: None, ..nobody.clone() };
        want(&mut asked, &[listener], &[&homeless]);
        assert!(asked.programmed(&verdict(&["x"]), &[], Instant::now()).unwrap().message.contains("address"));
        // Pods that are not ready are not asked, and then there is none.
        let ending = ObservedPod { ready: false, ..nobody };
        want(&mut asked, &[listener], &[&ending]);
        assert!(asked.programmed(&verdict(&["x"]), &[], Instant::now()).is_none());
    }
}
