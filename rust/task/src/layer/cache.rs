// SPDX-License-Identifier: Apache-2.0
//! A cache in front of any function, shared by the tasks of a process.
//!
//! ```text
//!   operator --invoke--> CachedFunction --misses--> function
//!      ^                   |  hits   ^                 |
//!      +-------------------+         +---- replies ----+
//! ```
//!
//! Concurrent misses on one key make one call, its *flight*; the others wait for
//! what it brings, whichever task they belong to. A flight whose call is
//! cancelled is taken over by one of those that wait. Errors are handed to all
//! of them and never kept.

mod caller;
mod config;
mod entries;
mod flights;
mod followers;
mod keys;
mod replies;
mod row_format;
mod store;

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::RowConverter;
use sparkawait_core::operator::{AttemptId, Begins};
use sparkawait_runtime::AsyncFunction;

pub use config::{CacheConfig, CacheMetrics};
pub use store::Caches;

use self::caller::Caller;
use self::flights::Waiter;
use self::keys::CacheKeys;
use self::replies::CacheReplies;
use self::row_format::{converter, not_kept};
use self::store::CacheStore;
use super::{Inner, Layer};
use crate::error::TaskError;
use crate::function::{Call, Calls, GROUP_BYTES, Known, Replies, ResultGroup, TaskFunction};
use crate::row_config::RowConfig;

/// The cache of a task.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// Names the cache: tasks of a process that give the same name share it.
    pub id: String,
    /// How much it holds.
    pub config: CacheConfig,
    /// The input columns that the result depends on.
    pub key: Vec<String>,
    /// Among which its name is looked up; `None`: those of the process.
    pub caches: Option<Arc<Caches>>,
    /// Where the task counts.
    pub metrics: Arc<CacheMetrics>,
}

/// Calls that were answered from the cache.
struct Hits {
    attempts: Vec<AttemptId>,
    /// Result rows of each.
    counts: Vec<u32>,
}

/// A function with a cache in front of it.
struct CachedFunction {
    caller: Arc<Caller>,
    store: Arc<CacheStore>,
    keys: CacheKeys,
    /// Of result rows.
    rows: Arc<RowConverter>,
}

impl Layer for CacheSettings {
    /// Rows whose answer is known, or that wait for the call of another one, make no call.
    fn begins(&self, _inner: Begins) -> Begins {
        Begins::WhenSaid
    }

    /// Puts the cache in front of the function.
    ///
    /// # Errors
    ///
    /// Key columns that do not exist, types that cannot be kept, or what `inner` fails with.
    fn wrap(
        &self,
        inner: Inner<'_>,
        replies: Replies,
        rows: &RowConfig,
    ) -> Result<TaskFunction, TaskError> {
        let (columns, results) = (rows.columns(), &rows.results);
        let keys = CacheKeys::new(&columns, &self.key)?;
        let name = self.name_for(rows);
        let rows = Arc::new(converter(results.fields().iter().map(AsRef::as_ref))?);
        let caches = self.caches.clone().unwrap_or_else(Caches::of_this_process);
        let store = caches.open(&name, self.config);
        let Inner { make, begins } = inner;
        let caller = Caller::new(replies, SchemaRef::clone(results), begins, &self.metrics);
        let caller = Arc::new(caller);
        let replies = CacheReplies::new(&caller, &store, &rows);
        caller.begin(make(Replies::to(replies))?);
        Ok(Box::new(CachedFunction { caller, store, keys, rows }))
    }
}

impl CacheSettings {
    /// Returns the name of the cache of tasks with these columns: of other types it is another one.
    fn name_for(&self, rows: &RowConfig) -> String {
        let named = |field: &Field| format!("{} {}", field.name(), field.data_type());
        // Hidden columns have names of their call only.
        let hidden = |field: &Field| field.data_type().to_string();
        let key_types = self.key.iter().filter_map(|name| {
            let of_rows = rows.input.field_with_name(name).map(named);
            of_rows.or_else(|_| rows.hidden.field_with_name(name).map(hidden)).ok()
        });
        let results = rows.results.fields().iter().map(|field| named(field));
        let types: Vec<String> = key_types.chain(results).collect();
        format!("{}|{}|{}", self.id, self.key.len(), types.join(";"))
    }
}

