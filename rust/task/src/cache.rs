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

mod config;
mod entries;
mod flights;
mod keys;
mod landing;
mod store;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::RowConverter;
use sparkawait_arrow::Side;
use sparkawait_arrow::conform::Conform;
use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::{AsyncFunction, ReplySender};

pub use config::{CacheConfig, CacheMetrics, CacheSettings};

use crate::cache::flights::Waiter;
use crate::cache::keys::{CacheKeys, converter};
use crate::cache::store::CacheStore;
use crate::error::TaskError;
use crate::exchange::TaskExchange;
use crate::function::{Call, Calls, GROUP_BYTES, ReplyGroup, ResultGroup, TaskFunction};
use crate::native::StartError;

/// Tells the tasks of a process apart.
static NEXT_TASK: AtomicU64 = AtomicU64::new(0);

/// The side of a task that other tasks and threads reach.
struct CachedTask {
    id: u64,
    store: Arc<CacheStore>,
    sender: ReplySender<TaskExchange>,
    /// The function behind the cache; none before it was made and after it was closed.
    function: Mutex<Option<TaskFunction>>,
    /// Of result rows.
    rows: RowConverter,
    results: SchemaRef,
    /// Brings replies to `results`, as those are that are not kept.
    conform: Mutex<Conform>,
    metrics: Arc<CacheMetrics>,
    is_closed: AtomicBool,
}

/// Calls that were answered from the cache.
#[derive(Default)]
struct Hits {
    attempts: Vec<AttemptId>,
    /// Result rows of each.
    counts: Vec<u32>,
}

/// A function with a cache in front of it.
pub struct CachedFunction {
    task: Arc<CachedTask>,
    keys: CacheKeys,
}

impl CachedFunction {
    /// Puts the cache that `settings` name in front of the function that `make` makes.
    ///
    /// # Errors
    ///
    /// Key columns that do not exist, types that cannot be kept, or what `make` failed with.
    pub fn new<E: From<StartError>>(
        settings: &CacheSettings,
        input: &Schema,
        results: &SchemaRef,
        replies: ReplySender<TaskExchange>,
        make: impl FnOnce(crate::function::Replies) -> Result<TaskFunction, E>,
    ) -> Result<Self, E> {
        let keys = CacheKeys::new(input, &settings.key)?;
        let rows = converter(results.fields().iter().map(AsRef::as_ref))?;
        let key_types = settings.key.iter().filter_map(|it| input.field_with_name(it).ok());
        let result_types = results.fields().iter().map(AsRef::as_ref);
        let types: Vec<String> = key_types
            .chain(result_types)
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect();
        let name = format!("{}|{}|{}", settings.id, settings.key.len(), types.join(";"));
        let task = Arc::new(CachedTask {
            id: NEXT_TASK.fetch_add(1, Ordering::Relaxed),
            store: CacheStore::of_this_process(&name, settings.config),
            sender: replies.clone(),
            function: Mutex::new(None),
            rows,
            results: SchemaRef::clone(results),
            conform: Mutex::new(Conform::new(Side::Result, SchemaRef::clone(results))),
            metrics: Arc::clone(&settings.metrics),
            is_closed: AtomicBool::new(false),
        });
        let tap = Arc::downgrade(&task);
        let function = make(crate::function::Replies::new(replies).through(tap))?;
        *task.lock_function() = Some(function);
        Ok(Self { task, keys })
    }

