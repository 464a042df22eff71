// SPDX-License-Identifier: Apache-2.0
//! The queries of a lookup that are under way.

use std::sync::Arc;

use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use tokio::task::{JoinError, JoinSet};

use crate::postgres::awaited_calls::AwaitedCalls;

/// Queries in tokio tasks of their own; all are ended when this is dropped.
#[derive(Default)]
pub(crate) struct QuerySet {
    /// Each returns its channel.
    tasks: JoinSet<Option<Key>>,
    /// The calls of each query; may hold some that have ended since the last was started.
    queries: Vec<Arc<AwaitedCalls>>,
}

impl QuerySet {
    /// Returns the number of queries.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Starts a query of `channel` for some calls; it ends when nobody waits for any of them.
    pub(crate) fn start(
        &mut self,
        channel: Option<Key>,
        wanted: Arc<AwaitedCalls>,
        query: impl Future<Output = ()> + Send + 'static,
    ) {
        // Those that have ended hold theirs no more.
        self.queries.retain(|wanted| Arc::strong_count(wanted) > 1);
        self.queries.push(wanted);
        #[expect(clippy::disallowed_methods, reason = "its end is looked at in `next_ended`")]
        self.tasks.spawn(async move {
            query.await;
            channel
        });
    }

    /// Waits until a query has ended, and returns its channel; `None` if there is none.
    ///
    /// # Cancel safety
    ///
    /// No query is lost.
    pub(crate) async fn next_ended(&mut self) -> Option<Result<Option<Key>, JoinError>> {
        self.tasks.join_next().await
    }

    /// Says that nobody waits for these calls any more, of whichever query they are.
    pub(crate) fn cancel(&mut self, cancelled: &[AttemptId]) {
        for wanted in &self.queries {
            wanted.cancel(cancelled);
        }
    }
}
