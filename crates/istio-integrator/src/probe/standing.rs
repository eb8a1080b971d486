//! What is known of a subject, and what that makes of a condition: pure.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::{
    Answer, Obstacle, Outcome, Target,
    book::{Port, Slot},
};

/// What is known of one subject, at each of its targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'b> {
    slot: &'b Slot,
    ports: &'b BTreeMap<Target, Port>,
}

impl<'b> Standing<'b> {
    pub(super) fn new(slot: &'b Slot, ports: &'b BTreeMap<Target, Port>) -> Self {
        Self { slot, ports }
    }

    /// Each target, what is known there, and since when it has been asked for what is expected now. One that has not been
    /// asked because its port does not answer to others counts as one that cannot be asked.
    pub(crate) fn timed(&self) -> impl Iterator<Item = (&'b Target, Outcome, Instant)> + use<'b> {
        let ports = self.ports;
        self.slot.question.targets.iter().zip(&self.slot.states).map(move |(target, state)| {
            let deaf = ports.get(target).and_then(|port| port.deaf);
            let outcome = match (&state.outcome, deaf) {
                (Outcome::Unasked, Some(deaf)) => Outcome::CannotAsk(deaf.obstacle),
                (known, _) => known.clone(),
            };
            (target, outcome, state.since)
        })
    }

    /// Each target and what is known there.
    #[cfg(test)]
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (&'b Target, Outcome)> + use<'b> {
        self.timed().map(|(target, outcome, _)| (target, outcome))
    }

    /// How many targets hold the subject, and what the first of the others says.
    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally { initial: self.slot.initial, ..Tally::default() };
        for (target, outcome, since) in self.timed() {
            tally.targets += 1;
            if outcome == Outcome::Proved {
                tally.proved += 1;
                continue;
            }
            tally.unproved_since = Some(tally.unproved_since.map_or(since, |known| known.min(since)));
            match outcome {
                Outcome::Proved | Outcome::Unasked => {}
                Outcome::NotYet(answer) => {
                    tally.not_yet.get_or_insert((target.clone(), answer));
                }
                Outcome::CannotAsk(obstacle) => {
                    tally.cannot_ask.get_or_insert((target.clone(), obstacle));
                }
            }
        }
        tally
    }
}

/// What is known of a subject, or of several, in sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// How many targets there are.
    pub(crate) targets: usize,
    /// How many of them hold it.
    pub(crate) proved: usize,
    /// The first target that answered something else, and what.
    pub(crate) not_yet: Option<(Target, Answer)>,
    /// The first target that cannot be asked, and why.
    pub(crate) cannot_ask: Option<(Target, Obstacle)>,
    /// Since when the target that has lacked proof for longest is asked for what is expected now.
    pub(crate) unproved_since: Option<Instant>,
    /// Whether all of it was wanted when this process began, and nothing else was expected since.
    pub(crate) initial: bool,
}

impl Tally {
    /// Adds what is known of another subject, so that one condition rests on both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            targets: self.targets + other.targets,
            proved: self.proved + other.proved,
            not_yet: self.not_yet.or(other.not_yet),
            cannot_ask: self.cannot_ask.or(other.cannot_ask),
            unproved_since: [self.unproved_since, other.unproved_since].into_iter().flatten().min(),
            initial: self.initial && other.initial,
        }
    }
}

/// What a stored condition of the same generation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It is True.
    True,
    /// It is Unknown since a pod cannot be asked.
    CannotAsk,
    /// It is False, or Unknown for another reason.
    Other,
}

/// What the proofs make of the condition `Programmed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Programmed {
    /// Every pod holds it: True.
    Proved,
    /// What is stored stays as it is: it was proved before and is being asked anew.
    Keep,
    /// It is too early to say: Unknown, and not ready yet.
    Pending,
    /// A pod does not hold it: False.
    NotYet(Target, Answer),
    /// A pod cannot be asked: Unknown; what rests on it follows, saying so.
    CannotAsk(Target, Obstacle),
    /// There is nobody to ask.
    NoPods,
}

/// Judges. `stored` is the condition in the object's status, if it is of the object's present generation; `settle` is for how
/// long an answer other than the expected one is taken for a matter of time (twice the usual push).
///
/// The second value is when the verdict may change without any answer.
///
/// After a restart nothing is known. Then, and as long as a pod has merely not been asked yet, what is stored is kept, so that
/// a restart, a gateway pod that joins, and a change of a neighbour on the same host write no status.
pub(crate) fn programmed(
    tally: &Tally,
    stored: Option<Stored>,
    settle: Duration,
    now: Instant,
) -> (Programmed, Option<Instant>) {
    let Some(since) = tally.unproved_since else {
        return (if tally.targets == 0 { Programmed::NoPods } else { Programmed::Proved }, None);
    };
    let until = since + settle;
    let settling = now < until;
    let next = settling.then_some(until);
    let heard = tally.not_yet.is_some() || tally.cannot_ask.is_some();
    let keeps = match stored {
        None => false,
        Some(Stored::True) => !heard || settling,
        Some(Stored::CannotAsk) => tally.not_yet.is_none() && (!heard || settling),
        Some(Stored::Other) => tally.initial && (!heard || settling),
    };
    if keeps {
        return (Programmed::Keep, next.filter(|_| heard));
    }
    match (&tally.not_yet, &tally.cannot_ask) {
        (Some((target, answer)), _) => (Programmed::NotYet(target.clone(), answer.clone()), None),
        (None, Some((target, obstacle))) if !settling => {
            (Programmed::CannotAsk(target.clone(), *obstacle), None)
        }
        (None, _) => (Programmed::Pending, next),
    }
}
