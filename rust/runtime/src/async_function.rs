// SPDX-License-Identifier: Apache-2.0
//! The function that the driver calls.

use std::sync::Arc;

use sparkawait_core::operator::{AttemptId, Recall};

/// The function that an operator calls. Lives on the task thread, works elsewhere.
///
/// Every call is answered exactly once through the [`ReplySender`] that the
/// function was built with, unless it is cancelled; answers to cancelled calls
/// are ignored.
///
/// [`ReplySender`]: crate::ReplySender
pub trait AsyncFunction<C>: Send {
    /// Starts a burst of calls. Must not block.
    fn invoke(&mut self, calls: C);

    /// Asks what each of these timed-out records shall emit. Must not block.
    fn ask_timeout(&mut self, calls: C);

    /// Ends calls whose outcome no longer matters. Must not block.
    fn cancel(&mut self, attempts: Vec<AttemptId>);

    /// Returns where calls wait until it sees them, if they do. Asked once.
    fn recall(&self) -> Option<Arc<dyn Recall>> {
        None
    }

    /// Ends all calls. No reply follows.
    fn close(&mut self);
}

impl<C, F: AsyncFunction<C> + ?Sized> AsyncFunction<C> for Box<F> {
    fn invoke(&mut self, calls: C) {
        (**self).invoke(calls);
    }

    fn ask_timeout(&mut self, calls: C) {
        (**self).ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        (**self).cancel(attempts);
    }

    fn recall(&self) -> Option<Arc<dyn Recall>> {
        (**self).recall()
    }

    fn close(&mut self) {
        (**self).close();
    }
}
