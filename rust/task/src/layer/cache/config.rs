// SPDX-License-Identifier: Apache-2.0
//! What a cache is told, and what it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much a cache holds, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheConfig {
    /// Most keys; `None` for no bound but `max_bytes`.
    pub max_rows: Option<u64>,
    /// Most bytes of keys and results.
    pub max_bytes: Option<u64>,
    /// How long results are used after they were loaded.
    pub expire_after_write: Option<Duration>,
    /// How long results are used after they were used last.
    pub expire_after_access: Option<Duration>,
    /// Whether it is remembered that a key has no result.
    pub cache_missing: bool,
}

/// What a task saw of its cache.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    hits: AtomicU64,
    misses: AtomicU64,
    loads: AtomicU64,
    evictions: AtomicU64,
}

impl CacheMetrics {
    /// Calls that were answered from the cache.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Calls that were not; those that waited for another call on their key are among them.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Calls that the function was asked to make.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// Keys that had to leave for those that the task's calls brought.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Counts the calls of a burst.
    pub(super) fn count_calls(&self, hits: usize, misses: usize) {
        self.hits.fetch_add(hits as u64, Ordering::Relaxed);
        self.misses.fetch_add(misses as u64, Ordering::Relaxed);
    }

    /// Counts calls that the function is asked to make.
    pub(super) fn count_loads(&self, loads: usize) {
        self.loads.fetch_add(loads as u64, Ordering::Relaxed);
    }

    /// Counts keys that left.
    pub(super) fn count_evictions(&self, evictions: u64) {
        self.evictions.fetch_add(evictions, Ordering::Relaxed);
    }
}
