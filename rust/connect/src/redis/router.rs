// SPDX-License-Identifier: Apache-2.0
//! Which server a command goes to: the only one, or a node of a cluster that has its key.
//!
//! A cluster is asked for its nodes at the start of each task, whenever a redirection shows that
//! they changed, and when one is lost, but not again at once. What redirections tell is believed at
//! once. A node that is lost loses its slots, so that another one is asked for them; a replica that
//! is lost rests, and its primary is asked meanwhile. A node that the cluster does not have any
//! more is forgotten, except its number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use sparkawait_task::error::StartError;

use super::connect::Target;
use super::failure;
use super::job::{Awaiting, Job, Loss};
use super::link::Link;
use super::node_map::{Node, NodeMap, Told, UNKNOWN};
use super::refresh::Refresh;
use super::resp::Reply;
use super::routes::Routes;
use super::server::{ReadFrom, Server};
use super::slots::SLOTS;
use super::topology::{self, Redirection, Shard, host_and_port};
use crate::failure::Failure;
use crate::settings::seconds;

/// How long a replica that was lost is not asked.
const REST: Duration = Duration::from_secs(2);

/// The servers of one description, shared by the tasks of a process.
pub(super) struct Router {
    server: Server,
    /// What is described, which other nodes are like.
    target: Target,
    /// How many nodes are described; they come first.
    seeds: usize,
    runtime: Handle,
    idle: Duration,
    /// How long a task waits for the nodes at its start.
    patience: Duration,
    map: RwLock<NodeMap>,
    /// Whom to ask for a slot that is not known; moves on when a node is lost.
    guide: AtomicUsize,
    /// Counts bursts, so that replicas take turns.
    turn: AtomicUsize,
    /// The questions for the nodes.
    refresh: Mutex<Refresh>,
    answered: Condvar,
    started: Instant,
    /// What links tell of their node.
    own: Weak<Self>,
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
        let patience = seconds(server.connect_timeout, "connect_timeout")?;
        let map = NodeMap::new(server.cluster);
        // The nodes of a cluster are asked in turn; those of other servers are each other's equals.
        let mut seeds: Vec<Target> =
            if server.cluster { target.each().collect() } else { vec![target.clone()] };
        let mut seen = BTreeSet::new();
        seeds.retain(|it| seen.insert(it.address().to_owned()));
        Ok(Arc::new_cyclic(|own| {
            let router = Self {
                server: server.clone(),
                target,
                seeds: seeds.len(),
                runtime: runtime.clone(),
                idle,
                patience,
                map: RwLock::new(map),
                guide: AtomicUsize::new(0),
                turn: AtomicUsize::new(0),
                refresh: Mutex::default(),
                answered: Condvar::new(),
                started: Instant::now(),
                own: Weak::clone(own),
            };
            for seed in seeds {
                let address = seed.address().to_owned();
                router.write(|map| {
                    map.add(&address, |node| router.node(seed, node));
                });
            }
            router
        }))
    }

    /// Takes over the secrets that a task was started with.
    pub(super) fn renew(&self, server: &Server) {
        // Those of all nodes.
        self.target.renew(server);
    }

    /// Asks for the nodes of a cluster; some may have come or gone.
    pub(super) fn refresh(&self) {
        if self.is_cluster() {
            self.ask_for_nodes(self.guide());
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
        let asking = |it: &mut Refresh| it.is_asking();
        drop(self.answered.wait_timeout_while(self.questions(), self.patience, asking));
    }

    /// Whether there may be several nodes.
    pub(super) fn is_cluster(&self) -> bool {
        self.server.cluster
    }

    /// Opens the map, for a burst.
    pub(super) fn routes(&self) -> Routes<'_> {
        let is_due = self.is_cluster() && self.questions().is_due(self.elapsed());
        if is_due {
            self.ask(self.guide());
        }
        let map = self.map();
        let guide = map.present(self.guide.load(Ordering::Relaxed));
        let (mut replicas, mut turn) = (Vec::new(), 0);
        if !map.replicas.is_empty() {
            turn = self.turn.fetch_add(1, Ordering::Relaxed);
            replicas = map.replicas_up(self.now());
        }
        Routes { map, guide, replicas, turn }
    }

    /// Hands a job to a node.
    pub(super) fn send(&self, node: usize, job: Job) {
        let refused = {
            let map = self.map();
            // Any other knows better who has the keys of one that has gone meanwhile.
            match map.get(map.present(node)) {
                Some(node) => {
                    let turn = node.next.fetch_add(1, Ordering::Relaxed) % node.links.len();
                    node.links[turn].send(job)
                }
                None => Err(Box::new(job)),
            }
        };
        if let Err(job) = refused {
            let failure = failure::of_no_connection("", "its task has ended");
            job.answers.fail(&Loss::unsent(&failure));
        }
    }

    /// Reads an error of the node `asked` as a redirection, and learns from it.
    pub(super) fn redirection(&self, words: &[u8], asked: usize) -> Option<Step> {
        let Redirection { slot, address, is_asking } = Redirection::parse(words)?;
        let node = self.find(address, asked)?;
        if !is_asking {
            let index = u16::try_from(node).ok()?;
            let before = self.map().slots[usize::from(slot)];
            if before != index {
                self.write(|map| map.moved(slot, index));
            }
            if before != index && before != UNKNOWN {
                self.ask_for_nodes(node);
            }
        }
        Some(Step { node, is_asking })
    }

    /// Forgets the slots of a node that was lost.
    pub(super) fn forget(&self, node: usize) {
        if !self.is_cluster() || !self.map().has(node) {
            return;
        }
        let guide = self.guide.fetch_add(1, Ordering::Relaxed) + 1;
        let until = self.now() + u64::try_from(REST.as_millis()).unwrap_or_default();
        self.write(|map| map.forget(node, until));
        let guide = self.map().present(guide);
        self.ask_for_nodes(guide);
    }

    /// Asks a node for all nodes, unless one is being asked or has been just now: then somebody is
    /// asked later.
    fn ask_for_nodes(&self, node: usize) {
        let is_to_ask = self.questions().want(self.elapsed());
        if is_to_ask {
            self.ask(node);
        }
    }

    fn ask(&self, node: usize) {
        let answers = Box::new(TopologyAnswer { router: Weak::clone(&self.own), node });
        self.send(node, Job { bytes: topology::QUESTION.to_vec(), answers });
    }

    /// Whom to ask for what nobody is known to have.
    fn guide(&self) -> usize {
        self.map().present(self.guide.load(Ordering::Relaxed))
    }

    /// Returns the node of an address that the node `asked` named; it is added if it is not known.
    fn find(&self, address: &str, asked: usize) -> Option<usize> {
        let asked = self.address(asked)?;
        let (host, port) = host_and_port(address, &asked)?;
        let address = format!("{host}:{port}");
        if let Some(node) = self.map().at(&address) {
            return Some(node);
        }
        let target = self.target.at(host, port);
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        // Another link may have been told of it meanwhile.
        map.add(&address, |node| self.node(target, node))
    }

    fn node(&self, target: Target, index: usize) -> Node {
        let target = Arc::new(target);
        let start = || {
            let own = Weak::clone(&self.own);
            let when_lost = move || {
                if let Some(router) = own.upgrade() {
                    router.forget(index);
                }
            };
            Link::start(&self.runtime, Arc::clone(&target), self.idle, Box::new(when_lost))
        };
        let links = (0..self.server.connections.max(1)).map(|_| start()).collect();
        let address = target.address().to_owned();
        Node::new(address, links)
    }

    /// Returns where a node is.
    pub(super) fn address(&self, node: usize) -> Option<String> {
        self.map().get(node).map(|node| node.address.clone())
    }

    fn questions(&self) -> MutexGuard<'_, Refresh> {
        self.refresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the milliseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn map(&self) -> RwLockReadGuard<'_, NodeMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, change: impl FnOnce(&mut NodeMap)) {
        change(&mut self.map.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Learns from the node `asked` which nodes there are, and forgets the others.
    fn learn(&self, shards: &[Shard], asked: usize) {
        if shards.is_empty() {
            // It is in no cluster yet, or any more.
            return;
        }
        // The nodes that were described are where to begin again, whatever they are called there.
        let mut present: BTreeSet<usize> = (0..self.seeds).collect();
        let mut replicas = BTreeMap::<usize, Vec<usize>>::new();
        let mut slots = vec![UNKNOWN; usize::from(SLOTS)];
        for shard in shards {
            let nodes: Vec<usize> =
                shard.addresses.iter().filter_map(|address| self.find(address, asked)).collect();
            present.extend(&nodes);
            let Some((&primary, others)) = nodes.split_first() else { continue };
            let Ok(index) = u16::try_from(primary) else { continue };
            for slot in shard.slots.clone() {
                slots[usize::from(slot)] = index;
            }
            if self.server.read_from == ReadFrom::Replica && !others.is_empty() {
                replicas.insert(primary, others.to_vec());
            }
        }
        let told = Told { present, slots, replicas };
        let mut gone = Vec::new();
        // Ended once nobody waits for the map.
        self.write(|map| gone = map.learn(told));
    }

    /// Says that the question for the nodes is not under way any more.
    fn was_answered(&self) {
        self.questions().was_answered();
        self.answered.notify_all();
    }
}

