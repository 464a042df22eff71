// SPDX-License-Identifier: Apache-2.0
//! The calls that are being made, and who waits for each.
//!
//! Invariant: each flight has exactly one leader, with one call in flight or two: the second one
//! stands beside the first. An attempt leads at most one flight, or waits for at most one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sparkawait_arrow::InputBatch;
use sparkawait_core::operator::AttemptId;

use super::caller::Caller;
use super::entries::CacheKey;

/// An attempt of one of the tasks of the process.
pub(super) type TaskAttempt = (u64, AttemptId);

/// A call that waits for what another one brings, with all that it takes to make it after all.
pub(super) struct Waiter {
    pub(super) caller: Arc<Caller>,
    pub(super) attempt: AttemptId,
    pub(super) batch: Arc<InputBatch>,
    pub(super) row: u32,
}

/// The flights of a cache.
#[derive(Default)]
pub(super) struct Flights {
    /// Those that wait for each flight, in the order in which they came.
    waiters: HashMap<CacheKey, Vec<Waiter>>,
    /// Whose call each flight is: a first attempt, and what flies of it.
    leaders: HashMap<TaskAttempt, Flight>,
}

/// What is under way for a key.
struct Flight {
    key: CacheKey,
    /// The calls that have no outcome yet.
    first: bool,
    second: bool,
}

impl Flight {
    fn new(key: CacheKey, attempt: AttemptId) -> Self {
        Self { key, first: !attempt.is_hedge(), second: attempt.is_hedge() }
    }

    const fn call(&mut self, attempt: AttemptId) -> &mut bool {
        if attempt.is_hedge() { &mut self.second } else { &mut self.first }
    }

    const fn flies(&self) -> bool {
        self.first || self.second
    }
}

/// Returns whose flight an attempt belongs to, if it has one.
const fn leader((task, attempt): TaskAttempt) -> TaskAttempt {
    (task, attempt.first())
}

impl Flights {
    /// Lets an attempt wait for the flight of `key`; returns false if it now leads a new one.
    pub(super) fn board(
        &mut self,
        key: &[u8],
        attempt: TaskAttempt,
        waiter: impl FnOnce() -> Waiter,
    ) -> bool {
        if let Some(waiters) = self.waiters.get_mut(key) {
            waiters.push(waiter());
            return true;
        }
        let key: CacheKey = key.into();
        self.waiters.insert(Arc::clone(&key), Vec::new());
        self.leaders.insert(leader(attempt), Flight::new(key, attempt.1));
        false
    }

    /// Lets a second call fly beside the first one; returns false if that leads no flight.
    pub(super) fn join(&mut self, attempt: TaskAttempt) -> bool {
        let flight = self.leaders.get_mut(&leader(attempt));
        flight.map(|it| *it.call(attempt.1) = true).is_some()
    }

    /// Returns whether an attempt flies.
    pub(super) fn flies(&mut self, attempt: TaskAttempt) -> bool {
        self.leaders.get_mut(&leader(attempt)).is_some_and(|it| *it.call(attempt.1))
    }

    /// Ends the call of `attempt`, and the flight, whose key and those that waited are returned. It goes
    /// on if another call flies and the outcome of this one is not final.
    pub(super) fn land(
        &mut self,
        attempt: TaskAttempt,
        is_final: bool,
    ) -> Option<(CacheKey, Vec<Waiter>)> {
        let flight = self.leaders.get_mut(&leader(attempt))?;
        if !std::mem::take(flight.call(attempt.1)) || (!is_final && flight.flies()) {
            return None;
        }
        let Flight { key, .. } = self.leaders.remove(&leader(attempt))?;
        let waiters = self.waiters.remove(&key).unwrap_or_default();
        Some((key, waiters))
    }

    /// Ends a call that was cancelled; returns the key of its flight if no other one flies, and whether
    /// the attempt had a flight.
    fn cancel(&mut self, attempt: TaskAttempt) -> (Option<CacheKey>, bool) {
        let Some(flight) = self.leaders.get_mut(&leader(attempt)) else { return (None, false) };
        let has_flown = std::mem::take(flight.call(attempt.1));
        let has_ended = has_flown && !flight.flies();
        let ended = has_ended.then(|| self.leaders.remove(&leader(attempt))).flatten();
        (ended.map(|it| it.key), has_flown)
    }

    /// Forgets cancelled attempts of a task; returns who has to make their calls instead.
    ///
    /// A burst of them, as of timeouts, costs one pass over those that wait.
    pub(super) fn leave(&mut self, task: u64, attempts: &[AttemptId]) -> Vec<Waiter> {
        let (mut led, mut gone) = (Vec::new(), HashSet::new());
        for attempt in attempts {
            let (ended, has_flown) = self.cancel((task, *attempt));
            led.extend(ended);
            if !has_flown {
                gone.insert(*attempt);
            }
        }
        if !gone.is_empty() {
            self.forget_waiters(|it| it.caller.id == task && gone.contains(&it.attempt));
        }
        led.into_iter().filter_map(|key| self.hand_over(key)).collect()
    }

    /// Forgets all attempts of a task that has ended; returns who has to make its calls instead.
    pub(super) fn leave_all(&mut self, task: u64) -> Vec<Waiter> {
        self.forget_waiters(|waiter| waiter.caller.id == task);
        let led: Vec<TaskAttempt> =
            self.leaders.keys().filter(|(leader, _)| *leader == task).copied().collect();
        let ended = led.iter().filter_map(|attempt| self.leaders.remove(attempt));
        let keys: Vec<CacheKey> = ended.map(|it| it.key).collect();
        keys.into_iter().filter_map(|key| self.hand_over(key)).collect()
    }

    fn forget_waiters(&mut self, is_gone: impl Fn(&Waiter) -> bool) {
        for waiters in self.waiters.values_mut() {
            waiters.retain(|waiter| !is_gone(waiter));
        }
    }

    /// Makes the first of those that wait the leader of the flight, which ends if there is none.
    fn hand_over(&mut self, key: CacheKey) -> Option<Waiter> {
        let waiters = self.waiters.get_mut(&key)?;
        while !waiters.is_empty() {
            let waiter = waiters.remove(0);
            if !waiter.caller.has_left() {
                let attempt = (waiter.caller.id, waiter.attempt);
                self.leaders.insert(leader(attempt), Flight::new(key, waiter.attempt));
                return Some(waiter);
            }
        }
        self.waiters.remove(&key);
        None
    }
}
