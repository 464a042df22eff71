// SPDX-License-Identifier: Apache-2.0
//! The caches of a process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use sparkawait_core::ProcessingTime;
use sparkawait_runtime::clock::{Clock, MonotonicClock};

use super::config::CacheConfig;
use super::entries::Entries;
use super::flights::Flights;
use crate::shared::Shared;

/// Caches that a process keeps; the one that was asked for longest ago goes first.
const MOST_CACHES: usize = 16;

/// The caches of this process.
static CACHES: Shared = Shared::new();

/// Tells caches the time.
type CacheClock = Arc<dyn Clock + Send + Sync>;

/// Caches that tasks share by their names.
pub struct Caches {
    clock: CacheClock,
    /// By name; the newest last.
    known: Mutex<VecDeque<(String, CacheConfig, Arc<CacheStore>)>>,
}

/// What the tasks with one cache share, behind a lock that is taken once per burst.
pub(super) struct CacheStore {
    state: Mutex<CacheState>,
    clock: CacheClock,
    keeps_missing: bool,
}

/// What the lock protects.
pub(super) struct CacheState {
    pub(super) entries: Entries,
    pub(super) flights: Flights,
}

impl Caches {
    /// Makes caches whose time is told by a clock of their own, such as one that is moved by hand.
    pub fn on(clock: impl Clock + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), known: Mutex::default() }
    }

    /// Returns those of this process.
    pub(super) fn of_this_process() -> Arc<Self> {
        CACHES.of_process()
    }

    /// Returns the cache called `name`, which is made if there is none with these settings.
    pub(super) fn open(&self, name: &str, config: CacheConfig) -> Arc<CacheStore> {
        let mut caches = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = caches.iter().position(|(known, its, _)| known == name && *its == config);
        let make = || Arc::new(CacheStore::new(config, &self.clock));
        let entry = found
            .and_then(|position| caches.remove(position))
            .unwrap_or_else(|| (name.to_owned(), config, make()));
        let store = Arc::clone(&entry.2);
        caches.push_back(entry);
        while caches.len() > MOST_CACHES {
            caches.pop_front();
        }
        store
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::on(MonotonicClock::start())
    }
}

sparkawait_core::opaque_debug!(Caches);

impl CacheStore {
    fn new(config: CacheConfig, clock: &CacheClock) -> Self {
        let state = CacheState { entries: Entries::new(config), flights: Flights::default() };
        let (clock, keeps_missing) = (Arc::clone(clock), config.cache_missing);
        Self { state: Mutex::new(state), clock, keeps_missing }
    }

    /// Returns whether it is kept that a key has no result.
    pub(super) fn keeps_missing(&self) -> bool {
        self.keeps_missing
    }

    /// Does `work` with the state, which it gets together with the time.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut CacheState, ProcessingTime) -> R) -> R {
        let now = self.clock.now();
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}
