// SPDX-License-Identifier: Apache-2.0
//! The channels of an operator: which record's call may start.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::time::Duration;

use super::ChannelId;
use super::adaptive_limit::EndedCall;
use super::adaptive_limits::AdaptiveLimits;
use super::backlogs::{Backlog, Backlogs};
use super::channel_config::ChannelConfig;
use super::channel_metrics::{ChannelMetrics, ChannelReport, ChannelTotals};
use super::credit_account::CreditAccount;
use super::floating_pool::FloatingPool;
use crate::element::Key;
use crate::key_hasher::KeyHasher;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// Idle channels that are remembered, beyond as many as are active.
///
/// Remembering one saves a removal and an insertion when it comes back; 1024
/// cost about 200 KiB.
const REMEMBERED: usize = 1024;

/// Spreads the permits of an operator over the destinations of its records.
///
/// Sender and receiver of a credit are the same thread here, so nothing needs
/// announcing: a channel asks for exactly what waits, and a credit that it has
/// is used at once. A channel appears with its first record. Without records it
/// is idle: it holds no credit, and is forgotten when there are many of them.
///
/// ```text
///   admit --> try_start ------------------> in use --> finish_call --> leave
///                 \--> wait --> next_start --^               |
///                              (ready)  <--------------------+ a credit for whoever waits
/// ```
#[derive(Debug)]
pub struct ChannelTable {
    config: ChannelConfig,
    /// Credits of all kinds.
    max_concurrency: u32,
    by_key: HashMap<Key, ChannelId, BuildHasherDefault<KeyHasher>>,
    channels: Vec<Channel>,
    /// Places of forgotten channels.
    vacant: Vec<ChannelId>,
    /// The channel of the record admitted last; the next one is often of the same.
    last: (Key, ChannelId),
    pool: FloatingPool,
    /// Exclusive credits that no active channel has.
    unassigned: u32,
    /// Channels that have something waiting and a credit for it, each once.
    ready: VecDeque<ChannelId>,
    nodes: Backlogs,
    active: usize,
    idle: usize,
    /// Records of all channels that wait and take no slot of the capacity.
    sheltered: usize,
    /// Totals of forgotten channels.
    forgotten: ChannelTotals,
    /// What sets the limits of the channels, if anything does.
    adaptive: Option<Box<AdaptiveLimits>>,
}

/// One destination.
#[derive(Debug)]
struct Channel {
    key: Key,
    account: CreditAccount,
    /// Records admitted and not completed.
    records: u32,
    /// Those of them that wait: for a credit, for their key, for the end of a back-off.
    pending: u32,
    /// Records whose back-off is over; they go first.
    retries: Backlog,
    /// Records that wait for their first call.
    first_calls: Backlog,
    is_ready: bool,
    is_forgotten: bool,
    /// Since when something waits for a credit.
    starved_since: ProcessingTime,
    /// Time before that during which something waited for a credit.
    starved: Duration,
    /// Calls that ended, and how long they took in all.
    calls: u64,
    call_nanos: u64,
}

/// The channel of a record without one; as any key, it is 64 bits of a hash.
const NULL: Key = Key(0x6e75_6c6c_2063_6861);

/// What [`ChannelTable::last`] is before the first record.
const NOWHERE: (Key, ChannelId) = (NULL, ChannelId(u32::MAX));

