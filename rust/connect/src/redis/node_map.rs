// SPDX-License-Identifier: Apache-2.0
//! The nodes that a router knows, and who has which slot.
//!
//! A node has its number for good, since it is the channel of rows: one that the cluster does not
//! have any more leaves its place empty, and comes back to it. Only where there are as many as no
//! cluster has, the place of the one that went first is given to another.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::link::Link;
use super::slots::SLOTS;

/// A slot whose node is not known.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// Nodes that are known or were. Redis is made for clusters of up to 1 000.
const MOST_NODES: usize = 2048;

/// Nodes, the described server first, and the node of each slot.
pub(super) struct NodeMap {
    pub(super) slots: Vec<u16>,
    /// The same with the last node of each slot, lost or not.
    pub(super) owners: Vec<u16>,
    nodes: Vec<Node>,
    /// Of each primary; empty unless they are read.
    pub(super) replicas: BTreeMap<usize, Vec<usize>>,
    /// The nodes without links, those that went first in front.
    gone: VecDeque<usize>,
    most_nodes: usize,
}

/// A server.
pub(super) struct Node {
    pub(super) address: String,
    /// None if the cluster does not have the node any more.
    pub(super) links: Vec<Link>,
    pub(super) next: AtomicUsize,
    /// Until when it is not read as a replica, in milliseconds since the router's start.
    rests_until: AtomicU64,
}

/// What a cluster told of its nodes, by their numbers.
pub(super) struct Told {
    pub(super) present: BTreeSet<usize>,
    pub(super) slots: Vec<u16>,
    pub(super) replicas: BTreeMap<usize, Vec<usize>>,
}

impl Node {
    /// Makes a node that was not lost.
    pub(super) fn new(address: String, links: Vec<Link>) -> Self {
        Self { address, links, next: AtomicUsize::new(0), rests_until: AtomicU64::new(0) }
    }

    /// Whether it may be read as a replica.
    pub(super) fn is_up(&self, now: u64) -> bool {
        self.rests_until.load(Ordering::Relaxed) <= now
    }
}

impl NodeMap {
    /// Knows no node.
    pub(super) fn new(is_cluster: bool) -> Self {
        Self::of_most(is_cluster, MOST_NODES)
    }

    fn of_most(is_cluster: bool, most_nodes: usize) -> Self {
        let slots = if is_cluster { vec![UNKNOWN; usize::from(SLOTS)] } else { Vec::new() };
        let (nodes, replicas) = (Vec::new(), BTreeMap::new());
        Self { owners: slots.clone(), slots, nodes, replicas, gone: VecDeque::new(), most_nodes }
    }

    /// Returns a node, present or not; `None`: there never was one.
    pub(super) fn get(&self, node: usize) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// Whether the cluster has a node.
    pub(super) fn has(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|it| !it.links.is_empty())
    }

    /// Returns `node` if the cluster has it, or the next one that it has.
    pub(super) fn present(&self, node: usize) -> usize {
        let nodes = self.nodes.len();
        let mut others = (node..node + nodes).map(|node| node % nodes);
        // The one that was described is always there.
        others.find(|node| self.has(*node)).unwrap_or_default()
    }

    /// Returns the node at `address`, if the cluster has it.
    pub(super) fn at(&self, address: &str) -> Option<usize> {
        self.place_of(address).filter(|node| self.has(*node))
    }

    /// Returns the node at `address`, and makes it if the cluster has it not; `None`: there are more
    /// than any cluster has.
    pub(super) fn add(&mut self, address: &str, make: impl FnOnce(usize) -> Node) -> Option<usize> {
        match self.place_of(address) {
            Some(node) if self.has(node) => Some(node),
            Some(node) => {
                self.gone.retain(|it| *it != node);
                self.nodes[node] = make(node);
                Some(node)
            }
            None if self.nodes.len() < self.most_nodes => {
                let node = self.nodes.len();
                self.nodes.push(make(node));
                Some(node)
            }
            None => {
                let node = self.gone.pop_front()?;
                self.nodes[node] = make(node);
                Some(node)
            }
        }
    }

    fn place_of(&self, address: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.address == address)
    }

    /// Takes over what the cluster told; returns the links of the nodes that it did not name.
    pub(super) fn learn(&mut self, Told { present, slots, replicas }: Told) -> Vec<Link> {
        for (owner, node) in self.owners.iter_mut().zip(&slots) {
            let is_known = *node != UNKNOWN || !present.contains(&usize::from(*owner));
            *owner = if is_known { *node } else { *owner };
        }
        (self.slots, self.replicas) = (slots, replicas);
        let mut gone = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if !present.contains(&index) && !node.links.is_empty() {
                gone.append(&mut node.links);
                self.gone.push_back(index);
            }
        }
        gone
    }

    /// Says that a slot has moved.
    pub(super) fn moved(&mut self, slot: u16, node: u16) {
        let slot = usize::from(slot);
        (self.slots[slot], self.owners[slot]) = (node, node);
    }

    /// Forgets the slots of a node that was lost; it is not read as a replica until then.
    pub(super) fn forget(&mut self, node: usize, until: u64) {
        self.nodes[node].rests_until.store(until, Ordering::Relaxed);
        for slot in self.slots.iter_mut().filter(|slot| usize::from(**slot) == node) {
            *slot = UNKNOWN;
        }
    }

    /// Returns the replicas that may be read, by the number of their primary.
    pub(super) fn replicas_up(&self, now: u64) -> Vec<Vec<usize>> {
        let mut replicas = vec![Vec::new(); self.nodes.len()];
        for (primary, those) in &self.replicas {
            let is_up = |it: &usize| self.nodes[*it].is_up(now);
            replicas[*primary] = those.iter().copied().filter(is_up).collect();
        }
        replicas
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::runtime::Runtime;

    use super::super::connect::Target;
    use super::super::server::Server;
    use super::*;

    /// Makes nodes with a link to where nobody listens.
    fn node(runtime: &Runtime, address: &str) -> Node {
        let target = Arc::new(Target::new(&Server::unreachable()).unwrap());
        let link = Link::start(runtime.handle(), target, Duration::MAX, Box::new(|| {}));
        Node::new(address.to_owned(), vec![link])
    }

    fn told(present: &[usize]) -> Told {
        let slots = vec![UNKNOWN; usize::from(SLOTS)];
        Told { present: present.iter().copied().collect(), slots, replicas: BTreeMap::new() }
    }

    #[test]
    fn the_place_of_the_node_that_went_first_is_given_away_when_there_are_too_many() {
        let runtime = Runtime::new().unwrap();
        let mut map = NodeMap::of_most(true, 4);
        let add = |map: &mut NodeMap, name: &str| map.add(name, |_| node(&runtime, name));
        for (index, name) in ["own", "a", "b", "c"].into_iter().enumerate() {
            assert_eq!(add(&mut map, name), Some(index));
        }
        assert_eq!(add(&mut map, "d"), None);

        assert_eq!(map.learn(told(&[0, 1, 3])).len(), 1);
        assert_eq!(map.learn(told(&[0, 3])).len(), 1);
        assert_eq!((add(&mut map, "d"), add(&mut map, "a")), (Some(2), Some(1)));
        assert_eq!((add(&mut map, "e"), map.nodes.len(), map.at("b")), (None, 4, None));
    }
}
