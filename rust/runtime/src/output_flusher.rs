// SPDX-License-Identifier: Apache-2.0
//! When a batch of output leaves.

use std::time::Duration;

use sparkawait_core::time::ProcessingTime;

use crate::output_size::OutputSize;

/// Batches may take one part in so many of the time, if nothing else is said.
const PARTS: u32 = 50;

/// How long a batch is kept back at most, if nothing else is said.
const LONGEST: Duration = Duration::from_millis(100);

/// Batches whose cost is remembered.
const REMEMBERED: usize = 16;

/// The part of the pause that one of them is kept back for, as a divisor. It has few rows, so it
/// shows what a batch costs without them: what rows cost is spent in batches of any size.
const PART_OF_A_PROBE: u32 = 4;

/// How long a batch that is not full waits for more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferTimeout {
    /// Until the end of the input.
    Never,
    /// Until its first row is this old.
    After(Duration),
    /// Not at all while its consumer waits, as long as all batches together take no more than 2 %
    /// of the time, and at most until 100 ms after the one before.
    ///
    /// What a batch takes is measured, from the beginning of its making until the consumer asks
    /// for the next one.
    Auto {
        /// What a batch takes beside that, where it cannot be seen.
        consumer: Duration,
    },
}

/// Decides when a batch leaves: by its rows, by its age, by what it costs.
///
/// Counterpart of Flink's `OutputFlusher`, without its thread.
#[derive(Debug)]
pub(crate) struct OutputFlusher {
    size: OutputSize,
    timeout: BufferTimeout,
    /// When the oldest row of the output was emitted.
    since: Option<ProcessingTime>,
    /// When the last batch was begun.
    last: Option<ProcessingTime>,
    /// Whether the consumer has not asked again since it took a batch.
    is_consumed: bool,
    costs: Costs,
}

/// What the last batches took.
#[derive(Debug, Default)]
struct Costs {
    latest: [Option<Duration>; REMEMBERED],
    next: usize,
}

impl OutputFlusher {
    pub(crate) fn new(size: OutputSize, timeout: BufferTimeout) -> Self {
        let (since, last, costs) = (None, None, Costs::default());
        Self { size, timeout, since, last, is_consumed: false, costs }
    }

    /// Returns the rows of a full batch.
    #[inline]
    pub(crate) fn rows(&self) -> usize {
        self.size.rows()
    }

    /// Counts rows that were emitted into an output that has `held` rows now.
    #[inline]
    pub(crate) fn emitted(&mut self, rows: usize, held: usize, now: ProcessingTime) {
        self.size.measure(rows, now);
        if self.since.is_none() && held > 0 {
            self.since = Some(now);
        }
    }

    /// Returns when the output leaves although it is not full.
    pub(crate) fn deadline(&self) -> Option<ProcessingTime> {
        let since = self.since?;
        match self.timeout {
            BufferTimeout::Never => None,
            BufferTimeout::After(timeout) => Some(since + timeout),
            BufferTimeout::Auto { consumer } => {
                let Some(last) = self.last else { return Some(since) };
                let pause = self.costs.of_a_batch().saturating_add(consumer).saturating_mul(PARTS);
                let part = if self.costs.is_probe() { PART_OF_A_PROBE } else { 1 };
                Some(since.max(last + pause.min(LONGEST) / part))
            }
        }
    }

    /// Notes that the output leaves, with a batch that was begun at `begun`.
    pub(crate) fn left(&mut self, begun: ProcessingTime) {
        (self.last, self.is_consumed) = (Some(begun), true);
        self.since = None;
    }

    /// Notes that the output leaves, in which there is nothing.
    pub(crate) fn nothing_left(&mut self) {
        self.since = None;
    }

    /// Notes that the consumer asks for a batch.
    pub(crate) fn asked(&mut self, now: ProcessingTime) {
        if let Some(last) = self.last.filter(|_| self.is_consumed) {
            self.is_consumed = false;
            self.costs.add(now.saturating_since(last));
        }
    }
}

