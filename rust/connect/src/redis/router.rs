// SPDX-License-Identifier: Apache-2.0
//! Which server a command goes to: the only one, or a node of a cluster that has its key.
//!
//! A cluster is asked for its nodes at the start of each task, whenever a redirection shows
//! that they changed, and when one is lost. What redirections tell is believed
//! at once. A node that is lost loses its slots, so that another one is asked
//! for them; a replica that is lost rests, and its primary is asked meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use sparkawait_core::Key;
use tokio::runtime::Handle;

use crate::native::StartError;

use super::connect::Target;
use super::failure;
use super::link::{Awaited, Job, Link};
use super::nodes::node_of;
use super::slots::SLOTS;
use super::topology::{self, Shard, TopologyAnswer};
use super::{ReadFrom, Server, seconds};

/// A slot whose node is not known.
const UNKNOWN: u16 = u16::MAX;

/// How long a replica that was lost is not asked.
const REST: Duration = Duration::from_secs(2);

/// The servers of one description, shared by the tasks of a process.
pub(super) struct Router {
    server: Server,
    runtime: Handle,
    idle: Duration,
    /// How long a task waits for the nodes at its start.
    patience: Duration,
    map: RwLock<Map>,
    /// Whom to ask for a slot that is not known; moves on when a node is lost.
    guide: AtomicUsize,
    /// Counts bursts, so that replicas take turns.
    turn: AtomicUsize,
    /// Whether a question for the nodes was not answered yet.
    is_asking: Mutex<bool>,
    answered: Condvar,
    started: Instant,
    /// What links tell of their node.
    own: Weak<Self>,
}

/// Nodes, the described server first, and the node of each slot.
struct Map {
    slots: Vec<u16>,
    /// The same with the last node of each slot, lost or not.
    owners: Vec<u16>,
    nodes: Vec<Node>,
    /// Of each primary; empty unless they are read.
    replicas: BTreeMap<usize, Vec<usize>>,
}

struct Node {
    address: String,
    links: Vec<Link>,
    next: AtomicUsize,
    /// Until when it is not read as a replica, in milliseconds since the router's start.
    rests_until: AtomicU64,
}

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    pub(super) node: usize,
    /// Who is asked if the node, a replica, does not answer.
    pub(super) primary: Option<usize>,
}

/// Where a call has to go instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) node: usize,
    /// Whether the node must be told that the slot is on its way to it.
    pub(super) is_asking: bool,
}

/// The routes of one burst.
pub(super) struct Routes<'a> {
    map: RwLockReadGuard<'a, Map>,
    /// The node for slots that are not known.
    guide: usize,
    /// The replicas that are read instead of each primary, and whose turn it is.
    replicas: Vec<Vec<usize>>,
    turn: usize,
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

impl Router {
    /// Describes the links to a server; they connect with their first job.
    pub(super) fn start(server: &Server, runtime: &Handle) -> Result<Arc<Self>, StartError> {
        let target = Target::new(server)?;
        let idle = seconds(server.idle_timeout, "idle_timeout")?;
        let patience = seconds(server.connect_timeout, "connect_timeout")?;
        let slots = if server.cluster { vec![UNKNOWN; usize::from(SLOTS)] } else { Vec::new() };
        let map =
            Map { owners: slots.clone(), slots, nodes: Vec::new(), replicas: BTreeMap::new() };
        Ok(Arc::new_cyclic(|own| {
            let router = Self {
                server: server.clone(),
                runtime: runtime.clone(),
                idle,
                patience,
                map: RwLock::new(map),
                guide: AtomicUsize::new(0),
                turn: AtomicUsize::new(0),
                is_asking: Mutex::new(false),
                answered: Condvar::new(),
                started: Instant::now(),
                own: Weak::clone(own),
            };
            let node = router.node(target, 0);
            router.write(|map| map.nodes.push(node));
            router
        }))
    }

    /// Asks for the nodes of a cluster, of which some may have come or gone.
    pub(super) fn refresh(&self) {
        if self.is_cluster() {
            self.ask_for_nodes(self.routes().guide);
        }
    }

    /// Waits until the nodes of a cluster are known, but not for long.
    ///
    /// Rows go to the guide if they are not: it is stalled, or the user may not ask.
    pub(super) fn wait_for_nodes(&self) {
        if self.map().owners.iter().any(|it| *it != UNKNOWN) {
            return;
        }
        self.refresh();
        // What it returns has no news: whether they are known is seen in the map.
        drop(self.answered.wait_timeout_while(self.is_asking(), self.patience, |it| *it));
    }

    /// Whether there may be several nodes.
    pub(super) fn is_cluster(&self) -> bool {
        self.server.cluster
    }

