// SPDX-License-Identifier: Apache-2.0
//! The generic cell rate algorithm: a limit in time whose whole state is one point in time.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::time::ProcessingTime;

/// So many permits per so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    permits: NonZeroU64,
    period_nanos: NonZeroU64,
}

impl Rate {
    /// Makes the rate of `permits` in each `period`; `None` for a period of no time or of more
    /// than 584 years.
    pub fn new(permits: NonZeroU64, period: Duration) -> Option<Self> {
        let period_nanos = u64::try_from(period.as_nanos()).ok().and_then(NonZeroU64::new)?;
        Some(Self { permits, period_nanos })
    }

    /// Returns the permits of so much time, rounded down, at least one.
    pub fn permits_in(self, time: Duration) -> NonZeroU64 {
        let permits = time.as_nanos().saturating_mul(u128::from(self.permits.get()))
            / u128::from(self.period_nanos.get());
        let permits = u64::try_from(permits).unwrap_or(u64::MAX);
        NonZeroU64::new(permits).unwrap_or(NonZeroU64::MIN)
    }

    /// Returns the rate that has so many times the period.
    #[must_use]
    pub(super) const fn slower(self, times: u32) -> Self {
        let period_nanos = self.period_nanos.get().saturating_mul(times as u64);
        match NonZeroU64::new(period_nanos) {
            Some(period_nanos) => Self { period_nanos, ..self },
            None => self,
        }
    }

    /// Returns the point after `start` by which `permits` have come.
    pub(super) fn after(self, start: ProcessingTime, permits: u64) -> ProcessingTime {
        start.after_nanos(self.whole_nanos_of(permits))
    }

    /// Returns the whole permits of so many nanoseconds.
    pub(super) fn permits_of(self, nanos: u64) -> u64 {
        let permits = u128::from(nanos) * u128::from(self.permits.get());
        u64::try_from(permits / u128::from(self.period_nanos.get())).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds that `permits` take; the part of one is left out.
    fn nanos_of(self, permits: u64) -> u64 {
        let nanos = u128::from(permits) * u128::from(self.period_nanos.get());
        u64::try_from(nanos / u128::from(self.permits.get())).unwrap_or(u64::MAX)
    }

    /// Returns the same, rounded up: so a limit is never exceeded.
    fn whole_nanos_of(self, permits: u64) -> u64 {
        let nanos = u128::from(permits) * u128::from(self.period_nanos.get());
        u64::try_from(nanos.div_ceil(u128::from(self.permits.get()))).unwrap_or(u64::MAX)
    }
}

/// A rate, and how many permits may be taken at once after a time without any.
///
/// What changes is one word, the *theoretical arrival time*: when the permits
/// that were taken so far would have come at the even rate. It may be kept
/// wherever a word can be, also where processes share it. In any time `t`,
/// permits of `burst + rate * t` at most are taken.
///
/// ```text
///   taken by now                              burst
///   |------|                          |----------------|
///   ----------------------------------+----------------+----> time
///                                    now        TAT may lie up to here
/// ```
///
/// A call that costs more than the burst waits until the whole burst is free,
/// and delays those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gcra {
    rate: Rate,
    burst: NonZeroU64,
}

impl Gcra {
    /// Makes the limit.
    pub const fn new(rate: Rate, burst: NonZeroU64) -> Self {
        Self { rate, burst }
    }

    /// Returns how fast permits come.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns how many permits may be taken at once.
    pub const fn burst(&self) -> NonZeroU64 {
        self.burst
    }

    /// Returns when `cost` may be taken of a limit whose word is `tat`; a point before now: at once.
    pub fn ready_at(&self, tat: ProcessingTime, cost: u64) -> ProcessingTime {
        let spare = self.burst.get().saturating_sub(cost);
        ProcessingTime::from_nanos(tat.as_nanos().saturating_sub(self.rate.nanos_of(spare)))
    }

    /// Returns the word after `cost` was taken.
    pub fn take(&self, tat: ProcessingTime, cost: u64, now: ProcessingTime) -> ProcessingTime {
        tat.max(now).after_nanos(self.rate.whole_nanos_of(cost))
    }

    /// Returns the word after a call that had taken `taken` turned out to cost `actual`.
    pub fn settle(&self, tat: ProcessingTime, taken: u64, actual: u64) -> ProcessingTime {
        if let Some(more) = actual.checked_sub(taken) {
            return tat.after_nanos(self.rate.whole_nanos_of(more));
        }
        let less = self.rate.nanos_of(taken - actual);
        ProcessingTime::from_nanos(tat.as_nanos().saturating_sub(less))
    }

