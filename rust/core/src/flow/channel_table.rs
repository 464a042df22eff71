// SPDX-License-Identifier: Apache-2.0
//! The channels of an operator: which record's call may start.

use std::collections::VecDeque;

use super::ChannelId;
use super::adaptive_limit::EndedCall;
use super::adaptive_limits::AdaptiveLimits;
use super::backlogs::Backlogs;
use super::channel::{Channel, NULL};
use super::channel_config::ChannelConfig;
use super::channel_index::ChannelIndex;
use super::channel_metrics::{ChannelReport, ChannelTotals};
use super::floating_pool::FloatingPool;
use crate::element::Key;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

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
/// As long as the pool has credits, a channel keeps those that it used: the next
/// record takes one and gives it back by counting, without a look at the pool.
/// Once the pool cannot serve a channel, those kept without need go back to it,
/// and none is kept (`is_scarce`) until nobody waits and a
/// quarter of the pool is free. So whoever waits finds every credit that is not
/// needed where it is, and handing them over costs a few steps for each that
/// was used since the last time. Exclusive credits of an idle channel stay there
/// until an active one lacks some.
#[derive(Debug)]
pub struct ChannelTable {
    config: ChannelConfig,
    /// Credits of all kinds.
    max_concurrency: u32,
    channels: Vec<Channel>,
    by_key: ChannelIndex,
    /// Places of forgotten channels.
    vacant: Vec<ChannelId>,
    /// The channel of the record admitted last; the next one is often of the same.
    last: (Key, ChannelId),
    pool: FloatingPool,
    /// Whether credits go back to the pool after each use. It is so while anybody waits for one.
    is_scarce: bool,
    /// Channels that may hold floating credits, each once.
    borrowers: Vec<ChannelId>,
    /// Exclusive credits that no channel has.
    unassigned: u32,
    /// Channels that may be idle and hold exclusive credits, each once; idle longest first.
    owners: VecDeque<ChannelId>,
    /// Channels that have something waiting and a credit for it, each once.
    ready: VecDeque<ChannelId>,
    nodes: Backlogs,
    /// Channels that may be known before it is looked for idle ones.
    known_until_search: usize,
    /// Channels that may become idle before it is looked for them.
    idle_until_search: usize,
    /// Records of all channels that wait and take no slot of the capacity.
    sheltered: usize,
    /// Totals of forgotten channels.
    forgotten: ChannelTotals,
    /// What sets the limits of the channels, if anything does.
    adaptive: Option<Box<AdaptiveLimits>>,
}

/// What [`ChannelTable::last`] is before the first record.
const NOWHERE: (Key, ChannelId) = (NULL, ChannelId(u32::MAX));

