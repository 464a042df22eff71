// SPDX-License-Identifier: Apache-2.0
//! Says what limits in time do that perhaps nobody has meant.

use std::time::Duration;

use sparkawait_core::policy::LimitMetrics;

/// Calls that are held for longer look like a task that hangs.
const LONG: Duration = Duration::from_secs(60);

/// Tells the log, once per operator, that a limit holds calls for long, and that a call has cost more
/// than one may.
#[derive(Debug, Default)]
pub(crate) struct LimitWarning {
    has_told_hold: bool,
    has_told_cost: bool,
}

impl LimitWarning {
    /// Looks at what limits have let pass.
    pub(crate) fn check(&mut self, limits: &LimitMetrics) {
        let hold = limits.longest_hold;
        if hold > LONG && !std::mem::replace(&mut self.has_told_hold, true) {
            tracing::warn!(
                seconds = hold.as_secs(),
                "a rate limit, or a pause that a service has asked for, lets no call start for so \
                 long; rows that wait for it do not time out: look at the `rate`, at the `cost` of \
                 rows and at what replies say"
            );
        }
        if limits.cut_costs > 0 && !std::mem::replace(&mut self.has_told_cost, true) {
            tracing::warn!(
                "a call has cost more of its rate limit than one call may, by `result_cost` or \
                 `context.settle`; it pays what comes in an hour, or the permits of the rate or ten \
                 bursts where these are more"
            );
        }
    }
}
