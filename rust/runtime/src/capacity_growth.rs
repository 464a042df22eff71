// SPDX-License-Identifier: Apache-2.0
//! How many rows an ordered task holds, as it becomes known that they are wanted.

use std::num::NonZeroUsize;

use crate::byte_bounds::ROW_BYTES;

/// Where the number of rows that are held begins, and what ends its growth.
#[derive(Clone, Copy, Debug)]
pub struct GrowthConfig {
    /// Rows that are held at first, and always.
    pub first: NonZeroUsize,
    /// Further rows are held as long as results, those to come included, have no more bytes, with
    /// what the rows themselves take.
    pub max_bytes: usize,
}

/// Decides how many rows may be held, so that completed rows wait for a slow one, and few calls are in
/// vain if the consumer wants few rows.
///
/// ```text
///   8 x calls --> 16 x --> 32 x --> .. --> the capacity, and no more bytes than its bound
///             ^        ^
///             each time the consumer has taken as many rows
/// ```
///
/// A consumer that has taken n rows has made n rows worth holding: so no more calls are in vain than
/// rows were taken, and those of the beginning.
#[derive(Debug)]
pub(crate) struct CapacityGrowth {
    config: GrowthConfig,
    rows: usize,
    most: usize,
    /// Rows that had left when it grew.
    since: u64,
    /// Rows that have left, the last batch included; only those before it have been taken.
    left: u64,
}

impl CapacityGrowth {
    /// Begins small; grows up to `most` rows.
    pub(crate) fn new(config: GrowthConfig, most: NonZeroUsize) -> Self {
        Self { config, rows: config.first.get(), most: most.get(), since: 0, left: 0 }
    }

    /// Notes that a batch has left, which makes `rows` rows in all. The one before it was taken, since
    /// there is one place for both.
    pub(crate) fn left(&mut self, rows: u64) {
        self.taken();
        self.left = rows;
    }

    /// Notes that all that has left was taken.
    pub(crate) fn taken(&mut self) {
        while self.rows < self.most && self.left - self.since >= self.rows as u64 {
            self.since += self.rows as u64;
            self.rows = self.rows.saturating_mul(2).min(self.most);
        }
    }

    /// Returns how many rows may be held, while results of `held` bytes are.
    ///
    /// Of the `rows` that are held, `calls` are in flight, and expected to bring `bytes_of_a_call`.
    pub(crate) fn capacity(
        &self,
        held: usize,
        (rows, calls): (usize, usize),
        bytes_of_a_call: Option<usize>,
    ) -> NonZeroUsize {
        let first = self.config.first;
        let Some(bytes) = bytes_of_a_call.filter(|_| self.rows > first.get()) else { return first };
        let expected = bytes.saturating_mul(calls);
        let taken = held.saturating_add(expected).saturating_add(rows * ROW_BYTES);
        let room = self.config.max_bytes.saturating_sub(taken) / (bytes + ROW_BYTES);
        NonZeroUsize::new((rows + room).min(self.rows)).map_or(first, |it| it.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(first: usize, most: usize) -> CapacityGrowth {
        let first = NonZeroUsize::new(first).unwrap();
        let config = GrowthConfig { first, max_bytes: 100_000 };
        CapacityGrowth::new(config, NonZeroUsize::new(most).unwrap())
    }

    fn capacity(growth: &CapacityGrowth) -> usize {
        growth.capacity(0, (0, 0), Some(0)).get()
    }

    #[test]
    fn it_doubles_each_time_as_many_rows_were_taken() {
        let mut growth = growth(13, 100);
        let after = |growth: &mut CapacityGrowth, left| {
            growth.left(left);
            growth.taken();
            capacity(growth)
        };

        assert_eq!(after(&mut growth, 12), 13);
        assert_eq!(after(&mut growth, 13), 26);
        assert_eq!(after(&mut growth, 38), 26);
        assert_eq!(after(&mut growth, 39), 52);
        assert_eq!(after(&mut growth, 90), 52);
        assert_eq!(after(&mut growth, 91), 100, "and no further");
        assert_eq!(after(&mut growth, 1_000), 100);
    }

    #[test]
    fn what_was_not_taken_makes_nothing_grow() {
        let mut growth = growth(13, 1_000);

        growth.left(700);
        assert_eq!(capacity(&growth), 13, "the consumer may want no more");

        growth.left(701);
        assert_eq!(capacity(&growth), 13 << 5, "it has taken the batch before this one");
    }

    #[test]
    fn further_rows_are_held_as_long_as_their_bytes_fit() {
        let mut growth = growth(10, 1_000);
        growth.left(5_000);
        growth.taken();
        assert_eq!(
            growth.capacity(0, (0, 0), None).get(),
            10,
            "as long as nobody knows their size"
        );

        // 1 000 bytes for a row with its place, so a hundred of them.
        let bytes = Some(1_000 - ROW_BYTES);
        let held = |completed: usize| completed * (1_000 - ROW_BYTES);
        assert_eq!(growth.capacity(0, (0, 0), bytes).get(), 100);
        assert_eq!(growth.capacity(0, (7, 7), bytes).get(), 100);
        assert_eq!(growth.capacity(held(43), (50, 7), bytes).get(), 100);
        assert_eq!(growth.capacity(held(143), (150, 7), bytes).get(), 150, "none is let in");
        assert_eq!(growth.capacity(200_000, (3, 3), bytes).get(), 10, "those of the beginning are");
        assert_eq!(growth.capacity(0, (0, 0), Some(usize::MAX / 2)).get(), 10);
    }
}
