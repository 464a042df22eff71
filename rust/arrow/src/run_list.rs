// SPDX-License-Identifier: Apache-2.0
//! Where the rows of the output come from, as runs of neighbouring rows.
//!
//! Invariant: runs are in output order, none is empty, and two runs that could
//! be one are one. Belongs to the task thread.

use std::collections::VecDeque;

/// Rows of one held batch or chunk, or rows of nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Handle of the batch or chunk, or [`Run::NULLS`].
    pub(crate) source: u32,
    /// The first row.
    pub(crate) start: u32,
    /// Output rows; never 0.
    pub(crate) len: u32,
    /// 1 for neighbouring rows, 0 for the row `start` over and over.
    pub(crate) step: u32,
}

impl Run {
    /// The source of rows that are null in every column.
    pub(crate) const NULLS: u32 = u32::MAX;

    pub(crate) fn is_nulls(&self) -> bool {
        self.source == Self::NULLS
    }

    /// Leaves its first `len` rows out; returns whether none is left.
    pub(crate) fn skip(&mut self, len: u32) -> bool {
        self.start += self.step * len;
        self.len -= len;
        self.len == 0
    }

    /// How many contiguous pieces the run is copied in.
    pub(crate) fn pieces(&self) -> usize {
        if self.step == 0 && !self.is_nulls() { self.len as usize } else { 1 }
    }
}

/// A queue of output rows, stored as runs.
///
/// One entry takes 16 bytes, whatever its length: rows that arrive in order
/// over one source take no memory at all.
#[derive(Debug, Default)]
pub(crate) struct RunList {
    /// Oldest first.
    runs: VecDeque<Run>,
    /// Runs of one row over and over.
    repeats: usize,
    weighed: Weighed,
}

/// The rows from the first on whose bytes were added up.
#[derive(Debug, Default)]
struct Weighed {
    /// Runs before this one, and so many rows of it.
    run: usize,
    rows: u32,
    bytes: usize,
}

impl RunList {
    /// Appends `len` rows of `source` from `start` on.
    #[inline]
    pub(crate) fn push(&mut self, source: u32, start: u32, len: u32) {
        debug_assert!(len > 0, "a run has at least one row");
        if let Some(last) = self.runs.back_mut()
            && last.source == source
            && last.step == 1
            && last.start + last.len == start
        {
            last.len += len;
            return;
        }
        self.runs.push_back(Run { source, start, len, step: 1 });
    }

    /// Appends the row `row` of `source` `times` times.
    #[inline]
    pub(crate) fn push_repeated(&mut self, source: u32, row: u32, times: u32) {
        if times == 1 {
            self.push(source, row, 1);
        } else {
            self.runs.push_back(Run { source, start: row, len: times, step: 0 });
            self.repeats += 1;
        }
    }

    /// Appends a row of nulls.
    pub(crate) fn push_null(&mut self) {
        match self.runs.back_mut() {
            Some(last) if last.is_nulls() && last.len < u32::MAX => last.len += 1,
            _ => self.runs.push_back(Run { source: Run::NULLS, start: 0, len: 1, step: 0 }),
        }
    }

    /// Takes the first `rows` rows, splitting a run if need be.
    ///
    /// The list has at least as many rows.
    pub(crate) fn take(&mut self, rows: usize) -> Window {
        self.weighed = Weighed::default();
        let runs = Vec::with_capacity(rows.min(self.runs.len()));
        let mut window = Window { runs, rows, open_repeat: false };
        let mut missing = rows;
        while missing > 0
            && let Some(first) = self.runs.front_mut()
        {
            let len = u32::try_from(missing).unwrap_or(u32::MAX).min(first.len);
            window.runs.push(Run { len, ..*first });
            missing -= len as usize;
            if len == first.len {
                self.repeats -= usize::from(first.step == 0 && !first.is_nulls());
                self.runs.pop_front();
            } else {
                first.skip(len);
                window.open_repeat = first.step == 0;
            }
        }
        debug_assert!(missing == 0, "{missing} of {rows} rows are not in the list");
        window
    }

    /// Whether a row is in the list several times.
    pub(crate) fn has_repeats(&self) -> bool {
        self.repeats > 0
    }

