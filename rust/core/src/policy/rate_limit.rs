// SPDX-License-Identifier: Apache-2.0
//! How much may be called for per time.

use std::sync::Arc;
use std::time::Duration;

use super::allowance::Allowance;
use super::gcra::Gcra;
use super::limit_left::{Counted, LimitLeft};
use super::permit_source::PermitSource;
use crate::time::ProcessingTime;

/// A limit in time as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitConfig {
    /// Rate and burst.
    pub limit: Gcra,
    /// What a call costs if nothing else is known.
    pub cost: u64,
    /// Whether each channel has one of its own, instead of all having one together.
    pub is_per_channel: bool,
    /// Which limits of a service it stands for, that a reply may tell of.
    pub counted: Option<Counted>,
    /// Whether a request pays, and not each record of it; see [`RequestConfig`].
    ///
    /// [`RequestConfig`]: super::RequestConfig
    pub is_per_request: bool,
}

impl RateLimitConfig {
    /// A limit that takes one permit from each call, whatever its channel.
    pub const fn new(limit: Gcra) -> Self {
        Self { limit, cost: 1, is_per_channel: false, counted: None, is_per_request: false }
    }
}

/// Where permits come from.
#[derive(Debug)]
enum Permits {
    /// Nobody else takes them.
    Own { tat: ProcessingTime },
    /// Others do.
    Shared(Booking),
}

/// How long a turn that has come may wait for its call. A task that waits for something else, such as
/// its next record, would call beside those whose turn it is by then.
const LATEST: Duration = Duration::from_millis(100);

/// Permits of others that are asked for one call ahead, since their turn comes later.
#[derive(Debug)]
struct Booking {
    source: Arc<dyn PermitSource>,
    /// What was reserved, and for when.
    booked: Option<(u64, ProcessingTime)>,
    /// What was refused, and until when.
    refused: Option<(u64, ProcessingTime)>,
    /// When it was asked for last.
    asked_at: ProcessingTime,
}

impl Booking {
    const fn new(source: Arc<dyn PermitSource>) -> Self {
        Self { source, booked: None, refused: None, asked_at: ProcessingTime::ZERO }
    }

    /// Reserves what the next call costs, again if its turn is long over.
    fn book(&mut self, cost: u64, now: ProcessingTime) {
        self.asked_at = now;
        let is_known = |it: Option<(u64, ProcessingTime)>, until: Duration| {
            it.is_some_and(|(known, at)| known == cost && now < at + until)
        };
        if cost == 0 || is_known(self.booked, LATEST) || is_known(self.refused, Duration::ZERO) {
            return;
        }
        // What was not used in time has come again by now, unless others have taken it: it would be
        // there twice if it were given back.
        self.booked.take_if(|it| now >= it.1 + LATEST);
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
    /// Gives back a turn that has not come yet. Of one that has come nobody knows here whether it is
    /// over by now.
    fn drop(&mut self) {
        self.booked.take_if(|it| it.1 <= self.asked_at);
        self.give_back();
    }
}

/// A limit in time, which every attempt pays at its start.
///
/// It knows two things: its own count ([`Gcra`]), and what the service says is
/// left ([`LimitLeft`]), which only ever lowers it: a limit belongs to an
/// account, and others may use it up. A call is charged an estimate, and settled when it is known
/// what it cost.
#[derive(Debug)]
pub struct RateLimit {
    permits: Permits,
    limit: Gcra,
    counted: Option<Counted>,
    allowance: Option<Allowance>,
    /// Start of the call whose reply told last what remains.
    told_at: ProcessingTime,
    /// When it was drained last.
    drained_at: ProcessingTime,
    /// What the calls in flight were charged: the service may not have counted them yet.
    in_flight: u64,
}

impl RateLimit {
    /// Makes a limit from which nothing was taken; `source` has its permits if others take some,
    /// too.
    pub fn new(config: &RateLimitConfig, source: Option<Arc<dyn PermitSource>>) -> Self {
        let RateLimitConfig { limit, counted, .. } = *config;
        let own = Permits::Own { tat: ProcessingTime::ZERO };
        let shared = |source| Permits::Shared(Booking::new(source));
        Self {
            permits: source.map_or(own, shared),
            limit,
            counted,
            allowance: None,
            told_at: ProcessingTime::ZERO,
            drained_at: ProcessingTime::ZERO,
            in_flight: 0,
        }
    }

