// SPDX-License-Identifier: Apache-2.0
//! What the policies of channels have to say in a [`ChannelTable`].

use super::ChannelTable;
use crate::flow::ChannelId;
use crate::flow::channel_policies::ChannelPolicies;
use crate::flow::told_limits::ToldLimit;
use crate::policy::{CallSign, Costs, LimitLeft, LimitMetrics, Price};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

impl ChannelTable {
    /// Returns how many calls of the single channel may start now, if each costs the usual.
    pub fn free_calls(&self) -> usize {
        let Some(channel) = self.channels.get(ChannelId(0)).filter(|_| self.is_single()) else {
            return usize::MAX;
        };
        let account = &channel.account;
        let free = account.limit().saturating_sub(account.in_use());
        let starts = |it: &ChannelPolicies| it.starts(ChannelId(0));
        let most = self.policies.as_deref().map_or(u32::MAX, starts);
        let is_paused = channel.outage.paused_since != ProcessingTime::NEVER;
        if channel.refuses_for.is_some() || (is_paused && self.wait_bound.is_some()) {
            // They do not wait, or not for ever.
            return usize::MAX;
        }
        let may_start = !channel.is_held && channel.waiting == 0;
        if may_start { free.min(most) as usize } else { 0 }
    }

    /// Returns when [`handle_time`](Self::handle_time) has something to do.
    pub fn poll_timeout(&mut self) -> Option<ProcessingTime> {
        let has_ready = !self.ready.is_empty();
        let wake = self.policies.as_mut().and_then(|it| it.next_wake(has_ready));
        self.next_look().into_iter().chain(wake).min()
    }

    /// Lets the channels start again whose time has come.
    #[inline]
    pub fn handle_time(&mut self, now: ProcessingTime) {
        if self.policies.is_some() {
            self.wake(now);
        }
        self.list_due(now);
    }