    /// The runs of the list, first to last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().copied()
    }

    /// Returns about how many bytes all rows take, by the bytes of a row of each source.
    ///
    /// Looks only at what came since it was asked last.
    pub(crate) fn weigh(&mut self, bytes_per_row: impl Fn(u32) -> usize) -> usize {
        let weighed = &mut self.weighed;
        while let Some(run) = self.runs.get(weighed.run) {
            if !run.is_nulls() {
                let rows = (run.len - weighed.rows) as usize;
                weighed.bytes = weighed.bytes.saturating_add(rows * bytes_per_row(run.source));
            }
            if weighed.run + 1 == self.runs.len() {
                // It may still grow.
                weighed.rows = run.len;
                break;
            }
            (weighed.run, weighed.rows) = (weighed.run + 1, 0);
        }
        weighed.bytes
    }
}

/// The runs of one output batch.
#[derive(Debug)]
pub(crate) struct Window {
    /// First to last.
    pub(crate) runs: Vec<Run>,
    /// Rows of all runs.
    pub(crate) rows: usize,
    /// The row of the last run is repeated in the next window too.
    open_repeat: bool,
}

impl Window {
    /// Calls `release` with each source, and the rows of it that end here: the first, and how many.
    ///
    /// A repeated row ends with its last repetition.
    pub(crate) fn release_rows(&self, mut release: impl FnMut(u32, u32, u32)) {
        let last = self.runs.len().wrapping_sub(1);
        for (i, run) in self.runs.iter().enumerate().filter(|(_, run)| !run.is_nulls()) {
            match run.step {
                0 if i == last && self.open_repeat => {}
                0 => release(run.source, run.start, 1),
                _ => release(run.source, run.start, run.len),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(window: &Window) -> Vec<(u32, u32)> {
        let mut released = Vec::new();
        window.release_rows(|source, _, rows| released.push((source, rows)));
        released
    }

    #[test]
    fn neighbouring_rows_are_one_run() {
        let mut list = RunList::default();
        for row in 4..9 {
            list.push(2, row, 1);
        }

        assert_eq!(list.take(5).runs, [Run { source: 2, start: 4, len: 5, step: 1 }]);
    }

    #[test]
    fn rows_of_other_sources_or_places_start_a_new_run() {
        let mut list = RunList::default();
        for (source, row) in [(0, 0), (1, 1), (1, 3), (1, 2), (1, 2)] {
            list.push(source, row, 1);
        }

        assert_eq!(list.take(5).runs.len(), 5);
    }

    #[test]
    fn split_run_goes_on_where_it_was_cut() {
        let mut list = RunList::default();
        list.push(0, 10, 5);

        let (first, second) = (list.take(2), list.take(3));

        assert_eq!((first.runs[0].start, first.runs[0].len), (10, 2));
        assert_eq!((second.runs[0].start, second.runs[0].len), (12, 3));
        assert_eq!((released(&first), released(&second)), (vec![(0, 2)], vec![(0, 3)]));
    }

    #[test]
    fn repeated_row_is_released_once_with_its_last_repetition() {
        let mut list = RunList::default();
        list.push_repeated(0, 7, 3);
        list.push(0, 8, 1);

        let (first, second) = (list.take(2), list.take(2));

        assert_eq!(released(&first), []);
        assert_eq!(released(&second), [(0, 1), (0, 1)]);
        assert_eq!(second.runs[0], Run { source: 0, start: 7, len: 1, step: 0 });
    }

    #[test]
    fn rows_are_weighed_once_as_they_come() {
        let mut list = RunList::default();
        let asked = std::cell::Cell::new(0);
        let weigh = |list: &mut RunList| {
            list.weigh(|source| {
                asked.set(asked.get() + 1);
                10 * (source as usize + 1)
            })
        };

        assert_eq!(weigh(&mut list), 0);
        list.push(0, 0, 2);
        assert_eq!(weigh(&mut list), 20);
        list.push(0, 2, 1);
        list.push_null();
        list.push_repeated(1, 5, 3);
        assert_eq!(weigh(&mut list), 30 + 60);
        assert_eq!((weigh(&mut list), asked.get()), (90, 4), "the last run is looked at again");
        assert!(list.has_repeats());

        list.take(5);
        assert_eq!(weigh(&mut list), 40);
        list.take(2);
        assert!(!list.has_repeats());
    }

    #[test]
    fn nulls_are_one_run_and_release_nothing() {
        let mut list = RunList::default();
        list.push_null();
        list.push_null();

        let window = list.take(2);

        assert_eq!(window.runs.len(), 1);
        assert_eq!(released(&window), []);
    }
}
