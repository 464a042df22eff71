// SPDX-License-Identifier: Apache-2.0
//! One destination of an operator's records.

use std::time::Duration;

use super::backlogs::{Backlog, Backlogs};
use super::call_times::CallTimes;
use super::channel_metrics::{ChannelMetrics, ChannelTotals};
use super::credit_account::CreditAccount;
use super::floating_pool::FloatingPool;
use super::least_time::{LeastTime, Side};
use crate::element::Key;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// The channel of a record without one; as any key, it is a hash.
pub(super) const NULL: Key = Key::new(0x6e75_6c6c_2063_6861);

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
    /// Whether it is in the line of those that may start.
    pub(super) is_ready: bool,
    /// Whether it is listed as one that may hold floating credits.
    pub(super) is_borrower: bool,
    /// Whether it is listed as one that may hold exclusive credits without need.
    pub(super) is_owner: bool,
    /// Whether there is nothing to be done when it becomes idle.
    pub(super) is_settled: bool,
    /// What its records have in common.
    pub(super) key: Key,
    /// Calls that ended.
    pub(super) calls: u64,
    /// How long they took in all.
    pub(super) call_nanos: u64,

    /// Whether its place is vacant.
    pub(super) is_forgotten: bool,
    /// Most calls in flight when all credits may be used; its account has what holds now.
    pub(super) limit: u32,
    /// Records whose back-off is over; they go first.
    pub(super) retries: Backlog,
    /// Records that wait for their first call.
    pub(super) first_calls: Backlog,
    /// The record that is called next, out of these lines: it waits for what it costs.
    pub(super) chosen: Option<EntryId>,
    /// Records that wait: for a credit, for their key, for the end of a back-off.
    pub(super) pending: u32,
    /// Those of them that wait for a credit; its account asks for as many, unless they are late.
    pub(super) waiting: u32,
    /// Whether none of them could be answered in time, so that none asks for a credit.
    pub(super) is_late: bool,
    /// Whether its policies let none of them start before some time, so that none asks for a credit.
    pub(super) is_held: bool,
    /// For how long at least what waits is to fail instead, if it is.
    pub(super) refuses_for: Option<Duration>,
    /// Whether its policies have set its limit to less than before, and not to more since.
    pub(super) is_shrinking: bool,
    /// How long its calls took.
    pub(super) times: CallTimes,
    /// Since when something waits for a credit.
    pub(super) starved_since: ProcessingTime,
    /// Time before that during which something waited for a credit.
    pub(super) starved: Duration,
}

const _: () = assert!(std::mem::offset_of!(Channel, is_forgotten) == 64, "one cache line");

impl Channel {
    /// Makes an idle channel.
    pub(super) fn new(key: Key, limit: u32) -> Self {
        Self {
            account: CreditAccount::new(0, limit),
            resting: 0,
            is_ready: false,
            is_borrower: false,
            is_owner: false,
            is_settled: false,
            key,
            calls: 0,
            call_nanos: 0,
            is_forgotten: false,
            limit,
            retries: Backlog::EMPTY,
            first_calls: Backlog::EMPTY,
            chosen: None,
            pending: 0,
            waiting: 0,
            is_late: false,
            is_held: false,
            refuses_for: None,
            is_shrinking: false,
            times: CallTimes::new(),
            starved_since: ProcessingTime::ZERO,
            starved: Duration::ZERO,
        }
    }

    /// Returns whether it has no records.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        self.account.in_use() == 0 && self.resting == 0
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

    /// Removes the record that is called next, unless none of them would be answered in time.
    ///
    /// `left` tells how many nanoseconds a record has left, and nothing of one that waits no longer.
    pub(super) fn next(
        &mut self,
        nodes: &mut Backlogs,
        least: LeastTime,
        left: &mut impl FnMut(EntryId) -> Option<u64>,
    ) -> Option<EntryId> {
        let is_alone = self.account.in_use() == 0;
        let (retries, first_calls) = (&mut self.retries, &mut self.first_calls);
        least.next(&mut self.times, is_alone, |side, least| match side {
            Side::Foremost if nodes.line(retries).has_any(left) => {
                nodes.line(retries).take_oldest(least, left)
            }
            Side::Foremost => nodes.line(first_calls).take_oldest(least, left),
            Side::Oldest => {
                let retry = nodes.line(retries).take_oldest(least, left);
                retry.or_else(|| nodes.line(first_calls).take_oldest(least, left))
            }
            Side::First => {
                let retry = nodes.line(retries).take_first(least, left);
                retry.or_else(|| nodes.line(first_calls).take_first(least, left))
            }
            Side::Newest => {
                let first_call = nodes.line(first_calls).take_newest(least, left);
                first_call.or_else(|| nodes.line(retries).take_newest(least, left))
            }
        })
    }

    /// Counts the records that wait for a credit.
    pub(super) fn set_waiting(&mut self, waiting: u32) {
        self.waiting = waiting;
        self.set_late(false);
    }

    /// Sets whether no record asks for a credit although some wait.
    pub(super) fn set_late(&mut self, is_late: bool) {
        if self.is_late != is_late {
            self.is_late = is_late;
            // So that the end of each call has a look at those that wait.
            self.account.park(is_late);
        }
        self.settle_required();
    }

    /// Returns the record that is likely to be called next.
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
        let asks = !self.is_late && !self.is_held;
        self.account.set_required(if asks { self.waiting } else { 0 });
    }

    /// Drops records at the front that wait no longer, so that they do not pile up.
    pub(super) fn prune(
        &mut self,
        nodes: &mut Backlogs,
        is_live: &mut impl FnMut(EntryId) -> bool,
    ) {
        self.chosen = self.chosen.filter(|it| is_live(*it));
        for line in [&mut self.retries, &mut self.first_calls] {
            while nodes.first(*line).is_some_and(|entry| !is_live(entry)) {
                nodes.pop(line);
            }
        }
    }

    /// Removes the record that is likely to be called next.
    pub(super) fn take_foremost(&mut self, nodes: &mut Backlogs) -> Option<EntryId> {
        let (retries, first_calls) = (&mut self.retries, &mut self.first_calls);
        let chosen = self.chosen.take();
        chosen.or_else(|| nodes.pop(retries)).or_else(|| nodes.pop(first_calls))
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
