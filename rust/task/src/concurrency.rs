// SPDX-License-Identifier: Apache-2.0
//! How many calls a native function can have on their way.

use std::num::NonZeroUsize;

use sparkawait_core::operator::Config;

/// How many calls a native function can have on their way at a time.
///
/// The permits of the operator follow it, so that a call which is handed over is
/// started at once: there is no second line behind the operator's, where the calls
/// of one channel would hold those of all.
///
/// It is for all operators of the process that use the same connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    bound: Option<Bound>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    /// Equal for those that use the same connections.
    connections: String,
    calls: usize,
}

impl Concurrency {
    /// Makes the concurrency of a function that can have any number of calls on their way.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { bound: None }
    }

    /// Makes that of a function which can have `calls` on their way, at least one, over the
    /// connections that `connections` names: the connector and the settings that tell them from
    /// others.
    #[must_use]
    pub fn of(connections: String, calls: usize) -> Self {
        Self { bound: Some(Bound { connections, calls: calls.max(1) }) }
    }

    /// Returns the bound, if there is one.
    #[must_use]
    pub fn calls(&self) -> Option<usize> {
        self.bound.as_ref().map(|it| it.calls)
    }

    /// Lets an operator have no more calls in flight than these.
    pub(crate) fn bound(&self, operator: &mut Config) {
        if let Some(calls) = self.calls().and_then(NonZeroUsize::new) {
            operator.max_concurrency = operator.max_concurrency.min(calls);
        }
    }
}
