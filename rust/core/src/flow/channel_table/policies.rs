// SPDX-License-Identifier: Apache-2.0
//! What the policies of channels have to say in a [`ChannelTable`].

use super::ChannelTable;
use crate::flow::ChannelId;
use crate::flow::channel_policies::ChannelPolicies;
use crate::flow::tickets::{Call, ToldLimit};
use crate::policy::{CallSign, Costs, LimitLeft, LimitMetrics, Price, Watch};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

impl ChannelTable {
    /// Notes that a call of a channel starts, and tells its policies.
    #[inline]
    pub(super) fn note_start(
        &mut self,
        id: ChannelId,
        call: Option<Call>,
        costs: &Costs,
        now: ProcessingTime,
    ) {
        let channel = &mut self.channels[id];
        channel.note_begun(now);
        if channel.waiting > 0 && channel.outage.looks_at == ProcessingTime::NEVER {
            self.watch_outage(id, now);
        }
        if self.policies.is_some() {
            self.tell_start(id, call, costs, now);
        }
    }

    #[inline(never)]
    fn tell_start(
        &mut self,
        id: ChannelId,
        call: Option<Call>,
        costs: &Costs,
        now: ProcessingTime,
    ) {
        if let Some(policies) = &mut self.policies {
            policies.on_start(id, call, costs, now);
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
        call: Call,
        number: Option<u32>,
        (started, ended): (ProcessingTime, ProcessingTime),
        sign: CallSign,
    ) {
        self.note_answer(id, sign, ended);
        if self.policies.is_some() {
            self.observe_call(id, call, (started, ended), sign);
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
        call: Call,
        (started, ended): (ProcessingTime, ProcessingTime),
        sign: CallSign,
    ) {
        let in_flight = self.channels[id].account.in_use();
        if let Some(policies) = &mut self.policies {
            policies.on_end(id, call, (started, ended), in_flight, sign);
            let before = self.channels[id].limit;
            self.consult(id, ended);
            let channel = &mut self.channels[id];
            if channel.limit != before {
                channel.is_shrinking = channel.limit < before;
            }
            self.ask(id);
        }
    }

    /// Ends the use of a credit by one of two calls of a record, while the other goes on.
    pub(crate) fn end_one_of_two(&mut self, id: ChannelId) {
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

    // --- what holds records ---

    /// Returns what is known of a destination whose records wait for its probes, see
    /// [`Pause::watch`](crate::policy::Pause::watch).
    pub(crate) fn watch(&self, id: ChannelId) -> Option<Watch> {
        self.policies.as_ref().and_then(|it| it.watch(id))
    }

    /// Lets the call after the next drop be made at once, if records wait in the channel and none of them may
    /// be called; returns whether that is so.
    pub(crate) fn doubt(&mut self, id: ChannelId) -> bool {
        let channel = &self.channels[id];
        let any_blocked = channel.resting > 0 && channel.waiting == 0;
        if let Some(policies) = self.policies.as_mut().filter(|_| any_blocked) {
            policies.doubt(id);
        }
        any_blocked
    }

    /// Pauses a channel after a drop that was observed, however few there were.
    pub(crate) fn trip(&mut self, id: ChannelId, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.trip(id, now);
            self.consult(id, now);
        }
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
            policies.tickets.note(entry, price, charged);
        }
    }

    /// Notes what a call has cost of a limit.
    pub fn settle(&mut self, call: Call, limit: usize, cost: u64) {
        if let Some(policies) = &mut self.policies {
            policies.settle(call, limit, cost);
        }
    }

    /// Notes that a call was not sent: its permits come back when it ends.
    pub fn give_back(&mut self, call: Call) {
        if let Some(policies) = &mut self.policies {
            policies.tickets.give_back(call);
        }
    }

    /// Notes what the reply to a call says is left of a limit of its service; nothing of the
    /// destinations of other channels with `is_of_channel`.
    pub fn note_left(&mut self, call: Call, left: LimitLeft, is_of_channel: bool) {
        if let Some(policies) = &mut self.policies {
            policies.tickets.note_left(call, ToldLimit { left, is_of_channel });
        }
    }

    /// Notes that a record is called again in a part: of so many records if that begins with it.
    pub(crate) fn note_part(&mut self, entry: EntryId, records: u32) {
        if let Some(policies) = &mut self.policies {
            policies.tickets.note_part(entry, records);
        }
    }

    /// Charges a call for the request that was made, which it is the first of.
    pub fn charge_request(&mut self, id: ChannelId, call: Call, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.charge_request(id, call);
            self.consult(id, now);
        }
    }

    /// Forgets what a record cost.
    #[inline]
    pub fn forget_price(&mut self, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.tickets.forget(entry);
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
