// SPDX-License-Identifier: Apache-2.0
//! What a limit says to a call, wherever it is at home.

use std::fmt;
use std::sync::Arc;

use super::limit_left::LimitLeft;
use crate::time::ProcessingTime;

/// What a limit answers to a call that asks it for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// They are the call's, to be used at this time: now, or when its time comes.
    Ticket(ProcessingTime),
    /// Nothing was taken: it is to ask again then.
    At(ProcessingTime),
    /// Nothing was taken, and no time brings anything: it is to ask again when a call is settled.
    OnSettle,
    /// Nothing was taken, and a call that costs as much will never start.
    Never(Spent),
}

/// Why a call will never start: a budget has less left than it costs, and nothing of that is in flight
/// anywhere that could come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Which limit of the call it is.
    pub limit: usize,
    /// What the budget is in all.
    pub total: u64,
    /// What is left of the budget.
    pub left: u64,
    /// What the call costs.
    pub cost: u64,
}

/// A limit whose state is elsewhere, because other tasks take from it: a rate, a budget, or calls at a
/// time.
///
/// Times are those of the caller.
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Asks for `cost`. Only a rate gives a ticket for later, which is a place in line.
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer;

    /// Settles a call that had taken `taken` and cost `actual`. A rate is told only where these differ, all
    /// others when the call ends; a call that did not start has cost nothing.
    fn settle(&self, taken: u64, actual: u64);

    /// Learns that a call of a rate has ended which cost the `taken` that it took.
    fn end(&self, taken: u64) {
        let _ = taken;
    }

    /// Learns that no call has used a ticket whose time came long ago. By default nothing comes back: it has
    /// come again by now, unless others have taken it.
    fn forgo(&self, taken: u64) {
        let _ = taken;
    }

    /// Sets right what a call was charged that goes on.
    fn recharge(&self, taken: u64, anew: u64) {
        self.settle(taken, anew);
    }

    /// Learns from the reply to a call that started at `started` what is `left` of a rate for all. The
    /// service may not have counted then what the calls `in_flight` of the caller take, or others
    /// have taken since that start: so much is returned. It lowers the limit for all that take from it,
    /// and never raises it.
    fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        started: ProcessingTime,
        now: ProcessingTime,
    ) -> u64;

    /// Takes everything that a rate has saved, and `owed` of what comes.
    fn drain(&self, owed: u64, now: ProcessingTime);
}

/// What makes the limits that others share; none for one of the operator's own.
///
/// It is asked for the limit of each channel, by a number that means the channel; `None`: of all.
pub trait Ledgers: fmt::Debug + Send + Sync {
    /// Returns limit number `limit`.
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn Ledger>>;
}
