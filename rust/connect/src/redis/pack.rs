// SPDX-License-Identifier: Apache-2.0
//! Commands that go to one node together, and rows whose keys go apart: to several slots, or without
//! those that are null.

use std::collections::BTreeMap;
use std::sync::Arc;

use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::Call;

use super::answers::Answers;
use super::command::CommandRows;
use super::job::Job;
use super::join::{Join, PartAnswers, Parts};
use super::redirects::Redirects;
use super::router::Router;
use super::routes::Route;
use super::slots::slot_of_argument;
use super::spec::Spec;

/// Commands, with the call of each.
#[derive(Default)]
pub(super) struct Pack {
    pub(super) bytes: Vec<u8>,
    /// End of each command in the bytes; only needed where it may be redirected.
    pub(super) ends: Vec<usize>,
    pub(super) attempts: Vec<AttemptId>,
    /// What each asks for, of rows that are asked for in parts.
    pub(super) parts: Parts,
}

impl Pack {
    /// Sends the commands, if there are any; `join` puts rows together that are asked for in parts.
    pub(super) fn send(
        self,
        router: &Arc<Router>,
        spec: &Arc<Spec>,
        route: Route,
        join: Option<&Arc<Join>>,
    ) -> Result<(), TaskError> {
        let Self { bytes, ends, attempts, parts } = self;
        if attempts.is_empty() {
            return Ok(());
        }
        let redirects = || Redirects::new(Arc::clone(router), route, bytes.clone(), ends);
        let (spec, redirects) = (Arc::clone(spec), router.is_cluster().then(redirects));
        let answers = match join {
            Some(join) => {
                let parts = PartAnswers::new(Arc::clone(join), parts);
                Answers::of_parts(spec, attempts, parts, redirects)
            }
            None => Answers::new(spec, attempts, redirects)?,
        };
        router.send(route.node, Job { bytes, answers: Box::new(answers) });
        Ok(())
    }

    /// Appends a command that asks for some columns of a row by their packed keys.
    fn push(&mut self, name: &[u8], keys: &[(usize, &[u8])], attempt: AttemptId, row: usize) {
        self.bytes.extend_from_slice(format!("*{}\r\n", keys.len() + 1).as_bytes());
        self.bytes.extend_from_slice(name);
        for (_, key) in keys {
            self.bytes.extend_from_slice(key);
        }
        self.ends.push(self.bytes.len());
        self.attempts.push(attempt);
        self.parts.push(row, keys.iter().map(|(column, _)| *column));
    }
}

/// Sends a command named `name` for the keys of each slot of each row.
///
/// Returns the calls that have no key at all: all of theirs are null.
pub(super) fn send_split(
    router: &Arc<Router>,
    spec: &Arc<Spec>,
    name: &[u8],
    rows: &CommandRows<'_>,
    calls: &[Call],
) -> Result<Vec<AttemptId>, TaskError> {
    let mut packs = BTreeMap::<Route, Pack>::new();
    let (mut nulls, mut joined) = (Vec::new(), Vec::new());
    let mut bytes = Vec::new();
    let targets = router.routes();
    for call in calls {
        bytes.clear();
        let ranges = rows.write_keys(call, &mut bytes);
        // One server has all slots.
        let slot = |key: &[u8]| slot_of_argument(key).filter(|_| router.is_cluster());
        let mut keys: Vec<_> = ranges
            .into_iter()
            .map(|(column, range)| (slot(&bytes[range.clone()]), (column, &bytes[range])))
            .collect();
        if keys.is_empty() {
            nulls.push(call.attempt);
            continue;
        }
        keys.sort_by_key(|(slot, _)| *slot);
        let mut commands = 0;
        for group in keys.chunk_by(|(one, _), (other, _)| one == other) {
            let route = targets.of(group[0].0, rows.channel(call));
            let keys: Vec<_> = group.iter().map(|(_, key)| *key).collect();
            packs.entry(route).or_default().push(name, &keys, call.attempt, joined.len());
            commands += 1;
        }
        joined.push((call.attempt, commands));
    }
    drop(targets);
    let join = Arc::new(Join::new(Arc::clone(spec), joined));
    for (route, pack) in packs {
        pack.send(router, spec, route, Some(&join))?;
    }
    Ok(nulls)
}
