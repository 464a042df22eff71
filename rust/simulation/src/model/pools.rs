// SPDX-License-Identifier: Apache-2.0
//! Permits that no time brings, as calls take them.

use std::collections::BTreeMap;

use sparkawait_core::operator::AttemptId;

use crate::scenario::{PoolPlan, PoolUse, Scenario};
use crate::trace::{Broken, Checked};

use super::site::{Flying, Site};

/// A pool, of one function or of all.
type Place = (usize, Option<usize>);

/// What calls have taken of budgets.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    plans: Vec<PoolPlan>,
    taken: BTreeMap<Place, u64>,
}

impl Pools {
    /// Nothing was taken.
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { plans: scenario.pools.clone(), taken: BTreeMap::new() }
    }

    fn place(&self, site: usize, pool: usize) -> Place {
        (pool, Some(site).filter(|_| !self.plans[pool].is_shared))
    }

    fn left(&self, site: usize, pool: usize) -> u64 {
        let taken = self.taken.get(&self.place(site, pool)).copied().unwrap_or_default();
        self.plans[pool].permits.saturating_sub(taken)
    }

    fn budgets(&self, of: &Site) -> impl Iterator<Item = PoolUse> {
        of.plan.pools.iter().filter(|it| !self.plans[it.pool].comes_back).copied()
    }

    /// A call of a function was made that takes from pools.
    pub(super) fn take(
        &mut self,
        sites: &mut [Site],
        site: usize,
        row_cost: u64,
        now: u64,
    ) -> Checked {
        for taken in sites[site].plan.pools.clone() {
            let (pool, plan) = (taken.pool, self.plans[taken.pool]);
            let place = self.place(site, pool);
            let in_all = if plan.comes_back {
                let of_pool = |it: &(usize, &Site)| self.place(it.0, pool) == place;
                let sites = sites.iter().enumerate().filter(of_pool);
                sites.map(|(_, it)| it.held_of(pool, plan.permits, now)).sum()
            } else {
                let in_all = self.taken.entry(place).or_default();
                *in_all += taken.charge(row_cost);
                *in_all
            };
            if in_all > plan.permits {
                let what = format!("{in_all} of {} of pool {pool} at {now}", plan.permits);
                return Err(Broken::new("no more permits than there are", what));
            }
        }
        self.note_spent(sites);
        Ok(())
    }

    /// A call has cost nothing.
    pub(super) fn give_back(&mut self, sites: &[Site], site: usize, row_cost: u64) {
        for given in self.budgets(&sites[site]).collect::<Vec<_>>() {
            let place = self.place(site, given.pool);
            if let Some(taken) = self.taken.get_mut(&place) {
                *taken -= given.charge(row_cost);
            }
        }
    }

    /// Notes which functions may have rows that a budget has too little for: from then on some may be
    /// refused. Calls that nobody has seen may have cost something, too.
    pub(super) fn note_spent(&self, sites: &mut [Site]) {
        for (site, here) in sites.iter_mut().enumerate() {
            let dearest = |it: &PoolUse| if it.is_of_rows { 7 } else { it.cost };
            let is_spent =
                |it: PoolUse| !here.plan.is_answered() || self.left(site, it.pool) < dearest(&it);
            let may_be_spent = self.budgets(here).any(is_spent);
            here.may_be_spent |= may_be_spent;
        }
    }

    /// Whether the budgets of a function have what a row costs: then it was refused in vain.
    pub(super) fn have_enough(&self, sites: &[Site], site: usize, row_cost: u64) -> bool {
        let has_all = |it: PoolUse| self.left(site, it.pool) >= it.charge(row_cost);
        // What calls have cost is known where each ends with an answer.
        let shares = |it: PoolUse| {
            let place = self.place(site, it.pool);
            let of_pool = |other: usize| self.place(other, it.pool) == place;
            let sites = sites.iter().enumerate().filter(|it| of_pool(it.0));
            sites.map(|it| it.1).all(|it| it.plan.is_answered())
        };
        self.budgets(&sites[site]).all(|it| shares(it) && has_all(it))
    }
}

impl Site {
    /// What the row of a call costs.
    pub fn cost_of(&self, attempt: AttemptId) -> u64 {
        let row = self.flying.get(&attempt).and_then(|it| self.rows.get(&it.id));
        row.map_or(0, |it| it.cost)
    }

    /// Whether all permits of `max_concurrency` are in use, by calls that nothing ends now but an answer.
    pub fn has_no_permit(&self, now: u64) -> bool {
        let flying = self.flying.values().filter(|it| !self.may_end(it, now)).count();
        flying >= self.plan.max_concurrency
    }

    /// Whether a call may end now without an answer.
    pub(super) fn may_end(&self, call: &Flying, now: u64) -> bool {
        let of_attempt = self.plan.attempt_timeout.zip(call.begun);
        let is_over = of_attempt.is_some_and(|(it, begun)| begun + it <= now);
        let row = self.rows.get(&call.id);
        call.is_doomed || is_over || row.is_none_or(|it| self.has_passed(it, now))
    }

    /// The permits of a pool that its calls hold, of those that nothing ends now but an answer.
    fn held_of(&self, pool: usize, permits: u64, now: u64) -> u64 {
        let Some(taken) = self.plan.pools.iter().find(|it| it.pool == pool) else { return 0 };
        let flying = self.flying.values().filter(|it| !self.may_end(it, now));
        let costs = flying.filter_map(|it| Some(taken.charge(self.rows.get(&it.id)?.cost)));
        costs.map(|it| it.min(permits)).sum()
    }
}
