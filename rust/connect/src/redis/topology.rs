// SPDX-License-Identifier: Apache-2.0
//! Which nodes a cluster has, and what each of them is for: the answer to `CLUSTER SLOTS`.

use std::ops::RangeInclusive;
use std::str::from_utf8;
use std::sync::Weak;

use super::job::Awaiting;
use super::resp::{Array, Reply};
use super::slots::SLOTS;
use crate::failure::Failure;

/// Asks a node for all nodes; any version of the server knows it.
pub(super) const QUESTION: &[u8] = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";

/// Slots, and the nodes that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) slots: RangeInclusive<u16>,
    /// The primary, and its replicas, as redirections name them: without a host, it is that of who
    /// was asked.
    pub(crate) addresses: Vec<String>,
}

/// The part that asks which nodes there are.
pub(super) trait Learner: Send + Sync {
    /// Learns it from the node `asked`.
    fn learn(&self, shards: &[Shard], asked: usize);

    /// Notes that the question is not under way any more, whatever its outcome.
    fn was_answered(&self);
}

/// Awaits the answer.
pub(super) struct TopologyAnswer {
    learner: Weak<dyn Learner>,
    /// The node that was asked.
    node: usize,
}

impl TopologyAnswer {
    /// Awaits the answer to one question to a node.
    pub(super) fn new(learner: Weak<dyn Learner>, node: usize) -> Self {
        Self { learner, node }
    }
}

impl Awaiting for TopologyAnswer {
    /// Takes the answer; learns nothing from an invalid one.
    fn take(&mut self, reply: Reply<'_>, _bytes: usize) -> bool {
        if let Some(learner) = self.learner.upgrade() {
            if let Some(shards) = shards(reply) {
                learner.learn(&shards, self.node);
            } else {
                // A user may lack permission; redirections tell of the nodes then.
                tracing::debug!("a node of the Redis cluster did not tell of its nodes");
            }
        }
        true
    }

    fn finish(self: Box<Self>) {}

    fn fail(self: Box<Self>, _failure: &Failure) {}

    fn abandon(self: Box<Self>, _failure: &Failure) {}
}

impl Drop for TopologyAnswer {
    /// Allows the next question, whatever the outcome of this one.
    fn drop(&mut self) {
        if let Some(learner) = self.learner.upgrade() {
            learner.was_answered();
        }
    }
}

/// Reads the answer.
pub(crate) fn shards(reply: Reply<'_>) -> Option<Vec<Shard>> {
    let Reply::Array(ranges) = reply else { return None };
    ranges
        .elements()
        .map(|range| {
            let Reply::Array(range) = range else { return None };
            let mut elements = range.elements();
            let (first, last) = (slot(elements.next()?)?, slot(elements.next()?)?);
            let addresses = elements.map(address).collect::<Option<Vec<_>>>()?;
            (!addresses.is_empty()).then_some(Shard { slots: first..=last, addresses })
        })
        .collect()
}

fn slot(reply: Reply<'_>) -> Option<u16> {
    text(reply)?.parse().ok().filter(|slot| *slot < SLOTS)
}

/// Reads a node: host, port and what else there is.
fn address(reply: Reply<'_>) -> Option<String> {
    let Reply::Array(node) = reply else { return None };
    let mut elements = Array::elements(node);
    let host = match elements.next()? {
        // It does not know its own address: that of who was asked.
        Reply::Nil | Reply::Text(b"?") => "",
        host => text(host)?,
    };
    Some(format!("{host}:{}", text(elements.next()?)?))
}

fn text(reply: Reply<'_>) -> Option<&str> {
    match reply {
        Reply::Text(text) => from_utf8(text).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::resp::parse;
    use super::*;

    fn read(bytes: &[u8]) -> Option<Vec<Shard>> {
        shards(parse(bytes).unwrap().unwrap().0)
    }

    #[test]
    fn primaries_come_before_their_replicas() {
        let answer = b"*1\r\n*4\r\n:0\r\n:5460\r\n\
            *3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n\
            *4\r\n$4\r\nhost\r\n:7003\r\n$2\r\nid\r\n*0\r\n";
        let addresses = vec!["127.0.0.1:7000".to_owned(), "host:7003".to_owned()];
        assert_eq!(read(answer), Some(vec![Shard { slots: 0..=5460, addresses }]));
    }

    #[test]
    fn a_node_that_does_not_know_its_host_has_none() {
        let answer = b"*1\r\n*3\r\n:1\r\n:1\r\n*2\r\n$-1\r\n:7000\r\n";
        assert_eq!(read(answer).unwrap()[0].addresses, [":7000"]);
    }

    #[test]
    fn what_is_no_answer_is_not_believed() {
        for bytes in [
            b"-NOPERM no\r\n".as_slice(),
            b"*1\r\n:1\r\n",
            b"*1\r\n*2\r\n:0\r\n:1\r\n",
            b"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
