// SPDX-License-Identifier: Apache-2.0
//! How much a task holds at a time, in bytes.

use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::time::ProcessingTime;

/// The bound of what is held, in batches of the most bytes: one is being put out, one is being
/// filled, and results of two come meanwhile.
const BATCHES: usize = 4;

/// Calls whose results make up the size that the next ones are expected to have.
const REMEMBERED_CALLS: usize = 1024;

/// As many of them an earlier task stands for.
const EXPECTED_CALLS: usize = REMEMBERED_CALLS / 16;

/// What a call is expected to bring as long as nobody knows.
const UNKNOWN_RESULT: usize = 1 << 20;

/// Calls that may be in flight until then in any case.
const LEAST_UNKNOWN: usize = 4;

/// How long the first calls are waited for. If none has ended by then, their results cannot
/// be many, and the others need not wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a completed row takes beside its results: its place in the queue, and in the lists of
/// deadlines.
pub(crate) const ROW_BYTES: usize = 128;

/// Decides whether further input is taken and how many calls may be in flight, so that neither the
/// input nor the results that are held, those to come included, pass a bound.
///
/// ```text
///   input     as long as less than the bound is held            further batches
///   results   (bound - held) / average of the last results      calls, at least one
/// ```
///
/// Until a call has ended, a result is taken for one of 1 MB, for 10 s from the first call on.
///
/// Neither holds a task up for ever: without input taken, what is held completes; and a call is
/// made when none is in flight, so that the head of an ordered queue can always complete.
#[derive(Debug)]
pub(crate) struct ByteBounds {
    most: usize,
    /// The same for results; and what is counted for a completed row beside them.
    most_results: usize,
    row_bytes: usize,
    /// Of the last calls that ended.
    calls: usize,
    bytes: usize,
    first_call: Option<ProcessingTime>,
}

impl ByteBounds {
    /// Bounds what a task holds whose output batches have at most `max_bytes_per_batch`.
    ///
    /// A call is expected to bring `expected` bytes until some have ended; `None`: nobody knows.
    pub(crate) fn new(max_bytes_per_batch: usize, expected: Option<usize>) -> Self {
        let calls = if expected.is_some() { EXPECTED_CALLS } else { 0 };
        let bytes = expected.unwrap_or(0).saturating_mul(calls);
        let most = max_bytes_per_batch.saturating_mul(BATCHES);
        Self { most, most_results: most, row_bytes: 0, calls, bytes, first_call: None }
    }

    /// Bounds completed rows by bytes alone, if they have a bound: nothing else does then.
    pub(crate) fn with_capacity(self, capacity_bytes: Option<usize>) -> Self {
        match capacity_bytes {
            None => self,
            Some(most_results) => Self { most_results, row_bytes: ROW_BYTES, ..self },
        }
    }

    /// Returns whether completed rows, which only bytes bound, have as many as they may.
    #[inline]
    pub(crate) fn is_full(&self, held: usize, completed: usize) -> bool {
        self.row_bytes > 0 && held + completed * self.row_bytes >= self.most_results
    }

    /// Returns whether a further batch of input is taken, while `held` bytes of others are.
    #[inline]
    pub(crate) fn takes_input(&self, held: usize) -> bool {
        held < self.most
    }

    /// Notes that calls start.
    #[inline]
    pub(crate) fn start(&mut self, now: ProcessingTime) {
        self.first_call.get_or_insert(now);
    }

    /// Counts calls that ended, and the bytes of their results.
    pub(crate) fn measure(&mut self, calls: usize, bytes: usize) {
        (self.calls, self.bytes) = (self.calls + calls, self.bytes.saturating_add(bytes));
        while self.calls > REMEMBERED_CALLS {
            (self.calls, self.bytes) = (self.calls / 2, self.bytes / 2);
        }
    }

    /// Returns what the last calls brought each; `None` if none has ended.
    pub(crate) fn bytes_of_a_call(&self) -> Option<usize> {
        self.bytes.checked_div(self.calls)
    }

    /// Returns how many calls may be in flight, while results of `held` bytes are held, of
    /// `completed` rows.
    #[inline]
    pub(crate) fn calls(
        &self,
        held: usize,
        completed: usize,
        most: NonZeroUsize,
        now: ProcessingTime,
    ) -> NonZeroUsize {
        if self.calls == 0 {
            return self.first_calls(most, now);
        }
        let room = self.most_results.saturating_sub(held + completed * self.row_bytes);
        // As `(bytes / calls + row_bytes) * most <= room`, without a division.
        let expected = self.bytes.saturating_add(self.calls * self.row_bytes);
        if expected.saturating_mul(most.get()) <= room.saturating_mul(self.calls) {
            return most;
        }
        let average = (self.bytes / self.calls + self.row_bytes).max(1);
        NonZeroUsize::new(room / average).unwrap_or(NonZeroUsize::MIN).min(most)
    }

