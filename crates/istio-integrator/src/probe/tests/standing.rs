use std::time::Duration;

use tokio::time::Instant;

use super::world::{question, subject, target, targets};
use crate::probe::{Answer, Limits, Obstacle, Outcome, Programmed, Stored, Tally, book::Book, programmed};

const SETTLE: Duration = Duration::from_secs(10);

fn asked(answers: &[Option<Outcome>]) -> (Book, Tally, Instant) {
    let start = Instant::now();
    let names: Vec<String> = (0..answers.len()).map(|n| format!("pod-{n}")).collect();
    let pods = targets(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut book = Book::new(Limits::default(), start);
    book.want([question("x", "1", &pods)], start);
    for request in book.take(start).requests {
        let place = names.iter().position(|name| **name == *request.target.pod).unwrap();
        if let Some(outcome) = &answers[place] {
            book.answered(&request, outcome.clone(), start, 0.0);
        }
    }
    let tally = book.standing(&subject("x")).unwrap().tally();
    (book, tally, start)
}

fn missing() -> Outcome {
    Outcome::NotYet(Answer::Status(404))
}

fn refused() -> Outcome {
    Outcome::CannotAsk(Obstacle::Refused)
}

#[test]
fn a_tally_names_the_first_that_hinders() {
    let (_, tally, start) = asked(&[Some(Outcome::Proved), Some(missing()), Some(refused()), None]);
    let expected = Tally {
        targets: 4,
        proved: 1,
        not_yet: Some((target("pod-1"), Answer::Status(404))),
        cannot_ask: Some((target("pod-2"), Obstacle::Refused)),
        unproved_since: Some(start),
        initial: true,
    };
    assert_eq!(tally, expected);
    let (_, good, _) = asked(&[Some(Outcome::Proved)]);
    let both = good.clone().and(tally);
    assert_eq!((both.targets, both.proved, both.unproved_since), (5, 2, Some(start)));
    assert!(both.not_yet.is_some() && good.unproved_since.is_none());
}

#[test]
fn what_is_new_is_programmed_when_every_pod_holds_it() {
    let verdict = |answers: &[Option<Outcome>], after: Duration| {
        let (_, tally, start) = asked(answers);
        let (verdict, next) = programmed(&tally, None, SETTLE, start + after);
        (verdict, next.map(|next| next - start))
    };
    let zero = Duration::ZERO;
    let not_yet = Programmed::NotYet(target("pod-1"), Answer::Status(404));
    let cannot = Programmed::CannotAsk(target("pod-0"), Obstacle::Refused);
    let yes = || Some(Outcome::Proved);
    assert_eq!(verdict(&[], zero), (Programmed::NoPods, None));
    assert_eq!(verdict(&[yes(), yes()], zero), (Programmed::Proved, None));
    assert_eq!(verdict(&[yes(), None], zero), (Programmed::Pending, Some(SETTLE)));
    assert_eq!(verdict(&[yes(), Some(missing())], zero), (not_yet.clone(), None));
    assert_eq!(verdict(&[Some(refused()), yes()], zero), (Programmed::Pending, Some(SETTLE)));
    assert_eq!(verdict(&[Some(refused()), yes()], SETTLE), (cannot, None));
    // That one does not have it is worse than that another cannot be asked.
    assert_eq!(verdict(&[Some(refused()), Some(missing())], SETTLE), (not_yet, None));
}

#[test]
fn after_a_restart_what_is_stored_is_kept_until_the_pods_say_otherwise() {
    let verdict = |answers: &[Option<Outcome>], stored, after: Duration| {
        let (_, tally, start) = asked(answers);
        programmed(&tally, Some(stored), SETTLE, start + after).0
    };
    for stored in [Stored::True, Stored::CannotAsk, Stored::Other] {
        assert_eq!(verdict(&[None], stored, Duration::ZERO), Programmed::Keep);
        assert_eq!(verdict(&[None], stored, SETTLE * 9), Programmed::Keep, "many hosts take their time");
        assert_eq!(verdict(&[Some(refused())], stored, Duration::ZERO), Programmed::Keep);
        assert_eq!(verdict(&[Some(Outcome::Proved)], stored, Duration::ZERO), Programmed::Proved);
        assert!(matches!(verdict(&[Some(refused())], stored, SETTLE), Programmed::CannotAsk(..)));
        assert!(matches!(verdict(&[Some(missing())], stored, SETTLE), Programmed::NotYet(..)));
    }
    assert_eq!(verdict(&[Some(missing())], Stored::True, Duration::ZERO), Programmed::Keep);
}

#[test]
fn a_neighbour_that_changes_and_a_pod_that_joins_change_no_status() {
    let (mut book, _, start) = asked(&[Some(Outcome::Proved)]);
    let later = start + SETTLE * 100;
    let verdict = |book: &Book, stored, now| {
        let tally = book.standing(&subject("x")).unwrap().tally();
        programmed(&tally, Some(stored), SETTLE, now)
    };
    // Another request on the same host: other routes are expected of every pod.
    book.want([question("x", "2", &targets(&["pod-0"]))], later);
    assert_eq!(verdict(&book, Stored::True, later), (Programmed::Keep, None));
    let request = book.take(later).requests.remove(0);
    book.answered(&request, Outcome::NotYet(Answer::Other("1".into())), later, 0.0);
    assert_eq!(verdict(&book, Stored::True, later), (Programmed::Keep, Some(later + SETTLE)));
    assert!(matches!(verdict(&book, Stored::True, later + SETTLE).0, Programmed::NotYet(..)));
    // What was not programmed before is not taken for it.
    assert!(matches!(verdict(&book, Stored::Other, later).0, Programmed::NotYet(..)));
    let request = book.take(later + SETTLE).requests.remove(0);
    book.answered(&request, Outcome::Proved, later, 0.0);
    // A pod joins.
    let much_later = later + SETTLE * 100;
    book.want([question("x", "2", &targets(&["pod-0", "pod-1"]))], much_later);
    assert_eq!(verdict(&book, Stored::True, much_later), (Programmed::Keep, None));
    let request = book.take(much_later).requests.remove(0);
    book.answered(&request, missing(), much_later, 0.0);
    assert_eq!(verdict(&book, Stored::True, much_later).0, Programmed::Keep);
    assert!(matches!(verdict(&book, Stored::True, much_later + SETTLE).0, Programmed::NotYet(..)));
}

#[test]
fn a_gateway_that_cannot_be_asked_stays_so_when_a_neighbour_changes() {
    let (mut book, _, start) = asked(&[Some(refused())]);
    let later = start + SETTLE * 100;
    book.want([question("x", "2", &targets(&["pod-0"]))], later);
    let tally = |book: &Book| book.standing(&subject("x")).unwrap().tally();
    assert_eq!(programmed(&tally(&book), Some(Stored::CannotAsk), SETTLE, later).0, Programmed::Keep);
    let request = book.take(later).requests.remove(0);
    book.answered(&request, refused(), later, 0.0);
    assert_eq!(programmed(&tally(&book), Some(Stored::CannotAsk), SETTLE, later).0, Programmed::Keep);
    let (verdict, _) = programmed(&tally(&book), Some(Stored::CannotAsk), SETTLE, later + SETTLE);
    assert!(matches!(verdict, Programmed::CannotAsk(..)));
}
