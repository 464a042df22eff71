// SPDX-License-Identifier: Apache-2.0
//! All that bounds the calls of one channel, taken together.

use std::time::Duration;

use super::adaptive_limit::{AdaptiveLimit, AdaptiveLimitConfig};
use super::adaptive_rate::AdaptiveRate;
use super::call_policy::CallPolicy;
use super::costs::Costs;
use super::ended_call::EndedCall;
use super::limit_left::LimitLeft;
use super::open_request::RequestConfig;
use super::pause::{LONGEST_ASKED, Pause, PauseConfig};
use super::rate_limit::RateLimitConfig;
use super::rate_limits::{RateLimitConfigs, RateLimits};
use super::retry_budget::RetryBudgetConfig;
use crate::time::ProcessingTime;

/// What bounds the calls of a channel beside its credits. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyConfig {
    /// Calls at a time that follow what the destination bears.
    pub adaptive_limit: Option<AdaptiveLimitConfig>,
    /// When a destination that drops its calls is left alone.
    pub pause: Option<PauseConfig>,
    /// Calls, or what they cost, per time.
    pub rate_limits: RateLimitConfigs,
    /// Whether calls per time follow what the destination refuses.
    pub is_rate_adaptive: bool,
    /// How many retries calls earn.
    pub retry_budget: Option<RetryBudgetConfig>,
    /// How requests are made, for limits that count those.
    pub requests: Option<RequestConfig>,
}

impl PolicyConfig {
    /// Bounds nothing.
    pub const NONE: Self = Self {
        adaptive_limit: None,
        pause: None,
        rate_limits: [None; super::costs::MAX_LIMITS],
        is_rate_adaptive: false,
        retry_budget: None,
        requests: None,
    };

    /// Bounds calls by one limit in time, and by nothing else.
    pub const fn limited(limit: RateLimitConfig) -> Self {
        Self { rate_limits: [Some(limit), None, None, None], ..Self::NONE }
    }

    /// Returns whether it bounds nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the same with bounds that can be kept, for at most `max` calls in flight.
    pub(crate) fn sound(&self, max: u32) -> Self {
        Self { adaptive_limit: self.adaptive_limit.map(|it| it.sound(max)), ..*self }
    }
}

/// The policies of one channel: the least of their windows, and the latest of their times.
///
/// A struct instead of trait objects: what is not asked for is one test of an `Option`.
#[derive(Debug)]
pub struct ChannelPolicy {
    adaptive_limit: Option<AdaptiveLimit>,
    pause: Option<Pause>,
    rate_limits: RateLimits,
    adaptive_rate: Option<AdaptiveRate>,
}

impl ChannelPolicy {
    /// Makes the policies of a channel of which nothing is known, with limits of its own.
    pub fn new(config: &PolicyConfig, now: ProcessingTime) -> Self {
        Self::with_limits(config, RateLimits::new(&config.rate_limits, None, None, |_| true), now)
    }

    /// Makes them with these limits.
    pub(crate) fn with_limits(
        config: &PolicyConfig,
        rate_limits: RateLimits,
        now: ProcessingTime,
    ) -> Self {
        Self {
            adaptive_limit: config.adaptive_limit.map(AdaptiveLimit::new),
            pause: config.pause.map(Pause::new),
            rate_limits,
            adaptive_rate: config.is_rate_adaptive.then(|| AdaptiveRate::new(now)),
        }
    }

    /// Makes no call before `until`, see [`Pause::pause_until`]; after an hour one is made anyway.
    /// The service counts otherwise than its limits here, so what these have saved is given up.
    pub fn pause_until(
        &mut self,
        until: ProcessingTime,
        started: ProcessingTime,
        now: ProcessingTime,
    ) {
        let until = until.min(now + LONGEST_ASKED);
        let only_asked = || Pause::new(PauseConfig::new(None, u32::MAX, 0));
        let pause = self.pause.get_or_insert_with(only_asked);
        pause.pause_until(until, started, now);
        self.rate_limits.drain(started, now);
        if let Some(rate) = &mut self.adaptive_rate {
            rate.pause_until(pause.asked_until(), now);
        }
    }

