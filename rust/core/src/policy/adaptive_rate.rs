// SPDX-License-Identifier: Apache-2.0
//! A rate that a service bears, found out by what it refuses.

use std::time::Duration;

use super::ended_call::{CallSign, EndedCall};
use crate::time::ProcessingTime;

/// What a destination refused longer ago says nothing of it any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// What is left of the rate after a refusal.
const BETA: f64 = 0.7;

/// How steeply the rate grows away from where it was refused.
const SCALE: f64 = 0.4;

/// The least rate, per second.
const LEAST: f64 = 0.5;

/// Calls are counted over so many seconds.
const COUNTED: f64 = 0.5;

/// Calls that are refused before that are counted over so many seconds at least.
const COUNTED_AT_LEAST: f64 = 0.05;

/// The weight of the last count.
const SMOOTHING: f64 = 0.8;

/// A limit in calls per time that learns from refusals.
///
/// It sets no bound until the first refusal. Then the rate is seven tenths of what was sent, and
/// grows along a cubic curve: quickly back to the refused rate, slowly there, quickly beyond; never
/// to more than twice what is sent. It is the counterpart of the adaptive retry mode of the AWS
/// SDKs, whose curve is that of TCP CUBIC. It differs in two points. Calls in flight at a refusal
/// lower it no further: several refused together would bring it down to its least. And it counts
/// what was sent from the first call on, leaving out the pauses that the service asks for: no
/// permits come in them either, or they would be used, and refused, all at once. Fits services that
/// answer 429: they limit a rate, not the calls at a time.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveRate {
    /// Calls per second that may be made; `None` before the first refusal.
    rate: Option<f64>,
    /// Where it was refused last.
    refused: f64,
    refused_at: ProcessingTime,
    /// Seconds after the refusal until the rate is back there.
    back_after: f64,
    /// Permits that are there.
    tokens: f64,
    filled_at: ProcessingTime,
    /// Replies since the count began, and when; not before the first call.
    count: f64,
    counted_at: Option<ProcessingTime>,
    /// Replies per second; `None` before the end of the first count.
    measured: Option<f64>,
    /// Until when the service wants to be left alone.
    paused_until: ProcessingTime,
}

impl AdaptiveRate {
    /// Makes a limit of a service that has refused nothing.
    pub const fn new(now: ProcessingTime) -> Self {
        Self {
            rate: None,
            refused: 0.0,
            refused_at: now,
            back_after: 0.0,
            tokens: 0.0,
            filled_at: now,
            count: 0.0,
            counted_at: None,
            measured: None,
            paused_until: now,
        }
    }

    /// Returns the calls per second that may be made; `None` if nothing was refused yet.
    pub const fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns how many calls may start now, one after the other.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub fn calls(&self, now: ProcessingTime) -> u64 {
        self.rate.map_or(u64::MAX, |rate| self.tokens_at(rate, now) as u64)
    }

    /// Returns whether a minute has passed since the last refusal, or there was none.
    pub fn is_settled(&self, now: ProcessingTime) -> bool {
        self.rate.is_none() || now.saturating_since(self.refused_at) > FORGOTTEN_AFTER
    }

    fn tokens_at(&self, rate: f64, now: ProcessingTime) -> f64 {
        let since = now.saturating_since(self.filled_at).as_secs_f64();
        (self.tokens + since * rate).min(rate.max(1.0))
    }

    /// Notes a pause: the next call is made at `until` or later.
    pub fn pause_until(&mut self, until: ProcessingTime, now: ProcessingTime) {
        if until <= now {
            return;
        }
        let rests = until.saturating_since(self.paused_until.max(now));
        self.paused_until = self.paused_until.max(until);
        self.counted_at = self.counted_at.map(|it| it + rests);
        self.tokens = 0.0;
        self.filled_at = self.filled_at.max(until);
    }

    /// Counts a reply; returns how many there are per second.
    fn measure(&mut self, now: ProcessingTime) -> f64 {
        self.count += 1.0;
        let since = self.counted_at.map_or(0.0, |it| now.saturating_since(it).as_secs_f64());
        let current = self.count / since.max(COUNTED_AT_LEAST);
        if since < COUNTED {
            return self.measured.unwrap_or(current);
        }
        (self.count, self.counted_at) = (0.0, Some(now));
        let smoothed = |before| current * SMOOTHING + before * (1.0 - SMOOTHING);
        *self.measured.insert(self.measured.map_or(current, smoothed))
    }