impl Costs {
    fn add(&mut self, cost: Duration) {
        self.latest[self.next] = Some(cost);
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Returns whether the next batch is to have few rows.
    const fn is_probe(&self) -> bool {
        self.next == 0
    }

    /// Returns what a batch takes however few rows it has: the least of the last ones. Those that
    /// took longer had more rows, or a consumer with something else to do.
    fn of_a_batch(&self) -> Duration {
        self.latest.iter().flatten().min().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flusher(timeout: BufferTimeout) -> OutputFlusher {
        OutputFlusher::new(OutputSize::new(8192, None), timeout)
    }

    fn automatic() -> OutputFlusher {
        flusher(BufferTimeout::Auto { consumer: Duration::ZERO })
    }

    fn at(micros: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_micros(micros)
    }

    /// Lets a batch leave, for which the consumer takes some time.
    fn leave(flusher: &mut OutputFlusher, begun: u64, cost: u64) {
        flusher.emitted(1, 1, at(begun));
        flusher.left(at(begun));
        flusher.asked(at(begun + cost));
    }

    #[test]
    fn a_first_batch_leaves_with_its_first_row() {
        let mut flusher = automatic();
        flusher.asked(at(0));
        assert_eq!(flusher.deadline(), None, "there is none");

        flusher.emitted(1, 1, at(70));

        assert_eq!(flusher.deadline(), Some(at(70)));
    }

    #[test]
    fn batches_take_a_fiftieth_of_the_time() {
        let mut flusher = automatic();
        leave(&mut flusher, 1_000, 40);

        flusher.emitted(5, 5, at(1_100));
        assert_eq!(flusher.deadline(), Some(at(1_000 + 50 * 40)));
        flusher.left(at(3_000));
        flusher.asked(at(3_030));
        flusher.emitted(5, 5, at(3_040));

        assert_eq!(flusher.deadline(), Some(at(3_000 + 50 * 30)));
    }

    #[test]
    fn a_row_that_comes_later_waits_for_nothing() {
        let mut flusher = automatic();
        leave(&mut flusher, 0, 40);

        flusher.emitted(1, 1, at(2_001));

        assert_eq!(flusher.deadline(), Some(at(2_001)));
    }

    #[test]
    fn a_batch_that_costs_much_is_kept_back_for_100_ms_at_most() {
        let mut flusher = automatic();
        leave(&mut flusher, 0, 60_000);

        flusher.emitted(1, 1, at(60_001));

        assert_eq!(flusher.deadline(), Some(at(100_000)));
    }

    #[test]
    fn the_least_of_the_last_costs_counts_until_it_is_forgotten() {
        let mut flusher = automatic();
        let mut now = 0;
        let mut pause_after = |cost: u64| {
            leave(&mut flusher, now, cost);
            flusher.emitted(1, 1, at(now + cost));
            let pause = flusher.deadline().unwrap().saturating_since(at(now));
            flusher.nothing_left();
            now += 1_000_000;
            pause.as_micros()
        };

        assert_eq!(pause_after(10), 500);
        let later: Vec<u128> = (0..REMEMBERED).map(|_| pause_after(200)).collect();

        let (probe, others) = later[..REMEMBERED - 1].split_last().unwrap();
        assert!(others.iter().all(|it| *it == 500));
        assert_eq!(*probe, 200, "at once: the row comes after a fourth of the pause");
        assert_eq!(later.last(), Some(&10_000));
    }

    #[test]
    fn what_rows_cost_keeps_no_batch_back() {
        // A batch costs 20 us, and a row so much that all of them take nearly 2 % of the time.
        let mut flusher = automatic();
        let (mut now, mut pause) = (0_u64, 0_u64);
        for _ in 0..=20 * REMEMBERED {
            leave(&mut flusher, now, 20 + pause * 19 / 1000);
            flusher.emitted(1, 1, at(now));
            let kept_back = flusher.deadline().unwrap().saturating_since(at(now));
            pause = u64::try_from(kept_back.as_micros()).unwrap();
            flusher.nothing_left();
            now += pause;
        }

        // With the rows it would be 20 ms: 20 us are 2 % of 1 ms.
        assert!((1_000..2_000).contains(&pause), "{pause}");
    }

    #[test]
    fn what_a_batch_costs_elsewhere_is_added() {
        let consumer = Duration::from_micros(100);
        let mut flusher = flusher(BufferTimeout::Auto { consumer });
        leave(&mut flusher, 0, 40);

        flusher.emitted(1, 1, at(50));

        assert_eq!(flusher.deadline(), Some(at(50 * 140)));
    }

    #[test]
    fn a_given_time_counts_from_the_first_row() {
        let mut flusher = flusher(BufferTimeout::After(Duration::from_micros(70)));
        leave(&mut flusher, 0, 5_000);
        flusher.emitted(1, 1, at(6_000));
        flusher.emitted(1, 2, at(6_050));
        assert_eq!(flusher.deadline(), Some(at(6_070)));

        let mut flusher = self::flusher(BufferTimeout::Never);
        flusher.emitted(1, 1, at(0));
        assert_eq!(flusher.deadline(), None);
    }
}
