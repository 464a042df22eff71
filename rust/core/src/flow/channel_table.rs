// SPDX-License-Identifier: Apache-2.0
//! The channels of an operator: which record's call may start.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::ChannelId;
use super::backlogs::Backlogs;
use super::channel::{Channel, NULL, Rest};
use super::channel_config::ChannelConfig;
use super::channel_metrics::{ChannelReport, ChannelTotals};
use super::channel_policies::ChannelPolicies;
use super::channel_slab::ChannelSlab;
use super::endowment::Endowment;
use super::floating_pool::FloatingPool;
use super::outage::WaitBound;
use crate::element::Key;
use crate::policy::{Costs, Ledgers, Price};
use crate::queue::EntryId;
use crate::time::ProcessingTime;
use crate::timer::DelayedRetries;

/// Idle channels that are remembered, beyond as many as are active.
///
/// Remembering one saves a removal and an insertion when it comes back; 4096
/// take about 600 KiB.
const REMEMBERED: usize = 4096;

/// Spreads the permits of an operator over the destinations of its records.
///
/// Sender and receiver of a credit are the same thread here, so nothing needs
/// announcing: a channel asks for exactly what waits. A channel appears with its
/// first record. Without records it is idle, and forgotten when there are many.
///
/// ```text
///                                          /-- finish_call --> it rests
///   admit --> (starts) ----------> in use --> end_call ------> it is completed
///        \--> it rests                 ^                |
///              | wait --> next_start --/ (ready)  <-----+ a credit for whoever waits
///              \--------> leave: it is completed
/// ```
///
/// As long as the pool has credits, a channel keeps those that it used: the next record takes one
/// and gives it back by counting, without a look at the pool. Once the pool cannot serve a channel,
/// those kept without need go back to it, and none is kept (`is_scarce`) until nobody waits and a
/// quarter of the pool is free. So a channel that waits finds every credit that is not needed where
/// it is, and handing them over costs a few steps for each that was used since the last time.
/// Exclusive credits of an idle channel stay there until an active one lacks some.
///
/// Policies of a channel may bound its calls further, and in time. Its limit follows their window. A
/// channel that may start nothing before some time asks for no credit until then: it is *held*, and
/// [`handle_time`](Self::handle_time) has another look at it. Limits in time that all channels share
/// are a gate behind the credits: channels that have theirs pass it one after the other.
#[derive(Debug)]
pub struct ChannelTable {
    config: ChannelConfig,
    /// Credits of all kinds.
    max_concurrency: u32,
    /// Most calls in flight of one channel as things stand, whatever its own limit is.
    share: u32,
    channels: ChannelSlab,
    pool: FloatingPool,
    /// Whether credits go back to the pool after each use. It is so while anybody waits for one.
    is_scarce: bool,
    /// Channels that may hold floating credits, each once.
    borrowers: Vec<ChannelId>,
    endowment: Endowment,
    /// Channels that have something waiting and a credit for it, each once.
    ready: VecDeque<ChannelId>,
    /// For how long records wait for a destination that is not there; `None`: for ever.
    wait_bound: Option<WaitBound>,
    /// When channels are looked at whose destination may not be there; entries of others are dropped
    /// lazily.
    looks: DelayedRetries<ChannelId>,
    /// Channels whose records may have to fail instead of waiting.
    refusing: Vec<ChannelId>,
    nodes: Backlogs,
    /// Channels that may be known before it is looked for idle ones.
    known_until_search: usize,
    /// Channels that may become idle before it is looked for them.
    idle_until_search: usize,
    /// Records of all channels that wait and take no slot of the capacity.
    sheltered: usize,
    /// Totals of forgotten channels.
    forgotten: ChannelTotals,
    /// What bounds the calls of the channels beside their credits, if anything does.
    policies: Option<Box<ChannelPolicies>>,
}

impl ChannelTable {
    /// Makes a table without channels for `max_concurrency` calls in flight, of all together.
    pub fn new(config: ChannelConfig, max_concurrency: u32) -> Self {
        Self::with_sources(config, max_concurrency, None)
    }

