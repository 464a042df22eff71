// SPDX-License-Identifier: Apache-2.0
//! How many calls a native function can have on their way.

use std::num::NonZeroUsize;

use sparkawait_core::operator::{Begins, Config};

/// How many calls a native function can have on their way at a time.
///
/// The permits of the operator follow it, so that a call which is handed over is
/// started at once: there is no second line behind the operator's, where the calls
/// of one channel would hold those of all.
///
/// Operators of the process that use the same connections divide it, see `call_share`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    bound: Option<Bound>,
    begins: Begins,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    /// Equal for those that use the same connections; `None`: a task has connections of its own.
    connections: Option<String>,
    calls: usize,
}

impl Concurrency {
    /// Makes the concurrency of a function that can have any number of calls on their way.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { bound: None, begins: Begins::AtOnce }
    }

    /// Makes that of a function which can have `calls` on their way, at least one, over the
    /// connections that `connections` names: the connector and the settings that tell them from
    /// others.
    #[must_use]
    pub fn of(connections: String, calls: usize) -> Self {
        let bound = Bound { connections: Some(connections), calls: calls.max(1) };
        Self { bound: Some(bound), begins: Begins::WhenSaid }
    }

    /// Makes that of a function which can have `calls` on their way, at least one, in each task.
    #[must_use]
    pub fn of_task(calls: usize) -> Self {
        let bound = Bound { connections: None, calls: calls.max(1) };
        Self { bound: Some(bound), begins: Begins::AtOnce }
    }

    /// Makes that of a function whose calls begin so. [`Begins::WhenSaid`]: they wait for something
    /// within the function, which says when each of them begins, see
    /// [`Replies::started`](crate::function::Replies::started).
    #[must_use]
    pub fn beginning(self, begins: Begins) -> Self {
        Self { begins, ..self }
    }

    /// Returns when the calls of the function begin.
    pub(crate) const fn begins(&self) -> Begins {
        self.begins
    }

    /// Returns the bound, if there is one.
    #[must_use]
    pub fn calls(&self) -> Option<usize> {
        self.bound.as_ref().map(|it| it.calls)
    }

    /// Returns the connections that others may use, too, and the calls that go over them.
    pub(crate) fn shared(&self) -> Option<(&str, usize)> {
        let Bound { connections, calls } = self.bound.as_ref()?;
        Some((connections.as_deref()?, *calls))
    }

    /// Lets an operator have no more calls in flight than these.
    pub(crate) fn bound(&self, operator: &mut Config) {
        if let Some(calls) = self.calls().and_then(NonZeroUsize::new) {
            operator.max_concurrency = operator.max_concurrency.min(calls);
        }
    }
}
