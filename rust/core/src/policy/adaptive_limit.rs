// SPDX-License-Identifier: Apache-2.0
//! How many calls a destination bears, found out by what its calls come to.

use std::time::Duration;

use super::ended_call::{CallSign, EndedCall};
use crate::time::ProcessingTime;

/// Bounds of an [`AdaptiveLimit`], and what it takes for a bad sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveLimitConfig {
    /// The limit before the first call ends.
    pub initial: u32,
    /// The smallest limit; at least 1.
    pub min: u32,
    /// The largest limit; at least `min`.
    pub max: u32,
    /// A call that takes longer counts as dropped; `None`: however long it takes.
    pub max_latency: Option<Duration>,
}

impl AdaptiveLimitConfig {
    /// Returns the same with bounds that can be kept, none of them above `max`.
    pub(crate) fn sound(self, max: u32) -> Self {
        let max = self.max.clamp(1, max.max(1));
        let min = self.min.clamp(1, max);
        Self { initial: self.initial.clamp(min, max), min, max, ..self }
    }
}

/// The most calls in flight of one destination: additive increase, multiplicative decrease.
///
/// As the congestion window of TCP it grows by one with every good call until the first drop, which
/// doubles it in each round trip, and by one in each round trip after that. A drop takes a tenth
/// away, once a round trip: calls that were in flight by then were sent under the limit that was
/// too high, and say nothing about the lower one. A limit that is less than half used does not
/// grow, since nobody knows whether the service would bear more.
///
/// ```text
///   limit     /\      /\      /\    destination drops calls
///            /  \    /  \    /
///           /    \__/    \__/
///       ___/                            --> time
/// ```
///
/// Differs from `AIMDLimit` of Netflix's concurrency-limits in both counts a
/// round trip, as Vector's adaptive concurrency does: otherwise the calls that
/// are lost together bring the limit down to its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveLimit {
    config: AdaptiveLimitConfig,
    limit: u32,
    /// Good calls since the limit changed.
    good: u32,
    /// Whether no call was dropped yet.
    is_starting: bool,
    /// When the limit was lowered last; calls that started earlier do not count.
    lowered_at: ProcessingTime,
}

impl AdaptiveLimit {
    /// Makes the limit of a destination that is not known.
    pub const fn new(config: AdaptiveLimitConfig) -> Self {
        let (limit, lowered_at) = (config.initial, ProcessingTime::ZERO);
        Self { config, limit, good: 0, is_starting: true, lowered_at }
    }

    /// Returns the limit.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    fn lower(&mut self, now: ProcessingTime) {
        // At least one less: nine tenths, rounded down.
        let lower = self.limit - self.limit.div_ceil(10);
        self.limit = lower.max(self.config.min);
        (self.good, self.is_starting, self.lowered_at) = (0, false, now);
    }

    fn raise(&mut self) {
        self.good += 1;
        if self.is_starting || self.good >= self.limit {
            self.limit = self.limit.saturating_add(1).min(self.config.max);
            self.good = 0;
        }
    }

    /// Learns from a call that ended.
    pub fn on_end(&mut self, call: &EndedCall) {
        if call.started < self.lowered_at || call.sign == CallSign::NotCalled {
            return;
        }
        let took = call.ended.saturating_since(call.started);
        let is_slow = self.config.max_latency.is_some_and(|most| took > most);
        if is_slow || call.sign.is_drop() {
            self.lower(call.ended);
        } else if call.sign == CallSign::Good && call.in_flight >= self.limit.div_ceil(2) {
            self.raise();
        }
    }
}

#[cfg(test)]
mod tests;