    /// Is told that a call starts.
    pub fn on_start(&mut self, now: ProcessingTime) {
        if self.counted_at.is_none() {
            self.counted_at = Some(now);
        }
        if let Some(rate) = self.rate {
            self.tokens = self.tokens_at(rate, now) - 1.0;
            self.filled_at = self.filled_at.max(now);
        }
    }

    /// Learns from a call that ended.
    pub fn on_end(&mut self, call: &EndedCall) {
        if call.sign == CallSign::NotCalled {
            // It took a permit, but from nobody.
            self.tokens += 1.0;
            return;
        }
        let (now, is_refused) = (call.ended, call.sign == CallSign::Overloaded);
        let measured = self.measure(now);
        // It was sent at the rate that was too high, and says nothing of the lower one.
        if is_refused && self.rate.is_some() && call.started < self.refused_at {
            return;
        }
        let aimed = if is_refused {
            let sent = self.rate.map_or(measured, |rate| rate.min(measured));
            self.refused = sent.max(LEAST);
            self.refused_at = now;
            self.back_after = (self.refused * (1.0 - BETA) / SCALE).cbrt();
            self.refused * BETA
        } else if self.rate.is_some() {
            let since = now.saturating_since(self.refused_at).as_secs_f64();
            SCALE * (since - self.back_after).powi(3) + self.refused
        } else {
            return;
        };
        self.tokens = self.rate.map_or(0.0, |rate| self.tokens_at(rate, now));
        self.filled_at = self.filled_at.max(now);
        let rate = aimed.min(2.0 * measured.max(LEAST)).max(LEAST);
        self.tokens = self.tokens.min(rate.max(1.0));
        self.rate = Some(rate);
    }