    /// Learns what is left of a limit of the service, see [`RateLimit::tell`](super::RateLimit::tell).
    pub fn tell(&mut self, left: &LimitLeft, started: ProcessingTime, now: ProcessingTime) {
        self.rate_limits.tell(left, started, now);
    }

    /// Returns for how long at least records fail instead of waiting, see [`Pause::refuses_for`].
    pub fn refuses_for(&self, now: ProcessingTime) -> Option<Duration> {
        self.pause.as_ref().and_then(|it| it.refuses_for(now))
    }

    /// Returns since when the destination has dropped its calls and is left alone, or asked to be, if
    /// that counts.
    pub fn paused_since(&self, counts_asked: bool, now: ProcessingTime) -> Option<ProcessingTime> {
        self.pause.as_ref().and_then(|it| it.paused_since(counts_asked, now))
    }

    /// Sets right what a call in flight was charged.
    pub(crate) fn recharge(&mut self, charged: &Costs, anew: &Costs) {
        self.rate_limits.recharge(charged, anew);
    }

    /// Says what the next call costs, and asks for that where others may take it meanwhile.
    pub(crate) fn prepare(&mut self, now: ProcessingTime, costs: &Costs) {
        self.rate_limits.prepare(now, costs);
    }

    /// Returns how many calls may start now that cost as much, as far as time goes.
    pub(crate) fn calls(&self, now: ProcessingTime, costs: &Costs) -> u32 {
        if self.ready_at(now, costs) > now {
            return 0;
        }
        let adaptive = self.adaptive_rate.as_ref().map_or(u64::MAX, |it| it.calls(now));
        let calls = self.rate_limits.calls(now, costs).min(adaptive);
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// Returns whether nothing would be lost if it were made anew, but what the destination bears.
    pub(crate) fn is_settled(&self, now: ProcessingTime) -> bool {
        let pause = self.pause.as_ref().is_none_or(|it| it.is_settled(now));
        let rate = self.adaptive_rate.as_ref().is_none_or(|it| it.is_settled(now));
        pause && rate && self.rate_limits.is_full(now)
    }
}

/// Calls a method of each policy that there is, but limits in time.
macro_rules! each {
    ($self:ident, $it:ident => $call:expr) => {
        [
            $self.adaptive_limit.as_ref().map(|$it| $call),
            $self.pause.as_ref().map(|$it| $call),
            $self.adaptive_rate.as_ref().map(|$it| $call),
        ]
        .into_iter()
        .flatten()
    };
}

macro_rules! tell {
    ($self:ident, $it:ident => $call:expr) => {
        $self.adaptive_limit.as_mut().into_iter().for_each(|$it| $call);
        $self.pause.as_mut().into_iter().for_each(|$it| $call);
        $self.adaptive_rate.as_mut().into_iter().for_each(|$it| $call);
    };
}

impl CallPolicy for ChannelPolicy {
    fn on_start(&mut self, now: ProcessingTime, costs: &Costs) {
        self.rate_limits.on_start(now, costs);
        tell!(self, it => CallPolicy::on_start(it, now, costs));
    }

    fn on_end(&mut self, call: &EndedCall) {
        self.rate_limits.settle(&call.charged, &call.cost);
        tell!(self, it => CallPolicy::on_end(it, call));
    }

    fn window(&self, now: ProcessingTime) -> u32 {
        each!(self, it => CallPolicy::window(it, now)).min().unwrap_or(u32::MAX)
    }

    fn ready_at(&self, now: ProcessingTime, costs: &Costs) -> ProcessingTime {
        let limits = self.rate_limits.ready_at(now, costs);
        each!(self, it => CallPolicy::ready_at(it, now, costs)).fold(limits, ProcessingTime::max)
    }

    fn is_watching(&self, now: ProcessingTime) -> bool {
        !self.rate_limits.is_empty()
            || each!(self, it => CallPolicy::is_watching(it, now)).any(|it| it)
    }
}
