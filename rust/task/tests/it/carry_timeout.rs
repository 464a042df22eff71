// SPDX-License-Identifier: Apache-2.0
//! A row that had timed out when it was saved: the task that goes on does not call for it again.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int32Type;
use sparkawait_arrow::{ERROR_COLUMN, OnError};
use sparkawait_core::operator::{AttemptId, OutputMode};
use sparkawait_runtime::{AsyncFunction, Driver, Patience, Turn};
use sparkawait_task::function::{Call, Calls, Replies, ResultGroup, TaskFunction};
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskCarry, TaskConfig, TaskFeeder};
use sparkawait_task::task_codec::TaskCodec;

use crate::support::{HandClock, column, input, schema, task_config, with_on_error};

const TIMEOUT: Duration = Duration::from_millis(7);

/// What a function was told: calls, and rows that it was asked about.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<(usize, usize)>>);

/// Answers no call, and if `replies` are there each question with the row it is about.
struct Deaf {
    told: Told,
    replies: Option<Replies>,
}

impl AsyncFunction<Calls> for Deaf {
    fn invoke(&mut self, calls: Calls) {
        self.told.0.lock().unwrap().0 += calls.calls.len();
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.told.0.lock().unwrap().1 += calls.calls.len();
        let Some(replies) = &self.replies else { return };
        let batches = calls.batches.iter().map(|it| column(&it.batch, "row"));
        let rows: Vec<Vec<i64>> = batches.collect();
        let row_of = |call: &Call| rows[call.batch as usize][call.row as usize];
        let values = calls.calls.iter().map(row_of);
        let values = Arc::new(Int64Array::from_iter_values(values));
        let rows = RecordBatch::try_new(schema(&["result"]), vec![values]).unwrap();
        let attempts = calls.calls.iter().map(|it| it.attempt).collect();
        replies.send(ResultGroup::one_each(attempts, rows).into());
    }

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

type HandDriver = Driver<TaskCodec, TaskFunction, HandClock>;

struct Live {
    driver: HandDriver,
    feeder: TaskFeeder,
    told: Told,
}

fn config(asks: bool) -> TaskConfig {
    let mut config = with_on_error(task_config(OutputMode::Ordered, 3), OnError::Capture);
    config.operator.timeout = Some(TIMEOUT);
    config.operator.asks_on_timeout = asks;
    config.rows.timeout = TIMEOUT;
    config
}

impl Live {
    fn start(saved: Vec<SavedOperator>, asks: bool, answers: bool) -> Self {
        let told = Told::default();
        let known = told.clone();
        let builder = TaskBuilder::restored(saved.into(), config(asks), |replies| {
            Ok(Box::new(Deaf { told: known, replies: answers.then_some(replies) }) as TaskFunction)
        });
        let (driver, feeder) = builder.unwrap().build_on(HandClock::default());
        Self { driver, feeder, told }
    }

    /// Works a part off.
    fn part(&mut self, patience: Patience) -> TaskCarry {
        self.feeder.put_end_of_part(patience);
        let mut outputs = Vec::new();
        loop {
            match self.driver.take_turn().unwrap() {
                Turn::Output(batch) => outputs.push(batch),
                Turn::Paused if self.driver.has_part_ended() => break,
                Turn::Finished | Turn::Paused => {}
            }
        }
        let mut carry = self.driver.carry().unwrap();
        outputs.append(&mut carry.outputs);
        TaskCarry { outputs, ..carry }
    }
}

/// What is saved of a row of a function that was asked about it and has not answered.
fn asked() -> Vec<SavedOperator> {
    let mut live = Live::start(Vec::new(), true, false);
    assert!(live.feeder.put(input(5..6)));
    let carry = live.part(Patience::Linger(2 * TIMEOUT));
    assert_eq!(*live.told.0.lock().unwrap(), (1, 1));
    assert_eq!((carry.outputs.len(), carry.operators[0].pending()), (0, 1));
    carry.operators
}

#[test]
fn a_row_that_was_asked_about_is_asked_about_again_and_not_called() {
    let mut live = Live::start(asked(), true, true);

    let carry = live.part(Patience::Drain);

    assert_eq!(*live.told.0.lock().unwrap(), (0, 1));
    let rows: Vec<i64> = carry.outputs.iter().flat_map(|it| column(it, "result")).collect();
    assert_eq!(rows, [5]);
}

#[test]
fn a_row_that_was_asked_about_times_out_in_a_function_that_is_not_asked() {
    let mut live = Live::start(asked(), false, true);

    let carry = live.part(Patience::Drain);

    assert_eq!(*live.told.0.lock().unwrap(), (0, 0));
    let errors = carry.outputs.iter().flat_map(captured);
    assert_eq!(errors.collect::<Vec<_>>(), [("element-timed-out".to_owned(), 1)]);
}

/// The kind and the attempts of each failure.
fn captured(batch: &RecordBatch) -> Vec<(String, i32)> {
    let errors = batch.column_by_name(ERROR_COLUMN).unwrap().as_struct();
    let kinds = errors.column_by_name("kind").unwrap().as_string::<i32>();
    let attempts = errors.column_by_name("attempts").unwrap().as_primitive::<Int32Type>();
    let kinds = kinds.iter().map(|it| it.unwrap().to_owned());
    kinds.zip(attempts.values().iter().copied()).collect()
}
