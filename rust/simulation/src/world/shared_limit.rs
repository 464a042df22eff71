// SPDX-License-Identifier: Apache-2.0
//! A limit that others take from, too.

use std::collections::BTreeMap;

use sparkawait_core::policy::Gcra;
use sparkawait_core::time::ProcessingTime;

use crate::random::Random;
use crate::scenario::{LimitPlan, OthersPlan};

/// How far ahead permits are booked.
const HORIZON: u64 = 100_000_000;

/// Calls that others make in all.
const MOST_CALLS: u32 = 300;

/// Names the limit of a function, or of one of its channels as the task numbers them.
pub(super) type Place = (usize, Option<u64>);

/// A limit, and who else takes from it.
#[derive(Debug)]
pub(super) struct SharedLimit {
    pub(super) gcra: Gcra,
    plan: OthersPlan,
    /// Nanoseconds between two of their calls, on average.
    gap: u64,
    pub(super) word: ProcessingTime,
    random: Random,
    next_at: u64,
    calls: u32,
    /// When others make calls.
    pub(super) used: BTreeMap<u64, u64>,
}

impl SharedLimit {
    pub(super) fn new(limit: &LimitPlan, plan: OthersPlan, seed: u64, now: u64) -> Self {
        let gap = plan.cost * limit.period * 10 / (limit.permits * plan.share);
        Self {
            gcra: limit.gcra(),
            plan,
            gap: gap.max(1),
            word: ProcessingTime::ZERO,
            random: Random(seed),
            next_at: now,
            calls: 0,
            used: BTreeMap::new(),
        }
    }

    /// Takes permits, to be used at the time that is returned, if that is not too far ahead.
    pub(super) fn reserve(&mut self, cost: u64, now: u64) -> Result<u64, u64> {
        let begins = self.gcra.ready_at(self.word, 0).as_nanos();
        if begins > now + HORIZON {
            return Err(begins - HORIZON);
        }
        let (at, before) = (ProcessingTime::from_nanos(now), self.word);
        self.word = self.gcra.take(before, cost, at);
        Ok(self.gcra.ready_at(before, cost).max(at).as_nanos())
    }

    /// Lets the others do what they have done by now.
    pub(super) fn others(&mut self, now: u64) {
        while self.next_at <= now && self.calls < MOST_CALLS {
            let (at, cost) = (self.next_at, self.plan.cost);
            if let Ok(ready) = self.reserve(cost, at) {
                if self.random.in_a_hundred(self.plan.gives_back) {
                    self.word = self.gcra.settle(self.word, cost, 0);
                } else {
                    *self.used.entry(ready).or_default() += 1;
                }
            }
            self.calls += 1;
            self.next_at = at + 1 + self.random.next() % (2 * self.gap);
        }
    }
}
