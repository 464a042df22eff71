// SPDX-License-Identifier: Apache-2.0
//! What is saved of a task tells how often its rows were restored. That each row leaves once, whatever
//! becomes of the parts of a stream, is searched for in simulation: `rust/simulation`.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use sparkawait_core::operator::{AttemptId, OutputMode};
use sparkawait_runtime::{AsyncFunction, Patience, Turn};
use sparkawait_task::function::Calls;
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskDriver};

use support::{input, task_config};

mod support;

/// A function that answers no call.
struct Silent;

impl AsyncFunction<Calls> for Silent {
    fn invoke(&mut self, _calls: Calls) {}

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

/// Works a part of so many rows off, in a task that goes on with what was saved.
fn part(saved: Vec<SavedOperator>, rows: i64) -> (TaskDriver, Vec<SavedOperator>) {
    let config = task_config(OutputMode::Ordered, 4);
    let builder = TaskBuilder::restored(saved.into(), config, |_| Ok(Box::new(Silent) as Box<_>));
    let (mut driver, feeder) = builder.unwrap().build();
    assert!(feeder.put(input(0..rows)));
    feeder.put_end_of_part(Patience::Linger(Duration::ZERO));
    while !driver.has_part_ended() {
        assert!(matches!(driver.take_turn(), Ok(Turn::Paused)));
    }
    let saved = driver.carry().unwrap().operators;
    (driver, saved)
}

#[test]
fn rows_that_were_restored_are_counted() {
    let (_, mut saved) = part(Vec::new(), 2);
    for restarts in 1..=3 {
        let (driver, next) = part(saved, 0);
        assert!(driver.holds_restored(restarts));
        assert!(!driver.holds_restored(restarts + 1));
        saved = next;
    }

    assert_eq!(saved[0].rows.iter().map(|it| it.restarts).collect::<Vec<_>>(), [3]);
    assert_eq!((saved[0].pending, saved[0].completed), (2, 0));
}
