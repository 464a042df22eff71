// SPDX-License-Identifier: Apache-2.0
//! A limit in time, as whoever is called counts it: exactly, in whole numbers.

use std::collections::BTreeMap;

use crate::scenario::LimitPlan;

/// A bucket whose unit is a permit over the nanoseconds of a period, so that nothing is rounded.
#[derive(Clone, Debug)]
pub struct Bucket {
    permits: i128,
    period: i128,
    burst: i128,
    level: i128,
    at: u64,
}

impl Bucket {
    /// Makes a full one.
    pub fn new(permits: u64, period: u64, burst: u64) -> Self {
        let (permits, period, burst) = (permits.into(), period.into(), i128::from(burst));
        Self { permits, period, burst, level: burst * period, at: 0 }
    }

    fn fill(&mut self, now: u64) {
        let most = self.burst * self.period;
        let came = i128::from(now - self.at) * self.permits;
        self.level = most.min(self.level + came);
        self.at = now;
    }

    /// Takes permits; returns false if a limit that is kept would not have let that happen. What
    /// costs more than the burst waits for all of it, and the rest is owed.
    pub fn take(&mut self, cost: u64, now: u64) -> bool {
        self.fill(now);
        let is_kept = self.level >= i128::from(cost).min(self.burst) * self.period;
        self.level -= i128::from(cost) * self.period;
        is_kept || cost == 0
    }

    /// Takes permits if they are there.
    pub fn try_take(&mut self, now: u64) -> bool {
        self.fill(now);
        let is_there = self.level >= self.period;
        if is_there {
            self.level -= self.period;
        }
        is_there
    }
}

/// The limits of a function, by the channel of those that have one for each.
#[derive(Clone, Debug)]
pub struct Limits {
    plans: Vec<LimitPlan>,
    buckets: BTreeMap<(usize, Option<i64>), Bucket>,
}

impl Limits {
    /// Makes full ones.
    pub fn new(plans: &[LimitPlan]) -> Self {
        Self { plans: plans.to_vec(), buckets: BTreeMap::new() }
    }

    /// Takes what a call costs; returns the number of a limit that is not kept.
    pub fn take(&mut self, row_cost: u64, channel: Option<i64>, now: u64) -> Option<usize> {
        let mut broken = None;
        for (index, plan) in self.plans.iter().enumerate() {
            let place = (index, channel.filter(|_| plan.is_per_channel));
            let bucket = self.buckets.entry(place);
            let bucket =
                bucket.or_insert_with(|| Bucket::new(plan.permits, plan.period, plan.burst));
            let cost = if plan.is_of_rows { row_cost } else { plan.cost };
            if !bucket.take(cost, now) {
                broken = Some(index);
            }
        }
        broken
    }
}
