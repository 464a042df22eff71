// SPDX-License-Identifier: Apache-2.0
//! What limits in time have let pass.

use std::time::Duration;

use super::costs::{Costs, MAX_LIMITS};
use crate::time::ProcessingTime;

/// What was taken of limits in time, and how long something waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitMetrics {
    /// Permits taken of each limit, by its number; what was too much came back.
    pub permits: [u64; MAX_LIMITS],
    /// Time in which something could have been called, but for a limit in time or a pause.
    pub waited: Duration,
    waits_since: Option<ProcessingTime>,
}

impl LimitMetrics {
    pub(crate) fn count(&mut self, costs: &Costs) {
        for (index, permits) in self.permits.iter_mut().enumerate() {
            *permits = permits.saturating_add(costs.of(index));
        }
    }

    pub(crate) fn correct(&mut self, charged: &Costs, actual: &Costs) {
        for (index, permits) in self.permits.iter_mut().enumerate() {
            *permits = permits.saturating_sub(charged.of(index)).saturating_add(actual.of(index));
        }
    }

    /// Notes whether something waits from now on.
    pub(crate) fn wait(&mut self, waits: bool, now: ProcessingTime) {
        match self.waits_since {
            None if waits => self.waits_since = Some(now),
            Some(since) if !waits => {
                self.waited += now.saturating_since(since);
                self.waits_since = None;
            }
            _ => {}
        }
    }

    /// Returns the same as of now.
    #[must_use]
    pub fn at(mut self, now: ProcessingTime) -> Self {
        if let Some(since) = self.waits_since {
            self.waited += now.saturating_since(since);
            self.waits_since = Some(now);
        }
        self
    }
}
