//! A TCP proxy in user space for cluster and load balancer addresses.
//!
//! The addresses are local to the node (see [`crate::net`]), so a listener for each Service port is all there is.
//! Since all of them are this host's, a program on the host network that listens at every address takes its port
//! from all Services; which of the two comes later fails to listen, and a Service tries again until it succeeds.
//! A port without endpoints has no listener: connections to it are refused, as kube-proxy refuses them. TCP only.
//! Endpoints see the node's address as that of their client.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::Directory;
use super::directory::Frontend;

/// An endpoint that does not answer for this long is passed over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long a listener that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);

struct Listener {
    frontend: watch::Sender<Frontend>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves what `directory` says until it closes. Nothing listens at `dns`: cluster DNS answers there itself.
pub(crate) async fn serve(mut directory: watch::Receiver<Arc<Directory>>, dns: Ipv4Addr) {
    let mut listeners: BTreeMap<SocketAddrV4, Listener> = BTreeMap::new();
    loop {
        let mut wanted = directory.borrow_and_update().frontends();
        wanted.retain(|place, frontend| {
            !frontend.backends.is_empty() && (*place.ip(), place.port()) != (dns, 53)
        });
        listeners.retain(|place, _| wanted.contains_key(place));
        let mut failed = false;
        for (place, frontend) in wanted {
            if let Some(listener) = listeners.get(&place) {
                listener.frontend.send_if_modified(|current| {
                    let changed = *current != frontend;
                    *current = frontend;
                    changed
                });
                continue;
            }
            match TcpListener::bind(SocketAddr::V4(place)).await {
                Ok(socket) => {
                    let (sender, receiver) = watch::channel(frontend);
                    let task = tokio::spawn(accept(socket, receiver));
                    listeners.insert(place, Listener { frontend: sender, task });
                }
                Err(error) => {
                    failed = true;
                    warn!(%place, %error, "cannot listen for a Service");
                }
            }
        }
        tokio::select! {
            changed = directory.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(RETRY), if failed => {}
        }
    }
}

async fn accept(listener: TcpListener, frontend: watch::Receiver<Frontend>) {
    let mut turn = 0_usize;
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                let order = order(&frontend.borrow(), peer.ip(), turn);
                turn = turn.wrapping_add(1);
                tokio::spawn(forward(client, order));
            }
            Err(error) => {
                // Out of file descriptors, most likely: others will be closed soon.
                warn!(%error, "cannot accept a connection to a Service");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Endpoints in the order in which they are tried: whose turn it is first, or the one that a client sticks to.
fn order(frontend: &Frontend, client: IpAddr, turn: usize) -> Vec<SocketAddr> {
    let mut backends = frontend.backends.clone();
    let first = if frontend.sticky {
        let mut hasher = DefaultHasher::new();
        client.hash(&mut hasher);
        usize::try_from(hasher.finish() % u64::from(u32::MAX)).unwrap_or(0)
    } else {
        turn
    };
    let count = backends.len().max(1);
    backends.rotate_left(first % count);
    backends
}

async fn forward(mut client: TcpStream, backends: Vec<SocketAddr>) {
    // The proxy adds no delay of its own; failing to ask for that changes nothing else.
    let _ = client.set_nodelay(true);
    for backend in backends {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(backend)).await {
            Ok(Ok(mut server)) => {
                let _ = server.set_nodelay(true);
                if let Err(error) = copy_bidirectional(&mut client, &mut server).await {
                    debug!(%backend, %error, "a connection broke");
                    // Whoever is left must see a reset, not an orderly end.
                    let _ = client.set_zero_linger();
                    let _ = server.set_zero_linger();
                }
                return;
            }
            Ok(Err(error)) => debug!(%backend, %error, "an endpoint refuses"),
            Err(_) => debug!(%backend, "an endpoint does not answer"),
        }
    }
    let _ = client.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn frontend(sticky: bool) -> Frontend {
        let backends = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(|text| text.parse().unwrap());
        Frontend { backends: backends.to_vec(), sticky }
    }

    #[test]
    fn turns_go_round_and_sticky_clients_stay() {
        let client = IpAddr::from([10, 9, 8, 7]);
        let firsts: Vec<_> =
            (0..4).map(|turn| order(&frontend(false), client, turn)[0].to_string()).collect();
        assert_eq!(firsts, ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:1"]);
        assert_eq!(order(&frontend(true), client, 0), order(&frontend(true), client, 1));
        let clients = (0..50).map(|last| order(&frontend(true), IpAddr::from([10, 9, 8, last]), 0)[0]);
        assert!(clients.collect::<std::collections::BTreeSet<_>>().len() > 1);
    }

    #[tokio::test]
    async fn one_side_may_finish_before_the_other() {
        let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = backend.local_addr().unwrap();
        let dead = {
            let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
            unused.local_addr().unwrap()
        };
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = front.local_addr().unwrap();
        let (_sender, receiver) = watch::channel(Frontend { backends: vec![dead, address], sticky: false });
        let task = tokio::spawn(accept(front, receiver));
        let server = tokio::spawn(async move {
            let (mut stream, _) = backend.accept().await.unwrap();
            let mut request = String::new();
            stream.read_to_string(&mut request).await.unwrap();
            stream.write_all(format!("got {request}").as_bytes()).await.unwrap();
        });
        let mut client = TcpStream::connect(place).await.unwrap();
        client.write_all(b"all").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "got all");
        server.await.unwrap();
        task.abort();
    }
}
