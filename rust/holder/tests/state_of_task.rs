// SPDX-License-Identifier: Apache-2.0
//! The state of a task with rows in all phases: another task goes on with it, and refuses it if a
//! byte is wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/echo.rs"]
mod echo;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use echo::{Built, SLOW, Started, batch, schema};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::OutputMode;
use sparkawait_holder::state::{Held, read_operators, write_operators};
use sparkawait_holder::{Begun, Carried, PartEnd, ipc};
use sparkawait_runtime::Patience;
use sparkawait_task::error::TaskError;
use sparkawait_task::saved::SavedOperator;

const LONG: Duration = Duration::from_secs(60);

/// Starts a task that puts nothing out as long as its first row is not answered.
fn start(saved: &[Vec<u8>]) -> Started {
    echo::start_in(OutputMode::Ordered, saved, schema("row"), 5)
}

fn end_part(started: &Started, number: u64, rows: &[&[i64]], patience: Patience) -> Arc<PartEnd> {
    assert_eq!(started.task.begin("run", number), Begun::Yes);
    assert!(rows.iter().all(|rows| started.task.put(batch("row", rows))));
    assert!(started.task.put_end(patience));
    started.task.wait(LONG).unwrap().unwrap()
}

/// What a task holds whose first row is not answered, and some others are.
fn held() -> Arc<PartEnd> {
    let started = start(&[]);
    let rows: [&[i64]; 2] = [&[SLOW, 2, 3], &[SLOW + 4, 5]];
    let end = end_part(&started, 0, &rows, Patience::Linger(Duration::from_millis(7)));
    started.task.close();
    end
}

fn carried(operators: Vec<Vec<u8>>) -> Carried {
    let schema = vec![7; 11];
    let completed = vec![ipc::write(&batch("row", &[8, 9])).unwrap()];
    let address = "/tmp/a.sock".to_owned();
    Carried { address, schema, completed_rows: 2, completed, operators, ..Carried::default() }
}

fn results(end: &PartEnd) -> Vec<(i64, i64)> {
    let numbers = |batch: &RecordBatch, column: usize| {
        batch.column(column).as_primitive::<Int64Type>().values().to_vec()
    };
    let batches = end.outputs.iter().map(|it| ipc::read_one(it).unwrap());
    batches.flat_map(|it| numbers(&it, 0).into_iter().zip(numbers(&it, 1))).collect()
}

#[test]
fn another_task_calls_for_what_has_no_outcome_and_for_nothing_else() {
    let end = held();
    assert_eq!((end.output_rows, end.carried + end.held), (0, 5));
    let state = Carried::decode(&carried(end.operators.clone()).encode()).unwrap();
    let saved = read_operators(&state.operators).unwrap();
    let held = Held::by(&saved);
    assert_eq!((held.pending, held.completed, held.input), (end.carried, end.held, end.input));

    let second = start(&state.operators);
    assert_eq!(second.task.begin("run", 0), Begun::Yes);
    while second.waiting.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    second.let_go();
    assert!(second.task.put_end(Patience::Drain));
    let last = second.task.wait(LONG).unwrap().unwrap();

    let rows = [SLOW, 2, 3, SLOW + 4, 5];
    assert_eq!(results(&last), rows.map(|row| (row, row)));
    assert_eq!(last.counts[0].attempts, end.carried);
    assert_eq!((last.carried, last.held), (0, 0));
}

#[test]
fn every_byte_that_is_changed_or_missing_is_noticed() {
    let bytes = carried(held().operators.clone()).encode();
    for position in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[position] ^= 0x10;
        assert!(Carried::decode(&changed).is_err(), "byte {position}");
        let cut = Carried::decode(&bytes[..position]);
        assert!(cut.is_err(), "cut off at {position}");
    }
}

#[test]
fn a_batch_that_no_operator_has_saved_is_damaged() {
    let end = held();
    let cut = end.operators[0][..end.operators[0].len() / 2].to_vec();
    for bytes in [ipc::write(&batch("row", &[1])).unwrap(), cut, Vec::new()] {
        let error = read_operators(&[bytes]).unwrap_err();
        assert!(
            matches!(error, TaskError::Saved { kind: ErrorKind::SnapshotDamaged, .. }),
            "{error}"
        );
    }
}

// --- what it costs ---

const ROWS: i64 = 10_000;

fn wide_schema() -> SchemaRef {
    let numbers = ["row", "number"].map(|name| Field::new(name, DataType::Int64, true));
    let text = Field::new("text", DataType::Utf8, true);
    Arc::new(Schema::new(numbers.into_iter().chain([text]).collect::<Vec<_>>()))
}

fn wide(rows: impl Iterator<Item = i64>) -> RecordBatch {
    let rows: Vec<i64> = rows.collect();
    let texts = rows.iter().map(|row| Some(format!("the text of row {row}")));
    let texts = Arc::new(texts.collect::<StringArray>());
    let numbers = Arc::new(Int64Array::from(rows.clone()));
    let rows = Arc::new(Int64Array::from(rows));
    RecordBatch::try_new(wide_schema(), vec![rows, numbers, texts]).unwrap()
}

fn build(saved: Vec<SavedOperator>) -> Built {
    echo::build(saved, OutputMode::Ordered, wide_schema(), 10_001)
}

/// Saves what a task of these rows holds, and makes another one of that; returns how long both took,
/// in microseconds, the bytes of the state, and the rows that were pending and completed.
fn cost(rows: impl Iterator<Item = i64>) -> (u128, u128, usize, (u64, u64)) {
    let mut built = build(Vec::new());
    assert!(built.feeder.put(wide(rows)));
    built.feeder.put_end_of_part(Patience::Linger(Duration::ZERO));
    while !built.driver.has_part_ended() {
        built.driver.take_turn().unwrap();
    }
    let begun = Instant::now();
    let saved = built.driver.carry().unwrap().operators;
    let bytes = carried(write_operators(&saved).unwrap()).encode();
    let saving = begun.elapsed();
    let begun = Instant::now();
    let state = Carried::decode(&bytes).unwrap();
    let saved = read_operators(&state.operators).unwrap();
    let held = Held::by(&saved);
    let counts = (held.pending, held.completed);
    let restored = build(saved);
    let restoring = begun.elapsed();
    drop(restored);
    (saving.as_micros(), restoring.as_micros(), bytes.len(), counts)
}

/// `cargo test -p sparkawait-holder --test state_of_task -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "what it measures")]
fn what_saving_and_restoring_ten_thousand_rows_costs() {
    let pending = || SLOW..SLOW + ROWS;
    let completed = || std::iter::once(SLOW).chain((0..ROWS).map(|row| row % 997));
    for (what, costs) in [
        ("pending", (0..9).map(|_| cost(pending())).collect::<Vec<_>>()),
        ("completed", (0..9).map(|_| cost(completed())).collect()),
    ] {
        let (_, _, bytes, counts) = costs[0];
        let (saving, restoring) = costs
            .iter()
            .fold((u128::MAX, u128::MAX), |least, it| (least.0.min(it.0), least.1.min(it.1)));
        println!("{what}: save {saving} us, restore {restoring} us, {bytes} bytes, {counts:?}");
    }
}
