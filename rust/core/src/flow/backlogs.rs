// SPDX-License-Identifier: Apache-2.0
//! What waits in each channel, in one slab for all.

use super::lines::{Line, Lines};
use crate::queue::EntryId;

/// The records that wait in one channel, oldest first. Its nodes are in [`Backlogs`].
pub(super) type Backlog = Line;

/// The nodes of all [`Backlog`]s.
pub(super) type Backlogs = Lines<EntryId>;

/// One backlog and its nodes: records that wait for a call, in the order in which they are called
/// if there is time.
pub(super) struct BacklogLine<'a> {
    nodes: &'a mut Backlogs,
    backlog: &'a mut Backlog,
}

impl Backlogs {
    /// Returns `backlog` with its nodes.
    pub(super) fn line<'a>(&'a mut self, backlog: &'a mut Backlog) -> BacklogLine<'a> {
        BacklogLine { nodes: self, backlog }
    }
}

impl BacklogLine<'_> {
    fn oldest(&self) -> Option<EntryId> {
        self.nodes.first(*self.backlog)
    }

    fn newest(&self) -> Option<EntryId> {
        self.nodes.last(*self.backlog)
    }

    fn pop_oldest(&mut self) -> Option<EntryId> {
        self.nodes.pop(self.backlog)
    }

    fn pop_newest(&mut self) -> Option<EntryId> {
        self.nodes.pop_last(self.backlog)
    }

    /// Returns whether any record waits, and drops those in front that wait no longer.
    pub(super) fn has_any(&mut self, left: &mut impl FnMut(EntryId) -> Option<u64>) -> bool {
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
    pub(super) fn take_oldest(
        &mut self,
        least: u64,
        left: &mut impl FnMut(EntryId) -> Option<u64>,
    ) -> Option<EntryId> {
        let is_in_time = self.has_any(left) && left(self.oldest()?) >= Some(least);
        is_in_time.then(|| self.pop_oldest()).flatten()
    }

    /// Removes the oldest record that has at least `least` nanoseconds left, and gives up those
    /// before it: they are in no line any more.
    pub(super) fn take_first(
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
    pub(super) fn take_newest(
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
