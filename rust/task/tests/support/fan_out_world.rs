// SPDX-License-Identifier: Apache-2.0
//! The world of functions side by side: it feeds rows, answers calls, lets them fail or hang, and notes
//! what each function said of each row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::AsyncFunction;
use sparkawait_runtime::clock::Clock;
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{Calls, FailedCall, Replies, ReplyGroup, ResultGroup};
use sparkawait_task::task::TaskFeeder;

use crate::support::random::Random;
use crate::support::{KEYS, schema};

#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock(Arc<AtomicU64>);

/// A clock at each look at which the world acts.
#[derive(Clone)]
pub(crate) struct ActingClock {
    pub(crate) clock: ManualClock,
    pub(crate) state: Arc<Mutex<Option<State>>>,
}

impl Clock for ActingClock {
    fn now(&self) -> ProcessingTime {
        if let Some(state) = lock(&self.state).as_mut() {
            state.act();
        }
        ProcessingTime::from_nanos(self.clock.0.load(Ordering::SeqCst))
    }
}

pub(crate) fn lock(state: &Mutex<Option<State>>) -> MutexGuard<'_, Option<State>> {
    state.lock().unwrap()
}

/// A call that was not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) branch: usize,
    pub(crate) row: i64,
    pub(crate) attempt: AttemptId,
}

/// What a function has said of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// So many results.
    Results(u32),
    Failure(Retry),
}

pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) clock: ManualClock,
    pub(crate) mode: OutputMode,
    pub(crate) capacity: usize,
    /// Calls of each branch at most.
    pub(crate) most: Vec<usize>,
    pub(crate) input: Vec<RecordBatch>,
    pub(crate) feeder: Option<TaskFeeder>,
    pub(crate) replies: Vec<Option<Replies>>,
    pub(crate) pending: Vec<Pending>,
    /// What each branch said of each row, in order.
    pub(crate) said: BTreeMap<(usize, i64), Vec<Said>>,
    /// Rows that each branch was called for.
    pub(crate) called: Vec<BTreeSet<i64>>,
    pub(crate) closed: usize,
    /// Of a hundred calls.
    pub(crate) failing: usize,
    pub(crate) hanging: usize,
}

impl State {
    fn act(&mut self) {
        self.check_bounds();
        if self.hanging > 0 && self.random.in_a_hundred(5) {
            self.clock.0.fetch_add(60_000, Ordering::SeqCst);
            return;
        }
        self.clock.0.fetch_add(self.random.next() % 200, Ordering::SeqCst);
        if self.random.in_a_hundred(25) {
            self.feed();
        } else {
            self.answer();
        }
        // Wakes the driver, so that it never waits in earnest.
        if let Some(Some(replies)) = self.replies.first() {
            replies.send(ReplyGroup::default());
        }
    }

    fn feed(&mut self) {
        let Some(feeder) = self.feeder.clone() else { return };
        if let Some(batch) = self.input.pop() {
            let refused = feeder.put_within(batch, Duration::ZERO).err();
            self.input.extend(refused);
        } else {
            feeder.put_end();
            self.feeder = None;
        }
    }

    /// Answers some calls of one branch with one mail.
    fn answer(&mut self) {
        let Some(at) = self.random.below(self.pending.len() + 1).checked_sub(1) else { return };
        let (branch, most) = (self.pending[at].branch, self.random.below(6));
        let mut of_branch = Vec::new();
        let mut index = 0;
        while index < self.pending.len() && of_branch.len() < most {
            if self.pending[index].branch == branch && self.random.in_a_hundred(60) {
                of_branch.push(self.pending.swap_remove(index));
            } else {
                index += 1;
            }
        }
        let (mut attempts, mut counts, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut failures = Vec::new();
        for Pending { row, attempt, .. } in of_branch {
            let said = if self.random.in_a_hundred(self.failing) {
                let retry = if self.random.in_a_hundred(50) { Retry::Yes } else { Retry::No };
                failures.push(FailedCall::new(attempt, Box::new(down()), retry));
                Said::Failure(retry)
            } else {
                let count = if self.random.in_a_hundred(self.failing) {
                    2 * u32::try_from(self.random.below(2)).unwrap()
                } else {
                    1
                };
                attempts.push(attempt);
                counts.push(count);
                (0..count).for_each(|_| values.push(result(branch, row)));
                Said::Results(count)
            };
            self.said.entry((branch, row)).or_default().push(said);
        }
        let columns = vec![Arc::new(Int64Array::from(values)) as _];
        let rows = RecordBatch::try_new(results_of(branch), columns).unwrap();
        let results = ResultGroup { counts: Some(counts), ..ResultGroup::one_each(attempts, rows) };
        if let Some(replies) = &self.replies[branch] {
            let results = Some(results);
            replies.send(ReplyGroup { results, failures, ..ReplyGroup::default() });
        }
    }

    fn check_bounds(&self) {
        for (branch, most) in self.most.iter().enumerate() {
            let calls = self.pending.iter().filter(|it| it.branch == branch).count();
            assert!(calls <= *most, "function {branch} has {calls} calls");
        }
        let rows: BTreeSet<i64> = self.pending.iter().map(|it| it.row).collect();
        assert!(rows.len() <= self.capacity, "{} rows are held", rows.len());
        if self.mode == OutputMode::KeyOrdered {
            let keys: BTreeSet<i64> = rows.iter().map(|row| row % KEYS).collect();
            assert_eq!(keys.len(), rows.len(), "two rows of a key are called for");
        }
    }
}

pub(crate) fn down() -> CallFailure {
    let (message, summary) = ("is down".to_owned(), "is down".to_owned());
    CallFailure { kind: ErrorKind::UserFunctionFailed, message, summary, cause: None }
}

/// What a function returns for a row.
pub(crate) fn result(branch: usize, row: i64) -> i64 {
    row * 10 + i64::try_from(branch).unwrap()
}

pub(crate) fn results_of(branch: usize) -> SchemaRef {
    schema(&[&format!("result{branch}")])
}

/// Notes calls, for the world to answer.
pub(crate) struct Noting {
    pub(crate) branch: usize,
    pub(crate) state: Arc<Mutex<Option<State>>>,
}

impl AsyncFunction<Calls> for Noting {
    fn invoke(&mut self, calls: Calls) {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return };
        for call in &calls.calls {
            let batch = &calls.batches[call.batch as usize];
            let row = batch.column(0).as_primitive::<Int64Type>().value(call.row as usize);
            state.called[self.branch].insert(row);
            if !state.random.in_a_hundred(state.hanging) {
                state.pending.push(Pending { branch: self.branch, row, attempt: call.attempt });
            }
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        if let Some(state) = lock(&self.state).as_mut() {
            let branch = self.branch;
            state.pending.retain(|it| it.branch != branch || !attempts.contains(&it.attempt));
        }
    }

    fn close(&mut self) {
        if let Some(state) = lock(&self.state).as_mut() {
            state.closed += 1;
        }
    }
}
