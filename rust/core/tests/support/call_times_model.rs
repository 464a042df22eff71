// SPDX-License-Identifier: Apache-2.0
//! What is known of the durations of calls, in the model of the operator, and what it forbids.

use std::collections::VecDeque;
use std::time::Duration;

use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, State};
use super::operator_model::{Deadlines, Model};

/// The durations of the last fifteen calls of a channel.
#[derive(Debug, Default)]
pub(super) struct Times {
    last: VecDeque<u64>,
    is_probing: bool,
    probed_at: ProcessingTime,
    /// Whether a record started that had been chosen earlier, and waited for a limit in time since:
    /// when it was chosen, and as what, is not known here.
    is_vague: bool,
}

impl Times {
    fn note(&mut self, duration: u64) {
        self.last.push_back(duration);
        if self.last.len() > 15 {
            self.last.pop_front();
        }
    }

    /// The median, of which three leading bits count.
    fn median(&self) -> u64 {
        let mut sorted: Vec<u64> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        let Some(median) = sorted.get(sorted.len().saturating_sub(1) / 2) else { return 0 };
        let place = median.ilog2().saturating_sub(2);
        median >> place << place
    }
}

impl Model {
    fn times_of(&mut self, value: u32) -> &mut Times {
        self.call_times.entry(self.channel(value)).or_default()
    }

    /// Whether both are of one channel, or there are no channels.
    fn is_beside(&self, value: u32, other: u32) -> bool {
        self.config.channels.is_none() || self.channel(value) == self.channel(other)
    }

    /// The records that may start beside `value`.
    fn waiting_beside(&self, value: u32) -> impl Iterator<Item = &Held> {
        self.held().filter(move |it| {
            it.state == State::Waiting
                && it.value != value
                && self.is_beside(it.value, value)
                && !self.is_blocked(it.value)
        })
    }

    /// Notes a call that was answered, if anybody waits.
    pub(super) fn note_ended(&mut self, value: u32, took: Duration) {
        if self.waiting_beside(value).next().is_some() {
            let nanos = nanos(took).max(1);
            let times = self.times_of(value);
            if std::mem::take(&mut times.is_probing) {
                times.last.clear();
            }
            times.note(nanos);
        }
    }

    /// Notes a call that was cut off.
    pub(super) fn note_expired(&mut self, value: u32, took: Duration) {
        let times = self.times_of(value);
        times.is_probing = false;
        times.note(nanos(took).max(1).max(times.median()));
    }

    fn left(&self, held: &Held) -> u64 {
        self.due(held).map_or(u64::MAX, |due| nanos(due.saturating_since(self.now)))
    }

    /// The time that a record of the same channel needs; without channels it needs any.
    fn least(&self, value: u32) -> u64 {
        if self.config.channels.is_none() {
            return 1;
        }
        let median = self.call_times.get(&self.channel(value)).map_or(0, Times::median);
        median.min(self.config.timeout.map_or(u64::MAX, nanos) / 4 * 3).max(1)
    }

    /// Checks that a record that starts has time for an answer, or is a probe.
    pub(super) fn check_time(&mut self, value: u32) {
        let (left, least, now) = (self.left(self.get_ref(value)), self.least(value), self.now);
        if left >= least {
            return;
        }
        let is_beside = |it: &Held| it.is_running() && self.is_beside(it.value, value);
        let (is_alone, is_limited) = (!self.held().any(is_beside), self.has_rate_limits());
        let times = self.times_of(value);
        let due = times.probed_at + Duration::from_nanos(times.median());
        times.is_vague |= is_limited && (!is_alone || now < due);
        if times.is_vague {
            return;
        }
        assert!(is_alone, "{value} starts with {left} left");
        assert!(now >= due, "a probe is due at {due:?}");
        (times.is_probing, times.probed_at) = (true, now);
    }

    /// Checks that no record which came earlier and has time for an answer is passed.
    pub(super) fn check_order(&self, value: u32) {
        let least = self.least(value);
        let is_late = |it: &Held| self.left(it) < least;
        if self.waiting_beside(value).any(|it| it.attempts > 0 && is_late(it)) {
            return;
        }
        if self.is_vague(value) {
            return;
        }
        let earlier = self.waiting_beside(value).filter(|it| it.attempts == 0);
        // Others may have been given up.
        let mut earlier = earlier.filter(|it| is_late(it) || self.left(it) >= self.little());
        let oldest = earlier.find(|it| it.value < value);
        assert!(oldest.is_none_or(is_late), "{value} overtakes {oldest:?}");
    }

    /// Whether it is not known how long the calls of a record's channel take.
    fn is_vague(&self, value: u32) -> bool {
        self.call_times.get(&self.channel(value)).is_some_and(|it| it.is_vague)
    }

    /// A record that has less time may be given up, and called no more.
    fn little(&self) -> u64 {
        self.config.timeout.map_or(u64::MAX, nanos) / 4
    }

    /// Whether a record that waits has time enough that it was not given up.
    pub(super) fn has_time(&self, held: &Held) -> bool {
        let needs = self.least(held.value).max(self.little());
        self.left(held) >= needs && !self.is_vague(held.value)
    }

    /// Whether one of these, which may start as far as permits go, has to.
    pub(super) fn must_start<'a>(&self, waiting: impl Iterator<Item = &'a Held>) -> bool {
        let waiting: Vec<&Held> = waiting.collect();
        let has_time = |it: &&Held| self.has_time(it);
        let is_all = !waiting.is_empty() && waiting.iter().all(has_time);
        // Where deadlines grow along the line, its end has most time.
        let is_sorted = self.deadlines == Deadlines::Sorted;
        is_all || (is_sorted && waiting.last().is_some_and(has_time))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
