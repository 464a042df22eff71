// SPDX-License-Identifier: Apache-2.0
//! Which record that waits is called next: one that can be answered in time.

use std::collections::VecDeque;

use super::call_times::CallTimes;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// Records that wait for a call, in the order in which they are called if there is time.
pub(crate) trait Line {
    fn oldest(&self) -> Option<EntryId>;
    fn newest(&self) -> Option<EntryId>;
    fn pop_oldest(&mut self) -> Option<EntryId>;
    fn pop_newest(&mut self) -> Option<EntryId>;

    /// Returns whether any record waits, and drops those in front that wait no longer.
    fn has_any(&mut self, left: &mut impl FnMut(EntryId) -> Option<u64>) -> bool {
        while let Some(oldest) = self.oldest() {
            if left(oldest).is_some() {
                return true;
            }
            self.pop_oldest();
        }
        false
    }

    /// Removes the oldest record if `left` says that it has at least `least` nanoseconds left.
    ///
    /// Records that wait no longer, which have no time left to tell, are dropped.
    fn take_oldest(
        &mut self,
        least: u64,
        left: &mut impl FnMut(EntryId) -> Option<u64>,
    ) -> Option<EntryId> {
        let is_in_time = self.has_any(left) && left(self.oldest()?) >= Some(least);
        is_in_time.then(|| self.pop_oldest()).flatten()
    }

    /// Removes the oldest record that has at least `least` nanoseconds left, and gives up those
    /// before it: they are in no line any more.
    fn take_first(
        &mut self,
        least: u64,
        left: &mut impl FnMut(EntryId) -> Option<u64>,
    ) -> Option<EntryId> {
        while left(self.oldest()?) < Some(least) {
            self.pop_oldest();
        }
        self.pop_oldest()
    }

    /// Removes the newest record likewise.
    fn take_newest(
        &mut self,
        least: u64,
        left: &mut impl FnMut(EntryId) -> Option<u64>,
    ) -> Option<EntryId> {
        loop {
            match left(self.newest()?) {
                None => drop(self.pop_newest()),
                Some(left) if left >= least => return self.pop_newest(),
                Some(_) => return None,
            }
        }
    }
}

impl Line for VecDeque<EntryId> {
    fn oldest(&self) -> Option<EntryId> {
        self.front().copied()
    }

    fn newest(&self) -> Option<EntryId> {
        self.back().copied()
    }

    fn pop_oldest(&mut self) -> Option<EntryId> {
        self.pop_front()
    }

    fn pop_newest(&mut self) -> Option<EntryId> {
        self.pop_back()
    }
}

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
    pub(crate) const fn new(timeout_nanos: u64, now: ProcessingTime) -> Self {
        // A young record, of which there is one soon, sees that a destination has recovered.
        Self { most: timeout_nanos / 4 * 3, little: timeout_nanos / 4, now }
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
        let least = times.median().min(self.most);
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
        let entry = take(Side::Newest, 0)?;
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