impl ChannelTable {
    /// Makes a table without channels for `max_concurrency` calls in flight, of all together.
    pub fn new(config: ChannelConfig, max_concurrency: u32) -> Self {
        let max_concurrency = max_concurrency.max(1);
        let config = config.sound(max_concurrency);
        Self {
            by_key: HashMap::default(),
            channels: Vec::new(),
            vacant: Vec::new(),
            last: NOWHERE,
            pool: FloatingPool::new(config.floating, 0),
            max_concurrency,
            unassigned: max_concurrency - config.floating,
            ready: VecDeque::new(),
            nodes: Backlogs::new(),
            active: 0,
            idle: 0,
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
    #[inline]
    pub fn admit(&mut self, key: Option<Key>) -> ChannelId {
        let key = key.unwrap_or(NULL);
        let (last, id) = self.last;
        let is_known = last == key && id != NOWHERE.1;
        let id = if is_known { id } else { self.look_up(key) };
        let channel = &mut self.channels[id.0 as usize];
        channel.records += 1;
        if channel.records == 1 {
            self.activate(id);
        }
        id
    }

    fn look_up(&mut self, key: Key) -> ChannelId {
        let known = self.by_key.get(&key).copied();
        let id = known.unwrap_or_else(|| self.open(key));
        self.last = (key, id);
        id
    }

    /// Makes a place for a channel; it is idle.
    fn open(&mut self, key: Key) -> ChannelId {
        let channel = Channel::new(key, self.config.max_per_channel);
        self.idle += 1;
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
        self.by_key.insert(key, id);
        id
    }

    /// Gives a channel that was idle credits of its own, as long as there are any.
    #[inline]
    fn activate(&mut self, id: ChannelId) {
        self.idle -= 1;
        self.active += 1;
        let exclusive = self.config.exclusive.min(self.unassigned);
        if exclusive > 0 {
            let account = &mut self.channels[id.0 as usize].account;
            let exclusive = exclusive.min(account.limit());
            account.endow(exclusive);
            self.unassigned -= exclusive;
        }
    }

    /// Uses a credit for a new record, unless earlier ones wait for it.
    #[inline]
    pub fn try_start(&mut self, id: ChannelId) -> bool {
        let channel = &mut self.channels[id.0 as usize];
        channel.account.backlog() == 0 && channel.account.take(&mut self.pool)
    }

    /// Gives the credit of a record back that is not called after all.
    pub fn cancel_start(&mut self, id: ChannelId) {
        if self.channels[id.0 as usize].account.recycle(&mut self.pool) {
            self.serve();
        }
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
        let backlog = channel.account.backlog();
        if backlog == 0 {
            channel.starved_since = now;
        }
        channel.account.set_backlog(backlog + 1);
        self.ask(id);
    }

    /// Asks for the credits that the channel lacks; with any it is ready.
    fn ask(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        channel.account.replenish(id, &mut self.pool);
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

    /// Takes the next record whose call starts now; its credit is in use.
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
            channel.shorten(now, &mut self.pool);
            self.ask(id);
            return Some(entry);
        }
        None
    }

    /// Notes that a record that waited for a credit needs none any more.
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

    /// Ends the use of a credit since `start`, which goes to whoever has waited longest.
    #[inline]
    pub fn finish_call(&mut self, id: ChannelId, start: ProcessingTime, now: ProcessingTime) {
        let channel = &mut self.channels[id.0 as usize];
        channel.calls += 1;
        channel.call_nanos = channel.call_nanos.saturating_add(now.nanos_since(start));
        let is_needed = channel.account.backlog() > 0;
        channel.account.recycle(&mut self.pool);
        if is_needed || self.pool.has_waiting() {
            self.serve();
            self.ask(id);
        }
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
            self.channels[id.0 as usize].account.accept_grant(&mut self.pool);
            self.ask(id);
        }
    }

    /// Counts a record no longer to its channel: it is completed.
    #[inline]
    pub fn leave(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        channel.records -= 1;
        if channel.records == 0 {
            self.retire(id);
        }
    }

