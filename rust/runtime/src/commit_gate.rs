// SPDX-License-Identifier: Apache-2.0
//! Rows of the output that leave only when what they came to is kept elsewhere.
//!
//! ```text
//!   output:  [ may leave | in commit 7, which is under way | in commit 8, which is being filled ]
//!             ^ left      ^ released                                                            ^
//! ```
//!
//! They wait in the output, so that they hold neither a permit nor a slot, and their bytes count
//! as those of all rows that are held.

use std::collections::VecDeque;

use sparkawait_core::time::ProcessingTime;

/// How much a commit is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It may wait for others to join, as long as the journal says.
    None,
    /// It begins as soon as none is under way: nothing goes on without it.
    Pressed,
    /// It is handed over in any case: nothing follows.
    Last,
}

/// How far the commits of a journal are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// The number of the last one that is done, with all before it.
    pub done: u64,
    /// When the next one begins; `None`: there is nothing for it, or one is under way.
    pub due: Option<ProcessingTime>,
}

/// Rows that wait for a commit.
#[derive(Debug)]
struct Mark {
    /// How many rows there are until the last of them, from the first row of all.
    rows: u64,
    commit: u64,
}

/// Knows which rows of an output may leave.
#[derive(Debug, Default)]
pub(crate) struct CommitGate {
    /// Rows that have left.
    left: u64,
    /// Rows that may have left.
    released: u64,
    /// Those that may not, by the commit that they wait for.
    marks: VecDeque<Mark>,
    commits: Commits,
}

impl CommitGate {
    /// Notes that the output has `rows` rows now. Those that are new wait for `commit`.
    pub(crate) fn emitted(&mut self, rows: usize, commit: u64) {
        let rows = self.left + rows as u64;
        let known = self.marks.back().map_or(self.released, |last| last.rows);
        if rows == known {
            return;
        }
        if commit <= self.commits.done {
            self.released = rows;
            return;
        }
        match self.marks.back_mut() {
            Some(last) if last.commit == commit => last.rows = rows,
            _ => self.marks.push_back(Mark { rows, commit }),
        }
    }

    /// Notes how far the commits are.
    pub(crate) fn note(&mut self, commits: Commits) {
        self.commits = commits;
        while let Some(mark) = self.marks.front().filter(|it| it.commit <= commits.done) {
            self.released = mark.rows;
            self.marks.pop_front();
        }
    }

    /// Notes that rows have left.
    pub(crate) fn left(&mut self, rows: usize) {
        self.left += rows as u64;
    }

    /// Returns how many rows of the output may leave.
    pub(crate) fn open_rows(&self) -> usize {
        usize::try_from(self.released - self.left).unwrap_or(usize::MAX)
    }

    /// Returns whether rows wait for a commit.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Returns the number of the last commit that is done.
    pub(crate) const fn done(&self) -> u64 {
        self.commits.done
    }

    /// Returns when the next commit begins.
    pub(crate) const fn due(&self) -> Option<ProcessingTime> {
        self.commits.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(done: u64) -> Commits {
        Commits { done, due: None }
    }

    #[test]
    fn rows_leave_when_the_commit_is_done_that_they_are_in() {
        let mut gate = CommitGate::default();

        gate.emitted(7, 1);
        gate.emitted(13, 1);
        gate.emitted(20, 2);
        assert_eq!((gate.open_rows(), gate.is_waiting()), (0, true));

        gate.note(done(1));
        assert_eq!((gate.open_rows(), gate.is_waiting()), (13, true));

        gate.left(5);
        gate.emitted(18, 2);
        assert_eq!(gate.open_rows(), 8);

        gate.note(done(2));
        assert_eq!((gate.open_rows(), gate.is_waiting()), (23 - 5, false));
    }

    #[test]
    fn what_is_kept_already_leaves_at_once_unless_others_wait_before_it() {
        let mut gate = CommitGate::default();
        gate.note(done(3));

        gate.emitted(11, 3);
        assert_eq!(gate.open_rows(), 11);

        gate.emitted(12, 4);
        gate.emitted(17, 4);
        gate.note(done(3));
        assert_eq!(gate.open_rows(), 11);
    }
}
