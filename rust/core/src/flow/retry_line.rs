// SPDX-License-Identifier: Apache-2.0
//! Records whose next attempt waits for a token of a retry budget.

use std::collections::VecDeque;

use crate::policy::{CallSign, RetryBudget};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// The retry budget of a channel, and the records that wait for it, first come first served.
#[derive(Debug)]
pub(super) struct RetryLine {
    budget: RetryBudget,
    waiting: VecDeque<EntryId>,
    /// When to look at it.
    pub(super) wakes_at: Option<ProcessingTime>,
}

impl RetryLine {
    pub(super) const fn new(budget: RetryBudget) -> Self {
        Self { budget, waiting: VecDeque::new(), wakes_at: None }
    }

    /// Notes the end of a try with this number: a first one earns a part of a retry, another one that
    /// was answered gives back what it cost.
    pub(super) fn earn(&mut self, number: u32, sign: CallSign, now: ProcessingTime) {
        if number == 1 && sign != CallSign::NotCalled {
            self.budget.on_first_attempt(now);
        } else if number > 1 && sign.is_answer() {
            self.budget.on_answered_retry(now);
        }
    }

    /// Notes first attempts that ended while nobody counted.
    pub(super) fn earn_earlier(&mut self, count: u64, now: ProcessingTime) {
        self.budget.on_earlier_attempts(count, now);
    }

    /// Takes a token for the next attempt of a record, which waits in the line otherwise.
    pub(super) fn take_or_wait(&mut self, entry: EntryId, now: ProcessingTime) -> bool {
        let has_token = self.waiting.is_empty() && self.budget.try_retry(now);
        if !has_token {
            self.waiting.push_back(entry);
        }
        has_token
    }

    /// Returns how many records wait; those that wait no longer are removed lazily.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Removes the record that a token is there for, which is spent.
    pub(super) fn next(
        &mut self,
        now: ProcessingTime,
        waits: &mut impl FnMut(EntryId) -> bool,
    ) -> Option<EntryId> {
        while self.waiting.front().is_some_and(|entry| !waits(*entry)) {
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() || !self.budget.try_retry(now) {
            return None;
        }
        self.waiting.pop_front()
    }

    /// Sets when to look at it, and returns that if it is news.
    pub(super) fn schedule(&mut self, now: ProcessingTime) -> Option<ProcessingTime> {
        let at = (!self.waiting.is_empty()).then(|| self.budget.ready_at(now));
        let at = at.filter(|it| *it != ProcessingTime::NEVER);
        if self.wakes_at == at {
            return None;
        }
        self.wakes_at = at;
        at
    }
}
