use std::{collections::BTreeMap, sync::Arc, time::Duration};

use operator_kit::backoff::Backoff;
use tokio::time::Instant;

use super::world::{question, subject, target, targets};
use crate::probe::{
    Answer, Limits, Obstacle, Outcome, Question, Subject, Target,
    book::{Book, Request},
};

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits { per_second: 1_000_000, ..Limits::default() }
}

fn refused() -> Outcome {
    Outcome::CannotAsk(Obstacle::Refused)
}

fn missing() -> Outcome {
    Outcome::NotYet(Answer::Status(404))
}

fn outcomes(book: &Book, host: &str) -> Vec<Outcome> {
    book.standing(&subject(host)).unwrap().outcomes().map(|(_, outcome)| outcome).collect()
}

/// Takes what is due until nothing is, and answers it all.
fn settle(book: &mut Book, now: Instant, answer: impl Fn(&Request) -> Outcome) -> usize {
    let mut asked = 0;
    loop {
        let due = book.take(now).requests;
        if due.is_empty() {
            return asked;
        }
        for request in due {
            asked += 1;
            book.answered(&request, answer(&request), now, 0.5);
        }
    }
}

#[test]
fn what_is_proved_is_left_alone_until_something_changes() {
    let (start, pods) = (Instant::now(), targets(&["a", "b"]));
    let mut book = Book::new(limits(), start);
    assert!(book.want([question("x", "1", &pods), question("y", "1", &pods)], start));
    assert_eq!(settle(&mut book, start, |_| Outcome::Proved), 4);
    assert_eq!(outcomes(&book, "x"), [Outcome::Proved, Outcome::Proved]);
    // The same again, in other allocations, is nothing new.
    let again = targets(&["a", "b"]);
    assert!(!book.want([question("y", "1", &again), question("x", "1", &again)], start));
    assert_eq!(settle(&mut book, start + SECOND, |_| missing()), 0);
    // Other routes of one host are asked for at every pod, and what was proved of the other host stays.
    assert!(book.want([question("x", "2", &pods), question("y", "1", &pods)], start));
    assert_eq!(outcomes(&book, "x"), [Outcome::Unasked, Outcome::Unasked]);
    assert_eq!(
        settle(&mut book, start, |request| {
            assert_eq!((&*request.host, &*request.expected), ("x", "2"));
            Outcome::Proved
        }),
        2
    );
    // A pod that joins is asked for both hosts, and nobody else is.
    let more = targets(&["a", "b", "c"]);
    assert!(book.want([question("x", "2", &more), question("y", "1", &more)], start));
    assert_eq!(outcomes(&book, "y"), [Outcome::Proved, Outcome::Proved, Outcome::Unasked]);
    assert_eq!(
        settle(&mut book, start, |request| {
            assert_eq!(&*request.target.pod, "c");
            Outcome::Proved
        }),
        2
    );
    // A pod of the same address with another uid is another pod.
    let other = Target { pod: "d".into(), ..target("c") };
    let replaced: Arc<[Target]> = [target("a"), target("b"), other].into();
    book.want([question("x", "2", &replaced)], start);
    assert_eq!(outcomes(&book, "x"), [Outcome::Proved, Outcome::Proved, Outcome::Unasked]);
    assert!(book.standing(&subject("y")).is_none());
    assert_eq!(settle(&mut book, start, |_| Outcome::Proved), 1);
    book.want([], start);
    assert!(book.standing(&subject("x")).is_none() && book.ports.is_empty());
}

#[test]
fn an_answer_to_an_old_question_counts_for_nothing() {
    let (start, pods) = (Instant::now(), targets(&["a"]));
    let mut book = Book::new(limits(), start);
    book.want([question("x", "1", &pods)], start);
    let old = book.take(start).requests.remove(0);
    book.want([question("x", "2", &pods)], start);
    let new = book.take(start).requests.remove(0);
    assert!(!book.answered(&old, Outcome::Proved, start, 0.0));
    assert_eq!(outcomes(&book, "x"), [Outcome::Unasked]);
    assert!(book.answered(&new, Outcome::Proved, start, 0.0));
    assert_eq!(outcomes(&book, "x"), [Outcome::Proved]);
    // The place of a question that went is taken by another.
    book.want([question("x", "3", &pods)], start);
    let late = book.take(start).requests.remove(0);
    book.want([question("y", "3", &pods)], start);
    assert!(!book.answered(&late, Outcome::Proved, start, 0.0));
    assert_eq!(outcomes(&book, "y"), [Outcome::Unasked]);
    // A target that goes and comes back while it is asked is in the queue once.
    let asked = book.take(start).requests.remove(0);
    book.want([question("y", "3", &targets(&["b"]))], start);
    book.want([question("y", "3", &pods)], start);
    book.answered(&asked, Outcome::Proved, start, 0.0);
    assert_eq!(settle(&mut book, start, |_| Outcome::Proved), 0);
}

