// SPDX-License-Identifier: Apache-2.0
//! Sends rows whose keys go apart: to several slots, or without those that are null.

use std::collections::BTreeMap;
use std::sync::Arc;

use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::Call;

use super::command::CommandRows;
use super::join::Join;
use super::pack::Pack;
use super::router::Router;
use super::routes::Route;
use super::slots::slot_of_argument;
use super::spec::Spec;

impl Pack {
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
pub(super) fn send(
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
