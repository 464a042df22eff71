// SPDX-License-Identifier: Apache-2.0
//! Calls of a task that nobody waits for any more, though the server may still answer them.

use std::collections::HashSet;
use std::mem::take;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sparkawait_core::operator::AttemptId;

/// How long a call is remembered, at least: a server that is silent for longer is given up anyway.
const KEPT: Duration = Duration::from_secs(60);

/// Calls that were cancelled in the last minute or two.
///
/// Looked at only where a server is silent, so that an answer costs nothing.
#[derive(Debug, Default)]
pub(super) struct Cancelled(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    recent: HashSet<AttemptId>,
    older: HashSet<AttemptId>,
    since: Option<Instant>,
}

impl Cancelled {
    /// Says that nobody waits for these any more.
    pub(super) fn add(&self, attempts: Vec<AttemptId>) {
        self.add_at(Instant::now(), attempts);
    }

    fn add_at(&self, now: Instant, attempts: Vec<AttemptId>) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(*calls.since.get_or_insert(now)) > KEPT {
            calls.older = take(&mut calls.recent);
            calls.since = Some(now);
        }
        calls.recent.extend(attempts);
    }

    /// Whether all of these were.
    pub(super) fn has_all(&self, attempts: &[AttemptId]) -> bool {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.iter().all(|it| calls.recent.contains(it) || calls.older.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

    use super::*;

    #[test]
    fn calls_are_forgotten_when_no_server_can_owe_them_any_more() {
        let mut queue: OrderedStreamElementQueue<usize, ()> =
            OrderedStreamElementQueue::new(NonZeroUsize::new(3).unwrap());
        let attempts: Vec<_> =
            (0..3).map(|it| AttemptId { entry: queue.try_put(it).unwrap(), attempt: 1 }).collect();
        let (cancelled, start) = (Cancelled::default(), Instant::now());

        cancelled.add_at(start, vec![attempts[0]]);
        cancelled.add_at(start + KEPT, vec![attempts[1]]);
        assert!(cancelled.has_all(&attempts[..2]) && !cancelled.has_all(&attempts[1..]));

        cancelled.add_at(start + KEPT * 2, vec![attempts[2]]);
        assert!(cancelled.has_all(&attempts));
        cancelled.add_at(start + KEPT * 4, Vec::new());
        assert!(!cancelled.has_all(&attempts[..1]) && cancelled.has_all(&attempts[2..]));
    }
}