    /// Returns the word after everything was taken that could be, and `owed` permits of what comes.
    pub fn drain(&self, tat: ProcessingTime, owed: u64, now: ProcessingTime) -> ProcessingTime {
        let taken = self.burst.get().saturating_add(owed);
        tat.max(now.after_nanos(self.rate.whole_nanos_of(taken)))
    }

    /// Returns how many permits can be taken now.
    pub fn available(&self, tat: ProcessingTime, now: ProcessingTime) -> u64 {
        let taken = Duration::from_nanos(tat.nanos_since(now)).as_nanos()
            * u128::from(self.rate.permits.get());
        let taken = taken.div_ceil(u128::from(self.rate.period_nanos.get()));
        self.burst.get().saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn gcra(permits: u64, seconds: u64, burst: u64) -> Gcra {
        let rate = Rate::new(permits.try_into().unwrap(), Duration::from_secs(seconds));
        Gcra::new(rate.unwrap(), burst.try_into().unwrap())
    }

    fn at(nanos: u64) -> ProcessingTime {
        ProcessingTime::from_nanos(nanos)
    }

    #[test]
    fn a_burst_is_free_at_once_and_then_permits_come_evenly() {
        let limit = gcra(10, 1, 3);
        let (mut tat, now, mut starts) = (ProcessingTime::ZERO, at(5 * SECOND), Vec::new());
        for _ in 0..6 {
            let ready = limit.ready_at(tat, 1).max(now);
            tat = limit.take(tat, 1, ready);
            starts.push(ready.nanos_since(now) / 1_000_000);
        }
        assert_eq!(starts, [0, 0, 0, 100, 200, 300]);
    }

    #[test]
    fn what_costs_more_than_the_burst_waits_for_all_of_it() {
        let limit = gcra(1, 1, 2);
        let tat = limit.take(ProcessingTime::ZERO, 1, ProcessingTime::ZERO);
        assert_eq!(limit.ready_at(tat, 50), at(SECOND));
        let tat = limit.take(tat, 50, at(SECOND));
        assert_eq!(limit.ready_at(tat, 1), at(50 * SECOND));
    }

    #[test]
    fn a_rate_that_divides_no_nanosecond_is_never_exceeded() {
        let limit = gcra(3, 1, 1);
        let mut tat = ProcessingTime::ZERO;
        for _ in 0..3 {
            tat = limit.take(tat, 1, limit.ready_at(tat, 1));
        }
        assert!(limit.ready_at(tat, 1) >= at(SECOND));
        assert!(limit.ready_at(tat, 1) < at(SECOND + 4));
    }

    #[test]
    fn settling_gives_back_or_takes_the_difference() {
        let limit = gcra(1, 1, 10);
        let now = at(100 * SECOND);
        let tat = limit.take(ProcessingTime::ZERO, 5, now);
        assert_eq!(limit.available(tat, now), 5);
        assert_eq!(limit.available(limit.settle(tat, 5, 2), now), 8);
        assert_eq!(limit.available(limit.settle(tat, 5, 9), now), 1);
        // What was saved long ago is no more than the burst.
        assert_eq!(limit.available(limit.settle(at(0), 5, 0), now), 10);
    }

    #[test]
    fn draining_leaves_nothing_and_takes_only_what_is_owed_of_what_comes() {
        let limit = gcra(10, 1, 5);
        let now = at(7 * SECOND);
        let tat = limit.drain(ProcessingTime::ZERO, 0, now);
        assert_eq!(limit.available(tat, now), 0);
        assert_eq!(limit.available(tat, at(7 * SECOND + SECOND / 5)), 2);
        assert_eq!(limit.drain(tat, 0, now), tat);
        // What is owed is owed once.
        let owed = limit.take(tat, 30, now);
        assert_eq!(limit.drain(tat, 30, now), owed);
        assert_eq!(limit.drain(owed, 20, now), owed);
    }

    #[test]
    fn numbers_beyond_every_range_end_at_never() {
        let limit = gcra(1, 1, 1);
        assert_eq!(limit.take(at(7), u64::MAX, at(9)), ProcessingTime::NEVER);
        assert_eq!(limit.drain(at(7), u64::MAX, at(9)), ProcessingTime::NEVER);
        assert_eq!(limit.settle(at(7), 0, u64::MAX), ProcessingTime::NEVER);
        assert_eq!(Rate::new(NonZeroU64::MIN, Duration::ZERO), None);
        assert_eq!(Rate::new(NonZeroU64::MIN, Duration::MAX), None);
    }
}
