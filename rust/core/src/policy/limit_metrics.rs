// SPDX-License-Identifier: Apache-2.0
//! What limits in time have let pass.

use std::time::Duration;

use super::costs::{Costs, MAX_LIMITS};
use crate::time::ProcessingTime;

/// What was taken of limits in time, and how long something waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitMetrics {
    /// Permits taken of each limit, by its number; what was too much came back.
    pub permits: [u64; MAX_LIMITS],
    /// Time in which only a rate limit or a pause kept something from being called.
    pub waited: Duration,
    waits_since: Option<ProcessingTime>,
    /// The longest time for which one of them has held calls, as far as was known when it began to.
    pub longest_hold: Duration,
    /// Most calls in flight as things stand, where one such number is for all of them and follows
    /// what the destination bears.
    pub most_calls: Option<u32>,
    /// Calls that have cost more than one may, by what was said when they ended; they pay that much.
    pub cut_costs: u64,
    /// Retries that had to wait for a token of their budget.
    pub retries_held: u64,
    /// Records whose retry waits for one now.
    pub retries_waiting: u64,
    /// Time in which some did.
    pub retries_waited: Duration,
    retries_wait_since: Option<ProcessingTime>,
}

impl LimitMetrics {
    pub(crate) fn count(&mut self, costs: &Costs) {
        for (index, permits) in self.permits.iter_mut().enumerate() {
            *permits = permits.saturating_add(costs.of(index));
        }
    }

    pub(crate) fn correct(&mut self, charged: &Costs, actual: &Costs) {
        for (index, permits) in self.permits.iter_mut().enumerate() {
            *permits = permits.saturating_sub(charged.of(index)).saturating_add(actual.of(index));
        }
    }

    /// Notes whether something waits from now on.
    pub(crate) fn wait(&mut self, waits: bool, now: ProcessingTime) {
        note(&mut self.waited, &mut self.waits_since, waits, now);
    }

    /// Notes that calls are held until then.
    pub(crate) fn hold(&mut self, until: ProcessingTime, now: ProcessingTime) {
        // Until something happens: then it is not a limit that holds it.
        if until != ProcessingTime::NEVER {
            self.longest_hold = self.longest_hold.max(until.saturating_since(now));
        }
    }

    /// Notes that a retry waits for a token.
    pub(crate) fn hold_retry(&mut self, now: ProcessingTime) {
        self.retries_held += 1;
        self.retries_waiting += 1;
        note(&mut self.retries_waited, &mut self.retries_wait_since, true, now);
    }

    /// Notes that so many wait no longer, because they have one or are not wanted any more.
    pub(crate) fn release_retries(&mut self, count: u64, now: ProcessingTime) {
        self.retries_waiting = self.retries_waiting.saturating_sub(count);
        let waits = self.retries_waiting > 0;
        note(&mut self.retries_waited, &mut self.retries_wait_since, waits, now);
    }

    /// Returns the same as of now.
    #[must_use]
    pub fn at(mut self, now: ProcessingTime) -> Self {
        let (waits, retries_wait) = (self.waits_since.is_some(), self.retries_wait_since.is_some());
        note(&mut self.waited, &mut self.waits_since, false, now);
        self.waits_since = waits.then_some(now);
        note(&mut self.retries_waited, &mut self.retries_wait_since, false, now);
        self.retries_wait_since = retries_wait.then_some(now);
        self
    }
}

/// Counts the time in which something waits.
fn note(
    total: &mut Duration,
    since: &mut Option<ProcessingTime>,
    waits: bool,
    now: ProcessingTime,
) {
    match *since {
        None if waits => *since = Some(now),
        Some(begin) if !waits => {
            *total += now.saturating_since(begin);
            *since = None;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_that_wait_at_the_same_time_count_its_time_once() {
        let at = |seconds| ProcessingTime::ZERO + Duration::from_secs(seconds);
        let mut metrics = LimitMetrics::default();
        metrics.hold_retry(at(1));
        metrics.hold_retry(at(3));
        let now = metrics.at(at(4));
        assert_eq!((now.retries_held, now.retries_waiting), (2, 2));
        assert_eq!(now.retries_waited, Duration::from_secs(3));

        metrics.release_retries(1, at(5));
        metrics.release_retries(1, at(7));
        metrics.hold_retry(at(20));
        metrics.release_retries(1, at(21));
        let end = metrics.at(at(30));
        assert_eq!((end.retries_held, end.retries_waiting), (3, 0));
        assert_eq!(end.retries_waited, Duration::from_secs(7));
    }
}
