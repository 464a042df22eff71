// SPDX-License-Identifier: Apache-2.0
//! The simulated function under a task, end to end: what each row comes to, and in which order.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use sparkawait_arrow::{OnError, OutputColumns, WatermarkStrategy};
use sparkawait_core::operator::OutputMode;
use sparkawait_runtime::{Turn, tokio_runtime};
use sparkawait_task::error::TaskError;
use sparkawait_task::task::TaskConfig;
use sparkawait_testing::latency::Latency;
use sparkawait_testing::simulated::{self, SimulatedConfig};
use support::{
    KEYS, TestTask, column, input, nullable_column, task_config, with_on_error, with_retries,
};

#[path = "../../task/tests/support/mod.rs"]
mod support;

const ROWS: i64 = 1000;
const ALL_MODES: [OutputMode; 3] =
    [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];

/// A task with room for a part of the rows.
fn config(mode: OutputMode) -> TaskConfig {
    let mut config = task_config(mode, 100);
    config.operator.max_concurrency = NonZeroUsize::new(60).unwrap();
    config.rows.results = simulated::result_schema(false);
    config
}

fn uniform() -> Latency {
    Latency::Uniform { min: Duration::ZERO, max: Duration::from_millis(2) }
}

fn simulated(config: TaskConfig, latency: Latency, error_rate: f64) -> TestTask {
    let timestamps = config.rows.results.fields().len() > 1;
    let config_of_function = SimulatedConfig { latency, error_rate, seed: 7, timestamps };
    let results = Arc::clone(&config.rows.results);
    TestTask::new(config, |replies| {
        let runtime = tokio_runtime::handle().unwrap();
        simulated::start(config_of_function, results, replies, &runtime).unwrap()
    })
}

fn batches(rows_per_batch: i64) -> Vec<RecordBatch> {
    let starts = (0..ROWS).step_by(usize::try_from(rows_per_batch).unwrap());
    starts.map(|start| input(start..(start + rows_per_batch).min(ROWS))).collect()
}

/// Runs a task; returns each row with its result, in the order of the output.
fn run(config: TaskConfig, error_rate: f64) -> Vec<(i64, Option<i64>)> {
    let output = simulated(config, uniform(), error_rate).run(batches(64)).unwrap();
    rows(&output)
}

fn rows(output: &[RecordBatch]) -> Vec<(i64, Option<i64>)> {
    let pairs = |batch| column(batch, "row").into_iter().zip(nullable_column(batch, "ordinal"));
    output.iter().flat_map(pairs).collect()
}

/// Each row once, with its own result.
fn assert_all(mut rows: Vec<(i64, Option<i64>)>) {
    rows.sort_unstable();
    assert_eq!(rows, (0..ROWS).map(|row| (row, Some(row))).collect::<Vec<_>>());
}

#[test]
fn each_row_leaves_once_with_its_own_result_in_every_mode() {
    for mode in ALL_MODES {
        assert_all(run(config(mode), 0.0));
    }
}

#[test]
fn ordered_output_has_the_order_of_the_input() {
    let rows = run(config(OutputMode::Ordered), 0.0);

    assert!(rows.is_sorted());
}

#[test]
fn key_ordered_output_has_the_order_of_the_input_for_each_key() {
    let config = with_retries(config(OutputMode::KeyOrdered), 40);
    let mut last: HashMap<i64, i64> = HashMap::new();

    for (row, _) in run(config, 0.2) {
        let before = last.insert(row % KEYS, row);
        assert!(before < Some(row), "{row} leaves after {before:?}");
    }
}

fn watermark(every: Option<NonZeroUsize>) -> WatermarkStrategy {
    WatermarkStrategy { column: "row".to_owned(), delay: Duration::ZERO, every }
}

#[test]
fn no_row_crosses_a_watermark_in_its_batch() {
    for every in [1, 5, 63] {
        let mut config = config(OutputMode::Unordered);
        config.rows.watermark = Some(watermark(NonZeroUsize::new(every)));

        let rows = run(config, 0.0);

        let run_of = |row: i64| (row / 64, row.unsigned_abs() % 64 / every as u64);
        assert!(rows.iter().map(|(row, _)| run_of(*row)).is_sorted(), "every {every}");
        assert_all(rows);
    }
}

#[test]
fn no_row_crosses_the_watermark_behind_its_batch() {
    let mut config = config(OutputMode::Unordered);
    config.rows.watermark = Some(watermark(None));

    let rows = run(config, 0.0);

    let batches: Vec<i64> = rows.iter().map(|(row, _)| row / 64).collect();
    assert!(batches.is_sorted());
    assert_all(rows);
}

#[test]
fn retries_bring_every_row_through() {
    for mode in ALL_MODES {
        assert_all(run(with_retries(config(mode), 40), 0.5));
    }
}

