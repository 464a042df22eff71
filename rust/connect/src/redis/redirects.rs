// SPDX-License-Identifier: Apache-2.0
//! Commands that a node of a cluster did not answer, and that another one is asked for.
//!
//! The node may say who has their keys instead; or it is a replica that is lost
//! or not ready, and its primary is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use sparkawait_task::error::TaskError;

use super::job::{Awaiting, Job};
use super::resp::Reply;
use super::router::{Router, Step};
use super::routes::Route;

/// Redirections that a command follows before its row fails; clusters need two.
const MOST_HOPS: u32 = 5;

/// First words of a replica that cannot be read now.
const NOT_READY: [&[u8]; 3] = [b"LOADING", b"MASTERDOWN", b"CLUSTERDOWN"];

/// Precedes a command whose slot is on its way to the node.
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// The commands of one job, kept until none of them can be redirected.
pub(super) struct Redirects {
    router: Arc<Router>,
    /// The node that is asked.
    node: usize,
    /// Without `ASKING`.
    bytes: Vec<u8>,
    /// End of each command in the bytes.
    ends: Vec<usize>,
    /// Indices of the commands that have to go elsewhere.
    moved: BTreeMap<(usize, bool), Vec<usize>>,
    hops: u32,
    is_asking: bool,
    /// Who is asked for what the node, a replica, does not answer.
    primary: Option<usize>,
}

impl Redirects {
    /// Keeps the commands of a job.
    pub(super) fn new(
        router: Arc<Router>,
        Route { node, primary }: Route,
        bytes: Vec<u8>,
        ends: Vec<usize>,
    ) -> Self {
        let moved = BTreeMap::new();
        Self { router, node, bytes, ends, moved, hops: 0, is_asking: false, primary }
    }

    /// Whether each command is preceded by `ASKING`.
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Takes the reply to a command; returns whether it has to go elsewhere.
    pub(super) fn take(&mut self, index: usize, reply: Reply<'_>) -> bool {
        let Reply::Error(words) = reply else { return false };
        if NOT_READY.iter().any(|code| words.starts_with(code)) {
            return self.lose(index);
        }
        if self.hops == MOST_HOPS {
            return false;
        }
        let Some(Step { node, is_asking }) = self.router.redirection(words, self.node) else {
            return false;
        };
        self.moved.entry((node, is_asking)).or_default().push(index);
        true
    }

    /// Says that a command was not answered; returns whether its primary will be asked.
    pub(super) fn lose(&mut self, index: usize) -> bool {
        let Some(primary) = self.primary else { return false };
        self.moved.entry((primary, false)).or_default().push(index);
        true
    }

    /// Sends commands to where they have to go; `again` awaits the answers to those of some indices.
    pub(super) fn resend<A: Awaiting + 'static>(
        self,
        again: impl Fn(&[usize], Self) -> Result<A, TaskError>,
    ) -> Result<(), TaskError> {
        for ((node, is_asking), indices) in self.moved {
            let (mut bytes, mut sent, mut ends) = (Vec::new(), Vec::new(), Vec::new());
            for &index in &indices {
                let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
                let command = &self.bytes[start..self.ends[index]];
                if is_asking {
                    sent.extend_from_slice(ASKING);
                }
                sent.extend_from_slice(command);
                bytes.extend_from_slice(command);
                ends.push(bytes.len());
            }
            let redirects = Self {
                router: Arc::clone(&self.router),
                node,
                bytes,
                ends,
                moved: BTreeMap::new(),
                hops: self.hops + 1,
                is_asking,
                primary: None,
            };
            let answers = Box::new(again(&indices, redirects)?);
            self.router.send(node, Job { bytes: sent, answers });
        }
        Ok(())
    }
}
