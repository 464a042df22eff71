// SPDX-License-Identifier: Apache-2.0
//! Who may start next in a [`ChannelTable`]: the one place that says so.
//!
//! A call starts when all of these are there, in this order:
//!
//! | what | who says so | else |
//! |---|---|---|
//! | a record in front of its channel | [`Channel::foremost`] | [`Next::None`] until one comes |
//! | what its channel bears now | its [`CallLimits`], which are looked at | [`Next::WaitUntil`] |
//! | a credit of that channel | its [`CreditAccount`] | [`Next::None`] until a call ends |
//! | permits of all limits | the [`CallLimits`] of its channel and those that all share, which are asked | [`Next::WaitUntil`] |
//!
//! New records, those that wait and second calls ask the same question,
//! [`may_start`](ChannelTable::may_start), and differ in who goes before them. Second calls wait in a
//! [line](Line) of their own: they hold no channel, and take no place of records. Limits are asked last,
//! and all in one step, because what is asked for and not used is lost to others. All else looks at them
//! ([`look`](ChannelTable::look)), as the maker of calls does before it admits a record
//! ([`free_calls`](ChannelTable::free_calls)).
//!
//! [`Channel::foremost`]: crate::flow::channel::Channel::foremost
//! [`CreditAccount`]: crate::flow::credit_account::CreditAccount
//! [`CallLimits`]: crate::policy::CallLimits

use super::ChannelTable;
use crate::flow::ChannelId;
use crate::flow::channel_policies::ChannelPolicies;
use crate::flow::tickets::Call;
use crate::policy::{Costs, Line};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// Who may start next, or whether a call may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// It may, and does: its credit is in use, and its limits are charged.
    Start(T),
    /// Limits in time let none start before then. [`poll_timeout`](ChannelTable::poll_timeout) says when
    /// to ask again.
    WaitUntil(ProcessingTime),
    /// None, until something else happens: a record comes, a call ends, a channel goes on.
    None,
}

