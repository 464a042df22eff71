// SPDX-License-Identifier: Apache-2.0
//! Where the rows of the output come from, as runs of neighbouring rows.
//!
//! Invariant: runs are in output order, none is empty, and two runs that could
//! be one are one. Belongs to the task thread.

use std::collections::VecDeque;

use crate::tally::RowSum;

/// Rows of one held batch or chunk, or rows of nulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Handle of the batch or chunk, or [`Run::NULLS`].
    pub(crate) source: u32,
    /// The first row.
    pub(crate) start: u32,
    /// Output rows.
    pub(crate) len: u32,
    /// 1 for neighbouring rows, 0 for the row `start` over and over.
    pub(crate) step: u32,
}

/// Of no rows.
impl Default for Run {
    fn default() -> Self {
        Self { source: Self::NULLS, start: 0, len: 0, step: 0 }
    }
}

impl Run {
    /// The source of rows that are null in every column.
    pub(crate) const NULLS: u32 = u32::MAX;

    pub(crate) fn is_nulls(&self) -> bool {
        self.source == Self::NULLS
    }

    /// The row that would make it longer, and its source: of [`NULLS`](Self::NULLS) if none would.
    const fn next(&self) -> (u32, u32) {
        if self.step == 1 { (self.source, self.start + self.len) } else { (Self::NULLS, 0) }
    }

    /// Whether it is one row over and over.
    fn is_repeat(&self) -> bool {
        self.step == 0 && !self.is_nulls()
    }

    /// Leaves its first `len` rows out; returns whether none is left.
    pub(crate) fn skip(&mut self, len: u32) -> bool {
        self.start += self.step * len;
        self.len -= len;
        self.len == 0
    }

    /// How many contiguous pieces the run is copied in.
    pub(crate) fn pieces(&self) -> usize {
        if self.is_repeat() { self.len as usize } else { 1 }
    }
}

/// A queue of output rows, stored as runs.
///
/// One entry takes 16 bytes, whatever its length: rows that arrive in order
/// over one source take no memory at all.
#[derive(Debug)]
pub(crate) struct RunList {
    /// Oldest first.
    runs: VecDeque<Run>,
    /// The run behind those, which may grow; of no rows if there is none.
    last: Run,
    /// Its [next](Run::next) row, which is compared with each that comes.
    next: (u32, u32),
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

impl Default for RunList {
    fn default() -> Self {
        let (runs, last) = (VecDeque::new(), Run::default());
        Self { runs, last, next: last.next(), repeats: 0, weighed: Weighed::default() }
    }
}

impl RunList {
    /// Appends `len` rows of `source` from `start` on.
    #[inline]
    pub(crate) fn push(&mut self, source: u32, start: u32, len: u32) {
        debug_assert!(len > 0, "a run has at least one row");
        if self.next == (source, start) {
            self.last.len += len;
            self.next.1 += len;
            return;
        }
        self.begin(Run { source, start, len, step: 1 });
    }

    /// Makes `run` the last one.
    #[inline]
    fn begin(&mut self, run: Run) {
        let before = std::mem::replace(&mut self.last, run);
        self.next = run.next();
        if before.len > 0 {
            self.runs.push_back(before);
        }
    }

    /// Appends the row `row` of `source` `times` times.
    #[inline]
    pub(crate) fn push_repeated(&mut self, source: u32, row: u32, times: u32) {
        if times == 1 {
            self.push(source, row, 1);
        } else {
            self.begin(Run { source, start: row, len: times, step: 0 });
            self.repeats += 1;
        }
    }

    /// Appends a row of nulls.
    pub(crate) fn push_null(&mut self) {
        if self.last.is_nulls() && self.last.len < u32::MAX {
            self.last.len += 1;
        } else {
            self.begin(Run { len: 1, ..Run::default() });
        }
    }

    /// Takes the first `rows` rows, splitting a run if need be.
    ///
    /// The list has at least as many rows.
    pub(crate) fn take(&mut self, rows: usize) -> Window {
        self.weighed = Weighed::default();
        self.begin(Run::default());
        let (mut whole, mut missing) = (0, rows);
        for run in &self.runs {
            if run.len as usize > missing {
                break;
            }
            missing -= run.len as usize;
            whole += 1;
        }
        // All at once: one at a time costs as much as all else that a run goes through.
        let runs: Vec<Run> = self.runs.drain(..whole).collect();
        if self.repeats > 0 {
            self.repeats -= runs.iter().filter(|run| run.is_repeat()).count();
        }
        let mut window = Window { runs, rows, open_repeat: false };
        if missing > 0
            && let Some(first) = self.runs.front_mut()
            && let Ok(len) = u32::try_from(missing)
        {
            window.runs.push(Run { len, ..*first });
            first.skip(len);
            window.open_repeat = first.step == 0;
            missing = 0;
        }
        debug_assert!(missing == 0, "{missing} of {rows} rows are not in the list");
        self.last = self.runs.pop_back().unwrap_or_default();
        self.next = self.last.next();
        window
    }