    #[inline(never)]
    fn wake(&mut self, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.end_wait(now);
        }
        while let Some(id) = self.policies.as_mut().and_then(|it| it.pop_due(now)) {
            self.consult(id, now);
            self.ask(id);
        }
    }

    /// Asks the policies of a channel, and lets it be held or go on as they say for the record that
    /// is called next.
    pub(super) fn consult(&mut self, id: ChannelId, now: ProcessingTime) {
        let Some(policies) = &self.policies else { return };
        let foremost = self.channels[id].foremost(&self.nodes);
        let costs = policies.costs(id, foremost, now);
        self.consult_for(id, &costs, now);
    }

    /// Does as [`consult`](Self::consult) for a call that costs as much; returns when it may start
    /// as far as time goes, if not now.
    fn consult_for(
        &mut self,
        id: ChannelId,
        costs: &Costs,
        now: ProcessingTime,
    ) -> Option<ProcessingTime> {
        let policies = self.policies.as_mut()?;
        let channel = &mut self.channels[id];
        // What waits for nothing needs no look at the clock, unless others wait outside for it.
        let is_awaited = channel.waiting > 0 || self.config.is_single;
        let counts_asked = self.wait_bound.is_some_and(|it| it.counts_asked);
        let verdict = policies.verdict(id, costs, is_awaited, counts_asked, now);
        channel.account.watch(verdict.is_watching);
        let held_until = verdict.held_until.filter(|_| is_awaited);
        policies.hold(id, held_until);
        if channel.is_held != held_until.is_some() {
            channel.set_held(held_until.is_some());
            policies.note_held(channel.is_held, now);
            if channel.is_held {
                channel.account.give_back_free(&mut self.pool);
                self.serve();
            }
        }
        let channel = &mut self.channels[id];
        channel.refuses_for = verdict.refuses_for;
        let was_paused_since = channel.outage.paused_since;
        channel.outage.paused_since = verdict.paused_since.unwrap_or(ProcessingTime::NEVER);
        let is_paused_anew = channel.outage.paused_since < was_paused_since;
        if channel.refuses_for.is_some() && channel.waiting > 0 {
            self.look_at(id);
        }
        if is_paused_anew {
            self.watch_outage(id, now);
        }
        let limit = verdict.window.min(self.config.max_per_channel);
        if self.channels[id].limit != limit {
            self.set_limit_of(id, limit);
        }
        verdict.held_until
    }

    /// Returns whether a record that was never called and costs as much may start at once: no
    /// policy is against it, and no other record waits for one that both have.
    #[inline(never)]
    pub(super) fn may_start_new(
        &mut self,
        id: ChannelId,
        costs: &Costs,
        now: ProcessingTime,
    ) -> bool {
        if self.channels[id].is_held || self.channels[id].waiting > 0 {
            return false;
        }
        if let Some(policies) = &mut self.policies {
            policies.prepare(id, costs, now);
        }
        if self.consult_for(id, costs, now).is_some() {
            return false;
        }
        let is_free = self.policies.as_ref().is_none_or(|it| it.is_free(costs));
        is_free || (self.ready.is_empty() && self.opens_at(costs, now).is_none())
    }

    /// Returns when the limits that channels share let a call start that costs as much, if not now.
    fn opens_at(&mut self, costs: &Costs, now: ProcessingTime) -> Option<ProcessingTime> {
        self.policies.as_mut()?.opens_at(costs, now)
    }

    /// Returns whether the record may start that is next in its channel; else that waits, and so do
    /// all channels unless it is held, but for records that have nothing to pay there. `before` is how
    /// many channels wait in front of it.
    pub(super) fn passes(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        costs: &Costs,
        before: usize,
        now: ProcessingTime,
    ) -> bool {
        let is_late = self.consult_for(id, costs, now).is_some();
        let is_free = || self.policies.as_ref().is_none_or(|it| it.is_free(costs));
        if !is_late && (is_free() || before == 0 && self.opens_at(costs, now).is_none()) {
            return true;
        }
        let channel = &mut self.channels[id];
        channel.chosen = Some(entry);
        if !is_late && !channel.is_ready {
            channel.is_ready = true;
            self.ready.insert(before, id);
        }
        false
    }

    /// Returns the place in line of the next channel, from `first` on, whose record may go along with
    /// a request that is paid for, while others wait for what all share.
    pub(super) fn next_to_go_along(&self, first: usize, now: ProcessingTime) -> Option<usize> {
        let policies = self.policies.as_ref().filter(|it| it.has_open_request(now))?;
        let rest = self.ready.range(first.min(self.ready.len())..);
        Some(first + rest.take_while(|id| !policies.may_go_along(**id, now)).count())
    }

    /// Notes that a call of a channel starts, and tells its policies.
    #[inline]
    pub(super) fn note_start(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: &Costs,
        now: ProcessingTime,
    ) {
        let channel = &mut self.channels[id];
        channel.note_begun(now);
        if channel.waiting > 0 && channel.outage.looks_at == ProcessingTime::NEVER {
            self.watch_outage(id, now);
        }
        if self.policies.is_some() {
            self.tell_start(id, entry, costs, now);
        }
    }

    #[inline(never)]
    fn tell_start(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: &Costs,
        now: ProcessingTime,
    ) {
        if let Some(policies) = &mut self.policies {
            policies.on_start(id, entry, *costs, now);
            self.consult(id, now);
        }
    }

    /// Lets the channel's policies learn from an attempt that is about to be finished, if it has any:
    /// what its last call says, and which retries the attempt with this number, from 1, earns.
    #[inline]
    pub fn observe_attempt(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        attempt: u32,
        started: ProcessingTime,
        ended: ProcessingTime,
        sign: CallSign,
    ) {
        self.note_answer(id, sign, ended);
        if self.policies.is_some() {
            self.observe_call(id, entry, started, ended, sign);
            self.earn(id, attempt, sign, ended);
        }
    }

    /// Lets them learn from a call that ends, the attempt of which goes on perhaps.
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
            let call = policies.ended(entry, started, ended, in_flight, sign);
            policies.on_end(id, entry, &call);
            let before = self.channels[id].limit;
            self.consult(id, ended);
            let channel = &mut self.channels[id];
            if channel.limit != before {
                channel.is_shrinking = channel.limit < before;
            }
            self.ask(id);
        }
    }

    /// Uses a credit for a second call of a record of the channel, ahead of those that wait for
    /// one; none while its limit shrinks, or if `leaves_one` says so of the calls that it may have.
    ///
    /// Else returns when to ask again: never, where a call has to end first or a channel is held,
    /// whose records are looked at in time.
    pub(crate) fn try_hedge(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        leaves_one: impl FnOnce(usize) -> bool,
        now: ProcessingTime,
    ) -> Result<(), ProcessingTime> {
        let costs = self.policies.as_ref().map_or(Costs::NONE, |it| it.costs(id, Some(entry), now));
        self.may_start_beside(id, &costs, now)?;
        let channel = &self.channels[id];
        if channel.is_shrinking || !leaves_one(channel.account.limit() as usize) {
            return Err(ProcessingTime::NEVER);
        }
        if channel.account.free() == 0 && self.pool.free() == 0 {
            self.collect();
        }
        if !self.channels[id].account.take(&mut self.pool) {
            return Err(ProcessingTime::NEVER);
        }
        self.note_loan(id);
        if let Some(policies) = &mut self.policies {
            policies.begin_second(entry);
        }
        self.turn_calls(entry);
        self.note_start(id, Some(entry), &costs, now);
        self.turn_calls(entry);
        // It may have been meant for one that waits.
        self.ask(id);
        Ok(())
    }

    /// Takes the second one of two calls of a record for its present one, or the first one again.
    pub(crate) fn turn_calls(&mut self, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.turn(entry);
        }
    }

    /// Ends the use of a credit by the present one of two calls of a record, of which the other goes
    /// on.
    pub(crate) fn end_one_of_two(&mut self, id: ChannelId, entry: EntryId) {
        if let Some(policies) = &mut self.policies {
            policies.leave_to_other(entry);
        }
        self.recycle(id);
    }

    /// Returns whether policies let a second call start that costs as much, ahead of what waits, or
    /// when to ask again.
    fn may_start_beside(
        &mut self,
        id: ChannelId,
        costs: &Costs,
        now: ProcessingTime,
    ) -> Result<(), ProcessingTime> {
        let Some(policies) = &mut self.policies else { return Ok(()) };
        if self.channels[id].is_held {
            return Err(ProcessingTime::NEVER);
        }
        policies.prepare(id, costs, now);
        let opens_at = self.consult_for(id, costs, now).or_else(|| self.opens_at(costs, now));
        opens_at.map_or(Ok(()), Err)
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

    fn earn(&mut self, id: ChannelId, attempt: u32, sign: CallSign, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.earn(id, attempt, sign, now);
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

    /// Remembers what a record costs whose first call has started, or not.
    pub fn note_price(&mut self, entry: EntryId, price: Price, has_started: bool) {
        if let Some(policies) = &mut self.policies {
            policies.note_price(entry, price, has_started);
        }
    }

    /// Notes what the present call of a record has cost of a limit.
    pub fn settle(&mut self, entry: EntryId, limit: usize, cost: u64) {
        if let Some(policies) = &mut self.policies {
            policies.settle(entry, limit, cost);
        }
    }

    /// Notes what the reply to the present call of a record says is left of a limit of its service;
    /// nothing of the destinations of other channels with `is_of_channel`.
    pub fn note_left(&mut self, entry: EntryId, left: LimitLeft, is_of_channel: bool) {
        if let Some(policies) = &mut self.policies {
            policies.note_left(entry, ToldLimit { left, is_of_channel });
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
            policies.forget(entry);
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

    /// Sets the most calls in flight of one channel; none with 0.
    pub(super) fn set_limit_of(&mut self, id: ChannelId, limit: u32) {
        let limit = limit.min(self.max_concurrency);
        let channel = &mut self.channels[id];
        channel.limit = limit;
        channel.account.set_limit(limit.min(self.share), &mut self.pool);
        channel.is_settled = false;
        if channel.is_idle() {
            self.endowment.release(channel, &mut self.pool);
            self.serve();
        } else {
            self.serve();
            self.ask(id);
        }
    }
}
