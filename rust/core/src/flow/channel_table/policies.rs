// SPDX-License-Identifier: Apache-2.0
//! What the policies of channels have to say in a [`ChannelTable`].

use super::ChannelTable;
use crate::flow::ChannelId;
use crate::flow::channel_policies::ChannelPolicies;
use crate::flow::told_limits::ToldLimit;
use crate::policy::{CallSign, Costs, LimitLeft, LimitMetrics, Line, Price};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

impl ChannelTable {
    /// Notes that a call of a channel and a line starts, and tells its policies.
    #[inline]
    pub(super) fn note_start(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: &Costs,
        line: Line,
        now: ProcessingTime,
    ) {
        let channel = &mut self.channels[id];
        channel.note_begun(now);
        if channel.waiting > 0 && channel.outage.looks_at == ProcessingTime::NEVER {
            self.watch_outage(id, now);
        }
        if self.policies.is_some() {
            self.tell_start(id, entry, costs, line, now);
        }
    }

    #[inline(never)]
    fn tell_start(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: &Costs,
        line: Line,
        now: ProcessingTime,
    ) {
        if let Some(policies) = &mut self.policies {
            policies.on_start(id, entry, costs, line, now);
            self.consult(id, now);
        }
    }

    /// Lets the channel's policies learn from an attempt that is about to be finished, if it has any:
    /// what its last call says, and which retries the try with this number, from 1, earns; `None`: it
    /// goes on with another call.
    #[inline]
    pub fn observe_attempt(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        number: Option<u32>,
        started: ProcessingTime,
        ended: ProcessingTime,
        sign: CallSign,
    ) {
        self.note_answer(id, sign, ended);
        if self.policies.is_some() {
            self.observe_call(id, entry, started, ended, sign);
            if let Some(number) = number {
                self.earn(id, number, sign, ended);
            }
        }
    }

    /// Lets them learn from a call that ends; its attempt may go on.
    #[inline(never)]
    pub fn observe_call(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        started: ProcessingTime,
        ended: ProcessingTime,
        sign: CallSign,
    ) {
        let in_flight = self.channels[id].account.in_use();
        if let Some(policies) = &mut self.policies {
            policies.on_end(id, entry, started, ended, in_flight, sign);
            let before = self.channels[id].limit;
            self.consult(id, ended);
            let channel = &mut self.channels[id];
            if channel.limit != before {
                channel.is_shrinking = channel.limit < before;
            }
            self.ask(id);
        }
    }

    /// Takes the second one of two calls of a record for its present one, or the first one again.
    pub(crate) fn swap_calls(&mut self, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.records.swap(entry);
        }
    }

    /// Ends the use of a credit by the present one of two calls of a record, while the other goes
    /// on.
    pub(crate) fn end_one_of_two(&mut self, id: ChannelId, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.records.leave_to_other(entry);
        }
        self.recycle(id);
    }

    /// Makes no call of a channel before `until`, because the reply to a call that started at
    /// `started` said so.
    pub fn pause_until(
        &mut self,
        id: ChannelId,
        until: ProcessingTime,
        started: ProcessingTime,
        now: ProcessingTime,
    ) {
        let policies = self.policies.get_or_insert_with(|| {
            let mut policies = ChannelPolicies::unbounded();
            let ids = (0..).map(ChannelId).take(self.channels.places());
            ids.for_each(|id| policies.open(id, None, now));
            policies
        });
        policies.pause_until(id, until, started, now);
        self.consult(id, now);
    }

    // --- what retries cost ---

    fn earn(&mut self, id: ChannelId, number: u32, sign: CallSign, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.earn(id, number, sign, now);
        }
    }

    /// Takes a token for the next attempt of a record, which waits for one otherwise; true where
    /// retries cost none.
    pub fn take_token(&mut self, id: ChannelId, entry: EntryId, now: ProcessingTime) -> bool {
        self.policies.as_mut().is_none_or(|it| it.take_token(id, entry, now))
    }

    /// Removes a record that has waited for a token, which is there now; `waits` tells whether a
    /// record waits still.
    pub fn pop_token(
        &mut self,
        now: ProcessingTime,
        mut waits: impl FnMut(EntryId) -> bool,
    ) -> Option<EntryId> {
        self.policies.as_mut().and_then(|it| it.pop_token(now, &mut waits))
    }

    // --- what records cost ---

    /// Remembers the price of a record, and what its first call was `charged` if it has started.
    pub fn note_price(&mut self, entry: EntryId, price: Price, charged: Option<Costs>) {
        if let Some(policies) = &mut self.policies {
            policies.records.note(entry, price, charged);
        }
    }

    /// Notes what the present call of a record has cost of a limit.
    pub fn settle(&mut self, entry: EntryId, limit: usize, cost: u64) {
        if let Some(policies) = &mut self.policies {
            policies.settle(entry, limit, cost);
        }
    }

    /// Notes that the present call of a record was not sent: its permits come back when it ends.
    pub fn give_back(&mut self, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.records.give_back(entry);
        }
    }

    /// Notes what the reply to the present call of a record says is left of a limit of its service;
    /// nothing of the destinations of other channels with `is_of_channel`.
    pub fn note_left(&mut self, entry: EntryId, left: LimitLeft, is_of_channel: bool) {
        if let Some(policies) = &mut self.policies {
            policies.records.note_left(entry, ToldLimit { left, is_of_channel });
        }
    }

    /// Notes that a record is called again in a part: of so many records if that begins with it.
    pub(crate) fn note_part(&mut self, entry: EntryId, records: u32) {
        if let Some(policies) = &mut self.policies {
            policies.records.note_part(entry, records);
        }
    }

    /// Charges a record in flight for the request that was made, which it is the first of.
    pub fn charge_request(&mut self, id: ChannelId, entry: EntryId, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.charge_request(id, entry);
            self.consult(id, now);
        }
    }

    /// Forgets what a record cost.
    #[inline]
    pub fn forget_price(&mut self, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.records.forget(entry);
        }
    }

    /// Notes the first attempts that ended before there was a channel for all records.
    pub fn note_earlier_calls(&mut self, count: u64, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.earn_earlier(count, now);
        }
    }

    /// Returns what limits in time have let pass, if anything bounds calls beside their number.
    pub fn limit_metrics(&self, now: ProcessingTime) -> Option<LimitMetrics> {
        let mut metrics = self.policies.as_ref()?.metrics().at(now);
        let follows = self.is_single() && self.config.policy.adaptive_limit.is_some();
        metrics.most_calls = follows.then(|| self.channels[ChannelId(0)].limit);
        Some(metrics)
    }
}
