// SPDX-License-Identifier: Apache-2.0
//! The limits in time of an operator, and what a call costs each of them.

use std::sync::Arc;

use super::costs::{Costs, MAX_LIMITS};
use super::permit_source::PermitSource;
use super::rate_limit::RateLimitConfig;

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
