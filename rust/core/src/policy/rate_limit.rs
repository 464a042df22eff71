// SPDX-License-Identifier: Apache-2.0
//! How much may be called for per time.

use super::call_policy::CallPolicy;
use super::ended_call::EndedCall;
use super::gcra::Gcra;
use crate::time::ProcessingTime;

/// What a service says is left of a limit of its own.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    remaining: u64,
    /// When it counts anew.
    until: ProcessingTime,
}

/// A limit in time, which every attempt pays at its start.
///
/// It knows two things: its own count ([`Gcra`]), and what the service says is
/// left, which only ever lowers it: a limit belongs to an account, and others
/// may use it up. A call is charged an estimate, and settled when it is known
/// what it cost.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    limit: Gcra,
    tat: ProcessingTime,
    allowance: Option<Allowance>,
    /// Start of the call whose reply told last what remains.
    told_at: ProcessingTime,
    /// What the calls in flight were charged: the service may not have counted them yet.
    in_flight: u64,
}

impl RateLimit {
    /// Makes a limit of which nothing was taken.
    pub const fn new(limit: Gcra) -> Self {
        let zero = ProcessingTime::ZERO;
        Self { limit, tat: zero, allowance: None, told_at: zero, in_flight: 0 }
    }

    /// Settles a call that was charged `charged` and cost `actual`, whatever it came to.
    pub fn settle(&mut self, charged: u64, actual: u64) {
        self.in_flight = self.in_flight.saturating_sub(charged);
        if actual != charged {
            self.tat = self.limit.settle(self.tat, charged, actual);
            if let Some(allowance) = &mut self.allowance {
                let remaining = allowance.remaining.saturating_add(charged);
                allowance.remaining = remaining.saturating_sub(actual);
            }
        }
    }

    /// Learns from the reply to a call that started at `started` what is left until `until`.
    ///
    /// To be told after [`on_end`](CallPolicy::on_end) of that call. Replies overtake one another: what
    /// one says is old news once that of a call that started later is known.
    pub fn tell(
        &mut self,
        remaining: u64,
        until: ProcessingTime,
        started: ProcessingTime,
        now: ProcessingTime,
    ) {
        if started < self.told_at || until <= now {
            return;
        }
        self.told_at = started;
        // Calls that are on their way may be counted in it or not.
        let remaining = remaining.saturating_sub(self.in_flight);
        self.allowance = Some(Allowance { remaining, until });
    }

    /// Returns how many permits can be taken now.
    pub fn available(&self, now: ProcessingTime) -> u64 {
        let available = self.limit.available(self.tat, now);
        match self.allowance {
            Some(Allowance { remaining, until }) if now < until => available.min(remaining),
            _ => available,
        }
    }
}

impl CallPolicy for RateLimit {
    fn on_start(&mut self, now: ProcessingTime, cost: u64) {
        self.tat = self.limit.take(self.tat, cost, now);
        self.in_flight = self.in_flight.saturating_add(cost);
        if let Some(allowance) = &mut self.allowance {
            allowance.remaining = allowance.remaining.saturating_sub(cost);
        }
    }

    fn on_end(&mut self, call: &EndedCall) {
        self.settle(call.charged, call.cost);
    }

    fn window(&self, _now: ProcessingTime) -> u32 {
        u32::MAX
    }

    fn ready_at(&self, now: ProcessingTime, cost: u64) -> ProcessingTime {
        let ready = self.limit.ready_at(self.tat, cost);
        match self.allowance {
            Some(Allowance { remaining, until }) if now < until && remaining < cost => {
                ready.max(until)
            }
            _ => ready,
        }
    }

    fn is_watching(&self, _now: ProcessingTime) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use super::*;
    use crate::policy::Rate;

    fn limit(permits: u64, burst: u64) -> RateLimit {
        let rate = Rate::new(permits.try_into().unwrap(), Duration::from_secs(1)).unwrap();
        RateLimit::new(Gcra::new(rate, NonZeroU64::new(burst).unwrap()))
    }

    fn at(seconds: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_the_service_says_lowers_the_limit_until_it_counts_anew() {
        let mut limit = limit(100, 100);
        limit.on_start(at(1), 1);
        limit.settle(1, 1);
        limit.tell(2, at(9), at(1), at(2));
        assert_eq!(limit.available(at(2)), 2);

        limit.on_start(at(2), 2);
        assert_eq!(limit.ready_at(at(2), 1), at(9));
        assert!(limit.ready_at(at(9), 1) <= at(9));
    }

    #[test]
    fn it_never_raises_it() {
        let mut limit = limit(1, 1);
        limit.on_start(at(1), 1);
        limit.tell(1_000_000, at(60), at(1), at(1));
        assert_eq!(limit.ready_at(at(1), 1), at(2));
    }

    #[test]
    fn calls_on_their_way_may_not_be_counted_yet() {
        let mut limit = limit(100, 100);
        (0..6).for_each(|_| limit.on_start(at(1), 1));
        limit.settle(1, 1);
        limit.tell(7, at(9), at(1), at(2));
        assert_eq!(limit.available(at(2)), 2);
    }

    #[test]
    fn old_news_changes_nothing() {
        let mut limit = limit(100, 100);
        limit.tell(50, at(9), at(3), at(4));
        limit.tell(1, at(9), at(2), at(4));
        assert_eq!(limit.available(at(4)), 50);
        // That it counts anew was news when it was sent.
        limit.tell(1, at(4), at(4), at(5));
        assert_eq!(limit.available(at(5)), 50);
    }

    #[test]
    fn a_call_is_settled_by_what_it_cost() {
        let mut limit = limit(100, 100);
        limit.tell(40, at(9), at(0), at(1));
        limit.on_start(at(1), 30);
        assert_eq!(limit.available(at(1)), 10);
        limit.settle(30, 5);
        assert_eq!(limit.available(at(1)), 35);
    }
}