#[test]
fn failed_rows_have_no_results_with_null() {
    for mode in ALL_MODES {
        let mut rows = run(with_on_error(config(mode), OnError::Null), 0.3);
        rows.sort_unstable();

        assert!(rows.iter().map(|(row, _)| *row).eq(0..ROWS));
        assert!(rows.iter().all(|(row, result)| result.is_none_or(|it| it == *row)));
        assert!(rows.iter().any(|(_, result)| result.is_none()));
    }
}

#[test]
fn failed_rows_are_left_out_with_drop_and_counted() {
    for mode in ALL_MODES {
        let config = with_on_error(config(mode), OnError::Drop);
        let mut task = simulated(config, uniform(), 0.3);

        let rows = rows(&task.run(batches(64)).unwrap());

        let metrics = task.driver.metrics_reader().read()[0].operator;
        assert!(rows.iter().all(|(row, result)| *result == Some(*row)));
        assert_eq!(rows.len() as u64 + metrics.failures, metrics.admitted);
        assert!(metrics.failures > 0);
    }
}

#[test]
fn failed_rows_tell_why_with_capture() {
    let config = with_on_error(config(OutputMode::Unordered), OnError::Capture);

    let output = simulated(config, uniform(), 0.3).run(batches(64)).unwrap();

    for batch in &output {
        let (results, errors) = (&batch.column(2), &batch.column(3));
        assert!((0..batch.num_rows()).all(|row| results.is_null(row) != errors.is_null(row)));
    }
    assert_eq!(i64::try_from(rows(&output).len()).unwrap(), ROWS);
}

#[test]
fn every_result_tells_when_its_call_began() {
    for latency in [Latency::None, uniform()] {
        let mut config = with_on_error(config(OutputMode::Unordered), OnError::Null);
        config.rows.results = simulated::result_schema(true);

        let output = simulated(config, latency, 0.3).run(batches(64)).unwrap();

        for batch in &output {
            let began = nullable_column(batch, "began");
            let ordinals = nullable_column(batch, "ordinal");
            assert!(began.iter().map(Option::is_some).eq(ordinals.iter().map(Option::is_some)));
            assert!(began.iter().flatten().all(|it| *it > 0));
        }
        assert_eq!(i64::try_from(rows(&output).len()).unwrap(), ROWS);
    }
}

#[test]
fn failed_row_fails_the_task_with_fail() {
    let mut task = simulated(config(OutputMode::Ordered), uniform(), 1.0);

    let error = task.run(batches(64)).unwrap_err();

    assert!(matches!(error, TaskError::Row { attempts: 1, .. }), "{error:?}");
    assert!(!task.feeder.put(input(0..1)));
}

#[test]
fn rows_beyond_their_time_are_cancelled() {
    let mut config = with_on_error(config(OutputMode::Ordered), OnError::Null);
    config.operator.timeout = Some(Duration::from_millis(1));
    let mut task = simulated(config, Latency::Constant(Duration::from_secs(3600)), 0.0);

    let rows = rows(&task.run(vec![input(0..10)]).unwrap());

    assert_eq!(rows, (0..10).map(|row| (row, None)).collect::<Vec<_>>());
    let metrics = task.driver.metrics_reader().read()[0].operator;
    assert_eq!((metrics.timeouts, metrics.cancelled), (10, 10));
}

#[test]
fn many_small_batches_and_one_large_one_come_to_the_same() {
    for rows_per_batch in [1, ROWS] {
        let mut task = simulated(config(OutputMode::Unordered), Latency::None, 0.0);

        assert_all(rows(&task.run(batches(rows_per_batch)).unwrap()));
    }
}

#[test]
fn output_batches_are_cut_at_their_limit() {
    let mut config = config(OutputMode::Unordered);
    config.driver.max_rows_per_batch = 70;

    let output = simulated(config, uniform(), 0.0).run(batches(64)).unwrap();

    let (last, full) = output.split_last().unwrap();
    assert!(full.iter().all(|batch| batch.num_rows() == 70));
    assert!((1..=70).contains(&last.num_rows()));
    assert_all(rows(&output));
}

#[test]
fn replaced_output_has_the_results_only() {
    let mut config = config(OutputMode::Ordered);
    config.rows.output = OutputColumns::Replace;

    let output = simulated(config, uniform(), 0.0).run(batches(64)).unwrap();

    let ordinals: Vec<i64> = output.iter().flat_map(|batch| column(batch, "ordinal")).collect();
    assert_eq!(ordinals, (0..ROWS).collect::<Vec<_>>());
    assert_eq!(output[0].num_columns(), 1);
}

#[test]
fn closed_task_leaves_no_call_behind() {
    let latency = Latency::Constant(Duration::from_secs(3600));
    let mut task = simulated(config(OutputMode::Ordered), latency, 0.0);
    task.feeder.put(input(0..10));
    assert!(matches!(task.driver.take_turn(), Ok(Turn::Paused)));

    task.driver.close();

    assert!(matches!(task.driver.take_turn(), Ok(Turn::Finished)));
    let metrics = task.driver.metrics_reader().read()[0].operator;
    assert_eq!((metrics.in_flight, metrics.cancelled), (0, 10));
    assert!(!task.feeder.put(input(10..20)));
}
