// SPDX-License-Identifier: Apache-2.0
//! Deadlines that are dropped lazily, and delayed retries.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::time::ProcessingTime;

/// Stale deadlines that are tolerated before the list is compacted.
const SLACK: usize = 64;

/// Deadlines of many records that share one duration.
///
/// A uniform timeout makes deadlines grow with arrival, so a FIFO serves where
/// Flink registers a timer per record. A record that completes leaves its
/// deadline behind; stale ones are dropped at the head, and everywhere once
/// they outnumber the live ones, so memory follows the records in flight.
#[derive(Debug)]
pub struct DeadlineList<K> {
    /// Earliest first.
    deadlines: VecDeque<(ProcessingTime, K)>,
    /// The latest one that there ever was.
    latest: ProcessingTime,
}

impl<K: Copy> DeadlineList<K> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self { deadlines: VecDeque::new(), latest: ProcessingTime::ZERO }
    }

    /// Adds a deadline. Deadlines out of order (after a restore) are sorted in.
    #[inline]
    pub fn push(&mut self, deadline: ProcessingTime, key: K) {
        if deadline < self.latest {
            return self.sort_in(deadline, key);
        }
        self.latest = deadline;
        self.deadlines.push_back((deadline, key));
    }

    #[cold]
    fn sort_in(&mut self, deadline: ProcessingTime, key: K) {
        let at = self.deadlines.partition_point(|(other, _)| *other <= deadline);
        self.deadlines.insert(at, (deadline, key));
    }

    /// Removes and returns the key of a deadline that is not after `now`.
    pub fn pop_due(&mut self, now: ProcessingTime) -> Option<K> {
        self.pop_due_at(now).map(|(_, key)| key)
    }

    /// Does as [`pop_due`](Self::pop_due), and tells when it was due.
    pub fn pop_due_at(&mut self, now: ProcessingTime) -> Option<(ProcessingTime, K)> {
        let due = self.deadlines.front().copied().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.pop_front();
        Some(due)
    }

    /// Returns the earliest deadline of a key for which `is_live` holds; drops stale ones.
    ///
    /// `live` is the number of keys that may be live, the measure of compaction.
    pub fn next(
        &mut self,
        live: usize,
        is_live: impl FnMut(K, ProcessingTime) -> bool,
    ) -> Option<ProcessingTime> {
        self.purge(live, is_live);
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// Drops stale deadlines at the head, and all of them when they are the majority.
    pub fn purge(&mut self, live: usize, mut is_live: impl FnMut(K, ProcessingTime) -> bool) {
        if live == 0 {
            // All calls have ended, as after each burst where they return at once.
            self.deadlines.clear();
        }
        while self.deadlines.front().is_some_and(|(at, key)| !is_live(*key, *at)) {
            self.deadlines.pop_front();
        }
        if self.deadlines.len() > 2 * live + SLACK {
            self.deadlines.retain(|(at, key)| is_live(*key, *at));
        }
    }

    /// Returns the number of deadlines for which `is_live` holds.
    pub fn count(&self, mut is_live: impl FnMut(K, ProcessingTime) -> bool) -> usize {
        self.deadlines.iter().filter(|(at, key)| is_live(*key, *at)).count()
    }
}

impl<K: Copy> Default for DeadlineList<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Retries that wait for their time, in any order of arrival.
#[derive(Debug)]
pub struct DelayedRetries<K> {
    /// Earliest first; ties in the order of arrival.
    heap: BinaryHeap<Reverse<(ProcessingTime, u64, K)>>,
    /// Retries delayed so far.
    sequence: u64,
}

impl<K: Copy + Ord> DelayedRetries<K> {
    /// Makes an empty set.
    pub const fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    /// Delays the retry of `key` until `due`.
    pub fn push(&mut self, due: ProcessingTime, key: K) {
        self.sequence += 1;
        self.heap.push(Reverse((due, self.sequence, key)));
    }