impl ChannelTable {
    /// Makes a table without channels for `max_concurrency` calls in flight, of all together.
    pub fn new(config: ChannelConfig, max_concurrency: u32) -> Self {
        let max_concurrency = max_concurrency.max(1);
        let config = config.sound(max_concurrency);
        Self {
            channels: Vec::new(),
            by_key: ChannelIndex::new(),
            vacant: Vec::new(),
            last: NOWHERE,
            pool: FloatingPool::new(config.floating, 0),
            max_concurrency,
            is_scarce: false,
            borrowers: Vec::new(),
            unassigned: max_concurrency - config.floating,
            owners: VecDeque::new(),
            ready: VecDeque::new(),
            nodes: Backlogs::new(),
            known_until_search: REMEMBERED,
            idle_until_search: REMEMBERED,
            sheltered: 0,
            forgotten: ChannelTotals::default(),
            adaptive: config
                .adaptive
                .map(|it| Box::new(AdaptiveLimits::new(it, config.max_per_channel))),
            config,
        }
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

    /// Counts a new record to its channel, which appears if need be.
    ///
    /// With `starts` it also uses a credit, unless there is none or earlier records
    /// wait for it; returns whether it did. It rests otherwise.
    #[inline]
    pub fn admit(&mut self, key: Option<Key>, starts: bool) -> (ChannelId, bool) {
        let key = key.unwrap_or(NULL);
        let (last, id) = self.last;
        let id = if last == key { id } else { self.look_up(key) };
        if starts
            && let Some(channel) = self.channels.get_mut(id.0 as usize)
            && channel.account.use_spare()
        {
            return (id, true);
        }
        self.admit_slowly(key, id, starts)
    }

    #[inline(never)]
    fn admit_slowly(&mut self, key: Key, id: ChannelId, starts: bool) -> (ChannelId, bool) {
        // Nothing was admitted before, and the key is that of `NOWHERE`.
        let id = if id == NOWHERE.1 { self.look_up(key) } else { id };
        let channel = &mut self.channels[id.0 as usize];
        let was_idle = channel.is_idle();
        channel.resting += 1;
        if was_idle {
            channel.account.park(false);
            if channel.account.exclusive() < self.config.exclusive {
                self.endow(id);
            }
        }
        (id, starts && self.try_start(id))
    }

    fn look_up(&mut self, key: Key) -> ChannelId {
        let known = self.by_key.find(key, &self.channels);
        let id = known.unwrap_or_else(|| self.open(key));
        self.last = (key, id);
        id
    }

    /// Makes a place for a channel; it is idle.
    #[inline(never)]
    fn open(&mut self, key: Key) -> ChannelId {
        if self.by_key.len() >= self.known_until_search {
            self.search_idle();
        }
        let channel = Channel::new(key, self.config.max_per_channel);
        let id = if let Some(id) = self.vacant.pop() {
            self.channels[id.0 as usize] = channel;
            id
        } else {
            // A channel takes more than one byte: memory ends before 2^32 of them.
            let id = ChannelId(u32::try_from(self.channels.len()).unwrap_or(u32::MAX));
            self.channels.push(channel);
            id
        };
        if let Some(adaptive) = &mut self.adaptive {
            let limit = adaptive.open(id);
            self.channels[id.0 as usize].account.set_limit(limit, &mut self.pool);
        }
        self.by_key.insert(id, &self.channels);
        id
    }

    /// Gives a channel that was idle credits of its own, as long as there are any.
    fn endow(&mut self, id: ChannelId) {
        let account = &self.channels[id.0 as usize].account;
        let wanted = self.config.exclusive.min(account.limit()).saturating_sub(account.exclusive());
        while self.unassigned < wanted
            && let Some(owner) = self.owners.pop_front()
        {
            let owner = &mut self.channels[owner.0 as usize];
            (owner.is_owner, owner.is_settled) = (false, false);
            if owner.is_idle() {
                self.unassigned += owner.account.release(&mut self.pool);
            }
        }
        let granted = wanted.min(self.unassigned);
        self.unassigned -= granted;
        let account = &mut self.channels[id.0 as usize].account;
        account.endow(granted);
        // What it kept beside them may be more than it may have.
        account.set_limit(account.limit(), &mut self.pool);
        self.serve();
    }

    /// Uses a credit for a record that rests, unless earlier ones wait for it.
    pub fn try_start(&mut self, id: ChannelId) -> bool {
        let channel = &mut self.channels[id.0 as usize];
        if channel.account.required() > 0 {
            return false;
        }
        if !channel.account.take_free() {
            if channel.account.in_use() >= channel.account.limit() {
                return false;
            }
            if self.pool.free() == 0 {
                self.collect();
            }
            if !self.channels[id.0 as usize].account.take(&mut self.pool) {
                return false;
            }
            self.note_loan(id);
        }
        self.channels[id.0 as usize].resting -= 1;
        true
    }

    /// Lists a channel that got a floating credit.
    fn note_loan(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        if !channel.is_borrower && channel.account.floating() > 0 {
            channel.is_borrower = true;
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
            let channel = &mut channels[id.0 as usize];
            channel.account.give_back_spare(pool);
            channel.is_borrower = channel.account.floating() > 0;
            channel.is_borrower
        });
    }

    /// Gives the credit of a record back that is not called after all; it rests.
    pub fn cancel_start(&mut self, id: ChannelId) {
        self.channels[id.0 as usize].resting += 1;
        self.recycle(id);
    }

    /// Notes that a record of the channel waits for whatever it is.
    pub fn suspend(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        channel.pending += 1;
        self.sheltered += usize::from(channel.pending <= self.config.max_backlog_per_channel);
    }

    /// Notes that a record of the channel waits no longer.
    pub fn resume(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        self.sheltered -= usize::from(channel.pending <= self.config.max_backlog_per_channel);
        channel.pending -= 1;
    }

