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
    nodes: Vec<(EntryId, u32)>,
    vacant: u32,
}

impl Backlogs {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), vacant: NONE }
    }

    /// Appends `entry` to `backlog`.
    pub(super) fn push(&mut self, backlog: &mut Backlog, entry: EntryId) {
        let index = self.vacant;
        let index = if let Some(node) = self.nodes.get_mut(index as usize) {
            self.vacant = node.1;
            *node = (entry, NONE);
            index
        } else {
            // A node takes sixteen bytes: memory ends before 2^32 nodes do.
            let index = u32::try_from(self.nodes.len()).unwrap_or(NONE);
            self.nodes.push((entry, NONE));
            index
        };
        match self.nodes.get_mut(backlog.last as usize) {
            Some(last) => last.1 = index,
            None => backlog.first = index,
        }
        backlog.last = index;
    }

    /// Removes the oldest entry of `backlog`.
    pub(super) fn pop(&mut self, backlog: &mut Backlog) -> Option<EntryId> {
        let index = backlog.first;
        let node = self.nodes.get_mut(index as usize)?;
        let (entry, next) = *node;
        node.1 = self.vacant;
        self.vacant = index;
        backlog.first = next;
        if next == NONE {
            backlog.last = NONE;
        }
        Some(entry)
    }

    /// Returns the oldest entry of `backlog`.
    pub(super) fn first(&self, backlog: Backlog) -> Option<EntryId> {
        self.nodes.get(backlog.first as usize).map(|node| node.0)
    }

    /// Removes all entries of `backlog`.
    pub(super) fn clear(&mut self, backlog: &mut Backlog) {
        while self.pop(backlog).is_some() {}
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
}
