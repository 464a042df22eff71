// SPDX-License-Identifier: Apache-2.0
//! One destination of an operator's records.

use std::time::Duration;

use super::backlogs::{Backlog, Backlogs};
use super::channel_metrics::{ChannelMetrics, ChannelTotals};
use super::credit_account::CreditAccount;
use super::floating_pool::FloatingPool;
use super::outage::Outage;
use crate::element::Key;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// The channel of a record without one; as any key, it is a hash.
pub(super) const NULL: Key = Key::new(0x6e75_6c6c_2063_6861);

/// What to do when a channel becomes idle, and when a record comes to one that is.
///
/// Whether it is idle is not said here: that is two counts of zero, which most calls change without a
/// look at anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It is looked at when it becomes idle: something has changed since it was, or it never was.
    Changed,
    /// Nothing: it has all credits of its own. Where records come singly, none of them pays for the
    /// end of the one before.
    Settled,
    /// It is idle, and credits of its own were left for others. The next record asks for them, so it
    /// does not start without a look at the channel.
    Parked,
    /// Its place is vacant.
    Forgotten,
}

/// In which lists of its table a channel is, in each at most once. Entries are dropped lazily, so one
/// says that it may be of use there: each of the eight combinations is legal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    /// Among the channels that may start.
    pub(super) ready: bool,
    /// Among those that may hold floating credits.
    pub(super) borrower: bool,
    /// Among those that may hold exclusive credits without need.
    pub(super) owner: bool,
}

/// One destination.
///
/// What every record needs is in front, in one cache line: with many channels,
/// a record of another one each time would have to fetch both.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Channel {
    /// Its credits; those in use are those of the records that run.
    pub(super) account: CreditAccount,
    /// Records admitted and not completed that do not run.
    pub(super) resting: u32,
    /// What its becoming idle, and active again, costs.
    rest: Rest,
    /// In which lists it is.
    pub(super) listed: Listed,
    /// What its records have in common.
    pub(super) key: Key,
    /// Calls that ended.
    pub(super) calls: u64,
    /// How long they took in all.
    pub(super) call_nanos: u64,

    /// Most calls in flight as its policies say; its account has what holds now.
    pub(super) limit: u32,
    /// Records whose back-off is over; they go first.
    pub(super) retries: Backlog,
    /// Records that wait for their first call.
    pub(super) first_calls: Backlog,
    /// The record that is called next, out of these lines: it waits for what it costs.
    pub(super) chosen: Option<EntryId>,
    /// Records that wait: for a credit, for their key, for the end of a back-off.
    pub(super) pending: u32,
    /// Those of them that wait for a credit; its account asks for as many, unless it is held.
    pub(super) waiting: u32,
    /// Whether its policies let none of them start before some time, so that none asks for a credit.
    pub(super) is_held: bool,
    /// Whether its policies have set its limit to less than before, and not to more since.
    pub(super) is_shrinking: bool,
    /// Whether its destination is there.
    pub(super) outage: Outage,
    /// Since when something waits for a credit.
    pub(super) starved_since: ProcessingTime,
    /// Time before that during which something waited for a credit.
    pub(super) starved: Duration,
}

const _: () = assert!(std::mem::offset_of!(Channel, limit) == 64, "one cache line");

impl Channel {
    /// Makes an idle channel.
    pub(super) fn new(key: Key, limit: u32) -> Self {
        Self {
            account: CreditAccount::new(0, limit),
            resting: 0,
            rest: Rest::Changed,
            listed: Listed::default(),
            key,
            calls: 0,
            call_nanos: 0,
            limit,
            retries: Backlog::EMPTY,
            first_calls: Backlog::EMPTY,
            chosen: None,
            pending: 0,
            waiting: 0,
            is_held: false,
            is_shrinking: false,
            outage: Outage::NONE,
            starved_since: ProcessingTime::ZERO,
            starved: Duration::ZERO,
        }
    }

