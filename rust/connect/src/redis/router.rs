// SPDX-License-Identifier: Apache-2.0
//! Which server a command goes to: the only one, or the node of a cluster that has its key.
//!
//! Slots are learned from the redirections that nodes answer with: a call to a
//! slot that nobody asked for before costs one more hop, once per process. A node
//! that is lost loses its slots, so that another one is asked for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::native::StartError;

use super::connect::Target;
use super::link::{Job, Link};
use super::resp::{Array, Reply, parse};
use super::{Server, seconds};

/// Slots of a cluster.
const SLOTS: u16 = 16384;

/// A slot whose node is not known.
const UNKNOWN: u16 = u16::MAX;

/// The servers of one description, shared by the tasks of a process.
pub(super) struct Router {
    server: Server,
    runtime: Handle,
    idle: Duration,
    map: RwLock<Map>,
    /// Whom to ask for a slot that is not known; moves on when a node is lost.
    guide: AtomicUsize,
    /// What links tell of their node.
    own: Weak<Self>,
}

/// Nodes, the described server first, and the node of each slot.
pub(super) struct Map {
    slots: Vec<u16>,
    nodes: Vec<Node>,
}

struct Node {
    address: String,
    links: Vec<Link>,
    next: AtomicUsize,
}

/// Where a call has to go instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) node: usize,
    /// Whether the node must be told that the slot is on its way to it.
    pub(super) is_asking: bool,
}

impl Router {
    /// Describes the links to a server; they connect with their first job.
    pub(super) fn start(server: &Server, runtime: &Handle) -> Result<Arc<Self>, StartError> {
        let target = Target::new(server)?;
        let idle = seconds(server.idle_timeout, "idle_timeout")?;
        let slots = if server.cluster { vec![UNKNOWN; usize::from(SLOTS)] } else { Vec::new() };
        Ok(Arc::new_cyclic(|own| {
            let router = Self {
                server: server.clone(),
                runtime: runtime.clone(),
                idle,
                map: RwLock::new(Map { slots, nodes: Vec::new() }),
                guide: AtomicUsize::new(0),
                own: Weak::clone(own),
            };
            let node = router.node(target, 0);
            router.write(|map| map.nodes.push(node));
            router
        }))
    }

    /// Whether there may be several nodes.
    pub(super) fn is_cluster(&self) -> bool {
        self.server.cluster
    }

    /// Opens the map, for a burst.
    pub(super) fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node that the packed `command` should go to.
    pub(super) fn node_of(&self, map: &Map, command: &[u8]) -> usize {
        self.node_of_slot(map, keys_of(command).next().map(slot_of))
    }

    /// Returns the node that commands for a slot should go to; any node, if there is none.
    pub(super) fn node_of_slot(&self, map: &Map, slot: Option<u16>) -> usize {
        match slot.map(|slot| map.slots[usize::from(slot)]) {
            Some(node) if node != UNKNOWN => usize::from(node),
            _ => self.guide.load(Ordering::Relaxed) % map.nodes.len(),
        }
    }

    /// Hands a job to a node.
    pub(super) fn send(&self, node: usize, job: Job) {
        let map = self.map();
        let node = &map.nodes[node];
        let turn = node.next.fetch_add(1, Ordering::Relaxed) % node.links.len();
        node.links[turn].send(job);
    }

    /// Reads an error as a redirection, and learns from it.
    pub(super) fn redirection(&self, words: &[u8]) -> Option<Step> {
        let mut words = std::str::from_utf8(words).ok()?.split(' ');
        let is_asking = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot: u16 = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        let address = words.next()?;
        let known = self.map().nodes.iter().position(|node| node.address == address);
        let node = match known {
            Some(node) => node,
            None => self.add(address)?,
        };
        if !is_asking {
            let node = u16::try_from(node).ok()?;
            self.write(|map| map.slots[usize::from(slot)] = node);
        }
        Some(Step { node, is_asking })
    }

    /// Forgets the slots of a node that was lost.
    pub(super) fn forget(&self, node: usize) {
        if self.is_cluster() {
            self.guide.fetch_add(1, Ordering::Relaxed);
            self.write(|map| {
                for slot in map.slots.iter_mut().filter(|slot| usize::from(**slot) == node) {
                    *slot = UNKNOWN;
                }
            });
        }
    }

    fn add(&self, address: &str) -> Option<usize> {
        let (host, port) = address.rsplit_once(':')?;
        let target = Target::new(&self.server).ok()?.at(host, port.parse().ok()?);
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        // Another link may have been told of it meanwhile.
        if let Some(known) = map.nodes.iter().position(|node| node.address == address) {
            return Some(known);
        }
        let index = map.nodes.len();
        let mut node = self.node(target, index);
        address.clone_into(&mut node.address);
        map.nodes.push(node);
        Some(index)
    }

    fn node(&self, target: Target, index: usize) -> Node {
        let target = Arc::new(target);
        let start = || {
            let lost = (Weak::clone(&self.own), index);
            Link::start(&self.runtime, Arc::clone(&target), self.idle, lost)
        };
        let links = (0..self.server.connections.max(1)).map(|_| start()).collect();
        Node { address: target.address().to_owned(), links, next: AtomicUsize::new(0) }
    }

    fn write(&self, change: impl FnOnce(&mut Map)) {
        change(&mut self.map.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the arguments of a packed command; the first one is its key in most.
fn keys_of(command: &[u8]) -> impl Iterator<Item = &[u8]> {
    let arguments = match parse(command) {
        Ok(Some((Reply::Array(arguments), _))) => Some(arguments),
        _ => None,
    };
    let texts = arguments.into_iter().flat_map(Array::elements).filter_map(|it| match it {
        Reply::Text(text) => Some(text),
        _ => None,
    });
    texts.skip(1)
}

/// Whether all arguments of a packed command are of one slot.
pub(super) fn is_of_one_slot(command: &[u8]) -> bool {
    let mut slots = keys_of(command).map(slot_of);
    slots.next().is_none_or(|first| slots.all(|slot| slot == first))
}

/// Returns the slot of a packed argument.
pub(super) fn slot_of_argument(argument: &[u8]) -> Option<u16> {
    match parse(argument) {
        Ok(Some((Reply::Text(key), _))) => Some(slot_of(key)),
        _ => None,
    }
}

/// Returns the slot of a key: of its hash tag, if it has one.
fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, as clusters hash.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC_TABLE: [u16; 256] = crc_table();

const fn crc_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }

    #[test]
    fn the_key_of_a_command_is_its_first_argument() {
        let command = b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n";
        assert_eq!(keys_of(command).next(), Some(b"abc".as_slice()));
        assert_eq!(keys_of(b"*1\r\n$4\r\nPING\r\n").next(), None);
        assert_eq!(slot_of_argument(b"$3\r\nfoo\r\n"), Some(12182));
    }

    #[test]
    fn keys_are_of_one_slot_by_their_tags() {
        assert!(is_of_one_slot(b"*3\r\n$4\r\nMGET\r\n$4\r\n{a}b\r\n$4\r\n{a}c\r\n"));
        assert!(!is_of_one_slot(b"*3\r\n$4\r\nMGET\r\n$1\r\nb\r\n$1\r\nc\r\n"));
    }
}
