// SPDX-License-Identifier: Apache-2.0
//! What replies say that calls have cost, and of rows that were left out of them.

use sparkawait_core::operator::AttemptId;

use super::Model;
use super::site::{Heard, Owed, Site};
use crate::limits::{Left, Settled};
use crate::trace::{Id, Said};

impl Model {
    /// Returns what a call was charged, if it has no answer yet.
    pub fn charged(&self, site: usize, attempt: AttemptId, limit: usize) -> Option<u64> {
        let here = &self.sites[site];
        let row = here.rows.get(&here.flying.get(&attempt)?.id)?;
        Some(here.plan.limits.get(limit)?.charge(row.cost))
    }

    /// The reply to a call says what it has cost; to be told before what it came to.
    pub fn settled(&mut self, site: usize, attempt: AttemptId, limit: usize, cost: u64) {
        let here = &mut self.sites[site];
        let Some(call) = here.flying.get(&attempt).copied() else { return };
        let Some(row) = here.rows.get(&call.id) else { return };
        let charged = here.plan.limits[limit].charge(row.cost);
        let settled = Settled { limit, channel: row.channel, charged, cost };
        let more = here.limits.settle(&settled);
        // Of a row with two calls nobody knows which of them the task hears.
        let is_alone = row.live == 1 && here.plan.hedge.is_none() && !call.is_doomed;
        let more = more.filter(|_| is_alone && here.plan.cache.is_none());
        here.owed.extend(more.map(|it| Owed { id: call.id, started: call.started, settled: it }));
    }

    /// The reply to a call says what is left of limits until then; to be told before what it came to.
    pub fn told(
        &mut self,
        site: usize,
        attempt: AttemptId,
        of_channel: bool,
        left: u64,
        until: u64,
    ) {
        let here = &mut self.sites[site];
        let Some(call) = here.flying.get(&attempt).copied() else { return };
        let Some(row) = here.rows.get(&call.id) else { return };
        let is_alone = row.live == 1 && here.plan.hedge.is_none() && !call.is_doomed;
        let left = Left { started: call.started, left, until };
        // What was said before may not hold any more, and this not yet.
        here.limits.learn(row.channel, of_channel, Left { until: 0, ..left });
        here.heard.push(Heard {
            id: call.id,
            channel: row.channel,
            is_of_channel: of_channel,
            left,
            is_vague: !is_alone || here.plan.cache.is_some(),
        });
    }
}

impl Site {
    /// Returns whether a call has no answer.
    pub fn awaits(&self, attempt: AttemptId) -> bool {
        self.flying.contains_key(&attempt)
    }

    /// The task has waited: what it took of its mail counts.
    pub(super) fn learn_costs(&mut self, now: u64) {
        for Heard { id, channel, is_of_channel, left, is_vague } in std::mem::take(&mut self.heard)
        {
            let cut = self.plan.attempt_timeout.is_some_and(|it| left.started + it <= now);
            let is_late = cut || self.rows.get(&id).is_none_or(|it| self.has_passed(it, now));
            // What may be known and may be not binds nobody.
            let until = if is_late || is_vague { 0 } else { left.until };
            let is_news = self.last_told.is_none_or(|it| left.started >= it);
            self.last_told = Some(self.last_told.unwrap_or_default().max(left.started));
            if is_news {
                self.nothing_left = (left.left == 0 && until > now).then_some((now, until));
            }
            self.limits.learn(channel, is_of_channel, Left { until, ..left });
        }
        for Owed { id, started, settled } in std::mem::take(&mut self.owed) {
            // Its time may have passed before its reply was looked at.
            let cut = self.plan.attempt_timeout.is_some_and(|it| started + it <= now);
            if !cut && !self.rows.get(&id).is_none_or(|it| self.has_passed(it, now)) {
                self.limits.owe(&settled);
            }
        }
    }

    /// Takes back a call that is made again, as nobody was called for its row.
    pub(super) fn leave_out(&mut self, id: Id, attempt: AttemptId, said: Said) {
        let Some(row) = self.rows.get_mut(&id).filter(|_| said.is_left_out()) else { return };
        self.made.take_back(attempt);
        row.made -= 1;
        // The next call has its number, if no clock knows of this one.
        let is_taken = attempt.attempt > 1 && self.plan.attempt_timeout.is_none();
        row.attempts -= u32::from(is_taken);
        row.uncounted -= u32::from(is_taken);
    }
}
