//! Somebody who asks for a protected route without a login, all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use http::Request;
use testbed::curl::Reply;
use testbed::raw::{self, Http2};
use tokio::task::JoinHandle;

use crate::auth_world::World;

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks for `/` of a world without a login until it is ended, by new connections of HTTP/1.1 and by a kept one of HTTP/2.
pub(crate) struct Watchman {
    ended: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    asked: [Arc<AtomicUsize>; 2],
    tasks: [JoinHandle<()>; 2],
}

/// What one of its tasks notes.
#[derive(Clone, Default)]
struct Notes {
    ended: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Notes {
    fn note(&self, reply: &Reply) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
    }
}

impl Watchman {
    pub(crate) fn start(world: &World) -> Self {
        let one = Notes::default();
        let two = Notes { asked: Arc::default(), ..one.clone() };
        let (ended, opened) = (Arc::clone(&one.ended), Arc::clone(&one.opened));
        let asked = [Arc::clone(&one.asked), Arc::clone(&two.asked)];
        let (address, bytes, uri) =
            (world.address, world.bytes("GET", "/", ""), format!("http://{}/", world.host));
        let new_connections = async move {
            while !one.ended.load(Ordering::Relaxed) {
                if let Ok(reply) = raw::once(address, bytes.as_bytes()).await {
                    one.note(&reply);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let kept_connection = async move {
            let mut kept: Option<Http2> = None;
            while !two.ended.load(Ordering::Relaxed) {
                let connection = match kept.take() {
                    Some(connection) => Ok(connection),
                    None => Http2::open(address).await,
                };
                if let (Ok(mut connection), Ok(request)) =
                    (connection, Request::get(&uri).body(String::new()))
                    && let Ok(reply) = connection.exchange(request).await
                {
                    two.note(&reply);
                    kept = Some(connection);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let tasks = [tokio::spawn(new_connections), tokio::spawn(kept_connection)];
        Self { ended, opened, asked, tasks }
    }

    /// Stops, and fails if it was let in once, or asked too seldom to show anything.
    pub(crate) async fn end(self) -> Result<()> {
        self.end_after(20).await
    }

    /// The same, where it must have asked more often than this by each protocol.
    pub(crate) async fn end_after(self, least: usize) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await?;
        }
        let opened = self.opened.load(Ordering::Relaxed);
        let asked = self.asked.map(|count| count.load(Ordering::Relaxed));
        println!("{asked:?} requests without a login by HTTP/1.1 and HTTP/2, {opened} let in");
        ensure!(opened == 0, "{opened} of {asked:?} requests without a login were let in");
        ensure!(
            asked.iter().all(|count| *count > least),
            "only {asked:?} requests were made, which shows little"
        );
        Ok(())
    }
}