impl CachedFunction {
    /// Answers what is known, and returns the calls that must be made.
    fn look_up(&self, calls: Calls) -> Result<Calls, ArrowError> {
        let caller = &self.caller;
        let keys = self.keys.encode(&calls)?;
        let mut flying = Vec::new();
        let mut waiting = 0;
        let groups = self.store.with(|state, now| {
            let parser = self.rows.parser();
            let mut groups = Vec::new();
            let mut rows = Vec::with_capacity(calls.calls.len());
            // In registers: a burst that is too large for one group is the exception.
            let (mut attempts, mut counts, mut bytes) = (Vec::new(), Vec::new(), 0);
            let mut missed: Vec<Call> = Vec::new();
            for call in &calls.calls {
                let Some(entry) = state.entries.get(keys.key(call), now) else {
                    missed.push(*call);
                    continue;
                };
                bytes += entry.bytes();
                if bytes > GROUP_BYTES && bytes > entry.bytes() {
                    let (attempts, counts) = (take(&mut attempts), take(&mut counts));
                    groups
                        .push((Hits { attempts, counts }, self.rows.convert_rows(rows.drain(..))?));
                    bytes = entry.bytes();
                }
                attempts.push(call.attempt);
                counts.push(entry.rows(|row| rows.push(parser.parse(row))));
            }
            if !attempts.is_empty() {
                groups.push((Hits { attempts, counts }, self.rows.convert_rows(rows)?));
            }
            for call in missed {
                let waiter = || Waiter {
                    caller: Arc::clone(caller),
                    attempt: call.attempt,
                    batch: Arc::clone(&calls.batches[call.batch as usize]),
                    row: call.row,
                };
                let attempt = (caller.id, call.attempt);
                // A second call flies only beside a first one that does.
                let joins = call.attempt.is_hedge() && state.flights.join(attempt);
                if !joins && state.flights.board(keys.key(&call), attempt, waiter) {
                    waiting += 1;
                } else {
                    flying.push(call);
                }
            }
            Ok::<_, ArrowError>(groups)
        })?;
        let found = groups.iter().map(|(hits, _)| hits.attempts.len()).sum();
        caller.metrics.count_calls(found, waiting + flying.len());
        for (hits, columns) in groups {
            self.answer(hits, columns)?;
        }
        Ok(Calls { batches: calls.batches, calls: flying })
    }

    /// Sends what is known.
    fn answer(&self, hits: Hits, columns: Vec<ArrayRef>) -> Result<(), ArrowError> {
        let Hits { attempts, counts } = hits;
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.caller.results), columns)?;
        let is_one_each = counts.iter().all(|count| *count == 1);
        let counts = (!is_one_each).then_some(counts);
        let known = Known::All;
        let results = ResultGroup { counts, known, ..ResultGroup::one_each(attempts, rows) };
        self.caller.replies.send(results.into());
        Ok(())
    }
}

impl AsyncFunction<Calls> for CachedFunction {
    fn invoke(&mut self, calls: Calls) {
        match self.look_up(calls) {
            Ok(calls) => self.caller.load(calls, |_| true),
            Err(error) => {
                self.caller.replies.fail(not_kept(&error));
            }
        }
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.caller.ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        let id = self.caller.id;
        let handed_over = self.store.with(|state, _| state.flights.leave(id, &attempts));
        self.caller.cancel(attempts);
        take_over(&self.store, handed_over);
    }

    fn close(&mut self) {
        // Before its flights are handed over, so that none comes back to it.
        self.caller.leave();
        let handed_over = self.store.with(|state, _| state.flights.leave_all(self.caller.id));
        self.caller.end();
        take_over(&self.store, handed_over);
    }
}

impl Drop for CachedFunction {
    fn drop(&mut self) {
        // A flight whose call nobody makes any more would hold the other tasks for ever.
        self.close();
    }
}

/// Has those that waited for a flight without a call make it themselves.
fn take_over(store: &CacheStore, waiters: Vec<Waiter>) {
    let mut by_task: HashMap<u64, Vec<Waiter>> = HashMap::new();
    for waiter in waiters {
        by_task.entry(waiter.caller.id).or_default().push(waiter);
    }
    for waiters in by_task.into_values() {
        let caller = waiters.first().map(|waiter| Arc::clone(&waiter.caller));
        let mut calls = Calls { batches: Vec::new(), calls: Vec::new() };
        for waiter in waiters {
            #[expect(clippy::cast_possible_truncation, reason = "fewer than the calls")]
            let batch = calls.batches.len() as u32;
            calls.calls.push(Call { attempt: waiter.attempt, batch, row: waiter.row });
            calls.batches.push(waiter.batch);
        }
        if let Some(caller) = caller {
            // Some may have been cancelled since, by the thread of their task.
            let flies = |attempt| store.with(|state, _| state.flights.flies((caller.id, attempt)));
            caller.load(calls, flies);
        }
    }
}
