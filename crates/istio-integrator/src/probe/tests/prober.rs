//! The whole prober, against servers on loopback.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use operator_kit::cache::Wake;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

use super::world::{question, subject};
use crate::probe::{Limits, Outcome, Prober, Target};

/// A pod that holds `digest` of every host.
struct Pod {
    address: SocketAddr,
    digest: Arc<Mutex<String>>,
    requests: Arc<AtomicUsize>,
    at_once: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Pod {
    async fn start(digest: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let digest = Arc::new(Mutex::new(digest.to_owned()));
        let (requests, at_once) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut task = JoinSet::new();
        let (held, counted, most) = (Arc::clone(&digest), Arc::clone(&requests), Arc::clone(&at_once));
        task.spawn(async move {
            let now = Arc::<AtomicUsize>::default();
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let (held, now) = (Arc::clone(&held), Arc::clone(&now));
                connections.spawn(async move {
                    let mut buffer = [0; 1024];
                    drop(stream.read(&mut buffer).await);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    let body = held.lock().unwrap().clone();
                    now.fetch_sub(1, Ordering::SeqCst);
                    let length = body.len();
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                    drop(stream.write_all(answer.as_bytes()).await);
                });
            }
        });
        Self { address, digest, requests, at_once, _task: task }
    }

    fn target(&self, uid: &str) -> Target {
        Target { pod: uid.into(), address: self.address, tls: false }
    }
}

async fn until(prober: &Prober, wake: &Wake, hosts: &[String], outcome: &Outcome) {
    let wait = async {
        loop {
            let done = {
                let view = prober.view();
                hosts.iter().all(|host| {
                    view.standing(&subject(host)).unwrap().outcomes().all(|(_, known)| known == *outcome)
                })
            };
            if done {
                break;
            }
            wake.woken().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
}

#[tokio::test]
async fn asks_until_it_is_proved_and_then_no_more() {
    let wake = Wake::default();
    let prober = Prober::start(Limits::default(), wake.clone());
    let pods = [Pod::start("1").await, Pod::start("0").await];
    let targets: Arc<[Target]> = [pods[0].target("a"), pods[1].target("b")].into();
    let hosts: Vec<String> = (0..40).map(|n| format!("h{n}.example.com")).collect();
    let all = || hosts.iter().map(|host| question(host, "1", &targets));
    prober.want(all());
    // The one pod is behind the other.
    tokio::time::timeout(Duration::from_secs(20), async {
        while pods[1].requests.load(Ordering::SeqCst) < 80 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let of_first = |prober: &Prober| -> Vec<bool> {
        let view = prober.view();
        let standing = view.standing(&subject(&hosts[0])).unwrap();
        standing.outcomes().map(|(_, outcome)| outcome == Outcome::Proved).collect()
    };
    assert_eq!(of_first(&prober), [true, false]);
    "1".clone_into(&mut pods[1].digest.lock().unwrap());
    until(&prober, &wake, &hosts, &Outcome::Proved).await;
    assert_eq!(pods[0].requests.load(Ordering::SeqCst), 40, "what is proved is not asked again");
    assert!(pods.iter().all(|pod| pod.at_once.load(Ordering::SeqCst) <= 4));

    let before = pods[1].requests.load(Ordering::SeqCst);
    prober.want(all());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(pods[1].requests.load(Ordering::SeqCst), before);
    // Something else is expected, and the pods have it already.
    for pod in &pods {
        "2".clone_into(&mut pod.digest.lock().unwrap());
    }
    prober.want(hosts.iter().map(|host| question(host, "2", &targets)));
    until(&prober, &wake, &hosts, &Outcome::Proved).await;
    assert_eq!(pods[0].requests.load(Ordering::SeqCst), 80);
    drop(prober);
    // Nobody asks any more.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(pods[0].requests.load(Ordering::SeqCst), 80);
}
