// SPDX-License-Identifier: Apache-2.0
//! Few calls until somebody wants the rows.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::time::ProcessingTime;

/// How long after the first batch was taken all calls are permitted. A consumer that wanted no more
/// has gone by then.
const OPENS_AFTER: Duration = Duration::from_millis(100);

/// How long the first calls may take. A task whose first calls never end must not wait for them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The part of the calls that a task begins with, as a divisor, and the least number of them.
const PART: usize = 8;
const LEAST_CALLS: usize = 4;

/// What a task that begins with few calls has to know.
#[derive(Clone, Copy, Debug)]
pub struct WarmUpConfig {
    /// Calls in flight at most.
    pub max_calls: NonZeroUsize,
    /// Rows of one call; 1 unless calls are made for many rows together.
    pub rows_per_call: NonZeroUsize,
}

impl WarmUpConfig {
    /// Returns how many rows may be in flight at first, of `max_concurrency` later.
    fn window(self, max_concurrency: NonZeroUsize) -> NonZeroUsize {
        let rows_per_call = self.rows_per_call.get();
        let calls = max_concurrency.get().div_ceil(rows_per_call).min(self.max_calls.get());
        let rows = (calls / PART).max(LEAST_CALLS).saturating_mul(rows_per_call);
        NonZeroUsize::new(rows).unwrap_or(NonZeroUsize::MIN).min(max_concurrency)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has seen a row.
    Cold { first_call: Option<ProcessingTime> },
    /// The first rows have left.
    Shown { opens_at: ProcessingTime },
    /// All calls are permitted.
    Open,
}

/// Lets a task begin with few calls, because many consumers want no more than a few rows.
///
/// ```text
///            the first rows leave                      100 ms later
///   Cold --------------------------> Shown ------------------------------> Open
///     \                              the consumer asks again, and still      ^
///      \---------------------- 10 s without a row --------------------------/
/// ```
///
/// It bounds the calls of a task, whatever their destination. Beside the calls it is told when rows
/// are asked for, and when some leave. Only a consumer that asks for a batch is known to be there,
/// so it opens at the beginning of a turn only. Until then rows leave as they are completed, so
/// that a consumer that wants a few more than the first gets them.
#[derive(Debug)]
pub struct WarmUp {
    state: State,
    few: NonZeroUsize,
}

impl WarmUp {
    /// Starts cold, or open without a configuration.
    pub fn new(config: Option<WarmUpConfig>, max_concurrency: NonZeroUsize) -> Self {
        let few = config.map_or(max_concurrency, |it| it.window(max_concurrency));
        let is_cold = few < max_concurrency;
        let state = if is_cold { State::Cold { first_call: None } } else { State::Open };
        Self { state, few }
    }

    /// Returns whether no row has left.
    #[inline]
    pub const fn is_cold(&self) -> bool {
        matches!(self.state, State::Cold { .. })
    }

    /// Returns whether all calls are permitted; otherwise rows are to leave at once.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Returns when a turn is to end, so that another one opens.
    pub const fn opens_at(&self) -> Option<ProcessingTime> {
        match self.state {
            State::Shown { opens_at } => Some(opens_at),
            State::Cold { .. } | State::Open => None,
        }
    }

    /// Notes that the consumer waits for a batch.
    pub fn begin_turn(&mut self, now: ProcessingTime) {
        let opens_at = match self.state {
            State::Open => return,
            State::Shown { opens_at } => Some(opens_at),
            State::Cold { first_call } => first_call.map(|it| it + PATIENCE),
        };
        if opens_at.is_some_and(|it| it <= now) {
            self.state = State::Open;
        }
    }

    /// Notes that rows have left.
    #[inline]
    pub fn left(&mut self, now: ProcessingTime) {
        if self.is_cold() {
            self.state = State::Shown { opens_at: now + OPENS_AFTER };
        }
    }

    /// Notes that a call starts; it must know about the first one.
    #[inline]
    pub fn on_start(&mut self, now: ProcessingTime) {
        if let State::Cold { first_call } = &mut self.state {
            first_call.get_or_insert(now);
        }
    }

    /// Returns how many calls may be in flight as far as it is open who wants them.
    pub const fn window(&self) -> NonZeroUsize {
        if self.is_open() { NonZeroUsize::MAX } else { self.few }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    fn at(millis: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_millis(millis)
    }

    fn warm_up(max_calls: usize, rows_per_call: usize, max_concurrency: usize) -> WarmUp {
        let config =
            WarmUpConfig { max_calls: count(max_calls), rows_per_call: count(rows_per_call) };
        WarmUp::new(Some(config), count(max_concurrency))
    }

    #[test]
    fn an_eighth_of_the_calls_is_made_at_first_and_at_least_four() {
        let few = |calls| warm_up(calls, 1, calls).window().get();

        assert_eq!([1_000, 100, 40, 32, 31, 5].map(few), [125, 12, 5, 4, 4, 4]);
        assert!([1, 3, 4].into_iter().all(|calls| warm_up(calls, 1, calls).is_open()));
    }

    #[test]
    fn calls_of_many_rows_are_counted_as_calls_that_can_be_filled() {
        assert_eq!(warm_up(10_000, 100, 10_000).window().get(), 12 * 100);
        assert_eq!(warm_up(8, 100, 10_000).window().get(), 4 * 100, "eight at a time");
        assert!(warm_up(100, 100, 100).is_open(), "all rows make one call");
    }

    #[test]
    fn it_opens_when_the_consumer_asks_a_while_after_the_first_rows() {
        let mut warm_up = warm_up(100, 1, 100);
        warm_up.begin_turn(at(0));
        warm_up.on_start(at(5));
        warm_up.left(at(50));
        warm_up.left(at(90));
        assert_eq!(warm_up.opens_at(), Some(at(150)));

        warm_up.begin_turn(at(149));
        assert_eq!(warm_up.window().get(), 12);
        warm_up.begin_turn(at(150));

        assert!(warm_up.is_open());
        assert_eq!((warm_up.window(), warm_up.opens_at()), (NonZeroUsize::MAX, None));
    }

    #[test]
    fn first_calls_that_do_not_end_are_waited_for_for_ten_seconds() {
        let mut warm_up = warm_up(100, 1, 100);
        warm_up.begin_turn(at(60_000));
        warm_up.on_start(at(60_000));
        warm_up.on_start(at(65_000));

        warm_up.begin_turn(at(69_999));
        assert!(warm_up.is_cold());
        warm_up.begin_turn(at(70_000));

        assert!(warm_up.is_open());
    }

    #[test]
    fn without_a_configuration_it_is_open() {
        assert!(WarmUp::new(None, count(100)).is_open());
    }
}
