//! Passes a watch on, event by event, until it ends or is ended.

use std::time::Duration;

use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::faults::WatchGuard;
use super::proxy::{Body, BoxError};
use super::request::Request;
use super::rule::{Cut, Limit};
use super::status::Failure;

/// Frames that may wait for a slow client.
const QUEUE: usize = 16;

/// A watch on its way from the API server to the client.
pub(super) struct Relay {
    pub(super) request: Request,
    pub(super) upstream: Incoming,
    /// Whether the stream is JSON, one event a line; what else there is (protobuf) is passed on as it comes.
    pub(super) json: bool,
    pub(super) limit: Option<(Limit, Cut)>,
    pub(super) cuts: mpsc::UnboundedReceiver<Cut>,
    pub(super) guard: WatchGuard,
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

impl Relay {
    /// Starts to pass on, and gives the body that the client reads.
    pub(super) fn start(self) -> Body {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        // Ends when the client goes away, since that drops the receiver.
        tokio::spawn(self.run(sender));
        StreamBody::new(stream::poll_fn(move |context| receiver.poll_recv(context))).boxed_unsync()
    }

    async fn run(mut self, client: Sender) {
        let (limit, planned) = match self.limit {
            Some((limit, cut)) => (Some(limit), cut),
            None => (None, Cut::Close),
        };
        let mut pace = Pace::new(self.json, limit, planned == Cut::Expire);
        let time = match limit {
            Some(Limit::Time(time)) => time,
            // Far enough not to happen: a watch lives ten minutes at most.
            _ => Duration::from_hours(24),
        };
        let deadline = Instant::now() + time;
        let mut reached = pace.reached();
        while !reached {
            tokio::select! {
                () = client.closed() => return,
                Some(cut) = self.cuts.recv() => return self.end(cut, &client).await,
                () = sleep_until(deadline) => break,
                frame = self.upstream.frame() => {
                    let frame = match frame {
                        None => {
                            // The server has closed; half an event, if any, is passed on as it was.
                            let rest = Bytes::from(pace.into_rest());
                            if !rest.is_empty() {
                                let _ = client.send(Ok(Frame::data(rest))).await;
                            }
                            return;
                        }
                        Some(Err(error)) => {
                            let _ = client.send(Err(error.into())).await;
                            return;
                        }
                        Some(Ok(frame)) => frame,
                    };
                    let Ok(data) = frame.into_data() else { continue };
                    let forward = pace.push(&data);
                    reached = pace.reached();
                    if !forward.is_empty() && client.send(Ok(Frame::data(forward.into()))).await.is_err() {
                        return;
                    }
                }
            }
        }
        self.end(planned, &client).await;
    }

    async fn end(self, cut: Cut, client: &Sender) {
        // No longer open once it is cut, though the client may not have read to its end.
        drop(self.guard);
        // A client that has gone needs no end, so what `send` says does not matter.
        match cut {
            Cut::Close => {}
            Cut::Abort => {
                let _ = client.send(Err("watch cut by the fault proxy".into())).await;
            }
            Cut::Expire => {
                let event = Failure::Expired.watch_event(&self.request);
                let _ = client.send(event.map(Frame::data).map_err(Into::into)).await;
            }
        }
    }
}

/// Cuts a stream into whole events, and measures it.
struct Pace {
    json: bool,
    limit: Option<Limit>,
    whole: bool,
    partial: Vec<u8>,
    events: u64,
    bytes: u64,
    full: bool,
}

impl Pace {
    /// `whole`: the last event passed on must be a whole one.
    fn new(json: bool, limit: Option<Limit>, whole: bool) -> Self {
        let full = matches!(limit, Some(Limit::Events(0) | Limit::Bytes(0)));
        Self { json, limit, whole, partial: Vec::new(), events: 0, bytes: 0, full }
    }

    /// Whether the limit of events or bytes is reached.
    fn reached(&self) -> bool {
        self.full
    }