#[test]
fn what_fails_is_asked_ever_less_often() {
    let (start, pods) = (Instant::now(), targets(&["a"]));
    let mut book = Book::new(limits(), start);
    book.want([question("x", "1", &pods)], start);
    let (mut now, mut gaps) = (start, Vec::new());
    for _ in 0..10 {
        let request = book.take(now).requests.remove(0);
        book.answered(&request, missing(), now, 0.0);
        let next = book.take(now).next.unwrap();
        gaps.push((next - now).as_millis());
        now = next;
    }
    assert_eq!(gaps, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    // Something else that is expected is asked for at once.
    assert!(book.want([question("x", "2", &pods)], now));
    assert_eq!(book.take(now).requests.len(), 1);
}

#[test]
fn the_slow_round_is_spread_and_comes_after_what_is_new() {
    let (start, pods) = (Instant::now(), targets(&["a"]));
    let mut book = Book::new(Limits { at_once: 1, ..limits() }, start);
    let hosts: Vec<String> = (0..100).map(|n| format!("h{n}")).collect();
    let all = || hosts.iter().map(|host| question(host, "1", &pods));
    book.want(all(), start);
    for n in 0..100_u32 {
        let request = book.take(start).requests.remove(0);
        book.answered(&request, Outcome::Proved, start, f64::from(n) / 100.0);
    }
    let again = Limits::default().again;
    assert_eq!(book.take(start).next, Some(start + again / 2));
    let mut asked = Vec::new();
    let mut now = start;
    while now < start + again {
        let due = book.take(now);
        for request in &due.requests {
            asked.push((now - start).as_secs());
            book.answered(request, Outcome::Proved, now, 0.5);
        }
        now = due.next.unwrap_or(now);
    }
    assert_eq!(asked.len(), 100, "once each");
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 4), "{asked:?}");
    assert_eq!(now, start + again / 2 + again, "and then every ten minutes");
    // New questions go before the round.
    let end = start + again * 3;
    book.want(all().chain([question("new", "1", &pods)]), end);
    assert_eq!(&*book.take(end).requests[0].host, "new");
}

#[test]
fn a_chain_goes_before_the_routes_that_rest_on_it_and_its_epoch_counts() {
    let (start, pods) = (Instant::now(), targets(&["a"]));
    let mut book = Book::new(Limits { at_once: 1, ..limits() }, start);
    let chain = |epoch: &str| Question {
        subject: Subject::Chain("/chain".into(), 80),
        epoch: epoch.into(),
        ..question("x", "c", &pods)
    };
    let routes = || (0..50).map(|n| question(&format!("h{n}"), "1", &pods));
    book.want(routes().chain([chain("1")]), start);
    let first = book.take(start).requests.remove(0);
    assert!(first.chain, "{first:?}");
    book.answered(&first, Outcome::Proved, start, 0.5);
    assert_eq!(settle(&mut book, start, |_| Outcome::Proved), 50);
    // The same chain, made anew: what was proved of the one before is no proof.
    book.want(routes().chain([chain("2")]), start);
    assert_eq!(
        settle(&mut book, start, |request| {
            assert!(request.chain);
            Outcome::Proved
        }),
        1
    );
}

