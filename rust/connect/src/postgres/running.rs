// SPDX-License-Identifier: Apache-2.0
//! The queries of a lookup that are under way.

use std::collections::HashSet;

use sparkawait_core::operator::AttemptId;
use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Queries in tokio tasks of their own; all are ended when this is dropped.
#[derive(Default)]
pub(crate) struct Running {
    tasks: JoinSet<()>,
    /// May hold some that have ended since the last was started.
    queries: Vec<Query>,
}

struct Query {
    attempts: Vec<AttemptId>,
    /// Those of them that somebody waits for; filled when the first is cancelled.
    wanted: Option<HashSet<AttemptId>>,
    task: AbortHandle,
}

impl Running {
    /// Returns the number of queries.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Starts the query of some calls.
    pub(crate) fn start(
        &mut self,
        attempts: Vec<AttemptId>,
        query: impl Future<Output = ()> + Send + 'static,
    ) {
        self.queries.retain(|query| !query.task.is_finished());
        #[expect(clippy::disallowed_methods, reason = "its end is looked at in `next_ended`")]
        let task = self.tasks.spawn(query);
        self.queries.push(Query { attempts, wanted: None, task });
    }

    /// Waits until a query has ended; `None` if there is none.
    ///
    /// # Cancel safety
    ///
    /// No query is lost.
    pub(crate) async fn next_ended(&mut self) -> Option<Result<(), JoinError>> {
        self.tasks.join_next().await
    }

    /// Ends the queries that nobody waits for any more.
    pub(crate) fn cancel(&mut self, cancelled: &HashSet<AttemptId>) {
        for query in &mut self.queries {
            let attempts = &query.attempts;
            let wanted = query.wanted.get_or_insert_with(|| attempts.iter().copied().collect());
            for attempt in cancelled {
                wanted.remove(attempt);
            }
            if wanted.is_empty() {
                query.task.abort();
            }
        }
    }
}
