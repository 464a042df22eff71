// SPDX-License-Identifier: Apache-2.0
//! What there is once in a process, and anew in a forked child.

use std::convert::Infallible;
use std::sync::Arc;

use sparkawait_task::shared::Shared;

/// A value that a forked child makes anew, for a `static`.
///
/// A lock in it that another thread has at the moment of the fork stays locked in the child for
/// ever, and connections and tasks have threads that the child does not have.
pub(crate) struct OfProcess<T> {
    shared: Shared,
    marker: std::marker::PhantomData<fn() -> T>,
}

impl<T: Default + Send + Sync + 'static> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { shared: Shared::new(), marker: std::marker::PhantomData }
    }

    /// Returns that of this process.
    pub(crate) fn get(&self) -> Arc<T> {
        let made = self.shared.get_or_make("", || Ok::<_, Infallible>(T::default()));
        made.unwrap_or_else(|never| match never {})
    }
}
