// SPDX-License-Identifier: Apache-2.0
//! A task over record batches, from its input to its output, with a function that answers at once.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use sparkawait_arrow::OnError;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_runtime::AsyncFunction;
use sparkawait_runtime::tokio_runtime;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, Known, Replies, ReplyGroup, ResultGroup};
use sparkawait_task::supervision::spawn;
use sparkawait_task::task::TaskConfig;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::support::{
    Answers, TestTask, column, input, nullable_column, schema, task_config, with_on_error,
    with_retries,
};

/// A timeout of calls that are never answered.
const BRIEF: Duration = Duration::from_millis(50);

fn ordered(answers: Answers) -> TestTask {
    TestTask::answered(task_config(OutputMode::Ordered, 4), answers)
}

/// Pairs of an input row and a result.
fn rows(batches: &[RecordBatch]) -> Vec<(i64, Option<i64>)> {
    let pairs = |batch| column(batch, "row").into_iter().zip(nullable_column(batch, "result"));
    batches.iter().flat_map(pairs).collect()
}

fn all_rows(count: i64) -> Vec<(i64, Option<i64>)> {
    (0..count).map(|row| (row, Some(row))).collect()
}

#[test]
fn empty_batches_and_no_batches_give_no_output() {
    for batches in [vec![], vec![input(0..0)], vec![input(0..0); 5]] {
        assert_eq!(ordered(Answers::default()).run(batches).unwrap(), []);
    }
}

#[test]
fn empty_batches_between_others_change_nothing() {
    let batches = vec![input(0..0), input(0..3), input(0..0), input(3..5), input(0..0)];

    let output = ordered(Answers::default()).run(batches).unwrap();

    assert_eq!(rows(&output), all_rows(5));
}

#[test]
fn many_small_batches_leave_as_one() {
    let batches = (0..2000).map(|row| input(row..row + 1)).collect();

    let output = ordered(Answers::default()).run(batches).unwrap();

    assert_eq!(output.len(), 1);
    assert_eq!(rows(&output), all_rows(2000));
}

#[test]
fn capacity_beyond_the_input_waits_for_no_further_row() {
    let config = task_config(OutputMode::Unordered, 1_000_000);

    let output = TestTask::answered(config, Answers::default()).run(vec![input(0..3)]).unwrap();

    assert_eq!(rows(&output), all_rows(3));
}

#[test]
fn row_without_results_is_dropped_and_counted() {
    let count = |row| if row == 1 { 0 } else { 2 };
    let mut task = ordered(Answers { count, ..Answers::default() });

    let output = task.run(vec![input(0..3)]).unwrap();

    assert_eq!(rows(&output), [(0, Some(0)), (0, Some(0)), (2, Some(2)), (2, Some(2))]);
    assert_eq!(task.driver.metrics_reader().read()[0].dropped, 1);
}

#[test]
fn failure_names_the_row_the_partition_and_the_attempts() {
    let mut config = task_config(OutputMode::Ordered, 4);
    config.rows.partition = 7;
    let answers = Answers { failing: Some(2), retry: Retry::No, ..Answers::default() };

    let error = TestTask::answered(config, answers).run(vec![input(0..2), input(2..4)]);

    let text = error.unwrap_err().to_string();
    assert_eq!(text, "`lookup` failed for row 2 of partition 7 after 1 attempt: is down");
}

#[test]
fn failure_shows_the_columns_that_name_a_row() {
    let mut config = task_config(OutputMode::Ordered, 4);
    config.rows.names_of_rows = vec!["key".to_owned(), "gone".to_owned(), "row".to_owned()];
    let answers = Answers { failing: Some(2), retry: Retry::No, ..Answers::default() };

    let error = TestTask::answered(config, answers).run(vec![input(0..2), input(2..4)]);

    let text = error.unwrap_err().to_string();
    let named = "`lookup` failed for row 2 of partition 0 (key=2, row=2) after 1 attempt: is down";
    assert_eq!(text, named);
}

/// The attempts and the kind of the failure of row 0, which may be retried.
fn failure_of_row_0(max_retries: u32, gives_up_at: u32) -> (u32, ErrorKind) {
    let config = with_retries(task_config(OutputMode::Ordered, 4), max_retries);
    let answers = Answers { failing: Some(0), gives_up_at, ..Answers::default() };
    match TestTask::answered(config, answers).run(vec![input(0..1)]) {
        Err(TaskError::Row { attempts, failure, .. }) => (attempts, failure.kind),
        other => unreachable!("a row fails, not {other:?}"),
    }
}

