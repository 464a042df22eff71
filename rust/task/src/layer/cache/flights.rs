// SPDX-License-Identifier: Apache-2.0
//! The calls that are being made, and who waits for each.
//!
//! Invariant: each flight has exactly one leader, whose call is in flight; an
//! attempt leads at most one flight, or waits for at most one.

use std::collections::{HashMap, HashSet};
use std::fmt;
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
    /// Whose call each flight is.
    leaders: HashMap<TaskAttempt, CacheKey>,
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
        self.leaders.insert(attempt, key);
        false
    }

    /// Ends the flight that `attempt` leads; returns its key and those that waited.
    pub(super) fn land(&mut self, attempt: TaskAttempt) -> Option<(CacheKey, Vec<Waiter>)> {
        let key = self.leaders.remove(&attempt)?;
        let waiters = self.waiters.remove(&key).unwrap_or_default();
        Some((key, waiters))
    }

    /// Forgets cancelled attempts of a task; returns who has to make their calls instead.
    ///
    /// A burst of them, as of timeouts, costs one pass over those that wait.
    pub(super) fn leave(&mut self, task: u64, attempts: &[AttemptId]) -> Vec<Waiter> {
        let led = attempts.iter().filter_map(|attempt| self.leaders.remove(&(task, *attempt)));
        let led: Vec<CacheKey> = led.collect();
        if led.len() < attempts.len() {
            let gone: HashSet<&AttemptId> = attempts.iter().collect();
            self.forget_waiters(|it| it.caller.id == task && gone.contains(&it.attempt));
        }
        led.into_iter().filter_map(|key| self.hand_over(key)).collect()
    }

    /// Forgets all attempts of a task that has ended; returns who has to make its calls instead.
    pub(super) fn leave_all(&mut self, task: u64) -> Vec<Waiter> {
        self.forget_waiters(|waiter| waiter.caller.id == task);
        let led: Vec<TaskAttempt> =
            self.leaders.keys().filter(|(leader, _)| *leader == task).copied().collect();
        let keys: Vec<CacheKey> =
            led.iter().filter_map(|attempt| self.leaders.remove(attempt)).collect();
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
                self.leaders.insert((waiter.caller.id, waiter.attempt), key);
                return Some(waiter);
            }
        }
        self.waiters.remove(&key);
        None
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("count", &self.leaders.len()).finish_non_exhaustive()
    }
}
