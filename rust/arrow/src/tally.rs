// SPDX-License-Identifier: Apache-2.0
//! How many rows there were, and which.

/// Rows of held batches, counted with their places.
///
/// Two tallies are equal if they have the same rows. A row that is lost and another one that is there
/// twice leave the number as it is, but not the sum of the places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    rows: u64,
    /// The sum of handle and position of each row.
    places: u64,
}

impl Tally {
    /// Adds rows of a batch.
    #[inline]
    pub(crate) const fn add(&mut self, batch: u32, rows: RowSum) {
        self.rows += rows.rows as u64;
        self.places = self.places.wrapping_add(rows.places(batch));
    }

    /// Takes a row out again, which has another place from now on.
    pub(crate) const fn remove(&mut self, batch: u32, row: u32) {
        self.rows -= 1;
        self.places = self.places.wrapping_sub(RowSum::run(row, 1).places(batch));
    }

    /// The number of rows.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }
}

/// Rows of one batch: how many, and what their positions add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowSum {
    pub(crate) rows: u32,
    pub(crate) positions: u64,
}

impl RowSum {
    /// `rows` neighbours, from `start` on.
    #[inline]
    pub(crate) const fn run(start: u32, rows: u32) -> Self {
        let (first, distances) = (start as u64, rows as u64);
        // Below 2^64: both are less than 2^32.
        let positions = first * distances + distances * distances.saturating_sub(1) / 2;
        Self { rows, positions }
    }

    /// Adds other rows of the batch.
    #[inline]
    pub(crate) const fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.positions = self.positions.wrapping_add(other.positions);
    }

    /// What their places add up to, a place being the handle of the batch and the position in it.
    const fn places(self, batch: u32) -> u64 {
        let first = (batch as u64) << u32::BITS;
        first.wrapping_mul(self.rows as u64).wrapping_add(self.positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runs: &[(u32, u32, u32)]) -> Tally {
        let mut tally = Tally::default();
        for (batch, start, rows) in runs {
            tally.add(*batch, RowSum::run(*start, *rows));
        }
        tally
    }

    #[test]
    fn a_run_counts_as_each_of_its_rows() {
        let rows: Vec<(u32, u32, u32)> = (5..18).rev().map(|row| (3, row, 1)).collect();

        assert_eq!(of(&[(3, 5, 13)]), of(&rows));
        assert_eq!(of(&[(3, 5, 13)]).rows(), 13);
        assert_eq!(of(&[(u32::MAX, 0, u32::MAX)]).rows(), u64::from(u32::MAX));
    }

    #[test]
    fn a_row_that_is_there_twice_does_not_stand_for_another_one() {
        let whole = of(&[(0, 0, 7), (1, 0, 7)]);

        for (lost, twice) in [((0, 2), (0, 3)), ((0, 2), (1, 2)), ((1, 6), (0, 0))] {
            let mut tally = whole;
            tally.remove(lost.0, lost.1);
            assert_ne!(tally, whole);
            tally.add(twice.0, RowSum::run(twice.1, 1));
            assert_eq!(tally.rows(), whole.rows());
            assert_ne!(tally, whole);
        }
    }

    #[test]
    fn a_row_that_moves_is_there_once() {
        let mut tally = of(&[(0, 0, 7)]);
        tally.remove(0, 4);
        tally.add(5, RowSum::run(0, 1));

        assert_eq!(tally, of(&[(5, 0, 1), (0, 0, 4), (0, 5, 2)]));
    }
}
