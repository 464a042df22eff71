// SPDX-License-Identifier: Apache-2.0
//! A task of two operators over record batches: what comes between them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use sparkawait_arrow::OutputColumns;
use sparkawait_core::operator::OutputMode;
use sparkawait_task::error::TaskError;
use sparkawait_task::task::{TaskBuilder, TaskConfig};

use crate::support::{Answering, Answers, KEYS, TestTask, input, task_config};

/// An operator that appends the column `again` to the output of another one, whose column `result`
/// it gets as `data_type`.
fn second(mode: OutputMode, data_type: DataType) -> TaskConfig {
    let mut config = task_config(mode, 4);
    let fields = [
        Field::new("row", DataType::Int64, true),
        Field::new("key", DataType::Int64, true),
        Field::new("result", data_type, true),
    ];
    config.rows.input = Arc::new(Schema::new(fields.to_vec()));
    config.rows.results = crate::support::schema(&["again"]);
    config
}

fn run(modes: [OutputMode; 2], data_type: DataType) -> Result<Vec<RecordBatch>, TaskError> {
    let answers =
        |replies| Ok(Box::new(Answering { answers: Answers::default(), replies }) as Box<_>);
    let builder = TaskBuilder::new(task_config(modes[0], 3), answers).unwrap();
    let again = |replies| {
        let answers = Answers { column: "again", ..Answers::default() };
        Ok(Box::new(Answering { answers, replies }) as Box<_>)
    };
    let (driver, feeder) = builder.then(second(modes[1], data_type), again).unwrap().build();
    TestTask { driver, feeder }.run(vec![input(0..50), input(50..60)])
}

#[test]
fn results_of_the_first_are_columns_of_the_second() {
    let modes = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
    for (first, second) in modes.into_iter().flat_map(|one| modes.map(|two| (one, two))) {
        let output = run([first, second], DataType::Int64).unwrap();

        let mut rows: Vec<_> =
            output.iter().flat_map(|it| crate::support::column(it, "row")).collect();
        let results: Vec<_> =
            output.iter().flat_map(|it| crate::support::column(it, "result")).collect();
        assert_eq!(rows, results);
        if (first, second) == (OutputMode::Ordered, OutputMode::Ordered) {
            assert!(rows.is_sorted());
        }
        rows.sort_unstable();
        assert_eq!(rows, (0..60).collect::<Vec<_>>());
    }
}

#[test]
fn column_of_another_type_is_cast_between_them() {
    let output = run([OutputMode::Ordered; 2], DataType::Float64).unwrap();

    let results = output.iter().flat_map(|batch| {
        batch.column_by_name("result").unwrap().as_primitive::<Float64Type>().values().to_vec()
    });
    assert!(results.eq((0..60).map(f64::from)));
}

#[test]
fn column_that_cannot_be_cast_fails_the_task_and_is_named() {
    let error = run([OutputMode::Ordered; 2], DataType::Decimal128(1, 0)).unwrap_err();

    assert!(matches!(&error, TaskError::Arrow(_)), "{error:?}");
    assert!(error.to_string().contains("`result`"), "{error}");
}

/// Runs two operators over `row`, with `key` hidden behind it; the first one passes it on.
fn run_hidden(modes: [OutputMode; 2], is_used: bool) -> Vec<RecordBatch> {
    let only = |name| crate::support::schema(&[name]);
    let mut first = task_config(modes[0], 3);
    (first.rows.input, first.rows.carried) = (only("row"), only("key"));
    first.rows.output = OutputColumns::Replace;
    first.rows.key = (modes[0] == OutputMode::KeyOrdered).then(|| vec!["row".to_owned()]);
    let mut second = second(modes[1], DataType::Int64);
    second.rows.input = only("result");
    if is_used {
        second.rows.hidden = only("key");
    } else {
        second.rows.carried = only("key");
        second.rows.key = (modes[1] == OutputMode::KeyOrdered).then(|| vec!["result".to_owned()]);
    }
    let answers = |column| {
        move |replies| {
            let answers =
                Answers { column, count: |row| u32::from(row % 7 != 0), ..Answers::default() };
            Ok(Box::new(Answering { answers, replies }) as Box<_>)
        }
    };
    let builder = TaskBuilder::new(first, answers("result")).unwrap();
    let (driver, feeder) = builder.then(second, answers("again")).unwrap().build();
    TestTask { driver, feeder }.run(vec![input(0..50), input(50..60)]).unwrap()
}

#[test]
fn hidden_column_follows_its_row_through_operators_that_do_not_see_it() {
    let modes = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
    for (first, second) in modes.into_iter().flat_map(|one| modes.map(|two| (one, two))) {
        let output = run_hidden([first, second], false);

        let schema = output[0].schema();
        let names = schema.fields().iter().map(|it| it.name().as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["result", "again", "key"]);
        for batch in &output {
            let rows = crate::support::column(batch, "result").into_iter();
            assert_eq!(
                rows.map(|row| row % KEYS).collect::<Vec<_>>(),
                crate::support::column(batch, "key")
            );
        }
        assert!(output.iter().map(RecordBatch::num_rows).sum::<usize>() > 30);
    }
}

#[test]
fn hidden_column_is_the_key_of_a_later_operator_and_is_not_put_out() {
    let output = run_hidden([OutputMode::Ordered, OutputMode::KeyOrdered], true);

    assert!(output.iter().all(|batch| batch.num_columns() == 2));
    let rows: Vec<_> =
        output.iter().flat_map(|batch| crate::support::column(batch, "result")).collect();
    for key in 0..KEYS {
        assert!(rows.iter().filter(|row| *row % KEYS == key).is_sorted());
    }
}
