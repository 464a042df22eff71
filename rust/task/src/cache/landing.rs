// SPDX-License-Identifier: Apache-2.0
//! What a function's replies bring: to the cache, and to those that waited.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use sparkawait_arrow::bytes_of_rows;

use super::CachedTask;
use super::entries::Entry;
use super::flights::Waiter;
use crate::error::TaskError;
use crate::function::{FailedCall, GROUP_BYTES, ReplyGroup, ReplyTap, ResultGroup};

impl ReplyTap for CachedTask {
    fn pass(&self, group: ReplyGroup) -> bool {
        let mut followers = Followers::default();
        if let Some(results) = &group.results
            && let Err(error) = self.land_results(results, &mut followers)
        {
            return self.sender.fail(error);
        }
        self.land_failures(&group.failures, &mut followers);
        let is_open = self.sender.send(group);
        for follower in followers.0.into_values() {
            // Whoever has ended meanwhile does not want it any more.
            for group in follower.full.into_iter().chain([follower.reply]) {
                follower.task.sender.send(group);
            }
        }
        is_open
    }
}

impl CachedTask {
    /// Keeps the results of flights, and gives them to those that waited.
    fn land_results(
        &self,
        results: &ResultGroup,
        followers: &mut Followers,
    ) -> Result<(), TaskError> {
        results.check()?;
        let rows = {
            let mut conform = self.conform.lock().unwrap_or_else(PoisonError::into_inner);
            conform.conform(results.rows.clone()).map_err(TaskError::Arrow)?
        };
        let encoded = self.rows.convert_columns(rows.columns()).map_err(not_kept)?;
        let (mut start, mut evictions) = (0, 0);
        let mut landed = Vec::new();
        self.store.with(|state, now| {
            for (index, attempt) in results.attempts.iter().enumerate() {
                let count = results.counts.as_ref().map_or(1, |counts| counts[index]);
                let range = start..start + count;
                start += count;
                let Some((key, waiters)) = state.flights.land((self.id, *attempt)) else {
                    continue;
                };
                let is_set = |flags: &Option<Vec<bool>>| flags.as_ref().is_some_and(|it| it[index]);
                let asks_for_retry = is_set(&results.retries);
                let is_miss = count == 0 || is_set(&results.misses);
                if !asks_for_retry && (self.store.keeps_missing() || !is_miss) {
                    let rows = range.clone().map(|row| encoded.row(row as usize).data());
                    let entry = Entry::new(rows.collect::<Vec<_>>().into_iter(), now);
                    evictions += state.entries.insert(key, entry);
                }
                if !waiters.is_empty() {
                    landed.push((range, asks_for_retry, is_miss, waiters));
                }
            }
        });
        self.metrics.count_evictions(evictions);
        followers.add_results(&rows, landed).map_err(not_kept)
    }

    /// Gives the failures of flights to those that waited.
    fn land_failures(&self, failures: &[FailedCall], followers: &mut Followers) {
        if failures.is_empty() {
            return;
        }
        let landed = self.store.with(|state, _| {
            let land = |failed: &FailedCall| state.flights.land((self.id, failed.attempt));
            failures.iter().map(land).collect::<Vec<_>>()
        });
        for (failed, flight) in failures.iter().zip(landed) {
            for waiter in flight.map(|(_, waiters)| waiters).unwrap_or_default() {
                let failure = failed.failure.clone();
                let failed = FailedCall { attempt: waiter.attempt, failure, retry: failed.retry };
                followers.of(&waiter).reply.failures.push(failed);
            }
        }
    }
}

/// The results of one flight: its rows, what else is to be said of them, and who waited.
type Landed = (std::ops::Range<u32>, bool, bool, Vec<Waiter>);

/// Replies to the calls that waited, by task.
#[derive(Default)]
struct Followers(HashMap<u64, Follower>);

struct Follower {
    task: Arc<CachedTask>,
    /// Replies that are large enough.
    full: Vec<ReplyGroup>,
    reply: ReplyGroup,
    /// The rows of `reply`, as positions in the batch that they are taken from.
    positions: Vec<u32>,
    /// Of these rows.
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
            let schema = SchemaRef::clone(&self.task.results);
            results.rows = RecordBatch::try_new(schema, columns)?;
        }
        Ok(())
    }
}

impl Followers {
    /// Returns the reply to the task of `waiter`.
    fn of(&mut self, waiter: &Waiter) -> &mut Follower {
        self.0.entry(waiter.task.id).or_insert_with(|| Follower {
            task: Arc::clone(&waiter.task),
            full: Vec::new(),
            reply: ReplyGroup::default(),
            positions: Vec::new(),
            bytes: 0,
        })
    }

    /// Adds what flights brought, as rows of `rows`.
    fn add_results(&mut self, rows: &RecordBatch, landed: Vec<Landed>) -> Result<(), ArrowError> {
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
                    rows: RecordBatch::new_empty(SchemaRef::clone(&waiter.task.results)),
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

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_kept(error: ArrowError) -> TaskError {
    TaskError::Internal(format!("results cannot be kept in the cache: {error}"))
}
