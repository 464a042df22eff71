// SPDX-License-Identifier: Apache-2.0
//! What is saved of a task tells how far its rows are, and how often they were restored. Simulation
//! searches for rows that do not leave exactly once, whatever happens to the parts of a stream:
//! `rust/simulation`.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch, StructArray, UInt8Array};
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode};
use sparkawait_runtime::{AsyncFunction, Patience, Turn};
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, TaskFunction};
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskCarry, TaskConfig};

use crate::support::{Answering, Answers, HandClock, column, input, schema, task_config};

/// A function that answers no call.
struct Silent;

impl AsyncFunction<Calls> for Silent {
    fn invoke(&mut self, _calls: Calls) {}

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

const LINGER: Duration = Duration::from_millis(13);

/// Works a part of so many rows off, in a task that goes on with what was saved and whose clock is
/// at zero. The part waits for 13 ms.
///
/// Returns whether it holds a row that was restored so often, the age of its oldest row, and what is
/// saved of it.
fn part(
    saved: Vec<SavedOperator>,
    rows: i64,
) -> (impl Fn(u32) -> bool, Duration, Vec<SavedOperator>) {
    let config = task_config(OutputMode::Ordered, 4);
    let builder = TaskBuilder::restored(saved.into(), config, |_| Ok(Box::new(Silent) as Box<_>));
    let (mut driver, feeder) = builder.unwrap().build_on(HandClock::default());
    assert!(feeder.put(input(0..rows)));
    feeder.put_end_of_part(Patience::Linger(LINGER));
    while !driver.has_part_ended() {
        assert!(matches!(driver.take_turn(), Ok(Turn::Paused)));
    }
    let saved = driver.carry().unwrap().operators;
    let oldest = driver.metrics_reader().read()[0].operator.oldest_age;
    (move |times| driver.holds_restored(times), oldest, saved)
}

#[test]
fn rows_that_were_restored_are_counted() {
    let (_, _, mut saved) = part(Vec::new(), 2);
    for restarts in 1..=3 {
        let (holds_restored, _, next) = part(saved, 0);
        assert!(holds_restored(restarts));
        assert!(!holds_restored(restarts + 1));
        saved = next;
    }

    assert_eq!(saved[0].restarts(), [3, 3]);
    assert_eq!((saved[0].pending(), saved[0].completed()), (2, 0));
}

#[test]
fn a_row_grows_older_in_each_task_that_holds_it() {
    let mut saved = Vec::new();
    for (parts, rows) in [(1, 2), (2, 0), (3, 1), (4, 0)] {
        let (_, oldest, next) = part(saved, rows);
        assert_eq!(oldest, parts * LINGER);
        saved = next;
    }
}

/// An operator that gets the results of another one as floats, and has room for two rows.
fn second() -> TaskConfig {
    let mut config = task_config(OutputMode::Ordered, 2);
    let float = Field::new("result", DataType::Float64, true);
    let fields = schema(&["row", "key"]);
    let fields = fields.fields().iter().map(|it| it.as_ref().clone()).chain([float]);
    config.rows.input = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    config.rows.results = schema(&["again"]);
    config
}

/// Works a part off in a task of two operators; the second may be silent.
fn chained(saved: Vec<SavedOperator>, rows: i64, is_silent: bool) -> TaskCarry {
    let mut first = task_config(OutputMode::Ordered, 11);
    first.driver.max_rows_per_batch = 3;
    let answers = |column| Answers { column, ..Answers::default() };
    let builder = TaskBuilder::restored(saved.into(), first, |replies| {
        Ok(Box::new(Answering { answers: answers("result"), replies }) as Box<_>)
    });
    let builder = builder.unwrap().then(second(), |replies| {
        let answering = Answering { answers: answers("again"), replies };
        Ok(if is_silent { Box::new(Silent) as TaskFunction } else { Box::new(answering) })
    });
    let (mut driver, feeder) = builder.unwrap().build();
    assert!(feeder.put(input(0..rows)));
    let patience =
        if is_silent { Patience::Linger(Duration::from_millis(7)) } else { Patience::Drain };
    feeder.put_end_of_part(patience);
    let mut outputs = Vec::new();
    while !driver.has_part_ended() {
        if let Turn::Output(batch) = driver.take_turn().unwrap() {
            outputs.push(batch);
        }
    }
    let mut carry = driver.carry().unwrap();
    outputs.append(&mut carry.outputs);
    TaskCarry { outputs, ..carry }
}

#[test]
fn rows_that_wait_between_two_operators_are_held_in_the_types_of_the_second() {
    let held = chained(Vec::new(), 7, true);
    assert_eq!(held.outputs.len(), 0);
    assert_eq!(held.operators.iter().map(SavedOperator::rows).sum::<usize>(), 7);
    let types = |it: &SavedOperator| it.batch().schema().field(2).data_type().clone();
    assert_eq!(types(&held.operators[1]), DataType::Float64);

    let rest = chained(held.operators, 0, false);

    assert_eq!(rest.operators.iter().map(SavedOperator::rows).sum::<usize>(), 0);
    let rows: Vec<i64> = rest.outputs.iter().flat_map(|it| column(it, "row")).collect();
    assert_eq!(rows, (0..7).collect::<Vec<_>>());
    let results = rest.outputs.iter().map(|it| it.column(2).as_primitive::<Float64Type>().values());
    assert!(results.flatten().copied().eq((0..7).map(f64::from)));
}

/// Returns what was saved, with these phases in place of its own.
fn with_phases(saved: &SavedOperator, phases: Vec<u8>) -> RecordBatch {
    let batch = saved.batch();
    let mut columns = batch.columns().to_vec();
    let state = columns.pop().unwrap();
    let (fields, mut parts, nulls) = state.as_struct().clone().into_parts();
    let position = fields.iter().position(|it| it.name() == "phase").unwrap();
    parts[position] = Arc::new(UInt8Array::from(phases));
    columns.push(Arc::new(StructArray::new(fields, parts, nulls)));
    RecordBatch::try_new(batch.schema(), columns).unwrap()
}

/// Returns the kind of the error of a task that refuses to go on with what was saved.
fn refusal(config: TaskConfig, saved: SavedOperator) -> (ErrorKind, String) {
    let function = |_| Ok(Box::new(Silent) as TaskFunction);
    match TaskBuilder::restored([saved].into(), config, function) {
        Err(TaskError::Saved { kind, message }) => (kind, message),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn states_that_no_operator_has_are_damaged() {
    let (_, _, saved) = part(Vec::new(), 3);
    let config = || task_config(OutputMode::Ordered, 4);
    // Rows that were not admitted before one that was, and a failure without one.
    for phases in [vec![1, 0, 1], vec![3, 1, 1]] {
        let changed = SavedOperator::read(with_phases(&saved[0], phases)).unwrap();
        assert_eq!(refusal(config(), changed).0, ErrorKind::SnapshotDamaged);
    }
    let unknown = SavedOperator::read(with_phases(&saved[0], vec![1, 99, 1]));
    assert!(matches!(unknown, Err(TaskError::Saved { kind: ErrorKind::SnapshotDamaged, .. })));
}

#[test]
fn rows_of_other_columns_are_refused_with_a_way_out() {
    let (_, _, mut saved) = part(Vec::new(), 3);
    let mut config = task_config(OutputMode::Ordered, 4);
    config.rows.input = schema(&["row", "other"]);

    let (kind, message) = refusal(config, saved.remove(0));

    assert_eq!(kind, ErrorKind::SnapshotSchemaMismatch);
    assert!(message.contains("end it with sa.drain(query)"), "{message}");
}

#[test]
fn rows_that_were_restored_together_are_one_batch_again() {
    let (_, _, saved) = part(Vec::new(), 2);
    let (_, _, saved) = part(saved, 1);
    assert_eq!(saved[0].restarts(), [1, 1, 0]);

    let (holds_restored, _, saved) = part(saved, 1);

    assert_eq!(saved[0].restarts(), [2, 2, 1, 0]);
    assert!(holds_restored(2) && !holds_restored(3));
    assert_eq!(column(saved[0].batch(), "row"), [0, 1, 0, 0]);
}
