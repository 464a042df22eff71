// SPDX-License-Identifier: Apache-2.0
//! What the policies of channels have to say in a [`ChannelTable`].

use super::ChannelTable;
use crate::flow::ChannelId;
use crate::policy::EndedCall;
use crate::time::ProcessingTime;

impl ChannelTable {
    /// Returns how many calls of the single channel may start now; with policies that have to be
    /// asked before each it is one at a time.
    pub fn free_calls(&self) -> usize {
        let Some(channel) = self.channels.get(ChannelId(0)).filter(|_| self.is_single()) else {
            return usize::MAX;
        };
        let account = &channel.account;
        let free = account.limit().saturating_sub(account.in_use());
        let most = if account.is_watched() { 1 } else { u32::MAX };
        let may_start = !channel.is_held && channel.waiting == 0;
        if may_start { free.min(most) as usize } else { 0 }
    }

    /// Returns when [`handle_time`](Self::handle_time) has something to do.
    pub fn poll_timeout(&mut self) -> Option<ProcessingTime> {
        self.policies.as_mut().and_then(|it| it.next_wake())
    }

    /// Lets the channels start again whose time has come.
    #[inline]
    pub fn handle_time(&mut self, now: ProcessingTime) {
        if self.policies.is_some() {
            self.wake(now);
        }
    }

    #[inline(never)]
    fn wake(&mut self, now: ProcessingTime) {
        while let Some(id) = self.policies.as_mut().and_then(|it| it.pop_due(now)) {
            self.consult(id, now);
            self.ask(id);
        }
    }

    /// Asks the policies of a channel, and lets it be held or go on as they say; returns whether
    /// a call may start now as far as time goes.
    pub(super) fn consult(&mut self, id: ChannelId, now: ProcessingTime) -> bool {
        let Some(policies) = &mut self.policies else { return true };
        let verdict = policies.verdict(id, now);
        let channel = &mut self.channels[id];
        channel.account.watch(verdict.is_watching);
        // What waits for nothing needs no look at the clock, unless others wait outside for it.
        let is_awaited = channel.waiting > 0 || self.config.is_single;
        let held_until = verdict.held_until.filter(|_| is_awaited);
        policies.hold(id, held_until);
        if channel.is_held != held_until.is_some() {
            channel.set_held(held_until.is_some());
            if channel.is_held {
                channel.account.give_back_free(&mut self.pool);
                self.serve();
            }
        }
        let limit = verdict.window.min(self.config.max_per_channel);
        if self.channels[id].limit != limit {
            self.set_limit_of(id, limit);
        }
        verdict.held_until.is_none()
    }

    /// Tells the policies of a channel that a call starts.
    pub(super) fn note_start(&mut self, id: ChannelId, now: ProcessingTime) {
        if let Some(policies) = &mut self.policies {
            policies.on_start(id, now);
            self.consult(id, now);
        }
    }

    /// Lets the channel's policies learn from a call that is about to be finished, if it has any.
    #[inline]
    pub fn observe_call(&mut self, id: ChannelId, call: impl FnOnce(u32) -> EndedCall) {
        if self.policies.is_some() {
            let in_flight = self.channels[id].account.in_use();
            self.learn(id, &call(in_flight));
        }
    }

    #[inline(never)]
    fn learn(&mut self, id: ChannelId, call: &EndedCall) {
        if let Some(policies) = &mut self.policies {
            policies.on_end(id, call);
            let before = self.channels[id].limit;
            self.consult(id, call.ended);
            let channel = &mut self.channels[id];
            if channel.limit != before {
                channel.is_shrinking = channel.limit < before;
            }
            self.ask(id);
        }
    }

    /// Uses a credit for a second call of a record of the channel, ahead of those that wait for
    /// one; none while its limit shrinks, or if `leaves_one` says so of the calls that it may have.
    pub(crate) fn try_hedge(
        &mut self,
        id: ChannelId,
        leaves_one: impl FnOnce(usize) -> bool,
        now: ProcessingTime,
    ) -> bool {
        if self.policies.is_some() && (self.channels[id].is_held || !self.consult(id, now)) {
            return false;
        }
        let channel = &self.channels[id];
        if channel.is_shrinking || !leaves_one(channel.account.limit() as usize) {
            return false;
        }
        if channel.account.free() == 0 && self.pool.free() == 0 {
            self.collect();
        }
        if !self.channels[id].account.take(&mut self.pool) {
            return false;
        }
        self.note_loan(id);
        self.note_start(id, now);
        // It may have been meant for one that waits.
        self.ask(id);
        true
    }

    /// Ends the use of a credit by one of two calls of a record, of which the other goes on.
    pub(crate) fn end_hedge(&mut self, id: ChannelId) {
        self.recycle(id);
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
