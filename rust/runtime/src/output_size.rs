// SPDX-License-Identifier: Apache-2.0
//! How many rows an output batch has.

use std::time::Duration;

use sparkawait_core::flow::{Debloater, DebloaterConfig};
use sparkawait_core::time::ProcessingTime;

/// Time between two measurements of the throughput, as Flink's.
const PERIOD: Duration = Duration::from_millis(200);

/// The smallest batch: below it a batch costs more than its rows.
const MIN_ROWS: u32 = 16;

/// The rows of a batch: as many as permitted, or as flow within a target latency.
#[derive(Debug)]
pub(crate) struct OutputSize {
    max_rows: usize,
    debloated: Option<Debloated>,
}

#[derive(Debug)]
struct Debloated {
    debloater: Debloater,
    /// Rows emitted since `since`, which is the first emission.
    emitted: u64,
    since: Option<ProcessingTime>,
}

impl OutputSize {
    pub(crate) fn new(max_rows: usize, target_latency: Option<Duration>) -> Self {
        let debloated = target_latency.map(|target| {
            let max = u32::try_from(max_rows).unwrap_or(u32::MAX);
            let config = DebloaterConfig { target, ..DebloaterConfig::new(MIN_ROWS.min(max), max) };
            Debloated { debloater: Debloater::new(config), emitted: 0, since: None }
        });
        Self { max_rows, debloated }
    }

    /// Returns the rows of the next batch.
    #[inline]
    pub(crate) fn rows(&self) -> usize {
        match &self.debloated {
            None => self.max_rows,
            Some(it) => it.debloater.size() as usize,
        }
    }

    /// Counts rows that were emitted; now and then, changes the size of batches to come.
    #[inline]
    pub(crate) fn measure(&mut self, rows: usize, now: ProcessingTime) {
        if let Some(debloated) = &mut self.debloated {
            debloated.measure(rows as u64, now);
        }
    }
}

impl Debloated {
    fn measure(&mut self, rows: u64, now: ProcessingTime) {
        let since = *self.since.get_or_insert(now);
        self.emitted += rows;
        let elapsed = now.saturating_since(since);
        if elapsed >= PERIOD {
            // One batch is being filled; those before it have left.
            self.debloater.measure(self.emitted, elapsed, 1);
            (self.emitted, self.since) = (0, Some(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn batches_have_the_most_rows_without_a_target() {
        let mut size = OutputSize::new(8192, None);
        size.measure(1, at(0));
        size.measure(1, at(1_000));

        assert_eq!(size.rows(), 8192);
    }

    #[test]
    fn batches_follow_the_throughput_between_their_bounds() {
        let mut size = OutputSize::new(8192, Some(Duration::from_millis(50)));
        size.measure(0, at(0));
        assert_eq!(size.rows(), 8192, "nothing is known yet");

        size.measure(2_000, at(200));
        assert_eq!(size.rows(), 500, "10 000 rows a second for 50 ms");
        (2..100).for_each(|period| size.measure(0, at(200 * period)));
        assert_eq!(size.rows(), MIN_ROWS as usize);
        (100..200).for_each(|period| size.measure(1_000_000, at(200 * period)));
        assert_eq!(size.rows(), 8192);
    }

    #[test]
    fn a_small_bound_is_kept() {
        let mut size = OutputSize::new(3, Some(Duration::from_secs(1)));
        size.measure(0, at(0));
        size.measure(1, at(500));

        assert_eq!(size.rows(), 3);
    }
}