/// Awaits the answer to one question.
struct TopologyAnswer {
    /// Who asks.
    router: Weak<Router>,
    /// The node that was asked.
    node: usize,
}

impl Awaiting for TopologyAnswer {
    /// Takes the answer; learns nothing from an invalid one.
    fn take(&mut self, reply: Reply<'_>, _bytes: usize) -> bool {
        if let Some(router) = self.router.upgrade() {
            if let Some(shards) = topology::shards(reply) {
                router.learn(&shards, self.node);
            } else {
                // A user may lack permission; redirections tell of the nodes then.
                tracing::debug!("a node of the Redis cluster did not tell of its nodes");
            }
        }
        true
    }

    fn finish(self: Box<Self>) {}

    fn fail(self: Box<Self>, _loss: &Loss<'_>) {}

    fn abandon(self: Box<Self>, _failure: &Failure) {}
}

impl Drop for TopologyAnswer {
    /// Allows the next question, whatever the outcome of this one.
    fn drop(&mut self) {
        if let Some(router) = self.router.upgrade() {
            router.was_answered();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;

    /// A router for `localhost:7000`, where nobody listens.
    fn router(runtime: &Runtime) -> Arc<Router> {
        Router::start(&Server::unreachable(), runtime.handle()).unwrap()
    }

    fn shard(slots: std::ops::RangeInclusive<u16>, address: &str) -> Shard {
        Shard { slots, addresses: vec![address.to_owned()] }
    }

    fn address_of(router: &Router, slot: u16) -> Option<String> {
        let node = router.routes().of(Some(slot), None).node;
        router.address(node)
    }

    #[test]
    fn an_empty_host_is_that_of_who_was_asked() {
        let runtime = Runtime::new().unwrap();
        let router = router(&runtime);
        router.learn(&[shard(0..=1, ":7000"), shard(2..=3, "other:7001")], 0);

        // The node that was described is known.
        assert_eq!(router.routes().of(Some(0), None).node, 0);
        let moved = |words: &str, asked| router.redirection(words.as_bytes(), asked).unwrap().node;
        assert_eq!(router.address(moved("MOVED 2 :7002", 1)).unwrap(), "other:7002");
        assert_eq!(router.address(moved("ASK 2 :7003", 0)).unwrap(), "localhost:7003");
        assert_eq!(address_of(&router, 2).unwrap(), "other:7002");
        assert_eq!(moved("MOVED 3 other:7001", 0), 1);
    }

    #[test]
    fn whoever_reads_the_map_does_not_wait_for_one_who_waits_to_change_it() {
        let runtime = Runtime::new().unwrap();
        let router = router(&runtime);
        let shards = [shard(0..=1, "a:1"), shard(2..=3, "b:2")];
        std::thread::scope(|scope| {
            scope.spawn(|| (0..2000).for_each(|_| router.learn(&shards, 0)));
            for slot in (0..2000).map(|it| it % 4) {
                router.refresh();
                router.wait_for_nodes();
                router.redirection(format!("MOVED {slot} :{}", 7000 + slot).as_bytes(), 0);
                router.forget(1);
                assert!(address_of(&router, slot).is_some());
            }
        });
    }

    #[test]
    fn a_node_that_the_cluster_does_not_have_is_forgotten() {
        let runtime = Runtime::new().unwrap();
        let router = router(&runtime);
        router.learn(&[shard(0..=1, "a:1"), shard(2..=3, "b:2")], 0);
        let links = || {
            let map = router.map();
            (0..).map_while(|it| map.get(it)).map(|it| it.links.len()).collect::<Vec<_>>()
        };
        assert_eq!((links(), router.map().owners[2]), (vec![1, 1, 1], 2));

        router.learn(&[shard(0..=1, "a:1")], 0);

        assert_eq!((links(), router.map().owners[2]), (vec![1, 1, 0], UNKNOWN));
        assert_eq!(router.map().present(2), 0);
        // A node outside of a cluster knows nothing.
        router.learn(&[], 0);
        assert_eq!(address_of(&router, 0).unwrap(), "a:1");
        router.learn(&[shard(0..=3, "b:2")], 0);
        assert_eq!((links(), address_of(&router, 0).unwrap()), (vec![1, 0, 1], "b:2".to_owned()));
    }
}
