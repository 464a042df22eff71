// SPDX-License-Identifier: Apache-2.0
//! What is told of the calls of rows that are saved, and taken up again by another task.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use sparkawait_arrow::{CallInfo, OnError};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_runtime::{AsyncFunction, Patience, Turn};
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{Calls, FailedCall, Replies, ReplyGroup, TaskFunction};
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskCarry, TaskConfig};

use crate::support::{
    Answering, Answers, HandClock, input, task_config, with_on_error, with_retries,
};

/// Refuses the first attempt of each row, and answers no other one.
struct Refusing(Replies);

impl AsyncFunction<Calls> for Refusing {
    fn invoke(&mut self, calls: Calls) {
        let first = calls.calls.iter().filter(|call| call.attempt.attempt == 1);
        let failures = first.map(|call| {
            let (kind, text) = (ErrorKind::UserFunctionFailed, "not now".to_owned());
            let (message, summary) = (text.clone(), text);
            let failure = CallFailure { kind, message, summary, raised: None, status: Some(503) };
            FailedCall::new(call.attempt, Box::new(failure), Retry::Yes)
        });
        let failures = failures.collect();
        self.0.send(ReplyGroup { failures, ..ReplyGroup::default() });
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

fn config() -> TaskConfig {
    let config = with_on_error(task_config(OutputMode::Ordered, 3), OnError::Null);
    let mut config = with_retries(config, 5);
    config.rows.info_column = Some("call".to_owned());
    config
}

/// Works a part of `rows` off in a task that goes on with what was saved.
fn part(
    saved: Vec<SavedOperator>,
    rows: Option<RecordBatch>,
    patience: Patience,
    function: impl FnOnce(Replies) -> TaskFunction,
) -> TaskCarry {
    let builder = TaskBuilder::restored(saved.into(), config(), |replies| Ok(function(replies)));
    let (mut driver, feeder) = builder.unwrap().build_on(HandClock::default());
    assert!(rows.is_none_or(|it| feeder.put(it)));
    feeder.put_end_of_part(patience);
    let mut outputs = Vec::new();
    loop {
        match driver.take_turn().unwrap() {
            Turn::Output(batch) => outputs.push(batch),
            Turn::Paused if driver.has_part_ended() => break,
            Turn::Finished | Turn::Paused => {}
        }
    }
    let mut carry = driver.carry().unwrap();
    outputs.append(&mut carry.outputs);
    TaskCarry { outputs, ..carry }
}

fn told(carry: &TaskCarry) -> Vec<CallInfo> {
    let columns = carry.outputs.iter().map(|it| it.column_by_name("call").unwrap().as_struct());
    columns.flat_map(|it| (0..it.len()).map(|row| CallInfo::read(it, row))).collect()
}

#[test]
fn a_row_that_is_taken_up_again_tells_of_all_its_calls_and_of_the_time_in_both_tasks() {
    let linger = Patience::Linger(Duration::from_millis(13));
    let refusing = |replies| Box::new(Refusing(replies)) as TaskFunction;
    let first = part(Vec::new(), Some(input(0..3)), linger, refusing);
    assert_eq!((first.outputs.len(), first.operators[0].pending()), (0, 3));

    let answers = Answers::default();
    let answering = |replies| Box::new(Answering { answers, replies }) as TaskFunction;
    let second = part(first.operators, None, Patience::Drain, answering);

    // Two calls of the first task, and one of the second, which is answered at once.
    let (attempts, status) = (3, Some(503));
    let (seconds, waited) = (Some(Duration::from_millis(13)), Some(Duration::ZERO));
    let row = CallInfo { attempts, seconds, waited, status, ..CallInfo::default() };
    assert_eq!(told(&second), [row, row, row]);
}
