// SPDX-License-Identifier: Apache-2.0
//! A panic on the tokio task of a function, in a live call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Replies, ReplyGroup, ReplySink};

/// Panics where the first results are handed over.
#[derive(Clone, Debug)]
pub(crate) struct PanicsOnce {
    passed: Arc<AtomicUsize>,
    replies: Replies,
}

impl PanicsOnce {
    /// Stands before `replies`.
    pub(crate) fn before(replies: Replies) -> Replies {
        let way = replies.clone();
        way.through(Self { passed: Arc::default(), replies })
    }
}

impl ReplySink for PanicsOnce {
    fn send(&self, group: ReplyGroup) -> bool {
        if group.results.is_some() {
            assert_ne!(self.passed.fetch_add(1, Ordering::SeqCst), 0, "out of luck");
        }
        self.replies.send(group)
    }

    fn started(&self, attempts: Vec<AttemptId>) -> bool {
        self.replies.started(&attempts)
    }

    fn fail(&self, error: TaskError) -> bool {
        self.replies.fail(error)
    }
}
