// SPDX-License-Identifier: Apache-2.0
//! A task with a cache, as the other tasks with that cache know it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::SchemaRef;
use sparkawait_core::operator::{AttemptId, Begins};

use super::config::CacheMetrics;
use crate::function::{Calls, Replies, TaskFunction};

/// Tells the tasks of a process apart.
static NEXT_TASK: AtomicU64 = AtomicU64::new(0);

/// The side of a task that other tasks and threads reach: it is given results, and makes calls that
/// another one leaves behind.
pub(super) struct Caller {
    pub(super) id: u64,
    /// To the operator, or to the layer above the cache.
    pub(super) replies: Replies,
    /// Schema of the results.
    pub(super) results: SchemaRef,
    /// When the calls begin that it makes.
    begins: Begins,
    pub(super) metrics: Arc<CacheMetrics>,
    /// The function behind the cache; none before it was made and after it was closed.
    function: Mutex<Option<TaskFunction>>,
    has_left: AtomicBool,
}

impl Caller {
    /// Makes a task that has no function yet.
    pub(super) fn new(
        replies: Replies,
        results: SchemaRef,
        begins: Begins,
        metrics: &Arc<CacheMetrics>,
    ) -> Self {
        Self {
            id: NEXT_TASK.fetch_add(1, Ordering::Relaxed),
            replies,
            results,
            begins,
            metrics: Arc::clone(metrics),
            function: Mutex::new(None),
            has_left: AtomicBool::new(false),
        }
    }

    /// Begins to make calls.
    pub(super) fn begin(&self, function: TaskFunction) {
        *self.lock_function() = Some(function);
    }

    /// Makes those calls that are wanted, which is asked when a cancellation comes before or after them.
    pub(super) fn load(&self, mut calls: Calls, is_wanted: impl Fn(AttemptId) -> bool) {
        let mut function = self.lock_function();
        calls.calls.retain(|call| is_wanted(call.attempt));
        let Some(function) = function.as_mut().filter(|_| !calls.calls.is_empty()) else { return };
        self.metrics.count_loads(calls.calls.len());
        // Else the function says so.
        if self.begins == Begins::AtOnce {
            let made: Vec<AttemptId> = calls.calls.iter().map(|call| call.attempt).collect();
            if !self.replies.started(&made) {
                return;
            }
        }
        function.invoke(calls);
    }

    /// Asks what rows that timed out shall emit.
    pub(super) fn ask_timeout(&self, calls: Calls) {
        if let Some(function) = self.lock_function().as_mut() {
            function.ask_timeout(calls);
        }
    }

    /// Ends calls whose outcome no longer matters.
    pub(super) fn cancel(&self, attempts: Vec<AttemptId>) {
        if let Some(function) = self.lock_function().as_mut() {
            function.cancel(attempts);
        }
    }

    /// Says that this task takes over no more flights.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// Returns whether it does not take flights any more.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Ends all calls.
    pub(super) fn end(&self) {
        let function = self.lock_function().take();
        if let Some(mut function) = function {
            function.close();
        }
    }

    fn lock_function(&self) -> MutexGuard<'_, Option<TaskFunction>> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
