// SPDX-License-Identifier: Apache-2.0
//! A journal whose commits take their time, and may fail.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use arrow::array::RecordBatch;
use sparkawait_task::error::TaskError;
use sparkawait_task::journal::{Journal, JournalConfig};

use super::{Shared, World};
use crate::columns::cells;
use crate::known::{KnownRows, entries};
use crate::scenario::JournalPlan;
use crate::trace::Path;

/// What a failed commit says.
pub const FAILED: &str = "the journal fails";

/// The way of a task to its journal.
#[derive(Debug)]
struct Written(Shared);

impl Journal for Written {
    fn append(&self, number: u64, commit: RecordBatch) {
        let rows = entries(&commit);
        let mut world = self.0.world();
        let now = world.now;
        let checked = rows.iter().try_for_each(|(row, entry)| world.model.entered(*row, entry));
        world.breaks(checked);
        let seen = world.journal.as_mut().map_or(Ok(()), |it| it.append(number, rows, now));
        world.breaks(seen);
    }

    fn committed(&self) -> Result<u64, TaskError> {
        let mut world = self.0.world();
        let now = world.now;
        let Some(commits) = &mut world.journal else { return Ok(0) };
        if !commits.has_failed(now) {
            return Ok(commits.done(now));
        }
        commits.has_told_failure = true;
        world.model.is_ending = true;
        Err(TaskError::Internal(FAILED.to_owned()))
    }

    /// Its thread is the world's, which knows when a commit ends.
    fn connect(&self, _waker: Waker) {}
}

/// Returns what a task is told of the journal of its scenario.
pub fn config(shared: &Shared, plan: JournalPlan) -> JournalConfig {
    JournalConfig {
        journal: Arc::new(Written(shared.clone())),
        interval: Duration::from_nanos(plan.interval),
        max_bytes: plan.max_bytes,
        keeps_input: plan.keeps_input,
    }
}

impl World {
    /// Rows are handed over; some of them are known.
    pub(super) fn note_known(&mut self, first: usize, count: usize) {
        let Some(commits) = &self.journal else { return };
        let first = i64::try_from(first).unwrap_or_default();
        let known = (first..).take(count).filter_map(|row| {
            let (key, channel, cost, _) = cells(&self.scenario, row);
            let (cost, values) = (cost.cast_unsigned(), Vec::new());
            Some((Path { row, key, channel, cost, values }, commits.known().get(&row)?.clone()))
        });
        self.model.knows(known.collect::<Vec<_>>().into_iter(), self.now);
    }

    /// What the run that follows finds in the journal.
    pub fn left_in_journal(&self) -> KnownRows {
        self.journal.as_ref().map(|it| it.left(self.now)).unwrap_or_default()
    }

    /// A row is in the output: what it came to is committed. What a function answers to a timeout is not
    /// entered.
    pub fn check_committed(&mut self, row: i64) {
        let Some(commits) = &self.journal else { return };
        let committed = commits.is_committed(row, self.now);
        let is_asked = self.model.sites.iter().any(|it| it.plan.asks_on_timeout);
        if committed.unwrap_or(is_asked || commits.known().contains_key(&row)) {
            return;
        }
        let what = format!("row {row} at {}, which is committed: {committed:?}", self.now);
        self.fail("a row leaves when it is committed", what);
    }

    /// The task waits: what it has had for so long as a commit waits for others is in one, whatever its
    /// turn is.
    pub(super) fn check_due_commits(&mut self) {
        let (Some(commits), false) = (&mut self.journal, self.model.is_ending) else { return };
        let now = self.now;
        let late = self.model.completed_rows().find(|row| commits.completed(*row, now));
        if let Some(row) = late {
            self.fail("what is completed is committed when that is due", format!("row {row}"));
        }
    }

    /// A task has ended, however that was: it has entered what it had.
    pub fn check_kept_back(&mut self) {
        let Some(commits) = &self.journal else { return };
        let completed: Vec<i64> = self.model.completed_rows().collect();
        let kept_back = commits.kept_back().find(|row| completed.contains(row));
        if let Some(row) = kept_back {
            self.fail("what is completed is committed at the end", format!("row {row}"));
        }
    }

    /// A task has ended by itself: each of its rows is in its journal.
    pub fn check_entered(&mut self) {
        let Some(commits) = &self.journal else { return };
        let is_asked = self.model.sites.iter().any(|it| it.plan.asks_on_timeout);
        let entered = commits.rows() + self.model.known.len();
        let (is_done, fed) = (commits.are_done(self.now), self.model.fed.len());
        if entered > fed || entered < fed && !is_asked || !is_done {
            let what = format!("{entered} rows of {fed}, all of them committed: {is_done}");
            self.fail("each row is in the journal", what);
        }
    }
}