    /// Is told that a call starts which costs `cost`.
    pub fn on_start(&mut self, now: ProcessingTime, cost: u64) {
        match &mut self.permits {
            Permits::Own { tat } => *tat = self.limit.take(*tat, cost, now),
            Permits::Shared(booking) => booking.take(cost),
        }
        self.in_flight = self.in_flight.saturating_add(cost);
        if let Some(allowance) = &mut self.allowance {
            allowance.take(cost);
        }
    }

    /// Settles a call that was charged `charged` and cost `actual`, whatever it came to.
    pub fn settle(&mut self, charged: u64, actual: u64) {
        self.in_flight = self.in_flight.saturating_sub(charged);
        if actual != charged {
            match &mut self.permits {
                Permits::Own { tat } => *tat = self.limit.settle(*tat, charged, actual),
                Permits::Shared(booking) => booking.settle(charged, actual),
            }
            if let Some(allowance) = &mut self.allowance {
                allowance.settle(charged, actual);
            }
        }
    }

    /// Sets right what a call in flight was charged.
    pub fn recharge(&mut self, charged: u64, anew: u64) {
        self.settle(charged, anew);
        self.in_flight = self.in_flight.saturating_add(anew);
    }

    /// Learns from the reply to a call that started at `started` what is left of a limit of the
    /// service, if it stands for that. It is never more than its own count says.
    ///
    /// To be told after [`settle`](Self::settle) of that call. Replies overtake one another: what
    /// one says is old news once that of a call that started later is known.
    pub fn tell(&mut self, left: &LimitLeft, started: ProcessingTime, now: ProcessingTime) {
        let is_news = started >= self.told_at && !left.renewed_in.is_zero();
        if is_news && self.counted == Some(left.counted) {
            self.told_at = started;
            self.allowance = Some(Allowance::new(left, self.in_flight, self.limit.rate(), now));
        }
    }

    /// Gives up what was saved, since the service has refused a call that started at `started`: it
    /// counts otherwise, or others have taken it. What comes from now on is first for the calls
    /// that may have started after that one, which the service had not counted then.
    ///
    /// Calls that started before this was known are refused for the same reason, and change nothing.
    pub fn drain(&mut self, started: ProcessingTime, now: ProcessingTime) {
        if started < self.drained_at {
            return;
        }
        self.drained_at = now;
        let since = self.limit.rate().permits_of(now.nanos_since(started));
        let owed = self.in_flight.min(since.saturating_add(self.limit.burst().get()));
        match &mut self.permits {
            Permits::Own { tat } => *tat = self.limit.drain(*tat, owed, now),
            Permits::Shared(booking) => booking.source.drain(owed, now),
        }
    }

    /// Returns whether others take from it, too.
    pub const fn is_shared(&self) -> bool {
        matches!(self.permits, Permits::Shared(_))
    }

    /// Asks for what the next call costs, where others may take it meanwhile. To be called when
    /// nothing else is in its way, since a turn does not wait for long.
    pub fn prepare(&mut self, now: ProcessingTime, cost: u64) {
        if let Permits::Shared(booking) = &mut self.permits {
            booking.book(cost, now);
        }
    }

    /// Returns when a call that costs `cost` may start if nothing happens until then; `now` or a
    /// point before it: at once.
    pub fn ready_at(&self, now: ProcessingTime, cost: u64) -> ProcessingTime {
        let ready = self.ready_beside_others(now, cost);
        match &self.permits {
            Permits::Own { .. } => ready,
            Permits::Shared(booking) => booking.ready_at(cost).max(ready),
        }
    }

    /// Returns when it may start as far as that does not depend on the turns of others.
    pub fn ready_beside_others(&self, now: ProcessingTime, cost: u64) -> ProcessingTime {
        let ready = match self.permits {
            Permits::Own { tat } => self.limit.ready_at(tat, cost),
            Permits::Shared(_) => ProcessingTime::ZERO,
        };
        let told = self.allowance.filter(|it| !it.is_over(now));
        told.map_or(ready, |it| ready.max(it.ready_at(cost)))
    }

    /// Returns whether it may be used as if nothing had been taken; a shared one remembers that
    /// elsewhere.
    pub fn is_full(&self, now: ProcessingTime) -> bool {
        let is_taken = matches!(self.permits, Permits::Own { tat } if tat > now);
        let is_lowered = self.allowance.is_some_and(|it| !it.is_over(now));
        !is_taken && !is_lowered && self.in_flight == 0
    }

