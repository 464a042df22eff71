// SPDX-License-Identifier: Apache-2.0
//! Several limits in time, all of which a call pays.

use std::sync::Arc;

use super::costs::{Costs, MAX_LIMITS};
use super::limit_left::LimitLeft;
use super::permit_source::PermitSource;
use super::rate_limit::{RateLimit, RateLimitConfig};
use crate::time::ProcessingTime;

/// The limits of an operator by their numbers; none by default.
pub type RateLimitConfigs = [Option<RateLimitConfig>; MAX_LIMITS];

/// What makes the permits of limits that others share; none for one of the operator's own.
///
/// It is asked for the limit of each channel, by a number that means the channel; `None`: of all.
pub trait PermitSources: std::fmt::Debug + Send + Sync {
    /// Returns the permits of limit number `limit`.
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn PermitSource>>;
}

/// Returns what a call costs each limit if nothing else is known of it.
pub fn usual_costs(configs: &RateLimitConfigs) -> Costs {
    costs_of(configs, |_| true)
}

/// Returns what a request costs those limits that count requests.
pub(crate) fn request_costs(configs: &RateLimitConfigs) -> Costs {
    costs_of(configs, |it| it.is_per_request)
}

/// Returns what a record costs the others.
pub(crate) fn record_costs(configs: &RateLimitConfigs) -> Costs {
    costs_of(configs, |it| !it.is_per_request)
}

fn costs_of(configs: &RateLimitConfigs, is_meant: fn(&RateLimitConfig) -> bool) -> Costs {
    let meant = configs.iter().map(|it| it.filter(is_meant));
    meant
        .enumerate()
        .fold(Costs::NONE, |costs, (index, it)| costs.with(index, it.map_or(0, |limit| limit.cost)))
}

/// Some of the limits of an operator.
#[derive(Debug, Default)]
pub struct RateLimits {
    limits: Vec<(usize, RateLimit)>,
}

impl RateLimits {
    /// Makes those of which `is_wanted` holds.
    pub fn new(
        configs: &RateLimitConfigs,
        sources: Option<&dyn PermitSources>,
        channel: Option<u64>,
        is_wanted: impl Fn(&RateLimitConfig) -> bool,
    ) -> Self {
        let wanted = configs.iter().enumerate();
        let wanted = wanted.filter_map(|(index, it)| Some((index, it.filter(&is_wanted)?)));
        let limits = wanted.map(|(index, config)| {
            let source = sources.and_then(|it| it.open(index, channel));
            (index, RateLimit::new(&config, source))
        });
        Self { limits: limits.collect() }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Returns whether a call that costs as much has nothing to pay.
    pub fn is_free(&self, costs: &Costs) -> bool {
        self.limits.iter().all(|it| costs.of(it.0) == 0)
    }

    /// Is told that a call starts.
    pub fn on_start(&mut self, now: ProcessingTime, costs: &Costs) {
        for (index, limit) in &mut self.limits {
            limit.on_start(now, costs.of(*index));
        }
    }

    /// Settles a call that was charged `charged` and cost `actual`.
    pub fn settle(&mut self, charged: &Costs, actual: &Costs) {
        for (index, limit) in &mut self.limits {
            limit.settle(charged.of(*index), actual.of(*index));
        }
    }

    /// Sets right what a call in flight was charged.
    pub(crate) fn recharge(&mut self, charged: &Costs, anew: &Costs) {
        for (index, limit) in &mut self.limits {
            limit.recharge(charged.of(*index), anew.of(*index));
        }
    }

    /// Asks for what the next call costs, where others may take it meanwhile.
    pub fn prepare(&mut self, now: ProcessingTime, costs: &Costs) {
        for (index, limit) in &mut self.limits {
            limit.prepare(now, costs.of(*index));
        }
    }

    /// Returns when a call may start, see [`RateLimit::ready_at`]; the origin of time if there is
    /// nothing to wait for.
    pub fn ready_at(&self, now: ProcessingTime, costs: &Costs) -> ProcessingTime {
        let limits = self.limits.iter().filter(|it| costs.of(it.0) > 0);
        limits.map(|(index, it)| it.ready_at(now, costs.of(*index))).max().unwrap_or_default()
    }

    /// Returns how many calls may start now that cost as much, one after the other.
    pub fn calls(&self, now: ProcessingTime, costs: &Costs) -> u64 {
        let calls = self.limits.iter().map(|(index, it)| it.calls(now, costs.of(*index)));
        calls.min().unwrap_or(u64::MAX)
    }

    /// Returns whether each may be used as if nothing had been taken.
    pub fn is_full(&self, now: ProcessingTime) -> bool {
        self.limits.iter().all(|it| it.1.is_full(now))
    }

    /// Gives up what was saved, see [`RateLimit::drain`].
    pub fn drain(&mut self, started: ProcessingTime, now: ProcessingTime) {
        for (_, limit) in &mut self.limits {
            limit.drain(started, now);
        }
    }

    /// Learns what is left of a limit of the service, see [`RateLimit::tell`].
    pub fn tell(&mut self, left: &LimitLeft, started: ProcessingTime, now: ProcessingTime) {
        for (_, limit) in &mut self.limits {
            limit.tell(left, started, now);
        }
    }
}
