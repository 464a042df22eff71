// SPDX-License-Identifier: Apache-2.0
//! The tokio task of a lookup: gathers rows, and sends queries as connections become free.

use std::fmt;
use std::sync::Arc;

use sparkawait_core::Key;
use sparkawait_runtime::panic_message;
use sparkawait_task::error::TaskError;
use sparkawait_task::worker::{Command, Commands};
use tokio::task::JoinError;

use crate::postgres::awaited_calls::AwaitedCalls;
use crate::postgres::backlog::{Backlog, Batch};
use crate::postgres::query::{Lookup, answer};
use crate::postgres::query_set::QuerySet;
use crate::postgres::turns::{Turn, Turns};

/// The tokio task of a lookup.
pub(crate) struct Work {
    waiting: Backlog,
    /// Queries; those that still run when the function is closed end with it.
    running: QuerySet,
    turns: Turns,
    lookup: Arc<Lookup>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

impl Work {
    /// Has nothing to do yet.
    pub(crate) fn new(waiting: Backlog, lookup: Arc<Lookup>) -> Self {
        let turns = Turns::new(Arc::clone(&lookup.pool.turns));
        Self { waiting, running: QuerySet::default(), turns, lookup }
    }

    /// Serves commands until the function is closed.
    pub(crate) async fn run(mut self, mut commands: Commands) {
        loop {
            let mut turn = None;
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(ended) = self.running.next_ended() => self.end(ended),
                next = self.turns.next() => turn = Some(next),
            }
            // All that is there, before a query is filled.
            while let Ok(command) = commands.try_recv() {
                self.obey(command);
            }
            self.send(turn);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Cancel(cancelled) => {
                self.waiting.remove(&cancelled);
                self.running.cancel(&cancelled);
            }
            Command::Invoke(calls) => match self.waiting.add(&calls) {
                Ok(unasked) => {
                    self.lookup.answer_null_keys(&unasked.null_keys);
                    self.lookup.refuse_too_large(&unasked.too_large);
                }
                Err(error) => {
                    self.lookup.replies.fail(error);
                }
            },
        }
    }

    /// Sends waiting rows while there are free connections.
    fn send(&mut self, mut turn: Option<Turn>) {
        while self.waiting.is_ready() {
            let Some(turn) = turn.take().or_else(|| self.turns.take()) else { return };
            match self.waiting.take(self.turns.free() + 1) {
                Some(Ok(batch)) => self.start(batch, turn),
                Some(Err(error)) => {
                    self.lookup.replies.fail(error);
                }
                None => {}
            }
        }
        self.turns.leave();
    }

    fn start(&mut self, Batch { channel, keys }: Batch, turn: Turn) {
        // What they waited for were other rows' queries, which tell nothing of their own.
        self.lookup.replies.started(&keys.attempts);
        let wanted = Arc::new(AwaitedCalls::new(keys.attempts.clone()));
        let query = answer(Arc::clone(&self.lookup), keys, Arc::clone(&wanted));
        self.running.start(channel, wanted, async move {
            query.await;
            drop(turn);
        });
    }

    fn end(&mut self, ended: Result<Option<Key>, JoinError>) {
        match ended {
            Ok(channel) => self.waiting.ended(channel),
            Err(ended) if ended.is_panic() => {
                let panic = ended.into_panic();
                let reason = panic_message(panic.as_ref());
                let text = format!("`postgres.lookup` panicked: {reason}");
                self.lookup.replies.fail(TaskError::Internal(text));
            }
            Err(_) => {}
        }
    }
}