    /// Returns how many calls may be in flight while nobody knows what they bring.
    fn first_calls(&self, most: NonZeroUsize, now: ProcessingTime) -> NonZeroUsize {
        if self.first_call.is_some_and(|it| it + PATIENCE <= now) {
            return most;
        }
        let fit = (self.most_results / UNKNOWN_RESULT).max(LEAST_UNKNOWN);
        NonZeroUsize::new(fit).unwrap_or(NonZeroUsize::MIN).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: NonZeroUsize = NonZeroUsize::new(100).unwrap();
    const NOW: ProcessingTime = ProcessingTime::ZERO;

    #[test]
    fn small_results_bound_nothing() {
        let mut bounds = ByteBounds::new(1000, None);

        bounds.measure(50, 500);

        assert_eq!(bounds.calls(3000, 0, MOST, NOW), MOST);
    }

    #[test]
    fn large_results_are_expected_to_be_as_large_again() {
        let mut bounds = ByteBounds::new(1000, None);
        bounds.measure(10, 2000);

        let calls = [0, 1000, 3900, 4000, 9000].map(|held| bounds.calls(held, 0, MOST, NOW).get());

        assert_eq!(calls, [20, 15, 1, 1, 1], "one is always made, so that the head completes");
    }

    #[test]
    fn the_first_results_are_expected_to_be_as_those_of_an_earlier_task() {
        let mut bounds = ByteBounds::new(1000, Some(200));
        assert_eq!(
            (bounds.calls(0, 0, MOST, NOW).get(), bounds.bytes_of_a_call()),
            (20, Some(200))
        );

        bounds.measure(EXPECTED_CALLS, 0);
        assert_eq!(
            bounds.calls(0, 0, MOST, NOW).get(),
            40,
            "what this one sees counts as much soon"
        );

        assert_eq!(
            ByteBounds::new(1000, Some(0)).calls(0, 0, MOST, NOW),
            MOST,
            "nothing is brought"
        );
        assert_eq!(
            ByteBounds::new(1000, Some(usize::MAX)).calls(0, 0, MOST, NOW),
            NonZeroUsize::MIN
        );
    }

    #[test]
    fn unknown_results_are_taken_for_large_ones_until_a_call_has_ended_or_none_does() {
        let mut bounds = ByteBounds::new(8 << 20, None);
        assert_eq!((bounds.calls(0, 0, MOST, NOW).get(), bounds.bytes_of_a_call()), (32, None));
        assert_eq!(ByteBounds::new(1000, None).calls(0, 0, MOST, NOW).get(), LEAST_UNKNOWN);
        assert_eq!(ByteBounds::new(64 << 20, None).calls(0, 0, MOST, NOW), MOST, "by default");

        let started = NOW + Duration::from_secs(100);
        bounds.start(started);
        bounds.start(started + Duration::from_secs(1));
        let almost = started + PATIENCE.saturating_sub(Duration::from_millis(1));
        assert_eq!(bounds.calls(0, 0, MOST, almost).get(), 32);
        assert_eq!(bounds.calls(0, 0, MOST, started + PATIENCE), MOST);

        bounds.measure(1, 10);
        assert_eq!(bounds.calls(0, 0, MOST, NOW), MOST);
    }

    #[test]
    fn what_was_large_once_is_forgotten() {
        let mut bounds = ByteBounds::new(1000, None);
        bounds.measure(10, 1_000_000);
        assert_eq!(bounds.calls(0, 0, MOST, NOW).get(), 1);

        (0..100).for_each(|_| bounds.measure(1000, 1000));

        assert_eq!(bounds.calls(0, 0, MOST, NOW), MOST);
    }

    #[test]
    fn input_is_taken_while_there_is_room() {
        let bounds = ByteBounds::new(1000, None);

        assert!(bounds.takes_input(3999));
        assert!(!bounds.takes_input(4000));
    }

    #[test]
    fn rows_without_slots_are_bounded_by_bytes_alone() {
        let mut bounds = ByteBounds::new(1000, None).with_capacity(Some(1_000_000));
        bounds.measure(10, 10 * (1000 - ROW_BYTES));

        let calls = [0, 899, 900, 950, 1000].map(|rows| {
            let held = rows * (1000 - ROW_BYTES);
            (bounds.calls(held, rows, MOST, NOW).get(), bounds.is_full(held, rows))
        });

        assert_eq!(calls, [(100, false), (100, false), (100, false), (50, false), (1, true)]);
        assert!(!bounds.takes_input(4000), "the input has its own bound");
    }
}
