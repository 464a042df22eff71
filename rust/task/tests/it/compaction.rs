// SPDX-License-Identifier: Apache-2.0
//! Rows that are held for long do not keep the batches that they came in.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use sparkawait_arrow::CallInfo;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_runtime::{AsyncFunction, BufferTimeout, Turn};
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{Calls, FailedCall, Replies, ReplyGroup, ResultGroup};

use crate::support::{TestTask, column, input, schema, task_config, with_retries};

const ROWS: i64 = 100;
const BATCHES: i64 = 60;

/// Turns without a row that a task may take: ten seconds of them.
const MOST_PAUSES: usize = 100;

/// The two slow rows of a batch. The call for the first is answered in the end, that for the second
/// is made again then.
const SLOW: [i64; 2] = [50, 70];

/// Answers each row with its number; the slow ones when the last row is called.
struct Slow {
    held: Vec<(AttemptId, i64)>,
    replies: Replies,
}

impl Slow {
    fn answer(&self, answered: &[(AttemptId, i64)], failed: &[(AttemptId, i64)]) {
        let values = Int64Array::from_iter_values(answered.iter().map(|(_, row)| *row));
        let results = ResultGroup::one_each(
            answered.iter().map(|(attempt, _)| *attempt).collect(),
            RecordBatch::try_new(schema(&["result"]), vec![Arc::new(values)]).unwrap(),
        );
        let failures = failed.iter().map(|(attempt, _)| {
            let (kind, text) = (ErrorKind::UserFunctionFailed, "once more".to_owned());
            let failure = CallFailure {
                kind,
                message: text.clone(),
                summary: text,
                raised: None,
                status: None,
            };
            FailedCall::new(*attempt, Box::new(failure), Retry::Yes)
        });
        self.replies.send(ReplyGroup {
            results: Some(results),
            failures: failures.collect(),
            ..ReplyGroup::default()
        });
    }
}

impl AsyncFunction<Calls> for Slow {
    fn invoke(&mut self, calls: Calls) {
        let rows = calls.calls.iter().map(|call| {
            let row = i64::try_from(calls.ordinal(call)).unwrap();
            let batch = &calls.batches[call.batch as usize].batch;
            assert_eq!(column(batch, "row")[call.row as usize], row);
            (call.attempt, row)
        });
        let is_slow = |it: &(AttemptId, i64)| it.0.attempt == 1 && SLOW.contains(&(it.1 % ROWS));
        let (held, answered): (Vec<_>, Vec<_>) = rows.partition(is_slow);
        self.held.extend(held);
        self.answer(&answered, &[]);
        if answered.iter().any(|(_, row)| *row == ROWS * BATCHES - 1) {
            let (answered, failed): (Vec<_>, Vec<_>) =
                self.held.drain(..).partition(|(_, row)| row % ROWS == SLOW[0]);
            self.answer(&answered, &failed);
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

/// Returns the rows of the output with their results and their attempts, in any order.
fn run(mode: OutputMode) -> Vec<(i64, i64, u32)> {
    let mut config = with_retries(task_config(mode, 1000), 1);
    // An input batch has 1600 bytes: 20 of them are the most that is held.
    config.driver.max_bytes_per_batch = 8_000;
    config.driver.buffer_timeout = BufferTimeout::Auto { consumer: Duration::ZERO };
    config.rows.info_column = Some("call".to_owned());
    let start = |replies| Box::new(Slow { held: Vec::new(), replies }) as _;
    let TestTask { mut driver, feeder } = TestTask::new(config, start);
    let feeding = thread::spawn(move || {
        if (0..BATCHES).all(|batch| feeder.put(input(batch * ROWS..(batch + 1) * ROWS))) {
            feeder.put_end();
        }
    });
    let (mut output, mut pauses) = (Vec::new(), 0);
    // A task that stands still pauses again and again.
    while pauses < MOST_PAUSES {
        match driver.take_turn().unwrap() {
            Turn::Output(batch) => {
                let calls = batch.column_by_name("call").unwrap().as_struct();
                let attempts = (0..calls.len()).map(|row| CallInfo::read(calls, row).attempts);
                let rows = column(&batch, "row").into_iter().zip(column(&batch, "result"));
                output.extend(rows.zip(attempts).map(|((row, result), it)| (row, result, it)));
            }
            Turn::Paused => pauses += 1,
            Turn::Finished => break,
        }
    }
    driver.close();
    feeding.join().unwrap();
    output
}

#[test]
fn slow_rows_of_many_batches_do_not_keep_the_input_out() {
    let mut output = run(OutputMode::Unordered);
    output.sort_unstable();

    // What is known of the calls of a row goes with it where rows are put together.
    let attempts = |row: i64| 1 + u32::from(row % ROWS == SLOW[1]);
    let expected = (0..ROWS * BATCHES).map(|row| (row, row, attempts(row)));
    assert_eq!(output, expected.collect::<Vec<_>>());
}