    /// Returns when the next call may start; `now`: at once.
    pub fn ready_at(&self, now: ProcessingTime) -> ProcessingTime {
        let Some(rate) = self.rate else { return now };
        let lacks = 1.0 - self.tokens_at(rate, now);
        if lacks <= 0.0 {
            return now;
        }
        // A nanosecond more than the float says, so that it is there by then.
        let wait = Duration::try_from_secs_f64(lacks / rate).unwrap_or(Duration::MAX);
        (now.max(self.filled_at) + wait).after_nanos(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::policy::Costs;

    /// A service that bears `bears` calls per second, counted in tenths of a second, and answers
    /// at once; returns calls and refusals in each second.
    fn simulate(bears: f64, seconds: u64) -> Vec<(u32, u32)> {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        let mut told = Vec::new();
        let mut now = ProcessingTime::ZERO;
        let (mut slot, mut taken) = (0, 0.0);
        for second in 1..=seconds {
            let (mut calls, mut refusals) = (0, 0);
            let until = ProcessingTime::ZERO + Duration::from_secs(second);
            while now < until {
                let ready = limit.ready_at(now);
                if ready > now {
                    now = ready;
                    continue;
                }
                if now.as_nanos() / 100_000_000 != slot {
                    (slot, taken) = (now.as_nanos() / 100_000_000, 0.0);
                }
                limit.on_start(now);
                calls += 1;
                taken += 1.0;
                let (started, is_refused) = (now, taken > bears / 10.0);
                refusals += u32::from(is_refused);
                // A call takes a fifth of a millisecond, one after the other.
                now = now + Duration::from_micros(200);
                end(&mut limit, is_refused, started, now);
            }
            told.push((calls, refusals));
        }
        told
    }

    fn end(
        limit: &mut AdaptiveRate,
        is_refused: bool,
        started: ProcessingTime,
        ended: ProcessingTime,
    ) {
        let sign = if is_refused { CallSign::Overloaded } else { CallSign::Good };
        limit.on_end(&EndedCall {
            started,
            ended,
            in_flight: 1,
            sign,
            charged: Costs::NONE,
            cost: Costs::NONE,
        });
    }

    /// A service of `bears` calls a second, out of a bucket of `burst`, that asks for a pause where it
    /// refuses; 100 calls of 5 ms are in flight. Returns the answers and refusals of `seconds`.
    fn serve(bears: f64, burst: f64, pause: Duration, seconds: u64) -> (u32, u32) {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        let (mut now, mut paused_until) = (ProcessingTime::ZERO, ProcessingTime::ZERO);
        let (mut bucket, mut filled_at) = (burst, now);
        let mut in_flight = VecDeque::new();
        let (mut answers, mut refusals) = (0, 0);
        while now < ProcessingTime::ZERO + Duration::from_secs(seconds) {
            let starts_at = paused_until.max(limit.ready_at(now)).max(now);
            let ends_at = in_flight.front().map(|(started, _)| *started + Duration::from_millis(5));
            if in_flight.len() < 100 && ends_at.is_none_or(|it| starts_at < it) {
                now = starts_at;
                limit.on_start(now);
                let since = now.saturating_since(filled_at).as_secs_f64();
                (bucket, filled_at) = (burst.min(bucket + since * bears), now);
                in_flight.push_back((now, bucket < 1.0));
                bucket -= f64::from(u8::from(bucket >= 1.0));
                continue;
            }
            now = ends_at.unwrap();
            let Some((started, is_refused)) = in_flight.pop_front() else { continue };
            (answers, refusals) =
                if is_refused { (answers, refusals + 1) } else { (answers + 1, refusals) };
            end(&mut limit, is_refused, started, now);
            if is_refused && now + pause > paused_until {
                paused_until = now + pause;
                limit.pause_until(paused_until, now);
            }
        }
        (answers, refusals)
    }

    #[test]
    fn a_rate_that_is_a_tenth_of_what_is_sent_at_first_is_used() {
        for (pause, burst) in [(0, 2000.0), (0, 100.0), (1, 2000.0), (1, 100.0)] {
            let (answers, refusals) = serve(2000.0, burst, Duration::from_secs(pause), 17);
            let used = (f64::from(answers) - burst) / (17.0 * 2000.0);
            assert!(used > 0.75, "{used} of the rate, a burst of {burst}, pauses of {pause} s");
            assert!(refusals * 50 < answers, "{refusals} of {answers} refused");
        }
    }

    #[test]
    fn no_permits_come_in_a_pause() {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        let at = |millis| ProcessingTime::ZERO + Duration::from_millis(millis);
        (0..100).for_each(|call| end(&mut limit, false, at(call * 10), at(call * 10)));
        end(&mut limit, true, at(990), at(1000));

        limit.pause_until(at(60_000), at(1000));

        assert_eq!(limit.calls(at(60_000)), 0);
        assert!(limit.ready_at(at(60_000)) > at(60_000));
    }

    #[test]
    fn a_pause_that_is_over_takes_no_permits() {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        let at = |millis| ProcessingTime::ZERO + Duration::from_millis(millis);
        (0..100).for_each(|call| end(&mut limit, false, at(call * 10), at(call * 10)));
        end(&mut limit, true, at(990), at(1000));
        let saved = limit.calls(at(1500));

        // As a reply may ask that was overtaken by another one.
        limit.pause_until(at(1500), at(1500));

        assert!(saved > 10, "{saved} permits in half a second");
        assert_eq!(limit.calls(at(1500)), saved);
    }

    #[test]
    fn calls_that_are_refused_together_lower_the_rate_once() {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        let at = |millis| ProcessingTime::ZERO + Duration::from_millis(millis);
        (0..100).for_each(|call| end(&mut limit, false, at(call * 10), at(call * 10)));
        end(&mut limit, true, at(990), at(1000));
        let rate = limit.rate();
        (0..50).for_each(|_| end(&mut limit, true, at(990), at(1001)));
        assert_eq!(limit.rate(), rate);
        end(&mut limit, true, at(1001), at(1002));
        assert!(limit.rate() < rate);
    }

    #[test]
    fn there_is_no_bound_before_the_first_refusal() {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        let now = ProcessingTime::from_nanos(5);
        (0..1000).for_each(|_| limit.on_start(now));
        (0..1000).for_each(|_| end(&mut limit, false, now, now));
        assert_eq!((limit.rate(), limit.ready_at(now)), (None, now));
    }

    #[test]
    fn it_settles_near_what_the_service_bears() {
        let told = simulate(500.0, 60);
        let (calls, refusals) =
            told.iter().skip(10).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let used = f64::from(calls - refusals) / (500.0 * 50.0);
        assert!(used > 0.8, "{used} of the rate");
        assert!(refusals * 20 < calls, "{refusals} of {calls} refused");
    }

    #[test]
    fn the_rate_is_never_below_one_call_in_two_seconds() {
        let mut limit = AdaptiveRate::new(ProcessingTime::ZERO);
        for second in 0..100 {
            let now = ProcessingTime::ZERO + Duration::from_secs(second);
            end(&mut limit, true, now, now);
        }
        let now = ProcessingTime::ZERO + Duration::from_secs(100);
        limit.on_start(now);
        assert!(limit.ready_at(now) <= now + Duration::from_secs(4));
    }
}