    /// Answers what is known, and returns the calls that have to be made.
    fn look_up(&self, calls: Calls) -> Result<Calls, ArrowError> {
        let task = &self.task;
        let keys = self.keys.encode(&calls)?;
        let mut flying = Vec::new();
        let mut waiting = 0;
        let groups = task.store.with(|state, now| {
            let parser = task.rows.parser();
            let mut groups = Vec::new();
            let mut rows = Vec::with_capacity(calls.calls.len());
            let (mut hits, mut bytes) = (Hits::default(), 0);
            let mut missed: Vec<Call> = Vec::new();
            for call in &calls.calls {
                if let Some(entry) = state.entries.get(keys.key(call), now) {
                    if bytes > 0 && bytes + entry.bytes() > GROUP_BYTES {
                        let full = std::mem::take(&mut hits);
                        groups.push((full, task.rows.convert_rows(rows.drain(..))?));
                        bytes = 0;
                    }
                    bytes += entry.bytes();
                    hits.attempts.push(call.attempt);
                    hits.counts.push(entry.rows(|row| rows.push(parser.parse(row))));
                } else {
                    missed.push(*call);
                }
            }
            if !hits.attempts.is_empty() {
                groups.push((hits, task.rows.convert_rows(rows)?));
            }
            for call in missed {
                let waiter = || Waiter {
                    task: Arc::clone(task),
                    attempt: call.attempt,
                    batch: Arc::clone(&calls.batches[call.batch as usize]),
                    row: call.row,
                };
                if state.flights.board(keys.key(&call), (task.id, call.attempt), waiter) {
                    waiting += 1;
                } else {
                    flying.push(call);
                }
            }
            Ok::<_, ArrowError>(groups)
        })?;
        let found = groups.iter().map(|(hits, _)| hits.attempts.len()).sum();
        task.metrics.count_calls(found, waiting + flying.len());
        for (Hits { attempts, counts }, columns) in groups {
            let rows = RecordBatch::try_new(SchemaRef::clone(&task.results), columns)?;
            let is_one_each = counts.iter().all(|count| *count == 1);
            let counts = (!is_one_each).then_some(counts);
            let results = ResultGroup { attempts, counts, retries: None, misses: None, rows };
            task.sender.send(ReplyGroup { results: Some(results), failures: Vec::new() });
        }
        Ok(Calls { batches: calls.batches, calls: flying })
    }
}

impl AsyncFunction<Calls> for CachedFunction {
    fn invoke(&mut self, calls: Calls) {
        match self.look_up(calls) {
            Ok(calls) => self.task.load(calls),
            Err(error) => {
                let message = format!("results cannot be kept in the cache: {error}");
                self.task.sender.fail(TaskError::Internal(message));
            }
        }
    }

    fn ask_timeout(&mut self, calls: Calls) {
        if let Some(function) = self.task.lock_function().as_mut() {
            function.ask_timeout(calls);
        }
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        let task = &self.task;
        let handed_over = task.store.with(|state, _| state.flights.leave(task.id, &attempts));
        if let Some(function) = task.lock_function().as_mut() {
            function.cancel(attempts);
        }
        take_over(handed_over);
    }

    fn close(&mut self) {
        let task = &self.task;
        task.is_closed.store(true, Ordering::Release);
        let handed_over = task.store.with(|state, _| state.flights.leave_all(task.id));
        if let Some(mut function) = task.lock_function().take() {
            function.close();
        }
        take_over(handed_over);
    }
}

impl Drop for CachedFunction {
    fn drop(&mut self) {
        // A flight whose call nobody makes any more would hold the other tasks for ever.
        self.close();
    }
}

impl CachedTask {
    /// Makes calls.
    fn load(&self, calls: Calls) {
        if calls.calls.is_empty() {
            return;
        }
        if let Some(function) = self.lock_function().as_mut() {
            self.metrics.count_loads(calls.calls.len());
            function.invoke(calls);
        }
    }

    fn lock_function(&self) -> std::sync::MutexGuard<'_, Option<TaskFunction>> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Has those that waited for a flight without a call make it themselves.
fn take_over(waiters: Vec<Waiter>) {
    let mut by_task: HashMap<u64, Vec<Waiter>> = HashMap::new();
    for waiter in waiters {
        by_task.entry(waiter.task.id).or_default().push(waiter);
    }
    for waiters in by_task.into_values() {
        let task = waiters.first().map(|waiter| Arc::clone(&waiter.task));
        let mut calls = Calls { batches: Vec::new(), calls: Vec::new() };
        for waiter in waiters {
            #[expect(clippy::cast_possible_truncation, reason = "fewer than the calls")]
            let batch = calls.batches.len() as u32;
            calls.calls.push(Call { attempt: waiter.attempt, batch, row: waiter.row });
            calls.batches.push(waiter.batch);
        }
        if let Some(task) = task {
            task.load(calls);
        }
    }
}

impl fmt::Debug for CachedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedTask").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for CachedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFunction").field("task", &self.task).finish_non_exhaustive()
    }
}
