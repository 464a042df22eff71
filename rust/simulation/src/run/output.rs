// SPDX-License-Identifier: Apache-2.0
//! What has left a task, held against the rules as it leaves.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use sparkawait_task::error::TaskError;

use crate::columns::{Reader, bytes_of_texts, captured, error_name, info_name, told};
use crate::model::{Model, Outcome, Why};
use crate::order::Order;
use crate::rules::RULES;
use crate::scenario::{Failing, Scenario};
use crate::trace::{Broken, Path, What, child_id, head_id};
use crate::world::Shared;

/// How a task ended.
pub(super) enum Ended {
    Finished,
    Failed(TaskError),
    Closed,
    /// Something has panicked, and the consumer was told so.
    Panicked(String),
    /// A rule was broken.
    Broken,
}

/// What has left the task.
pub(super) struct Output {
    pub(super) scenario: Arc<Scenario>,
    pub(super) shared: Shared,
    pub(super) order: Order,
    pub(super) rows: usize,
}

impl Output {
    /// A batch is in the output.
    pub(super) fn left(&mut self, batch: &RecordBatch) {
        let scenario = Arc::clone(&self.scenario);
        let mut world = self.shared.world();
        let last = scenario.operators.len() - 1;
        let most = scenario.operators[last].max_rows_per_batch;
        if batch.num_rows() > most {
            let what = format!("{} of {most}", batch.num_rows());
            world.fail("no more rows in a batch than said", what);
        }
        let (bytes, bound) = (bytes_of_texts(&scenario, batch), scenario.operators[last].bytes);
        if let Some(bound) = bound.filter(|it| batch.num_rows() > 1 && bytes > it.max_per_batch) {
            let what = format!("{bytes} of {} in {} rows", bound.max_per_batch, batch.num_rows());
            world.fail("no more bytes in a batch than said", what);
        }
        let reader = Reader::new(&scenario, batch, last + 1);
        let paths: Vec<_> = (0..batch.num_rows()).map(|it| reader.path(it)).collect();
        world.note(What::Left { rows: paths.iter().map(|it| it.row).collect() });
        for (index, path) in paths.iter().enumerate() {
            if world.broken.is_some() {
                return;
            }
            let now = world.now;
            world.check_committed(path.row);
            let seen = world.model.put_out(path, now);
            let seen = seen.and_then(|()| self.order.left(path));
            let seen = seen.and_then(|()| check_captured(&world.model, batch, index, path));
            let seen = seen.and_then(|()| check_told(&world.model, batch, index, path, now));
            let (failed, calls) =
                (captured(batch, &error_name(0, 0), index), told(batch, &info_name(0, 0), index));
            let seen = seen
                .and_then(|()| world.model.check_known(path.row, failed.as_ref(), calls.as_ref()));
            world.breaks(seen);
            self.rows += 1;
        }
    }
}

/// What is told of the calls of a row is what was called. Less is known where a cache answers, or tasks
/// get lost.
fn check_told(
    model: &Model,
    batch: &RecordBatch,
    index: usize,
    path: &Path,
    now: u64,
) -> Result<(), Broken> {
    let mut id = head_id(path.row);
    for (operator, values) in path.values.iter().enumerate() {
        for (branch, site) in model.sites_of(operator).enumerate() {
            let here = &model.sites[site];
            let is_cached = here.plan.cache.is_some();
            let known = here
                .rows
                .get(&id)
                .filter(|it| !model.has_parts() && !model.known.contains_key(&it.row));
            let found = told(batch, &info_name(operator, branch), index);
            let (Some(row), Some(found)) = (known, found) else { continue };
            let (called, ends) = (row.first_call, row.first_call.map(|_| now));
            let are_times_right = is_within(found.seconds, called.unwrap_or_default(), ends)
                && is_within(found.waited, row.at, called)
                && !found.cached;
            let is_hedged = row.hedged || row.hedged_late && found.hedged;
            let is_right = (found.attempts, found.hedged) == (row.made, is_hedged)
                && (is_cached || are_times_right);
            if !is_right {
                let what = format!("row {} at function {site}: {found:?}, {row:?}", path.row);
                return Err(Broken::new("what is told of calls is what was called", what));
            }
        }
        id = child_id(id, values);
    }
    Ok(())
}

/// Whether a time is there if its end is, and is no longer than what lies between.
fn is_within(time: Option<Duration>, since: u64, until: Option<u64>) -> bool {
    let most = until.map(|it| Duration::from_nanos(it.saturating_sub(since)));
    time.is_some() == most.is_some() && time <= most
}

/// What is captured of a failure is what was seen of it.
fn check_captured(
    model: &Model,
    batch: &RecordBatch,
    index: usize,
    path: &Path,
) -> Result<(), Broken> {
    let mut id = head_id(path.row);
    for (operator, values) in path.values.iter().enumerate() {
        for (branch, site) in model.sites_of(operator).enumerate() {
            let here = &model.sites[site];
            if here.plan.on_error != Failing::Capture {
                continue;
            }
            let found = captured(batch, &error_name(operator, branch), index);
            let known = here.rows.get(&id).filter(|it| !model.known.contains_key(&it.row));
            let Some(row) = known else { continue };
            let is_right = match (row.state(), &found) {
                (Some(Outcome::Results { .. }), None) => true,
                (Some(Outcome::Failed(why)), Some((kind, attempts))) => {
                    let kinds: &[&str] = match why {
                        // Nobody knows here whether it was held when its last call had failed.
                        Why::Time if here.plan.holds() => &[
                            "retries-exhausted",
                            "user-function-failed",
                            "element-timed-out",
                            "destination-unavailable",
                            "budget-spent",
                        ],
                        Why::Function => &["user-function-failed", "retries-exhausted"],
                        Why::Time => &[
                            "element-timed-out",
                            "destination-paused",
                            "destination-unavailable",
                            "budget-spent",
                        ],
                        Why::Several => &["result-schema-mismatch"],
                    };
                    // One that began when its time had passed already was not made; what the function
                    // says of the row then may be a failure of its own.
                    let has_passed = why == Why::Time || here.plan.asks_on_timeout;
                    let vain = u32::from(has_passed && RULES.a_call_in_vain_counts);
                    let made = row.attempts..=row.attempts + vain;
                    let is_vain =
                        kind == "budget-spent" && model.is_refused_in_vain(site, path.cost);
                    kinds.contains(&kind.as_str()) && made.contains(attempts) && !is_vain
                }
                _ => false,
            };
            if !is_right {
                let what = format!("row {} at function {site}: {found:?}, {row:?}", path.row);
                return Err(Broken::new("what is captured is what happened", what));
            }
        }
        id = child_id(id, values);
    }
    Ok(())
}
