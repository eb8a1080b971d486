//! Whom to ask when: pure, the time given.
//!
//! For each question there is one small state at each target. What is due waits in a queue for each target, so that taking
//! the next costs no more with many hosts than with few, and a pod that does not answer holds up no other.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use operator_kit::backoff::Backoff;
use tokio::time::Instant;

use super::{Limits, Obstacle, Outcome, Question, Standing, Subject, Target};

/// After how many requests in a row that did not get through a port counts as deaf, and a proof as lost.
const DOUBTS: u8 = 3;
/// How long a deaf port is left alone. Then one request tries it.
const DEAF: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };
/// How many requests may begin at one moment after a pause, in time at the permitted pace.
const BURST: Duration = Duration::from_millis(100);

/// A request that is to be sent now.
#[derive(Clone, Debug)]
pub(super) struct Request {
    slot: u32,
    version: u64,
    pub(super) target: Target,
    pub(super) host: Arc<str>,
    pub(super) path: Arc<str>,
    pub(super) expected: Arc<str>,
    /// Whether the answer is in the chain's header, and not in the body.
    pub(super) chain: bool,
}

/// What is to be sent now.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) requests: Vec<Request>,
    /// When there is more, if nothing else happens before.
    pub(super) next: Option<Instant>,
}

/// What is known of one question at one target.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) outcome: Outcome,
    /// Since when the target has been asked for what is expected now.
    pub(super) since: Instant,
    /// When it is to be asked; nothing while it is being asked.
    due: Option<Instant>,
    /// How often in a row it did not answer as expected.
    failures: u32,
    /// How often in a row it could not be asked after it had given proof.
    doubts: u8,
}

impl State {
    fn new(now: Instant) -> Self {
        Self { outcome: Outcome::Unasked, since: now, due: Some(now), failures: 0, doubts: 0 }
    }
}

/// A question and its states, in the order of its targets.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) question: Question,
    pub(super) states: Vec<State>,
    /// Whether it was among the first that were wanted, and nothing else was expected since.
    pub(super) initial: bool,
    version: u64,
    pass: u64,
}

/// When, which slot, and which of its targets.
type Place = (Instant, u32, usize);

/// Which questions go first at one port.
#[derive(Clone, Copy, Debug)]
enum Class {
    /// A chain, on which the logins of all hosts rest, without proof.
    Chain = 0,
    /// Routes without proof.
    Open = 1,
    /// What gave proof and is asked again: last, so that the slow round delays no proof.
    Again = 2,
}

