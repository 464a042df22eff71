// SPDX-License-Identifier: Apache-2.0
//! Random functions side by side, on a clock that is moved by hand, against a model that only notes
//! what each of them said of each row.
//!
//! The world acts whenever the driver looks at the clock: it feeds a batch, answers calls, lets
//! them fail, or lets time pass.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use fan_out_world::{ActingClock, ManualClock, Noting, Said, State, lock, result, results_of};
use sparkawait_arrow::{OnError, OutputColumns, output_schema};
use sparkawait_core::operator::{FailurePolicy, OutputMode, Retry};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_runtime::{Driver, Turn};
use sparkawait_task::error::TaskError;
use sparkawait_task::fan_out::SLOT;
use sparkawait_task::function::{Replies, ReplyGroup, TaskFunction};
use sparkawait_task::layer::MakeFunction;
use sparkawait_task::task::{TaskBuilder, TaskConfig, TaskFeeder};
use sparkawait_task::task_codec::TaskCodec;
use support::random::Random;
use support::{KEYS, column, input, nullable_column, task_config};

#[path = "support/fan_out_world.rs"]
mod fan_out_world;
mod support;

const CASES: u64 = 300;
const TIMEOUT: Duration = Duration::from_micros(50);
const RETRIES: u32 = 2;

struct Case {
    driver: Driver<TaskCodec, TaskFunction, ActingClock>,
    feeder: TaskFeeder,
    state: Arc<Mutex<Option<State>>>,
    mode: OutputMode,
    rows: i64,
    /// Of each branch.
    on_error: Vec<OnError>,
    retries: Vec<bool>,
    has_time_limits: bool,
    random: Random,
}

fn branch(random: &mut Random, number: usize, fails: bool) -> TaskConfig {
    let capacity = 1 + random.below(12);
    let mut config = task_config(OutputMode::Unordered, capacity);
    config.rows.is_branch = true;
    config.rows.results = results_of(number);
    config.rows.output = OutputColumns::Replace;
    config.rows.carried = Arc::new(Schema::new(vec![Field::new(SLOT, DataType::UInt32, false)]));
    let policies = [OnError::Null, OnError::Drop, OnError::Capture];
    config.rows.on_error = if fails { OnError::Fail } else { policies[random.below(3)] };
    config.operator.on_failure = if fails { FailurePolicy::FailTask } else { FailurePolicy::Emit };
    let calls = 1 + random.below(capacity);
    config.operator.max_concurrency = NonZeroUsize::new(calls).unwrap();
    let brief = Duration::from_nanos(500);
    config.operator.retry =
        random.in_a_hundred(50).then(|| AsyncRetryStrategy::fixed_delay(RETRIES, brief));
    config
}

fn case(seed: u64) -> Case {
    let mut random = Random(seed);
    let modes = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
    let (mode, capacity) = (modes[random.below(3)], 1 + random.below(12));
    let (fails, has_time_limits) = (random.in_a_hundred(20), random.in_a_hundred(40));
    let count = 1 + random.below(3);
    let mut branches: Vec<TaskConfig> =
        (0..count).map(|number| branch(&mut random, number, fails)).collect();
    if has_time_limits {
        for config in &mut branches {
            config.operator.timeout = Some(TIMEOUT);
            config.rows.timeout = TIMEOUT;
        }
    }
    let mut outer = task_config(mode, capacity);
    let fields = branches.iter().zip(0..).flat_map(|(config, number)| {
        let (rows, error) = (&config.rows, format!("error{number}"));
        let added = output_schema(&rows.input, &rows.results, rows.output, rows.on_error, &error);
        added.unwrap().fields().to_vec()
    });
    outer.rows.results = Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()));
    outer.driver.max_rows_per_batch = 1 + random.below(20);
    let on_error = branches.iter().map(|it| it.rows.on_error).collect();
    let retries = branches.iter().map(|it| it.operator.retry.is_some()).collect();
    let most = branches.iter().map(|it| it.operator.max_concurrency.get()).collect();
    let (clock, state) = (ManualClock::default(), Arc::<Mutex<Option<State>>>::default());
    let replies: Vec<Option<Replies>> = vec![None; count];
    let found = Arc::new(Mutex::new(replies));
    let functions = branches.into_iter().enumerate().map(|(branch, config)| {
        let (state, found) = (Arc::clone(&state), Arc::clone(&found));
        let function: MakeFunction<'_> = Box::new(move |replies| {
            found.lock().unwrap()[branch] = Some(replies);
            Ok(Box::new(Noting { branch, state }) as TaskFunction)
        });
        (config, function)
    });
    let builder = TaskBuilder::fan_out(None, outer, functions.collect()).unwrap();
    let acting = ActingClock { clock: clock.clone(), state: Arc::clone(&state) };
    let (driver, feeder) = builder.build_on(acting);
    let (rows, size) = (i64::try_from(random.below(60)).unwrap(), 1 + random.below(20));
    let starts: Vec<i64> = (0..rows).step_by(size).collect();
    let size = i64::try_from(size).unwrap();
    let batches = starts.iter().rev().map(|start| input(*start..rows.min(start + size)));
    *lock(&state) = Some(State {
        random: random.clone(),
        clock,
        mode,
        capacity,
        most,
        input: batches.collect(),
        feeder: Some(feeder.clone()),
        replies: std::mem::take(&mut found.lock().unwrap()),
        pending: Vec::new(),
        said: BTreeMap::new(),
        called: vec![BTreeSet::new(); count],
        closed: 0,
        failing: if fails { random.below(3) } else { random.below(30) },
        hanging: if has_time_limits { 1 + random.below(5) } else { 0 },
    });
    Case { driver, feeder, state, mode, rows, on_error, retries, has_time_limits, random }
}

