// SPDX-License-Identifier: Apache-2.0
//! The rows of a task of record batches add up: with those that it was given to go on with, too.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use sparkawait_arrow::OnError;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_runtime::{AsyncFunction, Patience, Turn};
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, TaskFunction};
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskCarry, TaskDriver, TaskFeeder};

use crate::support::{Answering, Answers, TestTask, column, input, task_config, with_on_error};

/// Answers nothing.
struct Silent;

impl AsyncFunction<Calls> for Silent {
    fn invoke(&mut self, _calls: Calls) {}

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

/// A task that goes on with `saved`; with `is_silent` it answers nothing.
fn restored(saved: Option<SavedOperator>, is_silent: bool) -> (TaskDriver, TaskFeeder) {
    let config = task_config(OutputMode::Unordered, 17);
    let builder = TaskBuilder::restored(saved.into_iter().collect(), config, |replies| {
        let answering = Answering { answers: Answers::default(), replies };
        Ok(if is_silent { Box::new(Silent) as TaskFunction } else { Box::new(answering) })
    });
    builder.unwrap().build()
}

/// Works a part off.
fn part(driver: &mut TaskDriver) -> Result<TaskCarry, TaskError> {
    loop {
        match driver.take_turn()? {
            Turn::Paused if driver.has_part_ended() => return driver.carry(),
            Turn::Finished => unreachable!("the input has no end"),
            Turn::Output(_) | Turn::Paused => {}
        }
    }
}

/// What a task has that was given 5 rows, and then 11, and answered none.
fn saved() -> SavedOperator {
    let (mut driver, feeder) = restored(None, true);
    assert!(feeder.put(input(0..5)) && feeder.put(input(5..16)));
    feeder.put_end_of_part(Patience::Linger(Duration::ZERO));
    part(&mut driver).unwrap().operators.remove(0)
}

#[test]
fn rows_with_none_one_or_several_results_and_dropped_ones_add_up() {
    let count = |row: i64| u32::try_from(row % 4).unwrap();
    let answers = Answers { count, failing: Some(13), retry: Retry::No, ..Answers::default() };
    for mode in [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered] {
        let mut config = with_on_error(task_config(mode, 7), OnError::Drop);
        config.driver.max_rows_per_batch = 3;
        let mut task = TestTask::answered(config, answers.clone());

        let output = task.run(vec![input(0..0), input(0..11), input(11..12), input(12..29)]);

        let mut rows: Vec<i64> = output.unwrap().iter().flat_map(|it| column(it, "row")).collect();
        rows.sort_unstable();
        let expected = (0..29).filter(|row| *row != 13);
        let expected = expected.flat_map(|row| std::iter::repeat_n(row, count(row) as usize));
        assert_eq!(rows, expected.collect::<Vec<_>>(), "{mode:?}");
    }
}

#[test]
fn rows_that_an_earlier_task_held_add_up() {
    let saved = saved();
    assert_eq!((saved.pending(), saved.completed()), (16, 0));
    let (mut driver, feeder) = restored(Some(saved), false);
    assert!(feeder.put(input(16..19)));
    feeder.put_end();

    let mut rows = Vec::new();
    while let Turn::Output(batch) = driver.take_turn().unwrap() {
        rows.extend(column(&batch, "row"));
    }

    rows.sort_unstable();
    assert_eq!(rows, (0..19).collect::<Vec<_>>());
}