    /// Does as [`new`](Self::new); `sources` has the permits of limits that others share.
    pub fn with_sources(
        config: ChannelConfig,
        max_concurrency: u32,
        sources: Option<Arc<dyn Ledgers>>,
    ) -> Self {
        let max_concurrency = max_concurrency.max(1);
        let config = config.sound(max_concurrency);
        let mut table = Self {
            channels: ChannelSlab::new(),
            pool: FloatingPool::new(config.floating),
            max_concurrency,
            share: max_concurrency,
            is_scarce: false,
            borrowers: Vec::new(),
            endowment: Endowment::new(max_concurrency - config.floating),
            ready: VecDeque::new(),
            wait_bound: None,
            looks: DelayedRetries::new(),
            refusing: Vec::new(),
            nodes: Backlogs::new(),
            known_until_search: REMEMBERED,
            idle_until_search: REMEMBERED,
            sheltered: 0,
            forgotten: ChannelTotals::default(),
            policies: ChannelPolicies::new(
                &config.policy,
                sources,
                config.max_per_channel,
                config.is_single,
            ),
            config,
        };
        if config.is_single {
            table.open(NULL, ProcessingTime::ZERO);
        }
        table
    }

    /// Returns whether all records are of one channel.
    #[inline]
    pub const fn is_single(&self) -> bool {
        self.config.is_single
    }

    /// Returns the number of records that wait and take no slot of the capacity.
    #[inline]
    pub const fn sheltered(&self) -> usize {
        self.sheltered
    }

    /// Returns how many further records may wait without a slot of the capacity.
    #[inline]
    pub const fn free_backlog(&self) -> usize {
        self.config.max_backlog.saturating_sub(self.sheltered)
    }

    /// Counts a new record to its channel if that has a credit at hand, which is used.
    #[inline]
    pub fn start_at_once(&mut self, key: Option<Key>, now: ProcessingTime) -> Option<ChannelId> {
        let id = self.look_up(key, now);
        let channel = &mut self.channels[id];
        if !channel.account.use_spare() {
            return None;
        }
        channel.note_begun(now);
        Some(id)
    }

    /// Counts a new record to its channel, which appears if need be.
    ///
    /// With `starts` it also uses a credit, unless there is none or earlier records
    /// wait for it; returns whether it did. It rests otherwise.
    pub fn admit(
        &mut self,
        key: Option<Key>,
        starts: bool,
        now: ProcessingTime,
    ) -> (ChannelId, bool) {
        let (id, charged) = self.admit_for(key, Price::Usual, starts, now);
        (id, charged.is_some())
    }

    /// Does as [`admit`](Self::admit) for a record of this price. You [note](Self::note_price) it
    /// when it has a place, with what its call was charged if it has started.
    pub fn admit_for(
        &mut self,
        key: Option<Key>,
        price: Price,
        starts: bool,
        now: ProcessingTime,
    ) -> (ChannelId, Option<Costs>) {
        let id = self.look_up(key, now);
        let channel = &mut self.channels[id];
        if starts && channel.account.use_spare() {
            channel.note_begun(now);
            return (id, Some(self.estimate_for(price)));
        }
        let was_idle = channel.is_idle();
        channel.rest_one(now);
        if was_idle {
            if channel.rest() == Rest::Parked {
                channel.set_rest(Rest::Changed);
            }
            if self.policies.is_some() {
                self.consult(id, now);
            }
            let channel = &self.channels[id];
            if channel.account.exclusive() < self.config.exclusive {
                self.endow(id);
            }
        }
        let beside = self.estimate_for(price);
        let policies = self.policies.as_ref().filter(|_| starts);
        let costs = policies.map_or(beside, |it| it.costs_beside(id, beside, now));
        (id, (starts && self.start_new(id, None, &costs, now)).then_some(costs))
    }

    /// Returns what the first call of a record of this price costs, beside its request.
    fn estimate_for(&self, price: Price) -> Costs {
        self.policies.as_ref().map_or(Costs::NONE, |it| it.tickets.estimate_for(price))
    }

    /// Returns the channel of a key, which appears if need be.
    #[inline]
    fn look_up(&mut self, key: Option<Key>, now: ProcessingTime) -> ChannelId {
        let key = key.unwrap_or(NULL);
        match self.channels.find(key) {
            Some(id) => id,
            None => self.open(key, now),
        }
    }

