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

    /// Returns how many permits there are in each period.
    pub const fn permits(self) -> NonZeroU64 {
        self.permits
    }

    /// Returns the nanoseconds of a period.
    pub const fn period(self) -> NonZeroU64 {
        self.period_nanos
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

    /// Returns the time after `start` when `permits` have come.
    pub(super) fn after(self, start: ProcessingTime, permits: u64) -> ProcessingTime {
        start.after_nanos(self.nanos_of(permits))
    }

    /// Returns the whole permits of so many nanoseconds.
    pub(super) fn permits_of(self, nanos: u64) -> u64 {
        let permits = u128::from(nanos) * u128::from(self.permits.get());
        u64::try_from(permits / u128::from(self.period_nanos.get())).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds that `permits` take, rounded up: so a limit is never exceeded.
    fn nanos_of(self, permits: u64) -> u64 {
        let nanos = u128::from(permits) * u128::from(self.period_nanos.get());
        u64::try_from(nanos.div_ceil(u128::from(self.permits.get()))).unwrap_or(u64::MAX)
    }
}

/// A call may take what comes in so much time.
const MOST_TIME: Duration = Duration::from_secs(3600);

/// Or so many bursts.
const MOST_BURSTS: u64 = 10;

/// The least nanoseconds between cells, where permits come at no whole ones. Longer ones would count
/// what calls cost less exactly, shorter ones would make limits slower: these by less than one part
/// in 256.
const LEAST_INTERVAL: u64 = 256;

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
///
/// All of this is counted in one unit, the *emission interval*: whole
/// nanoseconds in which a cell comes. A cell is one permit. What is taken, what
/// is spare and how many calls may start are multiples of it, so that no two
/// of them are rounded apart. The interval is rounded up, by less than a
/// thousandth up to a million permits a second. Where it would be less than 256
/// ns and a part of one, a cell is as many permits as take that long, but not more than
/// the burst, and the cost of a call is rounded up to whole cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    rate: Rate,
    burst: NonZeroU64,
    /// Permits of a cell.
    cell: NonZeroU64,
    /// Nanoseconds from one cell to the next.
    interval: NonZeroU64,
}

impl Gcra {
    /// Makes the limit.
    pub fn new(rate: Rate, burst: NonZeroU64) -> Self {
        let (permits, period) = (rate.permits.get(), rate.period_nanos.get());
        let is_whole = period.is_multiple_of(permits);
        let wanted = if is_whole { 0 } else { rate.permits_of(LEAST_INTERVAL - 1) };
        let cell = burst.min(NonZeroU64::MIN.saturating_add(wanted));
        let interval = NonZeroU64::new(rate.nanos_of(cell.get())).unwrap_or(NonZeroU64::MIN);
        Self { rate, burst, cell, interval }
    }

    /// Returns how fast permits come.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns how many permits may be taken at once.
    pub const fn burst(&self) -> NonZeroU64 {
        self.burst
    }

    /// Returns the most that one call may cost: what comes in an hour, the permits of the rate, or ten
    /// bursts, whichever is most.
    ///
    /// A higher cost, which somebody got wrong, would hold all that share the limit for hours.
    pub fn most_cost(&self) -> u64 {
        let of_time = self.rate.permits_in(MOST_TIME).max(self.rate.permits).get();
        of_time.max(self.burst.get().saturating_mul(MOST_BURSTS))
    }

    /// Returns when `cost` may be taken of a limit whose word is `tat`; a point before now: at once.
    pub fn ready_at(&self, tat: ProcessingTime, cost: u64) -> ProcessingTime {
        ProcessingTime::from_nanos(tat.as_nanos().saturating_sub(self.spare(cost)))
    }

    /// Returns how many calls that cost as much may start now, one after the other: each is
    /// [ready](Self::ready_at) when those before it have [taken](Self::take) their part.
    pub fn calls(&self, tat: ProcessingTime, cost: u64, now: ProcessingTime) -> u64 {
        let Some(charge) = NonZeroU64::new(self.nanos_of(cost)) else { return u64::MAX };
        match self.spare(cost).checked_sub(tat.nanos_since(now)) {
            None => 0,
            Some(rest) => (rest / charge).saturating_add(1),
        }
    }

