// SPDX-License-Identifier: Apache-2.0
//! What the journal of a simulated task was given.

use std::collections::BTreeMap;

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
    /// The rows, and when they are committed.
    rows: BTreeMap<i64, u64>,
}

impl Commits {
    /// Knows of none.
    pub fn new(plan: JournalPlan, seed: u64) -> Self {
        let random = Random(seed ^ 0x6A6F_7572);
        Self { plan, random, done_at: Vec::new(), rows: BTreeMap::new() }
    }

    /// Takes the rows of a commit, which comes behind those before it.
    pub fn append(&mut self, number: u64, rows: &[i64], now: u64) -> Checked {
        let last = self.done_at.last().copied().unwrap_or_default();
        let done_at = last.max(now + self.random.next() % self.plan.latency);
        self.done_at.push(done_at);
        if self.done_at.len() as u64 != number {
            return Err(Broken::new("commits are numbered", format!("{number}")));
        }
        if let Some(row) = rows.iter().find(|row| self.rows.contains_key(row)) {
            return Err(Broken::new("each row is entered once", format!("row {row}")));
        }
        self.rows.extend(rows.iter().map(|row| (*row, done_at)));
        Ok(())
    }

    /// How many commits are done.
    pub fn done(&self, now: u64) -> u64 {
        self.done_at.iter().take_while(|it| **it <= now).count() as u64
    }

    /// Whether all of them are.
    pub fn are_done(&self, now: u64) -> bool {
        self.done_at.iter().all(|it| *it <= now)
    }

    /// When a row is committed, if it was entered.
    pub fn committed_at(&self, row: i64) -> Option<u64> {
        self.rows.get(&row).copied()
    }

    /// How many rows were entered.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }
}