impl Class {
    fn of(subject: &Subject, outcome: &Outcome) -> Self {
        match (outcome, subject) {
            (Outcome::Proved, _) => Self::Again,
            (_, Subject::Chain(..)) => Self::Chain,
            (_, Subject::Routes(_)) => Self::Open,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Port {
    /// By [`Class`].
    queues: [BTreeSet<Place>; 3],
    asking: usize,
    /// How many requests in a row did not get through.
    lost: u8,
    pub(super) deaf: Option<Deaf>,
}

/// That a port does not answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deaf {
    pub(super) obstacle: Obstacle,
    tries: u32,
    until: Instant,
}

impl Port {
    fn queue(&mut self, class: Class) -> &mut BTreeSet<Place> {
        &mut self.queues[class as usize]
    }

    /// When something is to be asked here.
    fn due(&self) -> Option<Instant> {
        let first = self.queues.iter().filter_map(|queue| Some(queue.first()?.0)).min()?;
        match self.deaf {
            // One request tries it; the others wait for what becomes of that.
            Some(_) if self.asking > 0 => None,
            Some(deaf) => Some(first.max(deaf.until)),
            None => Some(first),
        }
    }

    fn take(&mut self, now: Instant) -> Option<Place> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        self.queues.iter_mut().find_map(|queue| {
            let first = *queue.first().filter(|place| place.0 <= now)?;
            queue.remove(&first);
            Some(first)
        })
    }
}

/// All questions.
#[derive(Debug)]
pub(super) struct Book {
    limits: Limits,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    index: HashMap<Subject, u32>,
    pub(super) ports: BTreeMap<Target, Port>,
    /// How many requests are under way to each pod.
    pods: HashMap<Arc<str>, usize>,
    under_way: usize,
    /// The pace: when the next request would begin if they all kept their distance.
    pace: Instant,
    /// Which port is looked at first, so that each gets its turn.
    turn: usize,
    versions: u64,
    passes: u64,
    /// The first pass that wanted anything.
    first: Option<u64>,
}

impl Book {
    /// A book without questions.
    pub(super) fn new(limits: Limits, now: Instant) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::new(),
            ports: BTreeMap::new(),
            pods: HashMap::new(),
            under_way: 0,
            pace: now,
            turn: 0,
            versions: 0,
            passes: 0,
            first: None,
        }
    }

    /// What is known of a subject.
    pub(super) fn standing(&self, subject: &Subject) -> Option<Standing<'_>> {
        let slot = self.slots.get(usize::try_from(*self.index.get(subject)?).ok()?)?.as_ref()?;
        Some(Standing::new(slot, &self.ports))
    }

    /// Sets what is wanted; returns whether there is something new to ask.
    pub(super) fn want(&mut self, questions: impl IntoIterator<Item = Question>, now: Instant) -> bool {
        self.passes += 1;
        let mut news = false;
        for question in questions {
            news |= self.want_one(question, now);
        }
        let pass = self.passes;
        for number in 0..self.slots.len() {
            if self.slots[number].as_ref().is_some_and(|slot| slot.pass != pass)
                && let Some(slot) = self.slots[number].take()
            {
                let number = id(number);
                self.index.remove(&slot.question.subject);
                self.unqueue(number, &slot);
                self.free.push(number);
            }
        }
        let wanted: BTreeSet<&Target> = {
            // Lists are shared, and each is looked at once.
            let mut seen = BTreeSet::new();
            let lists = self.slots.iter().flatten().map(|slot| &slot.question.targets);
            lists.filter(|list| seen.insert(Arc::as_ptr(list))).flat_map(|list| list.iter()).collect()
        };
        self.ports.retain(|target, port| port.asking > 0 || wanted.contains(target));
        news
    }

    fn want_one(&mut self, question: Question, now: Instant) -> bool {
        let pass = self.passes;
        let first = *self.first.get_or_insert(pass);
        let known = self.index.get(&question.subject).copied();
        if let Some(slot) = known.and_then(|number| self.slots.get_mut(index(number))?.as_mut())
            && slot.question == question
        {
            // Keep one copy of what is equal, so that shared lists are recognised.
            slot.question = question;
            slot.pass = pass;
            return false;
        }
        self.versions += 1;
        let number = known.unwrap_or_else(|| {
            let number = self.free.pop().unwrap_or_else(|| id(self.slots.len()));
            if index(number) == self.slots.len() {
                self.slots.push(None);
            }
            self.index.insert(question.subject.clone(), number);
            number
        });
        let before = self.slots.get_mut(index(number)).and_then(Option::take);
        if let Some(before) = &before {
            self.unqueue(number, before);
        }
        let same = before.filter(|before| {
            let Question { host, path, expected, epoch, .. } = &before.question;
            (host, path, expected, epoch)
                == (&question.host, &question.path, &question.expected, &question.epoch)
        });
        let states = question.targets.iter().map(|target| {
            let kept = same.as_ref().and_then(|before| {
                let place = before.question.targets.iter().position(|known| known == target)?;
                before.states.get(place).cloned()
            });
            kept.unwrap_or_else(|| State::new(now))
        });
        let slot = Slot {
            states: states.collect(),
            initial: same.as_ref().map_or(known.is_none() && pass == first, |before| before.initial),
            // Requests under way stay valid where only the targets changed.
            version: same.as_ref().map_or(self.versions, |before| before.version),
            pass,
            question,
        };
        self.enqueue(number, &slot);
        self.slots[index(number)] = Some(slot);
        true
    }

    fn enqueue(&mut self, number: u32, slot: &Slot) {
        for (place, (target, state)) in slot.question.targets.iter().zip(&slot.states).enumerate() {
            let port = self.ports.entry(target.clone()).or_default();
            if let Some(due) = state.due {
                let class = Class::of(&slot.question.subject, &state.outcome);
                port.queue(class).insert((due, number, place));
            }
        }
    }

    fn unqueue(&mut self, number: u32, slot: &Slot) {
        for (place, (target, state)) in slot.question.targets.iter().zip(&slot.states).enumerate() {
            if let (Some(port), Some(due)) = (self.ports.get_mut(target), state.due) {
                let class = Class::of(&slot.question.subject, &state.outcome);
                port.queue(class).remove(&(due, number, place));
            }
        }
    }

    /// Takes what is due, as far as the limits admit.
    pub(super) fn take(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        let distance = Duration::from_secs(1) / self.limits.per_second.max(1);
        while self.under_way < self.limits.at_once {
            if self.pace > now + BURST {
                due.next = Some(self.pace - BURST);
                return due;
            }
            let Some(request) = self.take_one(now) else {
                due.next = self.next();
                return due;
            };
            self.pace = self.pace.max(now) + distance;
            due.requests.push(request);
        }
        // An answer comes first.
        due
    }

    fn take_one(&mut self, now: Instant) -> Option<Request> {
        let start = self.turn.checked_rem(self.ports.len())?;
        // Around once, from the one whose turn it is.
        for first_half in [true, false] {
            for (number, (target, port)) in self.ports.iter_mut().enumerate() {
                let busy = self.pods.get(&target.pod).is_some_and(|n| *n >= self.limits.at_once_per_pod);
                if (number >= start) != first_half || busy {
                    continue;
                }
                let Some((_, slot_number, place)) = port.take(now) else { continue };
                let slot = self.slots.get_mut(index(slot_number)).and_then(Option::as_mut);
                let Some((slot, state)) = slot.and_then(|slot| {
                    let Slot { question, states, version, .. } = slot;
                    Some(((question, *version), states.get_mut(place)?))
                }) else {
                    continue;
                };
                let (question, version) = slot;
                state.due = None;
                port.asking += 1;
                *self.pods.entry(Arc::clone(&target.pod)).or_default() += 1;
                self.under_way += 1;
                self.turn = number + 1;
                return Some(Request {
                    slot: slot_number,
                    version,
                    target: target.clone(),
                    host: Arc::clone(&question.host),
                    path: Arc::clone(&question.path),
                    expected: Arc::clone(&question.expected),
                    chain: matches!(question.subject, Subject::Chain(..)),
                });
            }
        }
        None
    }

    /// When something will be due at a pod that is not asked as much as it may be.
    fn next(&self) -> Option<Instant> {
        let limit = self.limits.at_once_per_pod;
        let free = self
            .ports
            .iter()
            .filter(|(target, _)| self.pods.get(&target.pod).is_none_or(|asking| *asking < limit));
        free.filter_map(|(_, port)| port.due()).min()
    }

    /// Notes an answer; returns whether that changes what is known. `jitter` is from 0 to 1.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        outcome: Outcome,
        now: Instant,
        jitter: f64,
    ) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(asking) = self.pods.get_mut(&request.target.pod) {
            *asking = asking.saturating_sub(1);
            if *asking == 0 {
                self.pods.remove(&request.target.pod);
            }
        }
        let mut news = self.heard_of_port(&request.target, &outcome, now, jitter);
        let slot = self.slots.get_mut(index(request.slot)).and_then(Option::as_mut);
        let Some(slot) = slot.filter(|slot| slot.version == request.version) else { return news };
        // Its targets may have changed meanwhile.
        let place = slot.question.targets.iter().position(|target| *target == request.target);
        let Some((place, state)) = place.and_then(|place| Some((place, slot.states.get_mut(place)?))) else {
            return news;
        };
        let before = (state.outcome.clone(), state.due);
        let due = now + note(state, outcome, &self.limits, jitter);
        state.due = Some(due);
        if let Some(port) = self.ports.get_mut(&request.target) {
            // It waits already if the target went and came back while the request was under way.
            if let (outcome, Some(due)) = &before {
                let class = Class::of(&slot.question.subject, outcome);
                port.queue(class).remove(&(*due, request.slot, place));
            }
            port.queue(Class::of(&slot.question.subject, &state.outcome)).insert((due, request.slot, place));
        }
        news |= before.0 != state.outcome;
        news
    }

    fn heard_of_port(&mut self, target: &Target, outcome: &Outcome, now: Instant, jitter: f64) -> bool {
        let Some(port) = self.ports.get_mut(target) else { return false };
        port.asking = port.asking.saturating_sub(1);
        let was_deaf = port.deaf.is_some();
        match outcome {
            Outcome::CannotAsk(obstacle) if obstacle.is_of_port() => {
                port.lost = port.lost.saturating_add(1);
                if port.lost >= DOUBTS {
                    let tries = port.deaf.map_or(0, |deaf| deaf.tries.saturating_add(1));
                    let until = now + DEAF.delay(tries, jitter);
                    port.deaf = Some(Deaf { obstacle: *obstacle, tries, until });
                }
            }
            _ => (port.lost, port.deaf) = (0, None),
        }
        was_deaf != port.deaf.is_some()
    }
}

/// Takes an outcome into a state; returns after how long to ask again.
fn note(state: &mut State, outcome: Outcome, limits: &Limits, jitter: f64) -> Duration {
    match outcome {
        Outcome::Proved => {
            let fresh = state.outcome != Outcome::Proved;
            (state.failures, state.doubts) = (0, 0);
            state.outcome = Outcome::Proved;
            // What was proved together is not asked again together.
            if fresh { limits.again.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0) } else { limits.again }
        }
        // One request that gets lost is no reason to doubt what was proved.
        Outcome::CannotAsk(_) if state.outcome == Outcome::Proved && state.doubts + 1 < DOUBTS => {
            state.doubts += 1;
            DEAF.delay(u32::from(state.doubts), jitter)
        }
        other => {
            let delay = limits.retry.delay(state.failures, jitter);
            state.failures = state.failures.saturating_add(1);
            state.doubts = 0;
            state.outcome = other;
            delay
        }
    }
}

fn id(number: usize) -> u32 {
    // There are no 2^32 hosts in a cluster; were there, those beyond would share a slot number that is never looked up.
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
