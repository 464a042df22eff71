// SPDX-License-Identifier: Apache-2.0
//! Replies to the calls that waited for what another one brings.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use sparkawait_arrow::bytes_of_rows;

use super::caller::Caller;
use super::flights::Waiter;
use crate::function::{FailedCall, GROUP_BYTES, Known, ReplyGroup, ResultGroup};

/// The results of one flight: its rows, what else there is to say about them, and who waited.
pub(super) type Landed = (std::ops::Range<u32>, bool, bool, Vec<Waiter>);

/// Replies to the calls that waited, by task.
#[derive(Default)]
pub(super) struct Followers(HashMap<u64, Follower>);

struct Follower {
    caller: Arc<Caller>,
    /// Replies that are large enough.
    full: Vec<ReplyGroup>,
    reply: ReplyGroup,
    /// The rows of `reply`, as positions in the batch that they are taken from.
    positions: Vec<u32>,
    /// The bytes of these rows.
    bytes: usize,
}

impl Follower {
    /// Takes the rows of the reply, if there are any.
    fn take_rows(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        self.bytes = 0;
        if let Some(results) = &mut self.reply.results {
            let positions = UInt32Array::from(std::mem::take(&mut self.positions));
            let columns = take_record_batch(rows, &positions)?.columns().to_vec();
            // The same types; but a task may allow nulls where another one does not.
            let schema = SchemaRef::clone(&self.caller.results);
            results.rows = RecordBatch::try_new(schema, columns)?;
        }
        Ok(())
    }
}

impl Followers {
    /// Returns the reply to the task of `waiter`.
    fn of(&mut self, waiter: &Waiter) -> &mut Follower {
        self.0.entry(waiter.caller.id).or_insert_with(|| Follower {
            caller: Arc::clone(&waiter.caller),
            full: Vec::new(),
            reply: ReplyGroup::default(),
            positions: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds a failure, of the call of `waiter`.
    pub(super) fn add_failure(&mut self, waiter: &Waiter, failed: FailedCall) {
        self.of(waiter).reply.failures.push(failed);
    }

    /// Sends all replies.
    pub(super) fn send(self) {
        for follower in self.0.into_values() {
            // One that has ended meanwhile does not want it any more.
            for group in follower.full.into_iter().chain([follower.reply]) {
                follower.caller.replies.send(group);
            }
        }
    }

    /// Adds what flights brought, as rows of `rows`.
    pub(super) fn add_results(
        &mut self,
        rows: &RecordBatch,
        landed: Vec<Landed>,
    ) -> Result<(), ArrowError> {
        for (range, asks_for_retry, is_miss, waiters) in landed {
            let bytes = bytes_of_rows(rows, range.start as usize, range.len());
            for waiter in waiters {
                let follower = self.of(&waiter);
                if follower.bytes > 0 && follower.bytes + bytes > GROUP_BYTES {
                    follower.take_rows(rows)?;
                    follower.full.push(std::mem::take(&mut follower.reply));
                }
                follower.bytes += bytes;
                let results = follower.reply.results.get_or_insert_with(|| ResultGroup {
                    attempts: Vec::new(),
                    counts: Some(Vec::new()),
                    retries: Some(Vec::new()),
                    misses: Some(Vec::new()),
                    known: Known::All,
                    rows: RecordBatch::new_empty(SchemaRef::clone(&waiter.caller.results)),
                });
                results.attempts.push(waiter.attempt);
                results.counts.get_or_insert_default().push(range.end - range.start);
                results.retries.get_or_insert_default().push(asks_for_retry);
                results.misses.get_or_insert_default().push(is_miss);
                follower.positions.extend(range.clone());
            }
        }
        for follower in self.0.values_mut() {
            follower.take_rows(rows)?;
        }
        Ok(())
    }
}
