// SPDX-License-Identifier: Apache-2.0
//! What replies say beside what their calls came to.

use std::time::Duration;

use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::{Counted, LimitLeft, Renewal};
use sparkawait_task::function::{SettledCall, ToldLimit};

use super::World;
use crate::random::Random;
use crate::scenario::LimitPlan;
use crate::trace::{Asks, Said, What, choice};

impl World {
    /// Decides what is left of a limit, where the reply to a call says so.
    pub(super) fn tell(&mut self, site: usize, attempt: AttemptId) -> Option<ToldLimit> {
        let plan = self.model.sites[site].plan.limits.iter().find(|it| it.is_told)?;
        let (is_of_channel, most) = (plan.is_per_channel, plan.cost * 7 + 1);
        let seed = self.scenario.seed ^ self.next_answer ^ 0x746F_6C64;
        let random = &mut Random(choice(seed, site, self.now, attempt.attempt));
        let tells = random.in_a_hundred(25);
        let remaining = random.next() % most;
        let nanos = [999, 7_000_001, 97_000_000, 1_300_000_007][random.below(4)];
        let is_at_once = random.in_a_hundred(75);
        // Of two answers to a call that are read together the second one would count.
        if !tells || !self.model.sites[site].awaits(attempt) {
            return None;
        }
        let renewal = if is_at_once { Renewal::AtOnce } else { Renewal::Evenly };
        let until = if is_at_once { self.now + nanos } else { 0 };
        let renewed_in = Duration::from_nanos(nanos);
        self.note(What::Told { site, attempt, remaining, nanos });
        self.model.told(site, attempt, is_of_channel, remaining, until);
        let left = LimitLeft { counted: Counted::Requests, remaining, renewed_in, renewal };
        Some(ToldLimit { attempt, left, is_of_channel })
    }

    /// Lets the reply to a call that was cancelled say that it has cost nothing, and that much is
    /// left: nobody listens.
    pub(super) fn remark_late(
        &mut self,
        site: usize,
        attempt: AttemptId,
        settled: &mut Vec<SettledCall>,
        told: &mut Vec<ToldLimit>,
    ) {
        let limits = &self.model.sites[site].plan.limits;
        // Behind a cache the call may be one that others wait for.
        if self.cached[site].is_some() || self.model.sites[site].awaits(attempt) {
            return;
        }
        let is_settled = |it: &(usize, &LimitPlan)| it.1.is_settled;
        let limits_settled = limits.iter().enumerate().filter(is_settled);
        settled.extend(limits_settled.map(|(limit, _)| SettledCall { attempt, limit, cost: 0 }));
        if let Some(plan) = limits.iter().find(|it| it.is_told) {
            let (renewed_in, renewal) = (Duration::from_millis(97), Renewal::AtOnce);
            let remaining = plan.burst * 7 + 1_009;
            let left = LimitLeft { counted: Counted::Requests, remaining, renewed_in, renewal };
            told.push(ToldLimit { attempt, left, is_of_channel: plan.is_per_channel });
        }
    }

    /// Decides whether a call that failed was never sent, and so has cost its limits nothing.
    pub(super) fn take_back(&mut self, site: usize, attempt: AttemptId, said: Said) -> bool {
        let here = &self.model.sites[site];
        let may_pass = matches!(said, Said::Failure { asks: Asks::Yes, pause: None, .. });
        // A call behind a cache may be one for several, and a request was made for its calls.
        let is_one = here.plan.cache.is_none() && here.plan.requests.is_none();
        let seed = self.scenario.seed ^ 0x756E_7365;
        let random = &mut Random(choice(seed, site, self.now, attempt.attempt));
        let is_drawn = random.in_a_hundred(40);
        let row_cost = here.cost_of(attempt);
        if said.is_left_out() && here.awaits(attempt) {
            self.model.give_back_to_pools(site, row_cost);
        }
        if !may_pass || !is_one || !is_drawn || !self.model.sites[site].awaits(attempt) {
            return false;
        }
        self.model.give_back_to_pools(site, row_cost);
        for limit in 0..self.model.sites[site].plan.limits.len() {
            let Some(charged) = self.model.charged(site, attempt, limit) else { continue };
            self.note(What::Settled { site, attempt, limit, charged, cost: 0 });
            self.model.settled(site, attempt, limit, 0);
            if limit == 0 {
                self.give_back_shared(site, charged);
            }
        }
        true
    }

    /// Decides what a call has cost, where its reply says so.
    pub(super) fn settle(&mut self, site: usize, attempt: AttemptId) -> Vec<SettledCall> {
        let limits = self.model.sites[site].plan.limits.len();
        let seed = self.scenario.seed ^ self.next_answer;
        let random = &mut Random(choice(seed, site, self.now, attempt.attempt));
        let mut settled = Vec::new();
        for limit in 0..limits {
            if !self.model.sites[site].plan.limits[limit].is_settled {
                continue;
            }
            let Some(charged) = self.model.charged(site, attempt, limit) else { continue };
            let cost = match random.below(1_000) {
                _ if self.model.sites[site].plan.limits[limit].times > 0 => {
                    charged * self.model.sites[site].plan.limits[limit].times
                }
                // An hour of the limit each, so there are few.
                0 if random.in_a_hundred(10) => u64::MAX,
                0..8 => charged * 9 + 7,
                8..200 => charged * 2 + 1,
                200..500 => charged / 2,
                500..600 => 0,
                600..800 => charged,
                _ => continue,
            };
            self.note(What::Settled { site, attempt, limit, charged, cost });
            self.model.settled(site, attempt, limit, cost);
            if limit == 0 {
                self.give_back_shared(site, charged.saturating_sub(cost));
            }
            settled.push(SettledCall { attempt, limit, cost });
        }
        settled
    }
}
