// SPDX-License-Identifier: Apache-2.0
//! What an operator counts.

use std::time::Duration;

use super::AsyncWaitOperator;
use super::earlier_attempts::CallKind;
use super::in_flight::Phase;
use crate::policy::CallSign;
use crate::queue::StreamElementQueue;

/// Totals since the operator was built, and levels as of now.
///
/// Every admitted record ends as exactly one of `emitted`, `failed` or
/// `in_flight` (with a failed or closed operator, also `cancelled` calls).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Records taken from the input.
    pub admitted: u64,
    /// Records that left, failed ones included where the policy emits them.
    pub emitted: u64,
    /// Calls that have begun, retries and second calls included.
    pub attempts: u64,
    /// Those of them that were another try of their record.
    pub retries: u64,
    /// Those of them that were made for a part of the records of an earlier one.
    pub parts: u64,
    /// Those of them that were made beside one that was slow.
    pub hedged: u64,
    /// Those of them whose outcome became the record's.
    pub hedges_won: u64,
    /// Records whose timeout passed.
    pub timeouts: u64,
    /// Records that failed for good.
    pub failures: u64,
    /// Calls that had begun and were cancelled: timed out, in flight at failure or close, or slower than one beside them.
    pub cancelled: u64,
    /// Calls that wait for their outcome now, whether they have begun or not.
    pub in_flight: usize,
    /// Records held now, pending and completed.
    pub queue_size: usize,
    /// Age of the oldest record held.
    pub oldest_age: Duration,
}

/// How many records of an operator wait for what, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Records held, restored ones that wait for a slot included.
    pub held: usize,
    /// Restored records that wait for a slot.
    pub restored: usize,
    /// Those that wait to be emitted.
    pub completed: usize,
    /// Calls that run, and those that may run at this moment.
    pub running: usize,
    /// See `running`.
    pub window: usize,
    /// Records whose function was asked what to emit, because their time had passed.
    pub asked: usize,
    /// Records between two attempts.
    pub backing_off: usize,
}

impl Metrics {
    /// Counts a call that begins.
    #[inline]
    pub(super) const fn begin(&mut self, kind: CallKind) {
        self.attempts += 1;
        if let Some(count) = self.of_kind(kind) {
            *count += 1;
        }
    }

    /// Takes back what [`begin`](Self::begin) has counted: nobody was called.
    const fn take_back(&mut self, kind: CallKind) {
        self.attempts -= 1;
        if let Some(count) = self.of_kind(kind) {
            *count -= 1;
        }
    }

    const fn of_kind(&mut self, kind: CallKind) -> Option<&mut u64> {
        match kind {
            CallKind::First => None,
            CallKind::Part => Some(&mut self.parts),
            CallKind::Retry => Some(&mut self.retries),
            CallKind::Hedge => Some(&mut self.hedged),
        }
    }

    /// Counts a call as its answer says that it was made or not; it had begun as far as was known if
    /// `has_begun`.
    #[cold]
    pub(super) const fn correct(&mut self, kind: CallKind, has_begun: bool, sign: CallSign) {
        match sign {
            CallSign::NotCalled if has_begun => self.take_back(kind),
            CallSign::NotCalled | CallSign::CutOff => {}
            _ if has_begun => {}
            _ => self.begin(kind),
        }
    }
}

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Returns how many attempts were begun.
    pub const fn attempts(&self) -> u64 {
        self.metrics.attempts
    }

    /// Counts what records wait for. Looks at each of them.
    pub fn levels(&self) -> Levels {
        let (mut asked, restored) = (0, self.replay.len());
        self.queue.any(|in_flight| {
            asked += usize::from(in_flight.phase == Phase::TimedOut);
            false
        });
        Levels {
            held: self.queue.len() + restored,
            restored,
            completed: self.completed,
            running: self.running,
            window: self.window,
            asked,
            backing_off: self.backing_off,
        }
    }
}