    /// Lets a record wait for a credit, a retry ahead of those that were never called.
    pub fn wait(&mut self, id: ChannelId, entry: EntryId, is_retry: bool, now: ProcessingTime) {
        let channel = &mut self.channels[id.0 as usize];
        let line = if is_retry { &mut channel.retries } else { &mut channel.first_calls };
        self.nodes.push(line, entry);
        channel.is_settled = false;
        let backlog = channel.account.required();
        if backlog == 0 {
            channel.starved_since = now;
        }
        channel.account.set_required(backlog + 1);
        self.ask(id);
    }

    /// Asks for the credits that the channel lacks; with any it is ready.
    fn ask(&mut self, id: ChannelId) {
        if self.channels[id.0 as usize].account.wanted() > self.pool.free() {
            self.collect();
        }
        let channel = &mut self.channels[id.0 as usize];
        if channel.account.replenish(id, &mut self.pool) > 0 {
            self.note_loan(id);
        }
        let channel = &mut self.channels[id.0 as usize];
        if channel.may_start() && !channel.is_ready {
            channel.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Returns whether [`next_start`](Self::next_start) may return a record.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next record whose call starts now: it rests no longer, its credit is in use.
    ///
    /// Records that wait no longer, by `is_live`, are passed over.
    pub fn next_start(
        &mut self,
        now: ProcessingTime,
        mut is_live: impl FnMut(EntryId) -> bool,
    ) -> Option<EntryId> {
        while let Some(id) = self.ready.pop_front() {
            let channel = &mut self.channels[id.0 as usize];
            channel.is_ready = false;
            if !channel.may_start() {
                continue;
            }
            let Some(entry) = channel.next(&mut self.nodes, &mut is_live) else { continue };
            channel.account.take_free();
            channel.resting -= 1;
            channel.shorten(now, &mut self.pool);
            self.ask(id);
            return Some(entry);
        }
        None
    }

    /// Notes that a record that waited for a credit needs none any more; it rests still.
    pub fn stop_waiting(
        &mut self,
        id: ChannelId,
        now: ProcessingTime,
        mut is_live: impl FnMut(EntryId) -> bool,
    ) {
        let channel = &mut self.channels[id.0 as usize];
        channel.shorten(now, &mut self.pool);
        channel.prune(&mut self.nodes, &mut is_live);
        if channel.account.free() > channel.account.required() {
            channel.account.give_back_free(&mut self.pool);
            self.serve();
            self.ask(id);
        }
    }

    /// Ends a call that took `nanos` and completed its record.
    ///
    /// The credit stays where it is, or goes to whoever has waited longest.
    #[inline]
    pub fn end_call(&mut self, id: ChannelId, nanos: u64) {
        let channel = &mut self.channels[id.0 as usize];
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
    pub fn finish_call(&mut self, id: ChannelId, nanos: u64) {
        let channel = &mut self.channels[id.0 as usize];
        channel.count(nanos);
        channel.resting += 1;
        self.recycle(id);
    }

    /// Ends the use of a credit, which goes to whoever has waited longest.
    fn recycle(&mut self, id: ChannelId) {
        let account = &mut self.channels[id.0 as usize].account;
        let is_needed = account.required() > 0;
        account.recycle(&mut self.pool);
        if is_needed || self.pool.has_waiting() {
            self.serve();
            self.ask(id);
        }
        let is_plenty = self.pool.free() > self.pool.size() / 4;
        self.is_scarce = self.is_scarce && !(is_plenty && self.pool.is_uncontended());
    }

    /// Lets the channel's limit learn from a call that is about to be finished, if it is adaptive.
    #[inline]
    pub fn observe_call(&mut self, id: ChannelId, call: impl FnOnce(u32) -> EndedCall) {
        if self.adaptive.is_some() {
            let in_flight = self.channels[id.0 as usize].account.in_use();
            self.adapt(id, call(in_flight));
        }
    }

    #[inline(never)]
    fn adapt(&mut self, id: ChannelId, call: EndedCall) {
        let changed = self.adaptive.as_mut().and_then(|it| it.observe(id, call));
        if let Some(limit) = changed {
            self.set_limit_of(id, limit);
        }
    }

    /// Hands free credits to the channels in line.
    fn serve(&mut self) {
        while let Some(id) = self.pool.grant() {
            if self.channels[id.0 as usize].account.accept_grant(&mut self.pool) {
                self.note_loan(id);
            }
            self.ask(id);
        }
    }

    /// Counts a record that rests no longer to its channel: it is completed.
    pub fn leave(&mut self, id: ChannelId) {
        self.channels[id.0 as usize].resting -= 1;
        self.retire(id);
    }

    /// Takes what a channel needs no longer, if it has no records.
    #[inline]
    fn retire(&mut self, id: ChannelId) {
        let channel = &self.channels[id.0 as usize];
        if !channel.is_idle() {
            return;
        }
        self.idle_until_search -= 1;
        if !channel.is_settled || self.is_scarce || self.idle_until_search == 0 {
            self.retire_slowly(id);
        }
    }

    #[inline(never)]
    fn retire_slowly(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        self.nodes.clear(&mut channel.retries);
        self.nodes.clear(&mut channel.first_calls);
        if channel.account.exclusive() > channel.account.limit() {
            self.unassigned += channel.account.release(&mut self.pool);
        }
        if self.is_scarce {
            channel.account.give_back_spare(&mut self.pool);
        }
        let exclusive = channel.account.exclusive();
        if exclusive > 0 && !channel.is_owner {
            channel.is_owner = true;
            self.owners.push_back(id);
        }
        channel.is_settled = exclusive == self.config.exclusive;
        channel.account.park(!channel.is_settled);
        self.serve();
        if self.idle_until_search == 0 {
            self.search_idle();
        }
    }

    /// Forgets idle channels if there are many. Costs a few steps for each channel that came or
    /// became idle since the last time.
    #[inline(never)]
    fn search_idle(&mut self) {
        let active = self.channels.iter().filter(|it| !it.is_idle()).count();
        if self.by_key.len() > 2 * active + REMEMBERED / 2 {
            self.forget_idle();
        }
        self.known_until_search = self.by_key.len().max(REMEMBERED / 2) * 2;
        self.idle_until_search = self.known_until_search;
    }

    /// Forgets all channels without records, and gives their memory back.
    fn forget_idle(&mut self) {
        for channel in self.channels.iter_mut().filter(|it| it.is_idle() && !it.is_forgotten) {
            channel.is_forgotten = true;
            (channel.is_borrower, channel.is_owner) = (false, false);
            self.forgotten.add(&channel.totals());
            self.unassigned += channel.account.release(&mut self.pool);
        }
        let is_known = |id: &ChannelId| !self.channels[id.0 as usize].is_forgotten;
        self.ready.retain(is_known);
        self.borrowers.retain(is_known);
        self.owners.retain(is_known);
        while self.channels.last().is_some_and(|it| it.is_forgotten) {
            self.channels.pop();
        }
        let ids = (0..).map(ChannelId).zip(&self.channels);
        self.vacant = ids.filter(|(_, it)| it.is_forgotten).map(|(id, _)| id).collect();
        self.by_key.rebuild(&self.channels);
        self.last = NOWHERE;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.truncate(self.channels.len());
        }
        let active = self.by_key.len();
        self.channels.shrink_to(2 * active + REMEMBERED);
        self.borrowers.shrink_to(2 * active + REMEMBERED);
        self.owners.shrink_to(2 * active + REMEMBERED);
        self.serve();
    }

    /// Sets the most calls in flight of one channel, as an adaptive limit does.
    pub fn set_limit(&mut self, key: Option<Key>, limit: u32) {
        let id = self.look_up(key.unwrap_or(NULL));
        self.set_limit_of(id, limit);
    }

    fn set_limit_of(&mut self, id: ChannelId, limit: u32) {
        let limit = limit.clamp(1, self.max_concurrency);
        let channel = &mut self.channels[id.0 as usize];
        channel.account.set_limit(limit, &mut self.pool);
        channel.is_settled = false;
        if channel.is_idle() {
            self.unassigned += channel.account.release(&mut self.pool);
            self.serve();
        } else {
            self.serve();
            self.ask(id);
        }
    }

    /// Returns the `count` channels that wait most, and the sums of the others.
    pub fn report(&self, count: usize, now: ProcessingTime) -> ChannelReport {
        let known = self.channels.iter().filter(|it| !it.is_forgotten);
        ChannelReport::of(known.map(|it| it.metrics(now)).collect(), count, self.forgotten)
    }

    /// Returns what the records of a channel have in common; `None` for records without a channel.
    pub fn key(&self, id: ChannelId) -> Option<Key> {
        self.channels.get(id.0 as usize).map(|it| it.key).filter(|key| *key != NULL)
    }
}

#[cfg(test)]
mod tests;