    /// Returns how many calls that cost as much may start now, one after the other; of a shared limit
    /// the one that was asked for.
    pub fn calls(&self, now: ProcessingTime, cost: u64) -> u64 {
        if cost == 0 {
            return u64::MAX;
        }
        let calls = match &self.permits {
            Permits::Own { tat } => self.limit.calls(*tat, cost, now),
            Permits::Shared(booking) => u64::from(booking.ready_at(cost) <= now),
        };
        self.allowance.map_or(calls, |it| calls.min(it.calls(cost, now)))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Mutex;

    use super::*;
    use crate::policy::{Rate, Renewal};

    fn limit(permits: u64, burst: u64) -> RateLimit {
        let rate = Rate::new(permits.try_into().unwrap(), Duration::from_secs(1)).unwrap();
        let limit = Gcra::new(rate, NonZeroU64::new(burst).unwrap());
        let counted = Some(Counted::Requests);
        RateLimit::new(&RateLimitConfig { counted, ..RateLimitConfig::new(limit) }, None)
    }

    fn left(remaining: u64, seconds: u64, renewal: Renewal) -> LimitLeft {
        let renewed_in = Duration::from_secs(seconds);
        LimitLeft { counted: Counted::Requests, remaining, renewed_in, renewal }
    }

    fn window(remaining: u64, seconds: u64) -> LimitLeft {
        left(remaining, seconds, Renewal::AtOnce)
    }

    fn at(seconds: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_the_service_says_lowers_the_limit_until_it_counts_anew() {
        let mut limit = limit(100, 100);
        limit.on_start(at(1), 1);
        limit.settle(1, 1);
        limit.tell(&window(2, 7), at(1), at(2));
        assert_eq!(limit.calls(at(2), 1), 2);

        limit.on_start(at(2), 2);
        assert_eq!(limit.ready_at(at(2), 1), at(9));
        assert!(limit.ready_at(at(9), 1) <= at(9));
    }

    /// One limit that all who have it keep together.
    #[derive(Debug)]
    struct Together(Gcra, Mutex<ProcessingTime>);

    impl PermitSource for Together {
        fn reserve(
            &self,
            cost: u64,
            now: ProcessingTime,
        ) -> Result<ProcessingTime, ProcessingTime> {
            let mut tat = self.1.lock().unwrap();
            let ready = self.0.ready_at(*tat, cost).max(now);
            *tat = self.0.take(*tat, cost, now);
            Ok(ready)
        }

        fn settle(&self, taken: u64, actual: u64) {
            let mut tat = self.1.lock().unwrap();
            *tat = self.0.settle(*tat, taken, actual);
        }

        fn drain(&self, _owed: u64, _now: ProcessingTime) {}
    }

    /// Makes the limits of so many tasks that keep one together.
    fn limited_together<const N: usize>(permits: u64, burst: u64) -> [RateLimit; N] {
        let config = RateLimitConfig::new(limit(permits, burst).limit);
        let source: Arc<dyn PermitSource> = Arc::new(Together(config.limit, Mutex::default()));
        [(); N].map(|()| RateLimit::new(&config, Some(Arc::clone(&source))))
    }

    #[test]
    fn tasks_that_waited_for_records_do_not_call_all_at_once() {
        let mut tasks = limited_together::<13>(3, 2);
        // All their turns are over long ago.
        for it in &mut tasks {
            it.prepare(at(7), 1);
        }
        let calls = tasks.iter_mut().map(|it| {
            it.prepare(at(97), 1);
            it.calls(at(97), 1)
        });
        assert_eq!(calls.sum::<u64>(), 2);
    }

    #[test]
    fn a_turn_is_kept_for_a_call_that_comes_a_little_late() {
        let mut tasks = limited_together::<2>(3, 1);
        for it in &mut tasks {
            it.prepare(at(7), 1);
        }
        let late = at(7) + Duration::from_millis(97);
        tasks[0].prepare(late, 1);
        assert_eq!((tasks[0].calls(late, 1), tasks[1].calls(late, 1)), (1, 0));
    }

    #[test]
    fn a_task_that_ends_gives_back_a_turn_that_has_not_come_and_no_other() {
        let mut tasks = limited_together::<3>(3, 1).map(Some);
        for it in tasks.iter_mut().flatten() {
            it.prepare(at(7), 1);
        }
        let when_next = |tasks: &mut [Option<RateLimit>; 3]| {
            let last = tasks[2].as_mut().unwrap();
            last.prepare(at(7), 2);
            last.ready_at(at(7), 2)
        };
        let before = when_next(&mut tasks);
        // Its turn has come, long ago perhaps.
        tasks[0] = None;
        tasks[2].as_mut().unwrap().prepare(at(7), 1);
        assert_eq!(when_next(&mut tasks), before);
        tasks[1] = None;
        tasks[2].as_mut().unwrap().prepare(at(7), 1);
        assert!(when_next(&mut tasks) < before);
    }

    #[test]
    fn it_never_raises_it() {
        let mut limit = limit(1, 1);
        limit.on_start(at(1), 1);
        limit.tell(&window(1_000_000, 59), at(1), at(1));
        assert_eq!(limit.ready_at(at(1), 1), at(2));
    }

    #[test]
    fn calls_on_their_way_may_not_be_counted_yet() {
        let mut limit = limit(100, 100);
        (0..6).for_each(|_| limit.on_start(at(1), 1));
        limit.settle(1, 1);
        limit.tell(&window(7, 7), at(1), at(2));
        assert_eq!(limit.calls(at(2), 1), 2);
    }

    #[test]
    fn old_news_changes_nothing() {
        let mut limit = limit(100, 100);
        limit.tell(&window(50, 5), at(3), at(4));
        limit.tell(&window(1, 5), at(2), at(4));
        assert_eq!(limit.calls(at(4), 1), 50);
        // One that counts again by now does not limit.
        limit.tell(&window(1, 0), at(4), at(5));
        assert_eq!(limit.calls(at(5), 1), 50);
    }

    #[test]
    fn a_refusal_leaves_nothing_that_was_saved() {
        let mut limit = limit(100, 100);
        (0..3).for_each(|_| limit.on_start(at(1), 10));
        limit.drain(at(1), at(2));
        assert_eq!((limit.calls(at(2), 1), limit.calls(at(3), 1)), (0, 70));
        // Those that started before it was known are refused as well, and later.
        limit.settle(10, 10);
        limit.drain(at(1), at(3));
        assert_eq!(limit.calls(at(3), 1), 70);
        limit.drain(at(3), at(3));
        assert_eq!((limit.calls(at(3), 1), limit.calls(at(4), 1)), (0, 80));
    }

    #[test]
    fn it_stands_for_what_it_counts() {
        let mut limit = limit(100, 100);
        limit.tell(&LimitLeft { counted: Counted::Tokens, ..window(0, 9) }, at(1), at(1));
        assert_eq!(limit.calls(at(1), 1), 100);
    }

    #[test]
    fn in_a_bucket_some_is_left_and_a_part_of_what_comes_back_is_counted_on() {
        let mut limit = limit(100, 100);
        limit.on_start(at(1), 40);
        limit.tell(&left(150, 10, Renewal::Evenly), at(0), at(1));
        // The call in flight may not be counted yet, and the permits of a second are left.
        assert_eq!((limit.calls(at(1), 1), limit.calls(at(2), 1)), (10, 35));
        assert_eq!(limit.ready_at(at(1), 10), at(0) + Duration::from_millis(500));
        // Or twice what it costs.
        assert_eq!(limit.ready_at(at(1), 60), at(1) + Duration::from_millis(70 * 40));
        limit.settle(40, 10);
        assert_eq!(limit.calls(at(1), 1), 40);
        assert_eq!(limit.calls(at(11), 1), 100);
    }

    #[test]
    fn a_small_bucket_is_used_up_to_an_eighth() {
        let mut limit = limit(10, 10);
        limit.tell(&left(8, 1, Renewal::Evenly), at(0), at(0));
        assert_eq!(limit.calls(at(0), 1), 6);
    }

    #[test]
    fn nobody_is_believed_for_more_than_an_hour() {
        let mut limit = limit(100, 100);
        limit.tell(&window(0, 1_000_000), at(0), at(0));
        assert_eq!(limit.ready_at(at(0), 1), at(3_600));
    }

    #[test]
    fn a_call_is_settled_by_what_it_cost() {
        let mut limit = limit(100, 100);
        limit.tell(&window(40, 8), at(0), at(1));
        limit.on_start(at(1), 30);
        assert_eq!(limit.calls(at(1), 1), 10);
        limit.settle(30, 5);
        assert_eq!(limit.calls(at(1), 1), 35);
    }
}
