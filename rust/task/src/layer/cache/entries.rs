// SPDX-License-Identifier: Apache-2.0
//! The results that a cache holds, by key.
//!
//! Rows are kept in Arrow's row format: compact, of a known size, and turned
//! back into columns for a whole burst at once.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, Weighter};
use sparkawait_core::ProcessingTime;

use super::config::CacheConfig;

/// The encoded key columns of a row.
pub(super) type CacheKey = Arc<[u8]>;

/// What a full cache weighs. Large, so that a share of it is precise.
const FULL: u64 = 1 << 40;

/// What a row weighs at most: what weighs more than 97 % of a full cache is never kept, and two of
/// these are too much.
const HEAVIEST_ROW: u64 = FULL / 16 * 15;

/// Bytes of an entry beside its key and its rows.
const OVERHEAD: u64 = 96;

/// Keys that room is made for at first.
const FIRST_ROOM: usize = 1024;

/// The result rows of one key.
#[derive(Clone)]
pub(super) struct Entry {
    /// The rows, one after the other.
    bytes: Box<[u8]>,
    /// Where each row ends; empty for exactly one row.
    ends: Box<[u32]>,
    /// Whether there is no row at all.
    is_empty: bool,
    written: ProcessingTime,
    used: Cell<ProcessingTime>,
}

impl Entry {
    /// Makes the entry of `rows`, loaded at `now`.
    pub(super) fn new<'a>(
        rows: impl ExactSizeIterator<Item = &'a [u8]>,
        now: ProcessingTime,
    ) -> Self {
        let count = rows.len();
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for row in rows {
            bytes.extend_from_slice(row);
            if count > 1 {
                // A value of 4 GB does not come out of a record batch.
                ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            }
        }
        Self {
            bytes: bytes.into_boxed_slice(),
            ends: ends.into_boxed_slice(),
            is_empty: count == 0,
            written: now,
            used: Cell::new(now),
        }
    }

    /// Returns the bytes of the rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Passes each row to `take`; returns how many there are.
    #[inline]
    pub(super) fn rows<'a>(&'a self, mut take: impl FnMut(&'a [u8])) -> u32 {
        if self.is_empty {
            return 0;
        }
        if self.ends.is_empty() {
            take(&self.bytes);
            return 1;
        }
        let mut start = 0;
        for &end in &self.ends {
            take(&self.bytes[start as usize..end as usize]);
            start = end;
        }
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }
}

/// Weighs an entry by the bound that it takes the larger share of.
#[derive(Clone)]
struct Weight {
    row: u64,
    byte: f64,
}

impl Weighter<CacheKey, Entry> for Weight {
    #[expect(clippy::cast_precision_loss, reason = "a share of a bound")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
    fn weight(&self, key: &CacheKey, entry: &Entry) -> u64 {
        let bytes = (key.len() + entry.bytes.len() + 4 * entry.ends.len()) as u64 + OVERHEAD;
        ((bytes as f64 * self.byte) as u64).max(self.row).max(1)
    }
}

/// Counts the entries that leave because of another.
#[derive(Clone)]
struct CountEvictions;

impl Lifecycle<CacheKey, Entry> for CountEvictions {
    type RequestState = Evicted;

    fn on_evict(&self, state: &mut Evicted, _: CacheKey, _: Entry) {
        state.0 += 1;
    }
}

/// Entries that left during a request.
#[derive(Default)]
struct Evicted(u64);

/// The entries of a cache.
pub(super) struct Entries {
    cache: Cache<CacheKey, Entry, Weight, RandomState, CountEvictions>,
    /// In nanoseconds.
    expire_after_write: u64,
    expire_after_access: u64,
}

impl Entries {
    /// Makes a cache that is empty.
    #[expect(clippy::cast_precision_loss, reason = "a share of a bound")]
    pub(super) fn new(config: CacheConfig) -> Self {
        let weight = Weight {
            row: config.max_rows.map_or(0, |rows| HEAVIEST_ROW.min(FULL / rows.max(1))),
            byte: config.max_bytes.map_or(0.0, |bytes| FULL as f64 / bytes.max(1) as f64),
        };
        Self {
            cache: Cache::with(FIRST_ROOM, FULL, weight, RandomState::default(), CountEvictions),
            expire_after_write: nanos(config.expire_after_write),
            expire_after_access: nanos(config.expire_after_access),
        }
    }

