// SPDX-License-Identifier: Apache-2.0
//! A task of two operators over record batches: what comes between them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use sparkawait_core::operator::OutputMode;
use sparkawait_task::error::TaskError;
use sparkawait_task::task::{TaskBuilder, TaskConfig};

use support::{Answering, Answers, TestTask, input, task_config};

mod support;

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
    config.rows.results = support::schema(&["again"]);
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

        let mut rows: Vec<_> = output.iter().flat_map(|it| support::column(it, "row")).collect();
        let results: Vec<_> = output.iter().flat_map(|it| support::column(it, "result")).collect();
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