    /// Removes and returns the key of a retry that is due.
    pub fn pop_due(&mut self, now: ProcessingTime) -> Option<K> {
        self.pop_due_at(now).map(|(_, key)| key)
    }

    /// Does as [`pop_due`](Self::pop_due), and tells when it was due.
    pub fn pop_due_at(&mut self, now: ProcessingTime) -> Option<(ProcessingTime, K)> {
        match self.heap.peek()? {
            Reverse((due, _, _)) if *due <= now => {
                self.heap.pop().map(|Reverse((due, _, key))| (due, key))
            }
            Reverse(_) => None,
        }
    }

    /// Returns the time of the earliest retry for which `is_live` holds; drops stale ones.
    pub fn next(&mut self, mut is_live: impl FnMut(K) -> bool) -> Option<ProcessingTime> {
        self.next_at(|key, _| is_live(key))
    }

    /// Does as [`next`](Self::next) where a key is live at one of its times only.
    pub fn next_at(
        &mut self,
        mut is_live: impl FnMut(K, ProcessingTime) -> bool,
    ) -> Option<ProcessingTime> {
        while let Some(Reverse((due, _, key))) = self.heap.peek() {
            if is_live(*key, *due) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    /// Removes all retries, earliest first.
    pub fn drain(&mut self) -> impl Iterator<Item = K> + use<K> {
        let heap = std::mem::take(&mut self.heap);
        heap.into_sorted_vec().into_iter().rev().map(|Reverse((_, _, key))| key)
    }
}

impl<K: Copy + Ord> Default for DelayedRetries<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> ProcessingTime {
        ProcessingTime::from_nanos(nanos)
    }

    #[test]
    fn deadlines_come_due_in_order_and_not_before() {
        let mut list = DeadlineList::new();
        list.push(at(5), 'a');
        list.push(at(7), 'b');

        assert_eq!(list.pop_due(at(4)), None);
        assert_eq!(list.pop_due(at(5)), Some('a'));
        assert_eq!(list.pop_due(at(5)), None);
    }

    #[test]
    fn a_shorter_deadline_is_sorted_in() {
        let mut list = DeadlineList::new();
        for (deadline, key) in [(5, 'a'), (9, 'c'), (7, 'b')] {
            list.push(at(deadline), key);
        }

        let due: Vec<char> = std::iter::from_fn(|| list.pop_due(at(10))).collect();

        assert_eq!(due, ['a', 'b', 'c']);
    }

    #[test]
    fn none_is_asked_about_when_nothing_can_be_live() {
        let mut list = DeadlineList::new();
        for key in 0..13 {
            list.push(at(key), key);
        }
        assert_eq!(list.next(0, |_, _| unreachable!("nothing is held")), None);
        assert_eq!(list.count(|_, _| true), 0);
        list.push(at(17), 17);
        assert_eq!(list.next(1, |_, _| true), Some(at(17)));
    }

    #[test]
    fn stale_deadlines_behind_a_straggler_are_dropped() {
        let mut list = DeadlineList::new();
        for key in 0..10_000 {
            list.push(at(key), key);
            list.purge(1, |other, _| other == 0);
        }

        assert_eq!(list.next(1, |key, _| key == 0), Some(at(0)));
        assert!(list.deadlines.len() <= 2 + SLACK);
    }

    #[test]
    fn retries_come_due_earliest_first() {
        let mut retries = DelayedRetries::new();
        for (due, key) in [(9, 'c'), (5, 'a'), (5, 'b')] {
            retries.push(at(due), key);
        }

        assert_eq!(retries.next(|key| key != 'a'), Some(at(5)));
        assert_eq!(retries.pop_due(at(8)), Some('b'));
        assert_eq!(retries.pop_due(at(8)), None);
        assert_eq!(retries.drain().collect::<Vec<_>>(), ['c']);
    }
}
