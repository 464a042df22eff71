// SPDX-License-Identifier: Apache-2.0
//! Where the calls of one burst go.

use std::sync::RwLockReadGuard;

use sparkawait_core::Key;

use super::node_map::{NodeMap, UNKNOWN};

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) node: usize,
    /// Who is asked if the node, a replica, does not answer.
    pub(super) primary: Option<usize>,
}

/// The routes of one burst.
pub(super) struct Routes<'a> {
    pub(super) map: RwLockReadGuard<'a, NodeMap>,
    /// The node for slots that are not known.
    pub(super) guide: usize,
    /// The replicas that are read instead of each primary, and whose turn it is.
    pub(super) replicas: Vec<Vec<usize>>,
    pub(super) turn: usize,
}

impl Routes<'_> {
    /// Returns the route of commands for a slot; any node, if there is none.
    ///
    /// Of several replicas it is the one whose channel the row has, if it is one of them.
    #[inline]
    pub(super) fn of(&self, slot: Option<u16>, channel: Option<Key>) -> Route {
        let node = slot.map_or(UNKNOWN, |slot| self.map.slots[usize::from(slot)]);
        if node == UNKNOWN {
            return Route { node: self.guide, primary: None };
        }
        let node = usize::from(node);
        let Some(replicas) = self.replicas.get(node) else { return Route { node, primary: None } };
        let named = channel.and_then(node_of).filter(|it| replicas.contains(it));
        match named.or_else(|| replica_of(replicas, self.turn)) {
            Some(replica) => Route { node: replica, primary: Some(node) },
            None => Route { node, primary: None },
        }
    }

    /// Returns the node that a row will go to, also if that is lost at the moment.
    ///
    /// Rows of one batch take turns with the replicas.
    #[inline]
    pub(super) fn destination(&self, slot: Option<u16>, row: usize) -> usize {
        let node = slot.map_or(UNKNOWN, |slot| self.map.owners[usize::from(slot)]);
        if node == UNKNOWN {
            return self.guide;
        }
        let node = usize::from(node);
        let replicas = self.replicas.get(node);
        replicas.and_then(|it| replica_of(it, self.turn + row)).unwrap_or(node)
    }
}

/// Returns the replica whose turn it is, if there are any.
fn replica_of(replicas: &[usize], turn: usize) -> Option<usize> {
    replicas.get(turn % replicas.len().max(1)).copied()
}

/// Returns the channel of a node.
pub(super) fn channel_of(node: usize) -> Key {
    Key::new(node as u64 + 1)
}

/// Returns the node of a channel, or an invalid one if columns say where rows go.
pub(super) fn node_of(channel: Key) -> Option<usize> {
    usize::try_from(channel.as_u64()).ok()?.checked_sub(1)
}