    /// Takes what came in, and gives what goes out now: in JSON whole lines, but for a limit of bytes.
    fn push(&mut self, data: &[u8]) -> Vec<u8> {
        let mut forward = Vec::with_capacity(data.len());
        if !self.json {
            self.pass(data, &mut forward);
            return forward;
        }
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") && !self.full {
                let line = std::mem::take(&mut self.partial);
                self.pass(&line, &mut forward);
            }
        }
        forward
    }

    /// Passes on one event, or of another encoding some bytes, as far as the limit allows.
    fn pass(&mut self, data: &[u8], forward: &mut Vec<u8>) {
        let mut data = data;
        if let Some(Limit::Bytes(limit)) = self.limit {
            let left = usize::try_from(limit - self.bytes).unwrap_or(usize::MAX);
            if data.len() > left {
                self.full = true;
                data = if self.whole { &[] } else { data.get(..left).unwrap_or_default() };
            }
            self.full |= data.len() == left;
        }
        forward.extend_from_slice(data);
        self.bytes += data.len() as u64;
        if self.json {
            self.events += 1;
            self.full |= self.limit == Some(Limit::Events(self.events));
        }
    }

    fn into_rest(self) -> Vec<u8> {
        self.partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes out for these pieces, and whether the limit was reached.
    fn run(mut pace: Pace, pieces: &[&str]) -> (Vec<String>, bool) {
        let mut out = Vec::new();
        for piece in pieces {
            if pace.reached() {
                break;
            }
            out.push(String::from_utf8(pace.push(piece.as_bytes())).unwrap());
        }
        (out, pace.reached())
    }

    #[test]
    fn events_are_passed_on_whole() {
        let pace = Pace::new(true, None, false);
        let (out, reached) = run(pace, &["{1}\n{2", "}", "\n{3}\n{4}\n{5"]);
        assert_eq!((out, reached), (vec!["{1}\n".into(), String::new(), "{2}\n{3}\n{4}\n".into()], false));

        let mut pace = Pace::new(true, None, false);
        pace.push(b"{1}\n{2");
        assert_eq!(pace.into_rest(), b"{2");
    }

    #[test]
    fn a_limit_of_events_is_exact() {
        let limit = |n| Pace::new(true, Some(Limit::Events(n)), false);
        assert_eq!(run(limit(0), &["{1}\n"]), (vec![], true));
        assert_eq!(run(limit(2), &["{1}\n{2}\n{3}\n"]), (vec!["{1}\n{2}\n".into()], true));
        assert_eq!(run(limit(2), &["{1}\n{2"]), (vec!["{1}\n".into()], false));
    }

    #[test]
    fn a_limit_of_bytes_may_break_an_event_but_not_before_an_error_event() {
        let limit = |n, whole| Pace::new(true, Some(Limit::Bytes(n)), whole);
        assert_eq!(run(limit(6, false), &["{1}\n{2}\n"]), (vec!["{1}\n{2".into()], true));
        assert_eq!(run(limit(6, true), &["{1}\n{2}\n"]), (vec!["{1}\n".into()], true));
        assert_eq!(run(limit(8, true), &["{1}\n", "{2}\n"]), (vec!["{1}\n".into(), "{2}\n".into()], true));
        assert_eq!(run(limit(9, false), &["{1}\n", "{2}\n"]), (vec!["{1}\n".into(), "{2}\n".into()], false));
    }

    #[test]
    fn other_encodings_pass_as_they_come() {
        let pace = Pace::new(false, Some(Limit::Events(1)), false);
        assert_eq!(run(pace, &["ab", "c\nd"]), (vec!["ab".into(), "c\nd".into()], false));
        let pace = Pace::new(false, Some(Limit::Bytes(3)), false);
        assert_eq!(run(pace, &["ab", "cd"]), (vec!["ab".into(), "c".into()], true));
    }
}