#[test]
fn failure_of_the_last_permitted_attempt_is_that_of_the_retries() {
    assert_eq!(failure_of_row_0(2, u32::MAX), (3, ErrorKind::RetriesExhausted));
}

#[test]
fn failure_that_asks_for_no_retry_is_that_of_the_function_on_any_attempt() {
    assert_eq!(failure_of_row_0(5, 2), (2, ErrorKind::UserFunctionFailed));
}

#[test]
fn captured_failure_tells_its_kind_and_attempts() {
    let config = with_on_error(task_config(OutputMode::Ordered, 4), OnError::Capture);
    let answers = Answers { failing: Some(1), ..Answers::default() };

    let output = TestTask::answered(with_retries(config, 1), answers).run(vec![input(0..3)]);

    let output = output.unwrap();
    assert_eq!(rows(&output), [(0, Some(0)), (1, None), (2, Some(2))]);
    let errors = output[0].column_by_name("error").unwrap().as_struct();
    assert_eq!([errors.is_valid(0), errors.is_valid(1), errors.is_valid(2)], [false, true, false]);
    assert_eq!(errors.column(0).as_string::<i32>().value(1), "retries-exhausted");
    assert_eq!(errors.column(1).as_string::<i32>().value(1), "is down");
    assert_eq!(errors.column(2).to_data().buffers()[0].typed_data::<i32>()[1], 2);
}

/// A task whose row 1 fails once, and whose next call is never answered.
fn failing_then_silent(mut config: TaskConfig) -> TestTask {
    (config.operator.timeout, config.rows.timeout) = (Some(BRIEF), BRIEF);
    let answers = Answers { failing: Some(1), hangs_at: 2, ..Answers::default() };
    TestTask::answered(with_retries(config, 5), answers)
}

#[test]
fn captured_timeout_tells_the_attempts_and_the_last_failure() {
    let config = with_on_error(task_config(OutputMode::Ordered, 4), OnError::Capture);

    let output = failing_then_silent(config).run(vec![input(0..3)]).unwrap();

    let errors = output.last().unwrap().column_by_name("error").unwrap().as_struct();
    let (kinds, messages) = (errors.column(0).as_string::<i32>(), errors.column(1));
    let failed: Vec<_> = (0..errors.len()).filter(|row| errors.is_valid(*row)).collect();
    let found =
        failed.iter().map(|row| (kinds.value(*row), messages.as_string::<i32>().value(*row)));
    let message = "timed out after 50ms and 2 attempts; the last failure was: is down";
    assert_eq!(found.collect::<Vec<_>>(), [("element-timed-out", message)]);
}

#[test]
fn timeout_that_fails_the_task_tells_the_last_failure_and_the_way_out() {
    let config = task_config(OutputMode::Ordered, 4);

    let error = failing_then_silent(config).run(vec![input(0..3)]).unwrap_err();

    let text = "`lookup` timed out for row 1 of partition 0: timed out after 50ms and 2 attempts; \
                the last failure was: is down; raise `timeout` or give `on_timeout`";
    assert_eq!(error.to_string(), text);
}

#[test]
fn last_attempt_that_takes_too_long_names_its_own_limit() {
    let mut config = with_retries(task_config(OutputMode::Ordered, 4), 1);
    (config.operator.attempt_timeout, config.rows.attempt_timeout) = (Some(BRIEF), BRIEF);
    let answers = Answers { failing: Some(1), hangs_at: 2, ..Answers::default() };

    let error = TestTask::answered(config, answers).run(vec![input(0..3)]).unwrap_err();

    let text = "`lookup` timed out for row 1 of partition 0: the last of 2 attempts took longer \
                than 50ms; the last failure was: is down; raise `attempt_timeout`";
    assert_eq!(error.to_string(), text);
}

#[test]
fn attempt_that_takes_too_long_says_why_it_is_not_made_again() {
    let mut config = with_retries(task_config(OutputMode::Ordered, 4), 3);
    (config.operator.attempt_timeout, config.rows.attempt_timeout) = (Some(BRIEF), BRIEF);
    config.operator.is_repeatable = false;
    config.rows.not_repeated = Some("it is not made again, because it has a price".into());
    let answers = Answers { failing: Some(1), hangs_at: 2, ..Answers::default() };

    let error = TestTask::answered(config, answers).run(vec![input(0..3)]).unwrap_err();

    let text = "`lookup` timed out for row 1 of partition 0: the last of 2 attempts took longer \
                than 50ms; it is not made again, because it has a price; the last failure was: is \
                down; raise `attempt_timeout`";
    assert_eq!(error.to_string(), text);
}

