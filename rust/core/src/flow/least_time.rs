// SPDX-License-Identifier: Apache-2.0
//! Which record that waits is called next: one that can be answered in time.

use super::call_times::CallTimes;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// The time that a record must have left to be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeastTime {
    /// A record with so many nanoseconds left is called in any case, however long calls took.
    pub(crate) most: u64,
    /// A record is given up if it has less left, and too little for a call.
    pub(crate) little: u64,
    pub(crate) now: ProcessingTime,
}

impl LeastTime {
    /// Makes that of records which had `timeout_nanos` when they came.
    pub(crate) fn new(timeout_nanos: u64, now: ProcessingTime) -> Self {
        // A young record, of which there is one soon, sees that a destination has recovered.
        Self { most: (timeout_nanos / 4 * 3).max(1), little: (timeout_nanos / 4).max(1), now }
    }

    /// Removes the record that is called next: retries go first, and the oldest of those that can
    /// be answered in time.
    ///
    /// Where calls take a small part of the time, records that are too late for one are given up.
    /// Else they stay, since calls may become faster before their time is over, and the newest is
    /// looked at: deadlines grow with arrival, so it has most time. If that is too little as well,
    /// nothing starts.
    pub(crate) fn next(
        self,
        times: &mut CallTimes,
        is_alone: bool,
        mut take: impl FnMut(Side, u64) -> Option<EntryId>,
    ) -> Option<EntryId> {
        // Mostly records wait for a small part of their time, and nothing else is looked at.
        times.set_too_long(false);
        if let Some(entry) = take(Side::Foremost, self.most) {
            return Some(entry);
        }
        // One whose time is over is not called, whoever looks at that later.
        let least = times.median().min(self.most).max(1);
        if least <= self.little {
            return take(Side::First, least);
        }
        if let Some(entry) = take(Side::Oldest, least) {
            return Some(entry);
        }
        times.set_too_long(true);
        if let Some(entry) = take(Side::Newest, least) {
            return Some(entry);
        }
        if !is_alone || !times.may_probe(self.now) {
            return None;
        }
        let entry = take(Side::Newest, 1)?;
        times.probe(self.now);
        Some(entry)
    }
}

/// Which record of the lines is taken, if it has time enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// The oldest of all lines.
    Foremost,
    /// The oldest of a line.
    Oldest,
    /// The oldest that has.
    First,
    Newest,
}
