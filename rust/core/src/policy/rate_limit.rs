// SPDX-License-Identifier: Apache-2.0
//! How much may be called for per time.

use std::sync::Arc;

use super::gcra::Gcra;
use super::permit_source::PermitSource;
use crate::time::ProcessingTime;

/// A limit in time as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitConfig {
    /// Rate and burst.
    pub limit: Gcra,
    /// What a call costs of which nothing else is known.
    pub cost: u64,
    /// Whether each channel has one of its own, instead of all having one together.
    pub is_per_channel: bool,
}

/// What a service says is left of a limit of its own.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    remaining: u64,
    /// When it counts anew.
    until: ProcessingTime,
}

/// Where permits come from.
#[derive(Debug)]
enum Permits {
    /// Nobody else takes them.
    Own { limit: Gcra, tat: ProcessingTime },
    /// Others do.
    Shared(Booking),
}

/// Permits of others that are asked for one call ahead, since their turn comes later.
#[derive(Debug)]
struct Booking {
    source: Arc<dyn PermitSource>,
    /// What was reserved, and for when.
    booked: Option<(u64, ProcessingTime)>,
    /// What was refused, and until when.
    refused: Option<(u64, ProcessingTime)>,
}

impl Booking {
    /// Reserves what the next call costs.
    fn book(&mut self, cost: u64, now: ProcessingTime) {
        let is_known = |it: Option<(u64, ProcessingTime)>| it.filter(|it| it.0 == cost);
        let is_refused = is_known(self.refused).is_some_and(|it| now < it.1);
        if cost == 0 || is_known(self.booked).is_some() || is_refused {
            return;
        }
        self.give_back();
        match self.source.reserve(cost, now) {
            Ok(at) => (self.booked, self.refused) = (Some((cost, at)), None),
            Err(again_at) => self.refused = Some((cost, again_at)),
        }
    }

    fn ready_at(&self, cost: u64) -> ProcessingTime {
        let known = self.booked.or(self.refused).filter(|it| cost > 0 && it.0 == cost);
        known.map_or(ProcessingTime::ZERO, |it| it.1)
    }

    fn take(&mut self, cost: u64) {
        if cost > 0 {
            let booked = self.booked.take().map_or(0, |it| it.0);
            self.settle(booked, cost);
        }
    }

    fn settle(&self, taken: u64, actual: u64) {
        if taken != actual {
            self.source.settle(taken, actual);
        }
    }

    fn give_back(&mut self) {
        if let Some((cost, _)) = self.booked.take() {
            self.source.settle(cost, 0);
        }
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A limit in time, which every attempt pays at its start.
///
/// It knows two things: its own count ([`Gcra`]), and what the service says is
/// left, which only ever lowers it: a limit belongs to an account, and others
/// may use it up. A call is charged an estimate, and settled when it is known
/// what it cost.
#[derive(Debug)]
pub struct RateLimit {
    permits: Permits,
    allowance: Option<Allowance>,
    /// Start of the call whose reply told last what remains.
    told_at: ProcessingTime,
    /// What the calls in flight were charged: the service may not have counted them yet.
    in_flight: u64,
}

impl RateLimit {
    /// Makes a limit of which nothing was taken.
    pub const fn new(limit: Gcra) -> Self {
        Self::of(Permits::Own { limit, tat: ProcessingTime::ZERO })
    }

    /// Makes a limit of which others take, too.
    pub const fn shared(source: Arc<dyn PermitSource>) -> Self {
        Self::of(Permits::Shared(Booking { source, booked: None, refused: None }))
    }

    const fn of(permits: Permits) -> Self {
        Self { permits, allowance: None, told_at: ProcessingTime::ZERO, in_flight: 0 }
    }

    /// Is told that a call starts which costs `cost`.
    pub fn on_start(&mut self, now: ProcessingTime, cost: u64) {
        match &mut self.permits {
            Permits::Own { limit, tat } => *tat = limit.take(*tat, cost, now),
            Permits::Shared(booking) => booking.take(cost),
        }
        self.in_flight = self.in_flight.saturating_add(cost);
        if let Some(allowance) = &mut self.allowance {
            allowance.remaining = allowance.remaining.saturating_sub(cost);
        }
    }

    /// Settles a call that was charged `charged` and cost `actual`, whatever it came to.
    pub fn settle(&mut self, charged: u64, actual: u64) {
        self.in_flight = self.in_flight.saturating_sub(charged);
        if actual != charged {
            match &mut self.permits {
                Permits::Own { limit, tat } => *tat = limit.settle(*tat, charged, actual),
                Permits::Shared(booking) => booking.settle(charged, actual),
            }
            if let Some(allowance) = &mut self.allowance {
                let remaining = allowance.remaining.saturating_add(charged);
                allowance.remaining = remaining.saturating_sub(actual);
            }
        }
    }

    /// Learns from the reply to a call that started at `started` what is left until `until`.
    ///
    /// To be told after [`settle`](Self::settle) of that call. Replies overtake one another: what
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

    /// Asks for what the next call costs, where others may take it meanwhile.
    pub fn prepare(&mut self, now: ProcessingTime, cost: u64) {
        if let Permits::Shared(booking) = &mut self.permits {
            booking.book(cost, now);
        }
    }

    /// Returns when a call that costs `cost` may start if nothing happens until then; `now` or a
    /// point before it: at once.
    pub fn ready_at(&self, now: ProcessingTime, cost: u64) -> ProcessingTime {
        let ready = match &self.permits {
            Permits::Own { limit, tat } => limit.ready_at(*tat, cost),
            Permits::Shared(booking) => booking.ready_at(cost),
        };
        match self.allowance {
            Some(Allowance { remaining, until }) if now < until && remaining < cost => {
                ready.max(until)
            }
            _ => ready,
        }
    }

    /// Returns whether it may be used as if nothing had been taken; a shared one remembers that
    /// elsewhere.
    pub fn is_full(&self, now: ProcessingTime) -> bool {
        let is_taken = matches!(self.permits, Permits::Own { tat, .. } if tat > now);
        let is_lowered = self.allowance.is_some_and(|it| now < it.until);
        !is_taken && !is_lowered && self.in_flight == 0
    }

    /// Returns how many permits can be taken now; of a shared limit those that are booked.
    pub fn available(&self, now: ProcessingTime) -> u64 {
        let available = match &self.permits {
            Permits::Own { limit, tat } => limit.available(*tat, now),
            Permits::Shared(booking) => {
                booking.booked.filter(|it| it.1 <= now).map_or(0, |it| it.0)
            }
        };
        match self.allowance {
            Some(Allowance { remaining, until }) if now < until => available.min(remaining),
            _ => available,
        }
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