#[test]
fn results_that_do_not_fit_their_schema_fail_the_task() {
    let mut task = ordered(Answers { column: "another", ..Answers::default() });

    let error = task.run(vec![input(0..1)]).unwrap_err();

    assert!(matches!(error, TaskError::Arrow(_)), "{error:?}");
}

#[test]
fn nothing_is_held_once_the_task_has_finished() {
    for on_error in [OnError::Null, OnError::Drop, OnError::Capture] {
        let config = with_on_error(task_config(OutputMode::Unordered, 3), on_error);
        let count = |row| u32::try_from(row % 3).unwrap_or_default();
        let (is_doubled, failing) = (true, Some(5));
        let answers = Answers { count, failing, is_doubled, ..Answers::default() };
        let mut task = TestTask::answered(with_retries(config, 1), answers.clone());
        let batches = vec![input(0..4), input(4..9)];

        // The output may share memory with the input, so it is dropped first.
        drop(task.run(batches.clone()).unwrap());

        let given = answers.given.lock().unwrap();
        let inputs = batches.iter().map(|batch| batch.column(0).as_primitive::<Int64Type>());
        for array in inputs.chain(given.iter()) {
            assert_eq!(array.values().inner().strong_count(), 1, "{array:?} is held");
        }
    }
}

/// A function whose work ends in a panic at its first call.
struct Panicking {
    calls: UnboundedSender<()>,
}

impl Panicking {
    fn start(replies: Replies) -> Self {
        let (calls, mut called) = unbounded_channel();
        spawn(&tokio_runtime::handle().unwrap(), "panicking", replies, async move {
            let _ = called.recv().await;
            unreachable!("out of luck");
        });
        Self { calls }
    }
}

impl AsyncFunction<Calls> for Panicking {
    fn invoke(&mut self, _calls: Calls) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a test that has ended looks at no calls"
        )]
        let _ = self.calls.send(());
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

#[test]
fn panic_of_the_function_fails_the_task_instead_of_hanging_it() {
    let config = task_config(OutputMode::Ordered, 4);
    let mut task = TestTask::new(config, |replies| Box::new(Panicking::start(replies)));

    let error = task.run(vec![input(0..3)]).unwrap_err();

    assert!(matches!(error, TaskError::Internal(_)), "{error:?}");
    assert!(error.to_string().starts_with("`panicking` panicked: "), "{error}");
}

/// Answers its calls as soon as as many are on their way as it was made for.
struct Counting {
    open: Vec<AttemptId>,
    most: usize,
    bursts: Arc<Mutex<Vec<usize>>>,
    replies: Replies,
}

impl AsyncFunction<Calls> for Counting {
    fn invoke(&mut self, calls: Calls) {
        self.bursts.lock().unwrap().push(calls.calls.len());
        self.open.extend(calls.calls.iter().map(|call| call.attempt));
        if self.open.len() >= self.most {
            let attempts = std::mem::take(&mut self.open);
            let values = Arc::new(Int64Array::from(vec![0; attempts.len()]));
            let rows = RecordBatch::try_new(schema(&["result"]), vec![values]).unwrap();
            let (counts, retries, misses) = (None, None, None);
            let results =
                Some(ResultGroup { attempts, counts, retries, misses, known: Known::None, rows });
            self.replies.send(ReplyGroup { results, ..ReplyGroup::default() });
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

#[test]
fn a_function_gets_no_more_calls_at_a_time_than_it_can_have_on_their_way() {
    let mut config = task_config(OutputMode::Ordered, 100);
    config.concurrency = Concurrency::of("a server".to_owned(), 3);
    let bursts = Arc::default();
    let told = Arc::clone(&bursts);
    let mut task = TestTask::new(config, |replies| {
        Box::new(Counting { open: Vec::new(), most: 3, bursts: told, replies })
    });

    let output = task.run(vec![input(0..9)]).unwrap();

    assert_eq!(output.iter().map(RecordBatch::num_rows).sum::<usize>(), 9);
    assert_eq!(*bursts.lock().unwrap(), [3, 3, 3]);
}

#[test]
fn columns_that_clash_are_refused_before_the_task_starts() {
    let mut config = task_config(OutputMode::Ordered, 4);
    config.rows.results = Arc::clone(&config.rows.input);

    let built =
        sparkawait_task::task::build(config, |replies| Ok(Box::new(Panicking::start(replies))));

    assert!(matches!(built, Err(TaskError::Arrow(_))));
}
