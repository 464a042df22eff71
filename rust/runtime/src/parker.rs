// SPDX-License-Identifier: Apache-2.0
//! Waiting for a wake-up from another thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Wake;
use std::time::Duration;

/// A wake-up that is remembered until somebody waits for it.
///
/// Unlike `std::thread::park` it is bound to no thread: the turns of a task may
/// be taken on different threads, one at a time.
#[derive(Debug, Default)]
pub struct Parker {
    /// Whether a wake-up came since the last wait.
    is_notified: Mutex<bool>,
    condvar: Condvar,
}

impl Parker {
    /// Ends the current wait, or else the next one at once.
    pub fn notify(&self) {
        let mut is_notified = self.is_notified.lock().unwrap_or_else(PoisonError::into_inner);
        *is_notified = true;
        drop(is_notified);
        self.condvar.notify_one();
    }

    /// Waits for a wake-up, for `timeout` at most.
    pub fn park(&self, timeout: Duration) {
        let is_notified = self.is_notified.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut is_notified, _) = self
            .condvar
            .wait_timeout_while(is_notified, timeout, |is_notified| !*is_notified)
            .unwrap_or_else(PoisonError::into_inner);
        *is_notified = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_the_wait_ends_it_at_once() {
        let parker = Parker::default();
        parker.notify();

        parker.park(Duration::MAX);
    }

    #[test]
    fn a_wait_without_time_returns() {
        Parker::default().park(Duration::ZERO);
    }
}