impl ChannelTable {
    /// Returns whether `next_start` or `next_unserved` may return a record.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.refusing.is_empty()
    }

    /// Takes the next record whose call starts now: it rests no longer.
    ///
    /// Channels are served one after the other, a record each. One that waits for limits that all share keeps its place
    /// in front, and the channels behind it keep theirs. Otherwise one that pays less would go
    /// before it for ever. Only records that have nothing to pay there pass it, as those do that go
    /// along with a request.
    pub(crate) fn next_start(&mut self, now: ProcessingTime) -> Next<EntryId> {
        // How many channels in front wait, or are behind one that does.
        let (mut before, mut next) = (0, Next::None);
        while let Some(id) = self.ready.get(before).copied() {
            let channel = &self.channels[id];
            let foremost = channel.foremost(&self.nodes).filter(|_| channel.may_start());
            let Some(entry) = foremost else {
                self.leave_line(before);
                continue;
            };
            let costs = self.costs(id, Some(entry), now);
            let answer = self.may_start(id, Line::Records, &costs, |_| before == 0, now);
            let channel = &mut self.channels[id];
            if answer == Next::Start(()) && channel.may_start() {
                channel.take_foremost(&mut self.nodes);
                channel.account.take_free();
                channel.resting -= 1;
                channel.shorten(now, &mut self.pool);
                self.leave_line(before);
                self.note_start(id, Some(own_call(entry)), &costs, now);
                self.ask(id);
                return Next::Start(entry);
            }
            channel.choose(&mut self.nodes);
            if answer == Next::Start(()) {
                self.give_back_permits(id, Line::Records);
            }
            let channel = &self.channels[id];
            if !channel.may_start() {
                // It was held just now.
                self.leave_line(before);
                continue;
            }
            if let (0, Next::WaitUntil(at)) = (before, answer) {
                next = Next::WaitUntil(at);
            }
            let Some(place) = self.next_to_go_along(before + 1, now) else { break };
            before = place;
        }
        next
    }

    /// Removes the channel at a place of the line of those that may start.
    fn leave_line(&mut self, place: usize) {
        let id = if place == 0 { self.ready.pop_front() } else { self.ready.remove(place) };
        if let Some(id) = id {
            self.channels[id].listed.ready = false;
        }
    }

    /// Returns the place in line of the next channel, from `first` on, whose record may go along with
    /// a request that is paid for, while others wait for what all share.
    fn next_to_go_along(&self, first: usize, now: ProcessingTime) -> Option<usize> {
        let policies = self.policies.as_ref().filter(|it| it.has_open_request(now))?;
        let rest = self.ready.range(first.min(self.ready.len())..);
        Some(first + rest.take_while(|id| !policies.may_go_along(**id, now)).count())
    }

    /// Uses a credit for a record that rests and was never called, unless earlier ones wait for it.
    pub fn try_start(&mut self, id: ChannelId, entry: EntryId, now: ProcessingTime) -> bool {
        let costs = self.costs(id, Some(entry), now);
        self.start_new(id, Some(entry), &costs, now)
    }

    /// Does so for a record that costs as much, and may have no place yet.
    pub(super) fn start_new(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: &Costs,
        now: ProcessingTime,
    ) -> bool {
        let is_first = |table: &Self| table.ready.is_empty();
        if self.channels[id].waiting > 0
            || self.may_start(id, Line::Records, costs, is_first, now) != Next::Start(())
        {
            return false;
        }
        if !self.take_credit(id) {
            self.give_back_permits(id, Line::Records);
            return false;
        }
        self.channels[id].resting -= 1;
        self.note_start(id, entry.map(own_call), costs, now);
        true
    }

    /// Uses a credit for a second call of a record of the channel, ahead of those that wait for
    /// one. Refuses it while the limit of the channel shrinks, or if `leaves_one` refuses the
    /// number of calls that it may have.
    pub(crate) fn try_hedge(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        leaves_one: impl FnOnce(usize) -> bool,
        now: ProcessingTime,
    ) -> Next<()> {
        // Its limit may have changed with the time.
        self.consult(id, now);
        let channel = &self.channels[id];
        let may_have = !channel.is_shrinking && leaves_one(channel.account.limit() as usize);
        if !may_have {
            return Next::None;
        }
        let costs = self.costs(id, Some(entry), now);
        let answer = self.may_start(id, Line::Hedges, &costs, |_| true, now);
        if answer != Next::Start(()) {
            return answer;
        }
        if !self.take_credit(id) {
            self.give_back_permits(id, Line::Hedges);
            return Next::None;
        }
        self.note_start(id, Some(Call { entry, line: Line::Hedges }), &costs, now);
        // It may have been meant for one that waits.
        self.ask(id);
        Next::Start(())
    }

    /// Returns whether [`take_credit`](Self::take_credit) would find one.
    fn has_credit(&mut self, id: ChannelId) -> bool {
        let account = &self.channels[id].account;
        if account.in_use() >= account.limit() {
            return false;
        }
        if account.free() == 0 && self.pool.free() == 0 {
            self.collect();
        }
        self.channels[id].account.free() > 0 || self.pool.free() > 0
    }

    /// Uses a credit of a channel: one that it holds, or else one that floats.
    fn take_credit(&mut self, id: ChannelId) -> bool {
        let account = &mut self.channels[id].account;
        if account.take_free() {
            return true;
        }
        if account.in_use() >= account.limit() {
            return false;
        }
        if self.pool.free() == 0 {
            self.collect();
        }
        let is_lent = self.channels[id].account.take(&mut self.pool);
        if is_lent {
            self.note_loan(id);
        }
        is_lent
    }

    /// Returns what the next call of a record of a channel costs; `None`: of any record.
    pub(super) fn costs(
        &self,
        id: ChannelId,
        entry: Option<EntryId>,
        now: ProcessingTime,
    ) -> Costs {
        self.policies.as_ref().map_or(Costs::NONE, |it| it.costs(id, entry, now))
    }

    /// Returns whether a call of a line may start that costs as much: the one question about it, which
    /// also asks for permits that others may take. `is_first` tells whether nobody waits before it for
    /// the limits that all channels share. Its credit is [taken](Self::take_credit) behind that.
    fn may_start(
        &mut self,
        id: ChannelId,
        line: Line,
        costs: &Costs,
        is_first: impl FnOnce(&Self) -> bool,
        now: ProcessingTime,
    ) -> Next<()> {
        let Some(policies) = &self.policies else { return Next::Start(()) };
        let asks_others = policies.asks_others();
        if line == Line::Records {
            if self.channels[id].is_held {
                return Next::None;
            }
            if let Some(at) = self.look(id, costs, now) {
                return Next::WaitUntil(at);
            }
            if !asks_others {
                return Next::Start(());
            }
        }
        if !self.has_credit(id) {
            return Next::None;
        }
        if self.policies.as_ref().is_some_and(|it| it.is_paid_in_line(costs)) && !is_first(self) {
            return Next::None;
        }
        let asked = self.policies.as_mut().and_then(|it| it.ask(id, line, costs, now));
        let Some(at) = asked else { return Next::Start(()) };
        if line == Line::Records {
            // It has a place in line now, until which its channel is held.
            self.look(id, costs, now);
            let is_spent = |it: &ChannelPolicies| it.spent(id, costs).is_some();
            if at == ProcessingTime::NEVER && self.policies.as_deref().is_some_and(is_spent) {
                self.look_at(id);
            }
        }
        Next::WaitUntil(at)
    }

    /// Gives back what a call may take that does not start after all; it keeps its place in line.
    #[cold]
    fn give_back_permits(&mut self, id: ChannelId, line: Line) {
        if let Some(policies) = &mut self.policies {
            policies.give_back(id, line);
        }
    }

    // --- what time does to channels ---

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

    /// Looks at the policies of a channel, and lets it be held or go on as they say for the record that
    /// is called next.
    pub(super) fn consult(&mut self, id: ChannelId, now: ProcessingTime) {
        if self.policies.is_some() {
            let foremost = self.channels[id].foremost(&self.nodes);
            let costs = self.costs(id, foremost, now);
            self.look(id, &costs, now);
        }
    }

    /// Does as [`consult`](Self::consult) for a call that costs as much; returns when it may start as far
    /// as its channel's time goes, if not now. Asks for nothing.
    fn look(
        &mut self,
        id: ChannelId,
        costs: &Costs,
        now: ProcessingTime,
    ) -> Option<ProcessingTime> {
        let policies = self.policies.as_mut()?;
        let channel = &mut self.channels[id];
        // The clock matters only to what waits, and to what others wait for outside.
        let is_awaited = channel.waiting > 0 || self.config.is_single;
        let counts_asked = self.wait_bound.is_some_and(|it| it.counts_asked);
        let verdict = policies.verdict(id, costs, counts_asked, now);
        channel.account.watch(verdict.is_watching);
        let held_until = verdict.held_until.filter(|_| is_awaited);
        policies.hold(id, held_until);
        let refuses = verdict.refuses;
        if channel.is_held != held_until.is_some() {
            channel.set_held(held_until.is_some());
            policies.note_held(channel.is_held, now);
            if channel.is_held {
                channel.account.give_back_free(&mut self.pool);
                self.serve();
            }
        }
        let channel = &mut self.channels[id];
        let was_paused_since = channel.outage.paused_since;
        channel.outage.paused_since = verdict.paused_since.unwrap_or(ProcessingTime::NEVER);
        let is_paused_anew = channel.outage.paused_since < was_paused_since;
        if refuses && channel.waiting > 0 {
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

    /// Returns how many calls of the single channel may start now, if each costs the usual.
    pub fn free_calls(&self) -> usize {
        let id = ChannelId(0);
        let Some(channel) = self.channels.get(id).filter(|_| self.is_single()) else {
            return usize::MAX;
        };
        let policies: Option<&ChannelPolicies> = self.policies.as_deref();
        let is_paused = channel.outage.paused_since != ProcessingTime::NEVER;
        let refuses = policies.is_some_and(|it| it.refuses(id));
        if refuses || (is_paused && self.wait_bound.is_some()) {
            // They do not wait, or not for ever.
            return usize::MAX;
        }
        let free = channel.account.limit().saturating_sub(channel.account.in_use());
        let most = policies.map_or(u32::MAX, |it| it.starts(id));
        let may_start = !channel.is_held && channel.waiting == 0;
        if may_start { free.min(most) as usize } else { 0 }
    }
}

/// Returns the call of a record that is not one beside another.
const fn own_call(entry: EntryId) -> Call {
    Call { entry, line: Line::Records }
}
