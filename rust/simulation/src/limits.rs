// SPDX-License-Identifier: Apache-2.0
//! A rate limit, as the service counts it: exactly, in whole numbers.

use std::collections::BTreeMap;

use crate::scenario::LimitPlan;

/// A bucket whose unit is a permit over the nanoseconds of a period, so that nothing is rounded.
#[derive(Clone, Debug)]
pub struct Bucket {
    permits: i128,
    period: i128,
    burst: i128,
    level: i128,
    /// What was given back or is owed of late: nobody knows whether the task has seen it. Its
    /// level may be so much higher, or have been lower and rise again.
    unsettled: i128,
    at: u64,
}

impl Bucket {
    /// Makes a full one.
    pub fn new(permits: u64, period: u64, burst: u64) -> Self {
        let (permits, period, burst) = (permits.into(), period.into(), i128::from(burst));
        Self { permits, period, burst, level: burst * period, unsettled: 0, at: 0 }
    }

    fn fill(&mut self, now: u64) {
        let most = self.burst * self.period + self.unsettled;
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

    /// Gives permits back. They are above the burst until the task has seen it at the latest.
    pub fn give_back(&mut self, cost: u64) {
        let given = i128::from(cost) * self.period;
        self.level += given;
        self.unsettled += given;
    }

    /// A call has cost more than it was charged, and will [owe](Self::owe) it.
    pub fn will_owe(&mut self, cost: u64) {
        self.unsettled += i128::from(cost) * self.period;
    }

    /// Takes what a call has cost more than it was charged: as if it had been charged at its start,
    /// so what came since and would have been above the burst pays for it, up to the next call.
    pub fn owe(&mut self, cost: u64) {
        self.level -= i128::from(cost) * self.period;
    }

    /// The task has seen what was given back.
    pub fn have_settled(&mut self) {
        self.unsettled = 0;
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

/// What a call has cost a limit.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// The number of the limit.
    pub limit: usize,
    /// Of the row.
    pub channel: Option<i64>,
    /// At its start.
    pub charged: u64,
    /// As its reply says.
    pub cost: u64,
}

/// What a service says is left of its limit.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// When the call started whose reply says so.
    pub started: u64,
    /// So much may be asked for ..
    pub left: u64,
    /// .. until then.
    pub until: u64,
}

/// The limits of a function, by the channel of those that have one for each.
#[derive(Clone, Debug)]
pub struct Limits {
    plans: Vec<LimitPlan>,
    buckets: BTreeMap<(usize, Option<i64>), Bucket>,
    /// What is known to be left.
    left: BTreeMap<(usize, Option<i64>), Left>,
}

impl Limits {
    /// Makes full ones.
    pub fn new(plans: &[LimitPlan]) -> Self {
        Self { plans: plans.to_vec(), buckets: BTreeMap::new(), left: BTreeMap::new() }
    }

    /// Gives back what a call was charged.
    pub fn give_back(&mut self, row_cost: u64, channel: Option<i64>) {
        for (index, plan) in self.plans.iter().enumerate() {
            let place = (index, channel.filter(|_| plan.is_per_channel));
            if let Some(bucket) = self.buckets.get_mut(&place) {
                bucket.give_back(plan.charge(row_cost));
            }
            if let Some(told) = self.left.get_mut(&place) {
                told.left += plan.charge(row_cost);
            }
        }
    }

    /// A reply says what its call has cost. What that is less is there again as soon as the task
    /// sees it; what it is more is returned, and owed once the task has seen it for sure.
    pub fn settle(&mut self, settled: &Settled) -> Option<Settled> {
        let Settled { limit, channel, charged, cost } = *settled;
        let plan = self.plans.get(limit)?;
        let cost = cost.min(plan.most_cost());
        let place = (limit, channel.filter(|_| plan.is_per_channel));
        let bucket = self.buckets.get_mut(&place)?;
        if let Some(told) = self.left.get_mut(&place) {
            told.left += charged.saturating_sub(cost);
        }
        bucket.give_back(charged.saturating_sub(cost));
        bucket.will_owe(cost.saturating_sub(charged));
        (plan.is_settled && cost > charged).then_some(Settled { cost, ..*settled })
    }

    /// The task knows what a service says is left, unless a later call has said so before.
    pub fn learn(&mut self, channel: Option<i64>, is_of_channel: bool, news: Left) {
        let is_told = |it: &(usize, &LimitPlan)| it.1.is_told;
        for (index, plan) in self.plans.iter().enumerate().filter(is_told) {
            if is_of_channel && !plan.is_per_channel {
                continue;
            }
            let place = (index, channel.filter(|_| plan.is_per_channel));
            let known = self.left.entry(place).or_insert(news);
            if news.started >= known.started {
                *known = news;
            }
        }
    }

    /// A call has cost more than it was charged.
    pub fn owe(&mut self, settled: &Settled) {
        let Settled { limit, channel, charged, cost } = *settled;
        let place = (limit, channel.filter(|_| self.plans[limit].is_per_channel));
        if let Some(bucket) = self.buckets.get_mut(&place) {
            bucket.owe(cost - charged);
        }
    }

    /// The task has seen all replies.
    pub fn have_settled(&mut self) {
        self.buckets.values_mut().for_each(Bucket::have_settled);
    }

    /// Takes what a call costs; returns the number of a limit that is not kept.
    pub fn take(&mut self, row_cost: u64, channel: Option<i64>, now: u64) -> Option<usize> {
        let mut broken = None;
        for (index, plan) in self.plans.iter().enumerate() {
            let place = (index, channel.filter(|_| plan.is_per_channel));
            let bucket = self.buckets.entry(place);
            let bucket =
                bucket.or_insert_with(|| Bucket::new(plan.permits, plan.period, plan.burst));
            let cost = plan.charge(row_cost);
            if !bucket.take(cost, now) {
                broken = Some(index);
            }
            if let Some(told) = self.left.get_mut(&place).filter(|it| now < it.until && cost > 0) {
                broken = if told.left < cost { Some(index) } else { broken };
                told.left = told.left.saturating_sub(cost);
            }
        }
        broken
    }
}
