// SPDX-License-Identifier: Apache-2.0
//! What the earlier attempts of records came to that are called again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::action::AttemptId;
use crate::key_hasher::KeyHasher;
use crate::policy::Watch;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// The attempts of a record that have used up none of its tries: those that were followed by a call of a
/// part, see [`Retry::InPart`](super::Retry::InPart), and those of an outage but the first, see
/// [`AsyncWaitOperator`](super::AsyncWaitOperator).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    /// How many there were.
    pub count: u32,
    /// The number of the last one that was followed by a call of a part; 0 if there was none.
    pub last_divided: u32,
    /// How many of the last attempts belong to an outage that goes on, its first one included.
    pub in_outage: u32,
}

/// The last attempts of a record, which were all dropped while its destination answered nothing.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// What the destination had answered before.
    answers: u64,
    /// How many attempts there were.
    drops: u32,
    /// What the destination had dropped with the last one.
    of_all: u64,
    /// Since when the record has waited for a probe, or was one.
    held_since: Option<ProcessingTime>,
    /// Whether the destination has dropped no other call since then.
    is_alone: bool,
}

impl Outage {
    /// One of so many attempts. The destination has dropped the last one just now.
    const fn new(drops: u32, watch: &Watch) -> Self {
        let Watch { answers, drops: of_all, .. } = *watch;
        Self { answers, drops, of_all, held_since: None, is_alone: true }
    }
}

/// What a call is to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// The first one.
    First,
    /// One of a part, after one of more records.
    Part,
    /// Another try.
    Retry,
    /// One beside another one.
    Hedge,
}

/// What the earlier attempts of a record came to.
#[derive(Clone, Copy, Debug)]
struct Earlier<F> {
    /// Of the last one that failed.
    failure: Option<F>,
    uncounted: Uncounted,
    outage: Option<Outage>,
}

/// What the earlier attempts of each record came to that is pending and was called before. It stands
/// beside the queue, so that records that are called once pay nothing.
#[derive(Debug)]
pub(super) struct EarlierAttempts<F> {
    of: HashMap<EntryId, Earlier<F>, BuildHasherDefault<KeyHasher>>,
}

impl<F> EarlierAttempts<F> {
    pub(super) fn new() -> Self {
        Self { of: HashMap::default() }
    }

    fn of(&mut self, id: EntryId) -> &mut Earlier<F> {
        let nothing = Earlier { failure: None, uncounted: Uncounted::default(), outage: None };
        self.of.entry(id).or_insert(nothing)
    }

    /// Notes that an attempt has failed.
    pub(super) fn note_failure(&mut self, id: EntryId, failure: F) {
        self.of(id).failure = Some(failure);
    }

    /// Notes that an attempt is followed by a call of a part.
    pub(super) fn note_divided(&mut self, attempt: AttemptId) {
        let uncounted = &mut self.of(attempt.entry).uncounted;
        uncounted.count += 1;
        uncounted.last_divided = attempt.attempt;
    }

    /// Notes that an attempt was dropped by its destination, as that is known now.
    pub(super) fn note_drop(&mut self, id: EntryId, watch: &Watch) {
        let (answers, of_all) = (watch.answers, watch.drops);
        let earlier = self.of(id);
        if let Some(outage) = earlier.outage.as_mut().filter(|it| it.answers == answers) {
            outage.drops += 1;
            outage.is_alone &= outage.of_all + 1 == of_all;
            outage.of_all = of_all;
            earlier.uncounted.count += 1;
        } else {
            earlier.outage = Some(Outage::new(1, watch));
        }
    }

    /// Notes that an attempt was not dropped.
    pub(super) fn end_outage(&mut self, id: EntryId) {
        if let Some(earlier) = self.of.get_mut(&id) {
            earlier.outage = None;
        }
    }

