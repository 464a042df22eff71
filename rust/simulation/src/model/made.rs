// SPDX-License-Identifier: Apache-2.0
//! The calls of a function that were made.

use std::collections::BTreeSet;

use sparkawait_core::operator::AttemptId;

/// Calls that were made: a cache has answered none of them.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// All of them.
    pub calls: u64,
    /// Those that were further attempts: retries, and calls of parts.
    pub retries: u64,
    /// Those that stood beside others.
    pub hedges: u64,
    /// The last ones for which nobody was called, as their answers said.
    left_out: BTreeSet<AttemptId>,
}

impl Made {
    pub(super) fn count(&mut self, attempt: AttemptId) {
        self.left_out.remove(&attempt);
        self.calls += 1;
        if attempt.is_hedge() {
            self.hedges += 1;
        } else if attempt.attempt > 1 {
            self.retries += 1;
        }
    }

    /// Takes back what was counted of one that was left out of its call; no second one is.
    pub(super) fn take_back(&mut self, attempt: AttemptId) {
        self.left_out.insert(attempt);
        self.calls -= 1;
        self.retries -= u64::from(attempt.attempt > 1);
    }

    /// A call is cancelled that has an answer, so the task may not know that nobody was called.
    pub(super) fn unsee(&mut self, attempt: AttemptId) {
        if self.left_out.contains(&attempt) {
            self.count(attempt);
        }
    }
}
