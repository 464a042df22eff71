// SPDX-License-Identifier: Apache-2.0
//! What waits in each channel, in one slab for all.

use crate::queue::EntryId;

/// The end of a list of nodes.
const NONE: u32 = u32::MAX;

/// The records that wait in one channel, oldest first. Its nodes are in [`Backlogs`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    first: u32,
    last: u32,
}

impl Backlog {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// The nodes of all [`Backlog`]s.
///
/// Grows with what waits at the same time, however it is spread over channels:
/// a channel costs eight bytes here, and a record no allocation.
#[derive(Debug)]
pub(super) struct Backlogs {
    nodes: Vec<Node>,
    vacant: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    entry: EntryId,
    /// The one behind it, or the next vacant one.
    next: u32,
    /// The one before it.
    previous: u32,
}

/// One backlog and its nodes: records that wait for a call, in the order in which they are called
/// if there is time.
pub(super) struct BacklogLine<'a> {
    nodes: &'a mut Backlogs,
    backlog: &'a mut Backlog,
}

impl Backlogs {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), vacant: NONE }
    }

    /// Appends `entry` to `backlog`.
    pub(super) fn push(&mut self, backlog: &mut Backlog, entry: EntryId) {
        let node = Node { entry, next: NONE, previous: backlog.last };
        let index = self.vacant;
        let index = if let Some(vacant) = self.nodes.get_mut(index as usize) {
            self.vacant = vacant.next;
            *vacant = node;
            index
        } else {
            // A node takes sixteen bytes: memory ends before 2^32 nodes do.
            let index = u32::try_from(self.nodes.len()).unwrap_or(NONE);
            self.nodes.push(node);
            index
        };
        match self.nodes.get_mut(backlog.last as usize) {
            Some(last) => last.next = index,
            None => backlog.first = index,
        }
        backlog.last = index;
    }

    /// Removes the oldest entry of `backlog`.
    pub(super) fn pop(&mut self, backlog: &mut Backlog) -> Option<EntryId> {
        let Node { entry, next, .. } = self.vacate(backlog.first)?;
        backlog.first = next;
        match self.nodes.get_mut(next as usize) {
            Some(first) => first.previous = NONE,
            None => backlog.last = NONE,
        }
        Some(entry)
    }

    /// Removes the newest entry of `backlog`.
    fn pop_last(&mut self, backlog: &mut Backlog) -> Option<EntryId> {
        let Node { entry, previous, .. } = self.vacate(backlog.last)?;
        backlog.last = previous;
        match self.nodes.get_mut(previous as usize) {
            Some(last) => last.next = NONE,
            None => backlog.first = NONE,
        }
        Some(entry)
    }

    /// Gives the place of a node up; returns what was there.
    fn vacate(&mut self, index: u32) -> Option<Node> {
        let node = self.nodes.get_mut(index as usize)?;
        let was = *node;
        node.next = self.vacant;
        self.vacant = index;
        Some(was)
    }

    /// Returns `backlog` with its nodes.
    pub(super) fn line<'a>(&'a mut self, backlog: &'a mut Backlog) -> BacklogLine<'a> {
        BacklogLine { nodes: self, backlog }
    }

    /// Returns the oldest entry of `backlog`.
    pub(super) fn first(&self, backlog: Backlog) -> Option<EntryId> {
        self.nodes.get(backlog.first as usize).map(|node| node.entry)
    }

    /// Removes all entries of `backlog`.
    pub(super) fn clear(&mut self, backlog: &mut Backlog) {
        while self.pop(backlog).is_some() {}
    }
}

impl BacklogLine<'_> {
    fn oldest(&self) -> Option<EntryId> {
        self.nodes.first(*self.backlog)
    }

    fn newest(&self) -> Option<EntryId> {
        self.nodes.nodes.get(self.backlog.last as usize).map(|node| node.entry)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogs_share_the_nodes_and_keep_their_order() {
        let mut nodes = Backlogs::new();
        let (mut a, mut b) = (Backlog::EMPTY, Backlog::EMPTY);
        for round in 0..3 {
            for entry in 0..4 {
                let backlog = if entry % 2 == 0 { &mut a } else { &mut b };
                nodes.push(backlog, EntryId::from_u64(entry));
            }
            let drained = |nodes: &mut Backlogs, backlog: &mut Backlog| {
                std::iter::from_fn(|| nodes.pop(backlog)).map(EntryId::as_u64).collect::<Vec<_>>()
            };
            assert_eq!(nodes.first(b).map(EntryId::as_u64), Some(1));
            assert_eq!(drained(&mut nodes, &mut a), [0, 2], "round {round}");
            assert_eq!(drained(&mut nodes, &mut b), [1, 3]);
            assert_eq!(nodes.nodes.len(), 4);
        }
    }
    #[test]
    fn a_line_is_shortened_at_both_ends() {
        let mut nodes = Backlogs::new();
        let (mut a, mut b) = (Backlog::EMPTY, Backlog::EMPTY);
        for entry in 0..5 {
            nodes.push(&mut a, EntryId::from_u64(entry));
            nodes.push(&mut b, EntryId::from_u64(entry + 10));
        }
        let mut line = nodes.line(&mut a);

        let ends = [line.pop_newest(), line.pop_oldest(), line.newest(), line.oldest()];
        assert_eq!(ends.map(|it| it.map(EntryId::as_u64)), [Some(4), Some(0), Some(3), Some(1)]);
        let rest = [line.pop_oldest(), line.pop_newest(), line.pop_newest(), line.pop_newest()];
        assert_eq!(rest.map(|it| it.map(EntryId::as_u64)), [Some(1), Some(3), Some(2), None]);

        nodes.push(&mut a, EntryId::from_u64(7));
        assert_eq!(nodes.pop(&mut a).map(EntryId::as_u64), Some(7));
        assert_eq!(nodes.line(&mut b).pop_newest().map(EntryId::as_u64), Some(14));
    }
}