    /// Returns the entry of `key`, if it is fresh at `now`.
    #[inline]
    pub(super) fn get(&self, key: &[u8], now: ProcessingTime) -> Option<&Entry> {
        let entry = self.cache.get(key)?;
        let is_fresh = now.nanos_since(entry.written) < self.expire_after_write
            && now.nanos_since(entry.used.get()) < self.expire_after_access;
        is_fresh.then(|| {
            entry.used.set(now);
            entry
        })
    }

    /// Puts an entry in, in place of an older one; returns how many others had to leave.
    pub(super) fn insert(&mut self, key: CacheKey, entry: Entry) -> u64 {
        let mut evicted = Evicted::default();
        self.cache.insert_with_lifecycle(key, entry, &mut evicted);
        evicted.0
    }
}

/// Returns how long an entry lasts; without a bound, longer than any clock runs.
fn nanos(bound: Option<Duration>) -> u64 {
    bound.map_or(u64::MAX, |it| (ProcessingTime::ZERO + it).as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A point so long after the cache was made.
    fn at(time: Duration) -> ProcessingTime {
        ProcessingTime::ZERO + time
    }

    fn entry(rows: &[&[u8]], now: Duration) -> Entry {
        Entry::new(rows.iter().copied(), at(now))
    }

    fn key(name: &str) -> CacheKey {
        name.as_bytes().into()
    }

    fn is_there(entries: &Entries, name: &str, now: Duration) -> bool {
        entries.get(name.as_bytes(), at(now)).is_some()
    }

    #[test]
    fn rows_come_back_as_they_were() {
        for rows in [&[] as &[&[u8]], &[b"one"], &[b"", b"two", b"three"], &[b""]] {
            let entry = entry(rows, SECOND);
            let mut found = Vec::new();

            let count = entry.rows(|row| found.push(row));

            assert_eq!((count as usize, found.as_slice()), (rows.len(), rows));
        }
    }

    #[test]
    fn an_entry_expires_after_it_was_written() {
        let config = CacheConfig { expire_after_write: Some(3 * SECOND), ..CacheConfig::default() };
        let mut entries = Entries::new(config);
        entries.insert(key("a"), entry(&[b"1"], SECOND));

        assert!(is_there(&entries, "a", 3 * SECOND));
        assert!(!is_there(&entries, "a", 4 * SECOND));

        entries.insert(key("a"), entry(&[b"2"], 4 * SECOND));
        assert!(is_there(&entries, "a", 6 * SECOND));
    }

    #[test]
    fn an_entry_expires_after_it_was_used_last() {
        let config =
            CacheConfig { expire_after_access: Some(2 * SECOND), ..CacheConfig::default() };
        let mut entries = Entries::new(config);
        entries.insert(key("a"), entry(&[b"1"], SECOND));

        assert!(is_there(&entries, "a", 2 * SECOND));
        assert!(is_there(&entries, "a", 3 * SECOND));
        assert!(!is_there(&entries, "a", 5 * SECOND));
    }

    #[test]
    fn no_more_rows_than_the_bound_are_held() {
        let config = CacheConfig { max_rows: Some(10), ..CacheConfig::default() };
        let mut entries = Entries::new(config);

        let evicted: u64 =
            (0..100).map(|it| entries.insert(key(&it.to_string()), entry(&[b"x"], SECOND))).sum();

        assert!(entries.cache.len() <= 10);
        assert_eq!(entries.cache.len() as u64 + evicted, 100);
    }

    #[test]
    fn a_cache_of_one_row_keeps_one_row() {
        let config = CacheConfig { max_rows: Some(1), ..CacheConfig::default() };
        let mut entries = Entries::new(config);

        for name in ["a", "b"] {
            entries.insert(key(name), entry(&[b"x"], SECOND));
        }

        assert_eq!(entries.cache.len(), 1);
    }

    #[test]
    fn no_more_bytes_than_the_bound_are_held() {
        let config = CacheConfig { max_bytes: Some(100_000), ..CacheConfig::default() };
        let mut entries = Entries::new(config);

        for it in 0..1000 {
            entries.insert(key(&it.to_string()), entry(&[&[7; 900]], SECOND));
        }

        assert!((50..=100).contains(&entries.cache.len()), "{}", entries.cache.len());
    }
}
