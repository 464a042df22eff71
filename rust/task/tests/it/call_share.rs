// SPDX-License-Identifier: Apache-2.0
//! Operators of a process that use the same connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};

use arrow::array::{Int64Array, RecordBatch};
use sparkawait_core::operator::{AttemptId, OutputMode};
use sparkawait_runtime::{AsyncFunction, Turn};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::function::{Calls, Replies, ResultGroup};

use crate::support::{TestTask, input, schema, task_config};

/// Holds its calls until they are answered.
struct Holding {
    held: Held,
}

/// The calls that are not answered.
type Held = Arc<Mutex<Vec<AttemptId>>>;

impl AsyncFunction<Calls> for Holding {
    fn invoke(&mut self, calls: Calls) {
        self.held.lock().unwrap().extend(calls.calls.iter().map(|it| it.attempt));
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

/// A task over connections that bear eight calls.
struct Sharing {
    task: TestTask,
    held: Held,
    replies: Replies,
}

impl Sharing {
    fn start(connections: &str) -> Self {
        let mut config = task_config(OutputMode::Unordered, 100);
        config.concurrency = Concurrency::of(connections.to_owned(), 8);
        let held = Held::default();
        let (function, mut replies) = (Holding { held: Arc::clone(&held) }, None);
        let task = TestTask::new(config, |given| {
            replies = Some(given);
            Box::new(function)
        });
        assert!(task.feeder.put(input(0..50)));
        Self { task, held, replies: replies.unwrap() }
    }

    /// The calls in flight, once the task has done all that it can.
    fn calls(&mut self) -> usize {
        // Paused: it waits for replies only.
        while !matches!(self.task.driver.take_turn(), Ok(Turn::Paused)) {}
        self.held.lock().unwrap().len()
    }

    fn answer_all(&self) {
        let attempts = std::mem::take(&mut *self.held.lock().unwrap());
        let values = Arc::new(Int64Array::from(vec![7; attempts.len()]));
        let rows = RecordBatch::try_new(schema(&["result"]), vec![values]).unwrap();
        let results = ResultGroup::one_each(attempts, rows);
        self.replies.send(results.into());
    }
}

#[test]
fn operators_that_use_the_same_connections_divide_them() {
    let mut one = Sharing::start("shared");
    assert_eq!(one.calls(), 8);

    let mut other = Sharing::start("shared");
    assert_eq!(other.calls(), 4);
    // Those that it has are not taken from it.
    assert_eq!(one.calls(), 8);
    one.answer_all();
    assert_eq!(one.calls(), 4);

    let mut third = Sharing::start("shared");
    assert_eq!(third.calls(), 2);
    other.answer_all();
    assert_eq!(other.calls(), 2);
}

#[test]
fn the_share_of_an_operator_that_ends_goes_to_the_others_at_once() {
    let mut one = Sharing::start("given back");
    let mut other = Sharing::start("given back");
    assert_eq!((one.calls(), other.calls()), (4, 4));

    drop(other);
    assert_eq!(one.calls(), 8);

    let mut other = Sharing::start("given back");
    assert_eq!(other.calls(), 4);
    other.task.driver.close();
    one.answer_all();
    assert_eq!(one.calls(), 8);
}

#[test]
fn operators_with_connections_of_their_own_divide_nothing() {
    let (mut one, mut other) = (Sharing::start("mine"), Sharing::start("yours"));

    assert_eq!((one.calls(), other.calls()), (8, 8));
}