    /// Returns the word after `cost` was taken.
    pub fn take(&self, tat: ProcessingTime, cost: u64, now: ProcessingTime) -> ProcessingTime {
        tat.max(now).after_nanos(self.nanos_of(cost))
    }

    /// Returns the word after a call that had taken `taken` turned out to cost `actual`.
    pub fn settle(&self, tat: ProcessingTime, taken: u64, actual: u64) -> ProcessingTime {
        let (taken, actual) = (self.nanos_of(taken), self.nanos_of(actual));
        match actual.checked_sub(taken) {
            Some(more) => tat.after_nanos(more),
            None => ProcessingTime::from_nanos(tat.as_nanos().saturating_sub(taken - actual)),
        }
    }

    /// Returns the word after everything was taken that could be, and `owed` permits of what comes.
    pub fn drain(&self, tat: ProcessingTime, owed: u64, now: ProcessingTime) -> ProcessingTime {
        let taken = self.nanos_of_burst().saturating_add(self.nanos_of(owed));
        tat.max(now.after_nanos(taken))
    }

    /// Returns the word at which `left` permits may be taken, less `uncounted` that were taken already.
    pub fn lower_to(&self, left: u64, uncounted: u64, now: ProcessingTime) -> ProcessingTime {
        let left = (left / self.cell).saturating_mul(self.interval.get());
        let taken = self.nanos_of_burst().saturating_add(self.nanos_of(uncounted));
        now.after_nanos(taken.saturating_sub(left))
    }

    /// Returns the nanoseconds of the burst beside a call that costs as much.
    fn spare(&self, cost: u64) -> u64 {
        self.nanos_of_burst().saturating_sub(self.nanos_of(cost))
    }

    /// Returns the nanoseconds in which what a call costs comes: of whole cells.
    fn nanos_of(&self, cost: u64) -> u64 {
        cost.div_ceil(self.cell.get()).saturating_mul(self.interval.get())
    }

    /// Returns those of the whole cells of the burst.
    fn nanos_of_burst(&self) -> u64 {
        (self.burst.get() / self.cell).saturating_mul(self.interval.get())
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
        assert_eq!(limit.calls(tat, 1, now), 5);
        assert_eq!(limit.calls(limit.settle(tat, 5, 2), 1, now), 8);
        assert_eq!(limit.calls(limit.settle(tat, 5, 9), 1, now), 1);
        // What was saved long ago is no more than the burst.
        assert_eq!(limit.calls(limit.settle(at(0), 5, 0), 1, now), 10);
    }

    #[test]
    fn draining_leaves_nothing_and_takes_only_what_is_owed_of_what_comes() {
        let limit = gcra(10, 1, 5);
        let now = at(7 * SECOND);
        let tat = limit.drain(ProcessingTime::ZERO, 0, now);
        assert_eq!(limit.calls(tat, 1, now), 0);
        assert_eq!(limit.calls(tat, 1, at(7 * SECOND + SECOND / 5)), 2);
        assert_eq!(limit.drain(tat, 0, now), tat);
        // What is owed is owed once.
        let owed = limit.take(tat, 30, now);
        assert_eq!(limit.drain(tat, 30, now), owed);
        assert_eq!(limit.drain(owed, 20, now), owed);
    }

    #[test]
    fn lowered_it_has_what_is_left_and_is_not_counted_yet() {
        let limit = gcra(10, 1, 5);
        let now = at(7 * SECOND);
        let calls = |left, uncounted| limit.calls(limit.lower_to(left, uncounted, now), 1, now);
        assert_eq!([calls(3, 0), calls(3, 2), calls(2, 7), calls(331, 7)], [3, 1, 0, 5]);
        assert_eq!(limit.ready_at(limit.lower_to(2, 7, now), 1), at(7 * SECOND + 6 * SECOND / 10));
    }

    #[test]
    fn a_call_may_cost_what_comes_in_an_hour_or_more_where_that_is_little() {
        assert_eq!(gcra(100, 60, 7).most_cost(), 6_000);
        assert_eq!(gcra(100, 86_400, 1).most_cost(), 100);
        assert_eq!(gcra(3, 86_400, 5).most_cost(), 50);
        assert_eq!(gcra(u64::MAX, 1, u64::MAX).most_cost(), u64::MAX);
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