impl Case {
    fn run(&mut self) -> (Vec<RecordBatch>, Result<(), TaskError>) {
        let mut output = Vec::new();
        loop {
            match self.driver.take_turn() {
                Ok(Turn::Output(batch)) => output.push(batch),
                Ok(Turn::Paused) => {}
                Ok(Turn::Finished) => return (output, Ok(())),
                Err(error) => return (output, Err(error)),
            }
        }
    }

    /// Whether what a function said of a row may be a result of it, and a failure, and nothing.
    fn may_be(&self, state: &State, branch: usize, row: i64) -> (bool, bool, bool) {
        let nothing = Vec::new();
        let said = state.said.get(&(branch, row)).unwrap_or(&nothing);
        let last = said.last().copied();
        if self.has_time_limits {
            // Which of them came in time is not known here.
            let was = |wanted| said.contains(&wanted);
            return (was(Said::Results(1)), true, was(Said::Results(0)));
        }
        let (mut attempts, retries) = (0, if self.retries[branch] { RETRIES } else { 0 });
        for it in said {
            attempts += 1;
            let goes_on = *it == Said::Failure(Retry::Yes) && attempts <= retries;
            assert_eq!(goes_on, attempts < u32::try_from(said.len()).unwrap(), "{said:?}");
        }
        let is = |wanted: fn(&Said) -> bool| last.as_ref().is_some_and(wanted);
        (
            is(|it| *it == Said::Results(1)),
            is(|it| matches!(it, Said::Failure(_) | Said::Results(2))),
            is(|it| *it == Said::Results(0)),
        )
    }

    fn check(&self, state: &State, output: &[RecordBatch], has_finished: bool) {
        let rows: Vec<i64> = output.iter().flat_map(|batch| column(batch, "row")).collect();
        let distinct: BTreeSet<i64> = rows.iter().copied().collect();
        assert_eq!(distinct.len(), rows.len(), "a row left twice");
        self.check_order(&rows);
        for branch in 0..self.on_error.len() {
            let name = format!("result{branch}");
            let results = output.iter().flat_map(|batch| nullable_column(batch, &name));
            let errors: Vec<bool> = match self.on_error[branch] {
                OnError::Capture => {
                    let name = format!("error{branch}");
                    let errors = output.iter().map(|it| it.column_by_name(&name).unwrap());
                    errors.flat_map(|it| (0..it.len()).map(|row| it.is_valid(row))).collect()
                }
                _ => Vec::new(),
            };
            for (index, (row, found)) in rows.iter().zip(results).enumerate() {
                let (answered, failed, _) = self.may_be(state, branch, *row);
                match found {
                    Some(found) => {
                        assert_eq!(found, result(branch, *row));
                        assert!(answered, "result of row {row} that nobody gave");
                    }
                    None => assert!(failed, "row {row} lost the result of {branch}"),
                }
                if let Some(is_error) = errors.get(index) {
                    assert_eq!(*is_error, found.is_none(), "error of row {row}");
                }
            }
        }
        if has_finished {
            let missing = (0..self.rows).filter(|row| !distinct.contains(row));
            for row in missing {
                assert!(self.may_drop(state, row), "row {row} is missing");
            }
            if !self.has_time_limits {
                let kept = rows.iter().find(|row| self.may_drop(state, **row));
                assert_eq!(kept, None, "a row that was to be dropped has left");
            }
            for called in &state.called {
                assert_eq!(called.len(), usize::try_from(self.rows).unwrap(), "not all called");
            }
        }
    }

    fn may_drop(&self, state: &State, row: i64) -> bool {
        self.on_error.iter().enumerate().any(|(branch, on_error)| {
            let (_, failed, nothing) = self.may_be(state, branch, row);
            nothing || (failed && *on_error == OnError::Drop)
        })
    }

    fn check_order(&self, rows: &[i64]) {
        match self.mode {
            OutputMode::Ordered => assert!(rows.is_sorted(), "order"),
            OutputMode::KeyOrdered => {
                for key in 0..KEYS {
                    assert!(rows.iter().filter(|it| *it % KEYS == key).is_sorted(), "key {key}");
                }
            }
            OutputMode::Unordered => {}
        }
    }
}

#[test]
fn every_row_leaves_once_with_the_last_word_of_each_function() {
    for seed in 0..CASES {
        let mut case = case(seed);
        let (output, end) = case.run();
        let state = lock(&case.state).take().unwrap();
        case.check(&state, &output, end.is_ok());
        let fails = case.on_error[0] == OnError::Fail;
        assert!(fails || end.is_ok(), "seed {seed}: {end:?}");
        if let Err(TaskError::Row { row, .. }) = end {
            let row = i64::try_from(row).unwrap();
            let failed = (0..case.on_error.len()).any(|it| case.may_be(&state, it, row).1);
            assert!(failed, "seed {seed}: row {row} is named, which has not failed");
        }
        assert_eq!(state.closed, case.on_error.len(), "seed {seed}");
        let replies = state.replies[0].as_ref().unwrap();
        assert!(!replies.send(ReplyGroup::default()), "seed {seed}: takes replies");
    }
}

#[test]
fn functions_side_by_side_may_be_closed_at_any_time() {
    for seed in 0..CASES {
        let mut case = case(seed);
        let (turns, mut output) = (case.random.below(20), Vec::new());
        for _ in 0..turns {
            match case.driver.take_turn() {
                Ok(Turn::Output(batch)) => output.push(batch),
                Ok(Turn::Paused) => {}
                Ok(Turn::Finished) | Err(_) => break,
            }
        }
        case.driver.close();

        let state = lock(&case.state).take().unwrap();
        assert_eq!(state.closed, case.on_error.len(), "seed {seed}");
        assert!(!case.feeder.put(input(0..1)));
    }
}