    /// Notes that a record is held from now on, if it is not yet.
    pub(super) fn hold(&mut self, id: EntryId, now: ProcessingTime) {
        let outage = self.of.get_mut(&id).and_then(|it| it.outage.as_mut());
        if let Some(outage) = outage.filter(|it| it.held_since.is_none()) {
            // Up to now it had second calls, which were dropped, too.
            (outage.held_since, outage.is_alone) = (Some(now), true);
        }
    }

    /// Returns since when a record is held, if it is.
    pub(super) fn held_since(&self, id: EntryId) -> Option<ProcessingTime> {
        self.of.get(&id)?.outage?.held_since
    }

    /// Returns since when a record is held for which alone its destination was called all the time.
    pub(super) fn held_alone_since(&self, id: EntryId) -> Option<ProcessingTime> {
        self.of.get(&id)?.outage.filter(|it| it.is_alone)?.held_since
    }

    /// Returns how many of its last attempts a destination has dropped that has answered so often, and
    /// answered nothing since the first of them.
    pub(super) fn drops(&self, id: EntryId, answers: u64) -> u32 {
        let outage = self.of.get(&id).and_then(|it| it.outage);
        outage.filter(|it| it.answers == answers).map_or(0, |it| it.drops)
    }

    /// Takes over what is known of a record that is restored. If its destination is watched, an outage goes
    /// on in which it was saved: nobody knows of an answer since then.
    pub(super) fn restore(
        &mut self,
        id: EntryId,
        failure: Option<F>,
        uncounted: Uncounted,
        watch: Option<Watch>,
    ) {
        if failure.is_some() || uncounted != Uncounted::default() {
            let watch = watch.filter(|_| uncounted.in_outage > 0);
            let outage = watch.map(|it| Outage::new(uncounted.in_outage, &it));
            let uncounted = Uncounted { in_outage: 0, ..uncounted };
            self.of.insert(id, Earlier { failure, uncounted, outage });
        }
    }

    /// Returns the failure of the last attempt that failed.
    pub(super) fn failure(&self, id: EntryId) -> Option<&F> {
        self.of.get(&id)?.failure.as_ref()
    }

    /// Returns which attempts have used up no try, so that they are saved.
    pub(super) fn uncounted(&self, id: EntryId, watch: Option<Watch>) -> Uncounted {
        let known = self.of.get(&id).map_or(Uncounted::default(), |it| it.uncounted);
        Uncounted { in_outage: watch.map_or(0, |it| self.drops(id, it.answers)), ..known }
    }

    /// Returns the number of the try, from 1, that an attempt is of. A call and the calls of its parts
    /// are one try: only the next one is a retry. The calls of an outage are one try, too.
    pub(super) fn try_of(&self, attempt: AttemptId) -> u32 {
        match attempt.attempt {
            1 => 1,
            number => {
                let uncounted = self.of.get(&attempt.entry).map_or(0, |it| it.uncounted.count);
                number.saturating_sub(uncounted)
            }
        }
    }

    /// Returns how often a record was tried up to an attempt that was just noted, each call of the outage
    /// counted: what the back-off goes by.
    pub(super) fn failures(&self, attempt: AttemptId) -> u32 {
        let outage = self.of.get(&attempt.entry).and_then(|it| it.outage);
        self.try_of(attempt) + outage.map_or(0, |it| it.drops.saturating_sub(1))
    }

    /// Returns what a call is to its record.
    #[inline]
    pub(super) fn kind_of(&self, attempt: AttemptId) -> CallKind {
        match attempt.attempt {
            _ if attempt.is_hedge() => CallKind::Hedge,
            1 => CallKind::First,
            number => {
                let last = self.of.get(&attempt.entry).map_or(0, |it| it.uncounted.last_divided);
                if last + 1 == number { CallKind::Part } else { CallKind::Retry }
            }
        }
    }

    /// Forgets a record; returns the failure of its last attempt that failed.
    pub(super) fn forget(&mut self, id: EntryId) -> Option<F> {
        self.of.remove(&id)?.failure
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
