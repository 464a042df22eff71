// SPDX-License-Identifier: Apache-2.0
//! Limits in time that several channels share.

use super::closed_time::ClosedTime;
use super::costs::Costs;
use super::limit_left::LimitLeft;
use super::rate_limits::RateLimits;
use crate::time::ProcessingTime;

/// Limits in time that several channels share, with the time in which they let nobody start.
#[derive(Debug)]
pub struct RateGate {
    limits: RateLimits,
    closed: ClosedTime,
    /// What the call costs that is to start next.
    asked: Costs,
}

impl RateGate {
    /// Makes a gate of these limits for calls that cost `usual` if nothing else is known.
    pub const fn new(limits: RateLimits, usual: Costs) -> Self {
        Self { limits, closed: ClosedTime::new(ProcessingTime::ZERO), asked: usual }
    }

    /// Is told that a call starts.
    pub fn on_start(&mut self, now: ProcessingTime, costs: &Costs) {
        self.count_closed(now);
        self.limits.on_start(now, costs);
    }

    /// Settles a call that was charged `charged` and cost `actual`.
    pub fn settle(&mut self, charged: &Costs, actual: &Costs, now: ProcessingTime) {
        self.count_closed(now);
        self.limits.settle(charged, actual);
    }

    /// Learns what is left of a limit of the service, see [`RateLimit::tell`](super::RateLimit::tell).
    pub fn tell(&mut self, left: &LimitLeft, started: ProcessingTime, now: ProcessingTime) {
        self.count_closed(now);
        self.limits.tell(left, started, now);
    }

    /// Sets right what a call in flight was charged.
    pub(crate) fn recharge(&mut self, charged: &Costs, anew: &Costs, now: ProcessingTime) {
        self.count_closed(now);
        self.limits.recharge(charged, anew);
    }

    /// Says what the next call costs; returns when it may start, see [`RateLimits::ready_at`].
    pub fn ask(&mut self, costs: &Costs, now: ProcessingTime) -> ProcessingTime {
        self.count_closed(now);
        self.asked = *costs;
        self.limits.prepare(now, costs);
        self.limits.ready_at(now, costs)
    }

    /// Returns whether a call that costs as much has nothing to pay here.
    pub fn is_free(&self, costs: &Costs) -> bool {
        self.limits.is_free(costs)
    }

    /// Returns when a call may start that costs as much.
    pub fn ready_at(&self, costs: &Costs, now: ProcessingTime) -> ProcessingTime {
        self.limits.ready_at(now, costs)
    }

    /// Returns the nanoseconds up to now in which nothing could start.
    pub fn closed_nanos(&self, now: ProcessingTime) -> u64 {
        self.closed.at(self.opens_at(), now)
    }

    /// When the next call may start, as of the last change.
    fn opens_at(&self) -> ProcessingTime {
        self.limits.ready_at(self.closed.counted_until(), &self.asked)
    }

    fn count_closed(&mut self, now: ProcessingTime) {
        let opens_at = self.opens_at();
        self.closed.count(opens_at, now);
    }
}
