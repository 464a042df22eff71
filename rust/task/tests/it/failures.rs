// SPDX-License-Identifier: Apache-2.0
//! What failures take: in batches, and while they wait for others.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, RecordBatch, StringArray};
use sparkawait_arrow::OnError;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_runtime::{AsyncFunction, Turn};
use sparkawait_task::error::{CallFailure, MOST_MESSAGE_BYTES};
use sparkawait_task::function::{Calls, FailedCall, Replies, ReplyGroup, TaskFunction};
use sparkawait_task::task::{TaskConfig, TaskDriver};

use crate::support::{TestTask, input, task_config, with_on_error};

/// Fails each call with a text that is longer than what is kept, and keeps the first one for later.
struct Wordy {
    replies: Replies,
    calls: Arc<AtomicUsize>,
    first: Arc<Mutex<Option<AttemptId>>>,
}

fn text() -> String {
    // No character ends where the bytes that are kept do.
    format!("{}{}", "a", "\u{20ac}".repeat(7_000))
}

fn failed(attempt: AttemptId) -> FailedCall {
    let (kind, message) = (ErrorKind::UserFunctionFailed, text());
    let failure =
        CallFailure { kind, summary: "down".to_owned(), message, raised: None, status: None };
    FailedCall::new(attempt, Box::new(failure), Retry::No)
}

impl AsyncFunction<Calls> for Wordy {
    fn invoke(&mut self, calls: Calls) {
        self.calls.fetch_add(calls.calls.len(), Ordering::SeqCst);
        let mut attempts: Vec<AttemptId> = calls.calls.iter().map(|call| call.attempt).collect();
        let mut first = self.first.lock().unwrap();
        if first.is_none() {
            *first = Some(attempts.remove(0));
        }
        let failures = attempts.into_iter().map(failed).collect();
        self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

struct Run {
    driver: TaskDriver,
    calls: Arc<AtomicUsize>,
    end: Box<dyn FnOnce()>,
}

/// Starts a task with this many rows; the first waits for its answer.
fn started(config: TaskConfig, rows: i64) -> Run {
    let (calls, first) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<_>>::default());
    let mut kept = None;
    let (of_function, waits) = (Arc::clone(&calls), Arc::clone(&first));
    let task = TestTask::new(config, |replies| {
        kept = Some(replies.clone());
        Box::new(Wordy { replies, calls: of_function, first: waits }) as TaskFunction
    });
    assert!(task.feeder.put(input(0..rows)));
    task.feeder.put_end();
    let replies = kept.unwrap();
    let end = Box::new(move || {
        let failures = vec![failed(first.lock().unwrap().unwrap())];
        replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
    });
    Run { driver: task.driver, calls, end }
}

fn messages(batch: &RecordBatch) -> StringArray {
    batch.columns().last().unwrap().as_struct().column(1).as_string().clone()
}

#[test]
fn captured_failures_are_cut_and_keep_batches_and_what_is_held_within_their_bytes() {
    let config = task_config(OutputMode::Ordered, 7);
    let mut config = with_on_error(config, OnError::Capture);
    config.driver.max_bytes_per_batch = 30_011;
    config.driver.capacity_bytes = Some(100_003);
    config.operator.completed_take_slots = false;
    let Run { mut driver, calls, end } = started(config, 307);

    for _ in 0..2 {
        assert!(matches!(driver.take_turn().unwrap(), Turn::Paused));
    }
    // 100 003 bytes are 23 failures, beside 7 calls.
    let made = calls.load(Ordering::SeqCst);
    assert!((20..=30).contains(&made), "{made} calls");
    end();

    let mut rows = 0;
    while let Turn::Output(batch) = driver.take_turn().unwrap() {
        let messages = messages(&batch);
        assert!(messages.value_data().len() <= 30_011, "{} rows", batch.num_rows());
        let kept =
            format!("a{} .. and {} more bytes", "\u{20ac}".repeat(1_365), 3 * (7_000 - 1_365));
        assert!(kept.len() < MOST_MESSAGE_BYTES + 30);
        assert!(messages.iter().all(|it| it == Some(&kept)));
        rows += batch.num_rows();
    }
    assert_eq!(rows, 307);
}