#[test]
fn requests_at_once_are_bounded_in_all_and_for_each_pod() {
    let start = Instant::now();
    let names: Vec<String> = (0..20).map(|n| format!("pod-{n}")).collect();
    let pods = targets(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut book = Book::new(limits(), start);
    book.want((0..50).map(|n| question(&format!("h{n}"), "1", &pods)), start);
    let due = book.take(start);
    assert_eq!((due.requests.len(), due.next), (32, None), "an answer comes before any other request");
    let mut by_pod: BTreeMap<&str, usize> = BTreeMap::new();
    for request in &due.requests {
        *by_pod.entry(&*request.target.pod).or_default() += 1;
    }
    assert!(by_pod.len() == 20 && by_pod.values().all(|count| *count <= 2), "each has its turn: {by_pod:?}");
    assert!(book.take(start).requests.is_empty());
    book.answered(&due.requests[0], Outcome::Proved, start, 0.0);
    assert_eq!(book.take(start).requests.len(), 1);

    let mut few = Book::new(limits(), start);
    few.want((0..50).map(|n| question(&format!("h{n}"), "1", &targets(&["a", "b"]))), start);
    let due = few.take(start);
    assert_eq!((due.requests.len(), due.next), (8, None));
}

#[test]
fn the_pace_is_bounded() {
    let (start, pods) = (Instant::now(), targets(&["a"]));
    let mut book = Book::new(Limits { per_second: 100, ..Limits::default() }, start);
    book.want((0..1000).map(|n| question(&format!("h{n}"), "1", &pods)), start);
    let (mut now, mut asked) = (start, 0);
    while now < start + SECOND * 2 {
        let due = book.take(now);
        asked += due.requests.len();
        for request in &due.requests {
            book.answered(request, Outcome::Proved, now, 0.0);
        }
        now = if due.requests.is_empty() { due.next.unwrap() } else { now };
    }
    assert!((200..=212).contains(&asked), "{asked}");
}

#[test]
fn one_lost_request_is_no_doubt_and_three_are() {
    let (start, pods) = (Instant::now(), targets(&["a"]));
    let mut book = Book::new(limits(), start);
    book.want([question("x", "1", &pods)], start);
    settle(&mut book, start, |_| Outcome::Proved);
    let mut now = start + Limits::default().again;
    for expected in [Outcome::Proved, Outcome::Proved, refused()] {
        let request = book.take(now).requests.remove(0);
        book.answered(&request, refused(), now, 0.0);
        assert_eq!(outcomes(&book, "x"), [expected]);
        let next = book.take(now).next.unwrap();
        assert!(next - now < SECOND * 5, "it is asked again soon: {:?}", next - now);
        now = next;
    }
    // An answer that says otherwise is believed at once.
    book.want([question("x", "2", &pods)], now);
    settle(&mut book, now + SECOND * 60, |_| Outcome::Proved);
    let later = now + SECOND * 60 + Limits::default().again;
    let request = book.take(later).requests.remove(0);
    assert!(book.answered(&request, missing(), later, 0.0));
    assert_eq!(outcomes(&book, "x"), [missing()]);
}

#[test]
fn a_deaf_port_speaks_for_all_hosts_and_costs_one_request_at_a_time() {
    let (start, pods) = (Instant::now(), targets(&["a", "b"]));
    let mut book = Book::new(limits(), start);
    book.want((0..1000).map(|n| question(&format!("h{n}"), "1", &pods)), start);
    let deaf = |request: &Request| if &*request.target.pod == "a" { refused() } else { Outcome::Proved };
    let asked = settle(&mut book, start, deaf);
    assert!(asked < 1000 + 10, "{asked}");
    for n in 0..1000 {
        assert_eq!(outcomes(&book, &format!("h{n}")), [refused(), Outcome::Proved], "h{n}");
    }
    let next = book.take(start).next.unwrap();
    assert!(next > start + SECOND / 2, "{:?}", next - start);
    let trial = book.take(next).requests;
    assert_eq!(trial.len(), 1);
    // As long as it is tried, nobody else is sent there.
    assert!(book.take(next + SECOND).requests.is_empty());
    assert!(book.answered(&trial[0], Outcome::Proved, next, 0.5), "it hears again");
    assert_eq!(settle(&mut book, next + SECOND * 60, |_| Outcome::Proved), 999);
    assert!((0..1000).all(|n| outcomes(&book, &format!("h{n}")) == [Outcome::Proved, Outcome::Proved]));
    // What concerns one host says nothing of the port.
    book.want((0..1000).map(|n| question(&format!("h{n}"), "2", &pods)), start);
    let wants = |_: &Request| Outcome::CannotAsk(Obstacle::ClientCertificate);
    assert_eq!(settle(&mut book, next + SECOND * 60, wants), 2000);
}

#[test]
fn many_hosts_cost_little() {
    let (start, pods) = (Instant::now(), targets(&["a", "b", "c"]));
    let mut book = Book::new(limits(), start);
    let questions = || (0..10_000).map(|n| question(&format!("host-{n}.example.com"), "1", &pods));
    book.want(questions(), start);
    assert_eq!(settle(&mut book, start, |_| Outcome::Proved), 30_000);
    assert!(!book.want(questions(), start));
    // A pace that grew with the square of the hosts would take minutes.
    assert!(start.elapsed() < SECOND * 20, "{:?}", start.elapsed());
    let jitter = Backoff::jitter();
    assert!((0.0..=1.0).contains(&jitter));
}