    /// Returns whether it has no records.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        self.account.in_use() == 0 && self.resting == 0
    }

    #[inline]
    pub(super) const fn rest(&self) -> Rest {
        self.rest
    }

    /// Returns whether its place is vacant.
    pub(super) fn is_forgotten(&self) -> bool {
        self.rest == Rest::Forgotten
    }

    /// Sets what to do when it becomes idle, or active again.
    pub(super) fn set_rest(&mut self, rest: Rest) {
        self.rest = rest;
        self.account.park(rest == Rest::Parked);
    }

    /// Notes that the table must look at it when it becomes idle the next time.
    pub(super) fn unsettle(&mut self) {
        if self.rest == Rest::Settled {
            self.rest = Rest::Changed;
        }
    }

    /// Counts a call that ended.
    #[inline]
    pub(super) fn count(&mut self, nanos: u64) {
        self.calls += 1;
        self.call_nanos = self.call_nanos.saturating_add(nanos);
    }

    pub(super) fn totals(&self) -> ChannelTotals {
        let latency = Duration::from_nanos(self.call_nanos);
        ChannelTotals { calls: self.calls, latency, starved: self.starved }
    }

    /// Returns whether something waits and there is a credit for it.
    pub(super) fn may_start(&self) -> bool {
        let account = &self.account;
        account.required() > 0 && account.free() > 0 && account.in_use() < account.limit()
    }

    /// Counts a record that rests.
    pub(super) const fn rest_one(&mut self, now: ProcessingTime) {
        if self.resting == 0 {
            self.outage.begin(now);
        }
        self.resting += 1;
    }

    /// Notes that a call was begun.
    #[inline]
    pub(super) const fn note_begun(&mut self, now: ProcessingTime) {
        if self.resting > 0 && self.account.in_use() == 1 {
            self.outage.note_first(now);
        }
    }

    /// Counts the records that wait for a credit.
    pub(super) fn set_waiting(&mut self, waiting: u32) {
        self.waiting = waiting;
        self.settle_required();
    }

    /// Returns the record that is called next: retries go first.
    pub(super) fn foremost(&self, nodes: &Backlogs) -> Option<EntryId> {
        let first = || nodes.first(self.retries).or_else(|| nodes.first(self.first_calls));
        self.chosen.or_else(first)
    }

    /// Sets whether nothing may start before some time.
    pub(super) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.settle_required();
    }

    fn settle_required(&mut self) {
        self.account.set_required(if self.is_held { 0 } else { self.waiting });
    }

    /// Sees to it that the record that is called next stays that one: what it costs was asked for, and
    /// retries that come later would else go first for ever.
    pub(super) fn choose(&mut self, nodes: &mut Backlogs) {
        self.chosen = self.take_foremost(nodes);
    }

    /// Removes the record that is called next.
    pub(super) fn take_foremost(&mut self, nodes: &mut Backlogs) -> Option<EntryId> {
        let (retries, first_calls) = (&mut self.retries, &mut self.first_calls);
        let chosen = self.chosen.take();
        chosen.or_else(|| nodes.pop(retries)).or_else(|| nodes.pop(first_calls))
    }

    /// Returns those in front: of each line the record that waits longest.
    pub(super) fn fronts(&self, nodes: &Backlogs) -> impl Iterator<Item = EntryId> + use<> {
        let fronts = [self.chosen, nodes.first(self.retries), nodes.first(self.first_calls)];
        fronts.into_iter().flatten()
    }

    /// Removes one of these.
    pub(super) fn take_front(&mut self, nodes: &mut Backlogs, entry: EntryId) {
        if self.chosen == Some(entry) {
            self.chosen = None;
        } else if nodes.first(self.retries) == Some(entry) {
            nodes.pop(&mut self.retries);
        } else {
            nodes.pop(&mut self.first_calls);
        }
    }

    /// Counts one record less that waits for a credit.
    pub(super) fn shorten(&mut self, now: ProcessingTime, pool: &mut FloatingPool) {
        self.set_waiting(self.waiting.saturating_sub(1));
        if self.waiting == 0 {
            self.starved += now.saturating_since(self.starved_since);
        }
        self.account.stop_waiting(pool);
    }

    pub(super) fn metrics(&self, now: ProcessingTime) -> ChannelMetrics {
        let mut totals = self.totals();
        if self.waiting > 0 {
            totals.starved += now.saturating_since(self.starved_since);
        }
        ChannelMetrics {
            key: Some(self.key).filter(|key| *key != NULL),
            records: self.account.in_use() + self.resting,
            credits: self.account.held(),
            in_flight: self.account.in_use(),
            limit: self.account.limit(),
            backlog: self.pending,
            totals,
        }
    }
}
