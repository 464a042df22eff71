// SPDX-License-Identifier: Apache-2.0
//! What the journal of a simulated task was given.

use std::collections::BTreeMap;

use crate::known::{KnownRow, KnownRows};
use crate::random::Random;
use crate::scenario::JournalPlan;
use crate::trace::{Broken, Checked};

/// What the journal of a task was given.
#[derive(Debug)]
pub struct Commits {
    plan: JournalPlan,
    random: Random,
    /// When each commit is done.
    done_at: Vec<u64>,
    /// The rows, with the number of their commit.
    rows: BTreeMap<i64, (u64, KnownRow)>,
    /// When the task was first seen to have the results of rows.
    completed: BTreeMap<i64, u64>,
    /// Rows that are known before.
    known: KnownRows,
    /// Whether the task was told that a commit has failed.
    pub has_told_failure: bool,
}

impl Commits {
    /// Knows of none.
    pub fn new(plan: JournalPlan, seed: u64, known: KnownRows) -> Self {
        let random = Random(seed ^ 0x6A6F_7572);
        let (done_at, rows, completed) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { plan, random, done_at, rows, completed, known, has_told_failure: false }
    }

    /// What is known of some rows.
    pub const fn known(&self) -> &KnownRows {
        &self.known
    }

    /// Takes the rows of a commit, which comes behind those before it.
    pub fn append(&mut self, number: u64, rows: Vec<(i64, KnownRow)>, now: u64) -> Checked {
        let last = self.done_at.last().copied().unwrap_or_default();
        let done_at = last.max(now + self.random.next() % self.plan.latency);
        self.done_at.push(done_at);
        if self.done_at.len() as u64 != number {
            return Err(Broken::new("commits are numbered", format!("{number}")));
        }
        for (row, entry) in rows {
            if self.rows.insert(row, (number, entry)).is_some() {
                return Err(Broken::new("each row is entered once", format!("row {row}")));
            }
        }
        Ok(())
    }

    /// How many commits are done; none behind one that fails.
    pub fn done(&self, now: u64) -> u64 {
        let done = self.done_at.iter().take_while(|it| **it <= now).count() as u64;
        self.plan.fails.map_or(done, |it| done.min(it - 1))
    }

    /// Whether one has failed.
    pub fn has_failed(&self, now: u64) -> bool {
        let failed = self.plan.fails.and_then(|it| self.done_at.get(usize::try_from(it).ok()? - 1));
        failed.is_some_and(|it| *it <= now)
    }

    /// When the next one is done, or has failed.
    pub fn next_end(&self, now: u64) -> Option<u64> {
        self.done_at.iter().copied().find(|it| *it > now)
    }

    /// Whether all of them are done.
    pub fn are_done(&self, now: u64) -> bool {
        self.done(now) == self.done_at.len() as u64
    }

    /// Notes that the task has the results of a row; returns whether it keeps them to itself for longer than
    /// it may.
    pub fn completed(&mut self, row: i64, now: u64) -> bool {
        let since = *self.completed.entry(row).or_insert(now);
        let is_due = self.are_done(now) && since + self.plan.interval <= now;
        is_due && !self.rows.contains_key(&row)
    }

    /// The rows whose results the task had, and did not enter; none where a commit has failed.
    pub fn kept_back(&self) -> impl Iterator<Item = i64> {
        let rows = self.completed.keys().filter(|_| !self.has_told_failure);
        rows.copied().filter(|row| !self.rows.contains_key(row))
    }

    /// Whether a row is committed, if it was entered.
    pub fn is_committed(&self, row: i64, now: u64) -> Option<bool> {
        self.rows.get(&row).map(|it| it.0 <= self.done(now))
    }

    /// How many rows were entered.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// What the next run finds. What was under way when this one ended is there or is not, as it was
    /// handed over.
    pub fn left(&self, now: u64) -> KnownRows {
        let done = self.done(now);
        let all = self.plan.fails.map_or(u64::MAX, |it| it - 1).min(self.done_at.len() as u64);
        let kept = done + Random(now ^ self.random.0).next() % (all - done + 1);
        let is_kept = |entry: &KnownRow| self.plan.keeps_failures || entry.came.is_ok();
        let rows =
            self.rows.iter().filter(|(_, (commit, entry))| *commit <= kept && is_kept(entry));
        let rows = rows.map(|(row, (_, entry))| (*row, entry.clone()));
        self.known.iter().map(|(row, entry)| (*row, entry.clone())).chain(rows).collect()
    }
}
