// SPDX-License-Identifier: Apache-2.0
//! The caches of a process.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sparkawait_core::ProcessingTime;

use super::config::CacheConfig;
use super::entries::Entries;
use super::flights::Flights;
use crate::shared::Shared;

/// Caches that a process keeps; the one that was asked for longest ago goes first.
const MOST_CACHES: usize = 16;

/// The caches of this process, by name; the newest last.
static CACHES: Shared = Shared::new();

type Caches = Mutex<VecDeque<(String, CacheConfig, Arc<CacheStore>)>>;

/// What the tasks with one cache share, behind a lock that is taken once per burst.
#[derive(Debug)]
pub(super) struct CacheStore {
    state: Mutex<CacheState>,
    origin: Instant,
    keeps_missing: bool,
}

/// What the lock protects.
#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) entries: Entries,
    pub(super) flights: Flights,
}

impl CacheStore {
    /// Returns the cache called `name`, which is made if there is none with these settings.
    pub(super) fn of_this_process(name: &str, config: CacheConfig) -> Arc<Self> {
        let Ok::<_, Infallible>(caches) = CACHES.get_or_make("caches", || Ok(Caches::default()));
        let mut caches = caches.lock().unwrap_or_else(PoisonError::into_inner);
        let found = caches.iter().position(|(known, its, _)| known == name && *its == config);
        let entry = found
            .and_then(|position| caches.remove(position))
            .unwrap_or_else(|| (name.to_owned(), config, Arc::new(Self::new(config))));
        let store = Arc::clone(&entry.2);
        caches.push_back(entry);
        while caches.len() > MOST_CACHES {
            caches.pop_front();
        }
        store
    }

    fn new(config: CacheConfig) -> Self {
        let state = CacheState { entries: Entries::new(config), flights: Flights::default() };
        let keeps_missing = config.cache_missing;
        Self { state: Mutex::new(state), origin: Instant::now(), keeps_missing }
    }

    /// Returns whether it is kept that a key has no result.
    pub(super) fn keeps_missing(&self) -> bool {
        self.keeps_missing
    }

    /// Does `work` with the state, which it gets together with the time.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut CacheState, ProcessingTime) -> R) -> R {
        let now = ProcessingTime::ZERO + self.origin.elapsed();
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}