    /// Opens the map, for a burst.
    pub(super) fn routes(&self) -> Routes<'_> {
        let map = self.map();
        let guide = self.guide.load(Ordering::Relaxed) % map.nodes.len();
        let (mut replicas, mut turn) = (Vec::new(), 0);
        if !map.replicas.is_empty() {
            turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let now = self.now();
            replicas.resize(map.nodes.len(), Vec::new());
            for (primary, those) in &map.replicas {
                let is_up = |it: &usize| map.nodes[*it].rests_until.load(Ordering::Relaxed) <= now;
                let up: Vec<usize> = those.iter().copied().filter(is_up).collect();
                replicas[*primary] = up;
            }
        }
        Routes { map, guide, replicas, turn }
    }

    /// Hands a job to a node.
    pub(super) fn send(&self, node: usize, job: Job) {
        let refused = {
            let map = self.map();
            let node = &map.nodes[node];
            let turn = node.next.fetch_add(1, Ordering::Relaxed) % node.links.len();
            node.links[turn].send(job)
        };
        if let Err(job) = refused {
            job.answers.fail(&failure::of_connection("", "its task has ended"));
        }
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
        let node = self.find(words.next()?)?;
        if !is_asking {
            let index = u16::try_from(node).ok()?;
            let before = self.map().slots[usize::from(slot)];
            if before != index {
                let slot = usize::from(slot);
                self.write(|map| (map.slots[slot], map.owners[slot]) = (index, index));
            }
            if before != index && before != UNKNOWN {
                self.ask_for_nodes(node);
            }
        }
        Some(Step { node, is_asking })
    }

    /// Learns which nodes there are.
    pub(super) fn learn(&self, shards: &[Shard]) {
        let mut replicas = BTreeMap::<usize, Vec<usize>>::new();
        let mut slots = vec![UNKNOWN; usize::from(SLOTS)];
        for shard in shards {
            let nodes: Vec<usize> =
                shard.addresses.iter().filter_map(|address| self.find(address)).collect();
            let Some((&primary, others)) = nodes.split_first() else { continue };
            let Ok(index) = u16::try_from(primary) else { continue };
            for slot in shard.slots.clone() {
                slots[usize::from(slot)] = index;
            }
            if self.server.read_from == ReadFrom::Replica && !others.is_empty() {
                replicas.insert(primary, others.to_vec());
            }
        }
        self.write(|map| {
            for (owner, node) in map.owners.iter_mut().zip(&slots) {
                *owner = if *node == UNKNOWN { *owner } else { *node };
            }
            (map.slots, map.replicas) = (slots, replicas);
        });
    }

    /// Forgets the slots of a node that was lost.
    pub(super) fn forget(&self, node: usize) {
        if !self.is_cluster() {
            return;
        }
        let guide = self.guide.fetch_add(1, Ordering::Relaxed) + 1;
        let until = self.now() + u64::try_from(REST.as_millis()).unwrap_or_default();
        self.write(|map| {
            map.nodes[node].rests_until.store(until, Ordering::Relaxed);
            for slot in map.slots.iter_mut().filter(|slot| usize::from(**slot) == node) {
                *slot = UNKNOWN;
            }
        });
        let nodes = self.map().nodes.len();
        self.ask_for_nodes(guide % nodes);
    }

    /// Asks a node for all nodes, unless one is being asked.
    fn ask_for_nodes(&self, node: usize) {
        let is_asked = std::mem::replace(&mut *self.is_asking(), true);
        if !is_asked {
            let answers = Awaited::Topology(TopologyAnswer::new(Weak::clone(&self.own)));
            self.send(node, Job { bytes: topology::QUESTION.to_vec(), answers });
        }
    }

    /// Says that the question for the nodes is not under way any more.
    pub(super) fn was_answered(&self) {
        *self.is_asking() = false;
        self.answered.notify_all();
    }

    /// Returns the node of an address, which is added if it is not known.
    fn find(&self, address: &str) -> Option<usize> {
        let known = |map: &Map| map.nodes.iter().position(|node| node.address == address);
        if let Some(node) = known(&self.map()) {
            return Some(node);
        }
        let (host, port) = address.rsplit_once(':')?;
        let target = Target::new(&self.server).ok()?.at(host, port.parse().ok()?);
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        // Another link may have been told of it meanwhile.
        if let Some(node) = known(&map) {
            return Some(node);
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
        let address = target.address().to_owned();
        Node { address, links, next: AtomicUsize::new(0), rests_until: AtomicU64::new(0) }
    }

    /// Returns where a node is.
    pub(super) fn address(&self, node: usize) -> Option<String> {
        self.map().nodes.get(node).map(|node| node.address.clone())
    }

    fn is_asking(&self) -> MutexGuard<'_, bool> {
        self.is_asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the milliseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, change: impl FnOnce(&mut Map)) {
        change(&mut self.map.write().unwrap_or_else(PoisonError::into_inner));
    }
}