    /// Takes all credits of a channel without records.
    #[inline]
    fn retire(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id.0 as usize];
        self.active -= 1;
        self.idle += 1;
        if !channel.account.is_blank() {
            self.unassigned += channel.account.release(&mut self.pool);
            self.serve();
        }
        let channel = &mut self.channels[id.0 as usize];
        if channel.has_nodes() {
            self.nodes.clear(&mut channel.retries);
            self.nodes.clear(&mut channel.first_calls);
        }
        if self.idle > self.active + REMEMBERED {
            self.forget_idle();
        }
    }

    /// Forgets all channels without records, and gives their memory back.
    fn forget_idle(&mut self) {
        for channel in self.channels.iter_mut().filter(|it| it.records == 0 && !it.is_forgotten) {
            channel.is_forgotten = true;
            self.by_key.remove(&channel.key);
            self.forgotten.add(&channel.totals());
        }
        self.ready.retain(|id| !self.channels[id.0 as usize].is_forgotten);
        while self.channels.last().is_some_and(|it| it.is_forgotten) {
            self.channels.pop();
        }
        let ids = (0..).map(ChannelId).zip(&self.channels);
        self.vacant = ids.filter(|(_, it)| it.is_forgotten).map(|(id, _)| id).collect();
        self.idle = 0;
        self.last = NOWHERE;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.truncate(self.channels.len());
        }
        self.channels.shrink_to(2 * self.active + REMEMBERED);
        self.by_key.shrink_to(2 * self.active + REMEMBERED);
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
        if channel.records > 0 {
            self.serve();
            self.ask(id);
        }
    }

    /// Returns the `count` channels that wait most, and the sums of the others.
    pub fn report(&self, count: usize, now: ProcessingTime) -> ChannelReport {
        let known = self.channels.iter().filter(|it| !it.is_forgotten);
        let mut top: Vec<_> = known.map(|it| it.metrics(now)).collect();
        let rank = |it: &ChannelMetrics| (it.backlog, it.totals.starved, it.totals.calls);
        if count < top.len() {
            top.select_nth_unstable_by(count, |a, b| rank(b).cmp(&rank(a)));
        }
        let (mut rest, mut rest_backlog, mut rest_in_flight) = (self.forgotten, 0, 0);
        for channel in top.drain(count.min(top.len())..) {
            rest.add(&channel.totals);
            rest_backlog += u64::from(channel.backlog);
            rest_in_flight += u64::from(channel.in_flight);
        }
        top.sort_unstable_by(|a, b| {
            rank(b).cmp(&rank(a)).then(a.key.map(|it| it.0).cmp(&b.key.map(|it| it.0)))
        });
        ChannelReport { active: self.active, top, rest_backlog, rest_in_flight, rest }
    }

    /// Returns what the records of a channel have in common; `None` for records without a channel.
    pub fn key(&self, id: ChannelId) -> Option<Key> {
        self.channels.get(id.0 as usize).map(|it| it.key).filter(|key| *key != NULL)
    }
}

impl Channel {
    fn new(key: Key, limit: u32) -> Self {
        Self {
            key,
            account: CreditAccount::new(0, limit, 0),
            records: 0,
            pending: 0,
            retries: Backlog::EMPTY,
            first_calls: Backlog::EMPTY,
            is_ready: false,
            is_forgotten: false,
            starved_since: ProcessingTime::ZERO,
            starved: Duration::ZERO,
            calls: 0,
            call_nanos: 0,
        }
    }

    fn totals(&self) -> ChannelTotals {
        let latency = Duration::from_nanos(self.call_nanos);
        ChannelTotals { calls: self.calls, latency, starved: self.starved }
    }

    /// Returns whether records are in line, if only ones that wait no longer.
    #[inline]
    fn has_nodes(&self) -> bool {
        !self.retries.is_empty() || !self.first_calls.is_empty()
    }

    /// Returns whether something waits and there is a credit for it.
    fn may_start(&self) -> bool {
        let account = &self.account;
        account.backlog() > 0 && account.free() > 0 && account.in_use() < account.limit()
    }

    /// Removes the record that is called next.
    fn next(
        &mut self,
        nodes: &mut Backlogs,
        is_live: &mut impl FnMut(EntryId) -> bool,
    ) -> Option<EntryId> {
        loop {
            let retry = nodes.pop(&mut self.retries);
            let entry = retry.or_else(|| nodes.pop(&mut self.first_calls))?;
            if is_live(entry) {
                return Some(entry);
            }
        }
    }

    /// Drops records at the front that wait no longer, so that they do not pile up.
    fn prune(&mut self, nodes: &mut Backlogs, is_live: &mut impl FnMut(EntryId) -> bool) {
        for line in [&mut self.retries, &mut self.first_calls] {
            while nodes.first(*line).is_some_and(|entry| !is_live(entry)) {
                nodes.pop(line);
            }
        }
    }

    /// Counts one record less that waits for a credit.
    fn shorten(&mut self, now: ProcessingTime, pool: &mut FloatingPool) {
        let backlog = self.account.backlog().saturating_sub(1);
        self.account.set_backlog(backlog);
        if backlog == 0 {
            self.starved += now.saturating_since(self.starved_since);
        }
        self.account.stop_waiting(pool);
    }

    fn metrics(&self, now: ProcessingTime) -> ChannelMetrics {
        let mut totals = self.totals();
        if self.account.backlog() > 0 {
            totals.starved += now.saturating_since(self.starved_since);
        }
        ChannelMetrics {
            key: Some(self.key).filter(|key| *key != NULL),
            credits: self.account.held(),
            in_flight: self.account.in_use(),
            limit: self.account.limit(),
            backlog: self.pending,
            totals,
        }
    }
}

#[cfg(test)]
mod tests;