    /// Whether a row is in the list several times.
    pub(crate) fn has_repeats(&self) -> bool {
        self.repeats > 0
    }

    /// The runs of the list, first to last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Run> {
        (0..).map_while(|index| self.run(index))
    }

    fn run(&self, index: usize) -> Option<Run> {
        let is_last = index == self.runs.len() && self.last.len > 0;
        if is_last { Some(self.last) } else { self.runs.get(index).copied() }
    }

    /// Returns about how many bytes all rows take, by the bytes of a row of each source.
    ///
    /// Looks only at what came since it was asked last.
    pub(crate) fn weigh(&mut self, bytes_per_row: impl Fn(u32) -> usize) -> usize {
        while let Some(run) = self.run(self.weighed.run) {
            let is_last = self.weighed.run == self.runs.len();
            let weighed = &mut self.weighed;
            if !run.is_nulls() {
                let rows = (run.len - weighed.rows) as usize;
                weighed.bytes = weighed.bytes.saturating_add(rows * bytes_per_row(run.source));
            }
            if is_last {
                // It may still grow.
                weighed.rows = run.len;
                break;
            }
            (weighed.run, weighed.rows) = (weighed.run + 1, 0);
        }
        self.weighed.bytes
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
    /// Calls `look` with each row: its source, its place there, how often it is in the window, and
    /// whether it ends here.
    pub(crate) fn each_row(&self, mut look: impl FnMut(u32, u32, u32, bool)) {
        let ends = self.runs.len() - usize::from(self.open_repeat);
        for (index, run) in self.runs.iter().enumerate() {
            if run.step == 0 {
                look(run.source, run.start, run.len, index < ends);
            } else {
                (run.start..run.start + run.len).for_each(|row| look(run.source, row, 1, true));
            }
        }
    }

    /// Calls `release` with each source, and the rows of it that end here.
    ///
    /// A repeated row ends with its last repetition. Runs of one source that are neighbours are told
    /// of together, wherever in it they are.
    pub(crate) fn release_rows(&self, mut release: impl FnMut(u32, RowSum)) {
        let ends = self.runs.len() - usize::from(self.open_repeat);
        let (mut source, mut ended) = (Run::NULLS, RowSum::default());
        for run in self.runs[..ends].iter().filter(|run| !run.is_nulls()) {
            if run.source != source {
                if ended.rows > 0 {
                    release(source, ended);
                }
                (source, ended) = (run.source, RowSum::default());
            }
            ended.add(RowSum::run(run.start, if run.step == 0 { 1 } else { run.len }));
        }
        if ended.rows > 0 {
            release(source, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(window: &Window) -> Vec<(u32, u32)> {
        let mut released = Vec::new();
        window.release_rows(|source, rows| released.push((source, rows.rows)));
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
        assert_eq!(released(&second), [(0, 2)]);
        assert_eq!(second.runs[0], Run { source: 0, start: 7, len: 1, step: 0 });
    }

    #[test]
    fn rows_are_released_together_with_those_of_their_source_beside_them() {
        let mut list = RunList::default();
        for (source, row, rows) in [(3, 7, 2), (3, 1, 1), (5, 0, 1), (3, 11, 3)] {
            list.push(source, row, rows);
        }
        list.push_null();
        list.push(3, 29, 1);

        let mut ended = Vec::new();
        list.take(9).release_rows(|source, rows| ended.push((source, rows.rows, rows.positions)));

        assert_eq!(ended, [(3, 3, 7 + 8 + 1), (5, 1, 0), (3, 4, 11 + 12 + 13 + 29)]);
    }

    #[test]
    fn each_row_is_looked_at_once_a_window_and_ends_with_its_last_repetition() {
        let mut list = RunList::default();
        list.push(5, 3, 2);
        list.push_repeated(2, 7, 3);
        list.push(2, 8, 1);
        let (first, second) = (list.take(4), list.take(2));

        let looked_at = |window: &Window| {
            let mut rows = Vec::new();
            window.each_row(|source, row, times, ends| rows.push((source, row, times, ends)));
            rows
        };
        assert_eq!(looked_at(&first), [(5, 3, 1, true), (5, 4, 1, true), (2, 7, 2, false)]);
        assert_eq!(looked_at(&second), [(2, 7, 1, true), (2, 8, 1, true)]);
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
