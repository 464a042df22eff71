// SPDX-License-Identifier: Apache-2.0
//! Which calls of a request somebody still waits for.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sparkawait_core::operator::AttemptId;
use tokio::sync::Notify;

/// The calls of a request without those that were cancelled.
///
/// Costs nothing for a row until one is cancelled.
pub(crate) struct AwaitedCalls {
    attempts: Vec<AttemptId>,
    /// Filled when the first of them is cancelled.
    left: Mutex<Option<HashSet<AttemptId>>>,
    changed: Notify,
}

impl AwaitedCalls {
    /// Makes the calls of a request that all are waited for.
    pub(crate) fn new(attempts: Vec<AttemptId>) -> Self {
        Self { attempts, left: Mutex::default(), changed: Notify::new() }
    }

    /// Forgets those that were cancelled, of whichever request they are.
    pub(crate) fn cancel(&self, cancelled: &[AttemptId]) {
        let is_changed = {
            let mut left = self.left();
            let left = left.get_or_insert_with(|| self.attempts.iter().copied().collect());
            let before = left.len();
            for attempt in cancelled {
                left.remove(attempt);
            }
            left.len() < before
        };
        if is_changed {
            self.changed.notify_waiters();
        }
    }

    /// Returns for each of `attempts` whether somebody waits for it; `None`: all are waited for.
    pub(crate) fn flags(&self, attempts: &[AttemptId]) -> Option<Vec<bool>> {
        let left = self.left();
        let left = left.as_ref()?;
        let flags: Vec<bool> = attempts.iter().map(|it| left.contains(it)).collect();
        flags.contains(&false).then_some(flags)
    }

    /// Waits until nobody waits for any of `attempts`.
    pub(crate) async fn none_of(&self, attempts: &[AttemptId]) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on nothing is missed.
            changed.as_mut().enable();
            if self.left().as_ref().is_some_and(|left| !attempts.iter().any(|it| left.contains(it)))
            {
                return;
            }
            changed.await;
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<HashSet<AttemptId>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::task::{Context, Poll, Waker};

    use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

    use super::*;

    fn attempts(count: usize) -> Vec<AttemptId> {
        let capacity = NonZeroUsize::new(count).unwrap();
        let mut queue: OrderedStreamElementQueue<usize, ()> =
            OrderedStreamElementQueue::new(capacity);
        let entries = (0..count).map(|it| queue.try_put(it).unwrap());
        entries.map(|entry| AttemptId { entry, attempt: 1 }).collect()
    }

    #[test]
    fn what_is_cancelled_is_not_asked_for_again() {
        let attempts = attempts(4);
        let wanted = AwaitedCalls::new(attempts.clone());

        assert_eq!(wanted.flags(&attempts), None);
        wanted.cancel(&[attempts[1], attempts[2]]);

        assert_eq!(wanted.flags(&attempts), Some(vec![true, false, false, true]));
        assert_eq!(wanted.flags(&attempts[3..]), None);
    }

    #[test]
    fn a_part_that_nobody_waits_for_is_noticed() {
        let attempts = attempts(4);
        let wanted = AwaitedCalls::new(attempts.clone());
        let mut part = pin!(wanted.none_of(&attempts[..2]));
        let mut poll = || part.as_mut().poll(&mut Context::from_waker(Waker::noop()));

        assert_eq!(poll(), Poll::Pending);
        wanted.cancel(&[attempts[0], attempts[3]]);
        assert_eq!(poll(), Poll::Pending);
        wanted.cancel(&[attempts[1]]);
        assert_eq!(poll(), Poll::Ready(()));
    }
}