    /// Makes a place for a channel; it is idle.
    #[inline(never)]
    fn open(&mut self, key: Key, now: ProcessingTime) -> ChannelId {
        if self.channels.len() >= self.known_until_search {
            self.search_idle();
        }
        let channel = Channel::new(key, self.config.max_per_channel);
        let most = self.most_calls(&channel);
        let id = self.channels.insert(channel);
        self.channels[id].account.set_limit(most, &mut self.pool);
        if let Some(policies) = &mut self.policies {
            policies.open(id, Some(key).filter(|it| *it != NULL), now);
            self.consult(id, now);
        }
        id
    }

    /// Gives a channel that was idle credits of its own, as long as there are any.
    fn endow(&mut self, id: ChannelId) {
        let account = &self.channels[id].account;
        let wanted = self.config.exclusive.min(account.limit()).saturating_sub(account.exclusive());
        let granted = self.endowment.take(wanted, &mut self.channels, &mut self.pool);
        let account = &mut self.channels[id].account;
        account.endow(granted);
        // What it kept beside them may be more than it may have.
        account.set_limit(account.limit(), &mut self.pool);
        self.serve();
    }

    /// Lists a channel that got a floating credit.
    fn note_loan(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id];
        if !channel.listed.borrower && channel.account.floating() > 0 {
            channel.listed.borrower = true;
            self.borrowers.push(id);
        }
    }

    /// Takes back the floating credits that channels keep without need; from now on none does.
    fn collect(&mut self) {
        if self.is_scarce {
            return;
        }
        self.is_scarce = true;
        let (channels, pool) = (&mut self.channels, &mut self.pool);
        self.borrowers.retain(|id| {
            let channel = &mut channels[*id];
            channel.account.give_back_spare(pool);
            channel.listed.borrower = channel.account.floating() > 0;
            channel.listed.borrower
        });
    }

    /// Gives the credit of a record back that is not called after all; it rests.
    pub fn cancel_start(&mut self, id: ChannelId) {
        self.channels[id].resting += 1;
        self.recycle(id);
    }

    /// Notes that a record of the channel waits for whatever it is.
    pub fn suspend(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id];
        channel.pending += 1;
        self.sheltered += usize::from(channel.pending <= self.config.max_backlog_per_channel);
    }

    /// Notes that a record of the channel waits no longer.
    pub fn resume(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id];
        self.sheltered -= usize::from(channel.pending <= self.config.max_backlog_per_channel);
        channel.pending -= 1;
    }

    /// Lets a record wait for a credit, a retry ahead of those that were never called. It has
    /// waited since `since`, possibly for an earlier record of its key.
    pub fn wait(
        &mut self,
        id: ChannelId,
        entry: EntryId,
        is_retry: bool,
        since: ProcessingTime,
        now: ProcessingTime,
    ) {
        // One that has waited too long is in front, so that all those behind it in the line of its
        // key end with it, and not one after the other.
        let is_over = self.has_waited_too_long(id, since, now);
        let channel = &mut self.channels[id];
        let line = if is_retry { &mut channel.retries } else { &mut channel.first_calls };
        if is_over {
            self.nodes.push_front(line, entry);
            self.look_at(id);
        } else {
            self.nodes.push(line, entry);
        }
        let channel = &mut self.channels[id];
        channel.unsettle();
        if channel.waiting == 0 {
            channel.starved_since = now;
        }
        channel.set_waiting(channel.waiting + 1);
        if self.policies.is_some() {
            self.consult(id, now);
        }
        self.watch_wait(id, since.min(self.channels[id].starved_since), now);
        self.ask(id);
    }

    /// Asks for the credits that the channel lacks; with any it is ready.
    fn ask(&mut self, id: ChannelId) {
        if self.channels[id].account.wanted() > self.pool.free() {
            self.collect();
        }
        let channel = &mut self.channels[id];
        if channel.account.replenish(id, &mut self.pool) > 0 {
            self.note_loan(id);
        }
        let channel = &mut self.channels[id];
        if channel.may_start() && !channel.listed.ready {
            channel.listed.ready = true;
            self.ready.push_back(id);
        }
    }

    /// Ends a call that took `nanos` and completed its record.
    ///
    /// The credit stays where it is, or goes to the channel that has waited longest.
    #[inline]
    pub fn end_call(&mut self, id: ChannelId, nanos: u64) {
        let channel = &mut self.channels[id];
        channel.count(nanos);
        if self.is_scarce || !channel.account.end_use() {
            return self.end_call_slowly(id);
        }
        if channel.account.in_use() == 0 {
            self.retire(id);
        }
    }

    #[inline(never)]
    fn end_call_slowly(&mut self, id: ChannelId) {
        self.recycle(id);
        self.retire(id);
    }

    /// Ends a call that took `nanos` and whose record rests now.
    pub fn finish_call(&mut self, id: ChannelId, nanos: u64, now: ProcessingTime) {
        let channel = &mut self.channels[id];
        channel.count(nanos);
        channel.rest_one(now);
        self.recycle(id);
    }

    /// Ends the use of a credit, which goes to the channel that has waited longest.
    fn recycle(&mut self, id: ChannelId) {
        let account = &mut self.channels[id].account;
        let is_needed = account.required() > 0;
        account.recycle(&mut self.pool);
        if is_needed || self.pool.has_waiting() {
            self.serve();
            self.ask(id);
        }
        let is_plenty = self.pool.free() > self.pool.size() / 4;
        self.is_scarce = self.is_scarce && (!is_plenty || self.pool.has_waiting());
    }

    /// Hands free credits to the channels in line.
    fn serve(&mut self) {
        while let Some(id) = self.pool.grant() {
            if self.channels[id].account.accept_grant(&mut self.pool) {
                self.note_loan(id);
            }
            self.ask(id);
        }
    }

    /// Counts a record that rests no longer to its channel: it is completed.
    pub fn leave(&mut self, id: ChannelId) {
        self.channels[id].resting -= 1;
        self.retire(id);
    }

    /// Follows the number of calls that all channels together may have in flight now.
    ///
    /// The caller that starts them keeps to it. Here each channel is bound to its share of it, the
    /// same as its share of all credits, so that one that stands still does not take it from the
    /// others.
    pub fn set_window(&mut self, calls: NonZeroUsize) {
        let max = u64::from(self.max_concurrency);
        let calls = u64::try_from(calls.get()).unwrap_or(max).min(max);
        let most = self.config.exclusive.saturating_add(self.config.floating);
        let most = if calls < max { most.min(self.config.max_per_channel).into() } else { max };
        let share = u32::try_from(most * calls / max).unwrap_or(u32::MAX).max(1);
        if std::mem::replace(&mut self.share, share) == share {
            return;
        }
        for id in (0..).map(ChannelId).take(self.channels.places()) {
            let channel = &self.channels[id];
            // Mostly it has fewer calls than its share either way.
            if self.channels.is_known(id) && channel.account.limit() != self.most_calls(channel) {
                self.set_limit_of(id, channel.limit);
            }
        }
    }

    /// Returns how many calls of a channel may be in flight as things stand: the least of what its
    /// settings and its policies say, which is its limit, and of its share of the window.
    fn most_calls(&self, channel: &Channel) -> u32 {
        channel.limit.min(self.share)
    }

    /// Sets the most calls in flight of one channel; none with 0.
    fn set_limit_of(&mut self, id: ChannelId, limit: u32) {
        self.channels[id].limit = limit.min(self.config.max_per_channel);
        let most = self.most_calls(&self.channels[id]);
        let channel = &mut self.channels[id];
        channel.account.set_limit(most, &mut self.pool);
        channel.unsettle();
        if channel.is_idle() {
            self.endowment.release(channel, &mut self.pool);
            self.serve();
        } else {
            self.serve();
            self.ask(id);
        }
    }

    /// Returns the `count` channels that wait most, and the sums of the others.
    pub fn report(&self, count: usize, now: ProcessingTime) -> ChannelReport {
        let known = self.channels.iter().map(|it| it.metrics(now)).collect();
        ChannelReport::of(known, count, self.forgotten)
    }

    /// Returns what the records of a channel have in common; `None` for records without a channel.
    pub fn key(&self, id: ChannelId) -> Option<Key> {
        self.channels.get(id).map(|it| it.key).filter(|key| *key != NULL)
    }
}

mod idle;
mod next;
mod outages;
mod policies;
#[cfg(test)]
mod tests;

pub(crate) use next::Next;
pub(crate) use outages::Unserved;
