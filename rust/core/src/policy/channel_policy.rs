// SPDX-License-Identifier: Apache-2.0
//! All that bounds the calls of one channel, taken together.

use super::adaptive_limit::{AdaptiveLimit, AdaptiveLimitConfig};
use super::adaptive_rate::AdaptiveRate;
use super::call_policy::CallPolicy;
use super::ended_call::EndedCall;
use super::gcra::Gcra;
use super::pause::{Pause, PauseConfig};
use super::rate_limit::RateLimit;
use crate::time::ProcessingTime;

/// What bounds the calls of a channel beside its credits. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Calls at a time that follow what the destination bears.
    pub adaptive_limit: Option<AdaptiveLimitConfig>,
    /// When a destination that drops its calls is left alone.
    pub pause: Option<PauseConfig>,
    /// Calls per time.
    pub rate_limit: Option<Gcra>,
    /// Whether calls per time follow what the destination refuses.
    pub is_rate_adaptive: bool,
}

impl PolicyConfig {
    /// Bounds nothing.
    pub const NONE: Self =
        Self { adaptive_limit: None, pause: None, rate_limit: None, is_rate_adaptive: false };

    /// Returns whether it bounds nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the same with bounds that can be kept, for at most `max` calls in flight.
    pub(crate) fn sound(self, max: u32) -> Self {
        Self { adaptive_limit: self.adaptive_limit.map(|it| it.sound(max)), ..self }
    }
}

/// The policies of one channel: the least of their windows, and the latest of their times.
///
/// A struct instead of trait objects: what is not asked for is one test of an `Option`.
#[derive(Clone, Debug)]
pub struct ChannelPolicy {
    adaptive_limit: Option<AdaptiveLimit>,
    pause: Option<Pause>,
    rate_limit: Option<RateLimit>,
    adaptive_rate: Option<AdaptiveRate>,
}

impl ChannelPolicy {
    /// Makes the policies of a channel of which nothing is known.
    pub fn new(config: &PolicyConfig, now: ProcessingTime) -> Self {
        Self {
            adaptive_limit: config.adaptive_limit.map(AdaptiveLimit::new),
            pause: config.pause.map(Pause::new),
            rate_limit: config.rate_limit.map(RateLimit::new),
            adaptive_rate: config.is_rate_adaptive.then(|| AdaptiveRate::new(now)),
        }
    }
}

/// Calls a method of each policy that there is.
macro_rules! each {
    ($self:ident, $it:ident => $call:expr) => {
        [
            $self.adaptive_limit.as_ref().map(|$it| $call),
            $self.pause.as_ref().map(|$it| $call),
            $self.rate_limit.as_ref().map(|$it| $call),
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
        $self.rate_limit.as_mut().into_iter().for_each(|$it| $call);
        $self.adaptive_rate.as_mut().into_iter().for_each(|$it| $call);
    };
}

impl CallPolicy for ChannelPolicy {
    fn on_start(&mut self, now: ProcessingTime, cost: u64) {
        tell!(self, it => CallPolicy::on_start(it, now, cost));
    }

    fn on_end(&mut self, call: &EndedCall) {
        tell!(self, it => CallPolicy::on_end(it, call));
    }

    fn window(&self, now: ProcessingTime) -> u32 {
        each!(self, it => CallPolicy::window(it, now)).min().unwrap_or(u32::MAX)
    }

    fn ready_at(&self, now: ProcessingTime, cost: u64) -> ProcessingTime {
        each!(self, it => CallPolicy::ready_at(it, now, cost)).max().unwrap_or(now)
    }

    fn is_watching(&self, now: ProcessingTime) -> bool {
        each!(self, it => CallPolicy::is_watching(it, now)).any(|it| it)
    }
}
