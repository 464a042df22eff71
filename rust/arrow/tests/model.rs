// SPDX-License-Identifier: Apache-2.0
//! Any mix of runs, results and failures gives the rows that a naive,
//! row-by-row reference gives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use arrow::{
    array::{AsArray, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};
use proptest::prelude::*;
use sparkawait_arrow::{OnError, OutputColumns, ResultRows, RowFailure, RowRef, RowStore};
use std::sync::Arc;

/// One output row: input value, result value, kind of the failure.
type Line = (Option<i64>, Option<String>, Option<String>);

#[derive(Clone, Copy, Debug)]
enum Answer {
    Results(u32),
    Failure,
}

#[derive(Clone, Debug)]
struct Scenario {
    /// Rows of each input batch; 0 included.
    batches: Vec<usize>,
    /// Rows are put out in random order within this many neighbours.
    disorder: usize,
    random: Vec<u16>,
    answers: Vec<Answer>,
    /// Input rows answered by one chunk.
    rows_per_chunk: usize,
    /// Results lie in their chunk in the reverse of the order put out.
    reversed: bool,
    max_rows: usize,
    max_bytes: usize,
    on_error: OnError,
    /// Whether rows that are held are put together, now and then.
    compacts: bool,
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        30 => Just(Answer::Results(1)),
        1 => Just(Answer::Results(0)),
        1 => (2_u32..5).prop_map(Answer::Results),
        1 => Just(Answer::Failure),
    ]
}

fn scenario() -> impl Strategy<Value = Scenario> {
    (
        prop::collection::vec(0_usize..120, 1..6),
        prop_oneof![Just(1), Just(1), 2_usize..5, Just(600)],
        prop::collection::vec(any::<u16>(), 600),
        prop::collection::vec(answer(), 600),
        1_usize..120,
        any::<bool>(),
        1_usize..300,
        prop_oneof![Just(usize::MAX), 1_usize..8_000, 1_usize..300],
        prop_oneof![Just(OnError::Null), Just(OnError::Drop), Just(OnError::Capture)],
        any::<bool>(),
    )
        .prop_map(
            |(
                batches,
                disorder,
                random,
                answers,
                rows_per_chunk,
                reversed,
                max_rows,
                max_bytes,
                on_error,
                compacts,
            )| Scenario {
                batches,
                disorder,
                random,
                answers,
                rows_per_chunk,
                reversed,
                max_rows,
                max_bytes,
                on_error,
                compacts,
            },
        )
}

fn schema(name: &str, data_type: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, data_type, true)]))
}

fn input_value(ordinal: u64) -> Option<i64> {
    (ordinal % 7 != 3).then_some(ordinal.cast_signed())
}

fn result_value(ordinal: u64, nth: u32) -> Option<String> {
    let length = usize::try_from(ordinal * 7919 % 97).unwrap();
    (ordinal % 5 != 2).then(|| format!("result {nth} of row {ordinal}: {}", "x".repeat(length)))
}

/// A batch of `rows` rows from `base` on, at an offset into larger buffers.
fn sliced_input(base: u64, rows: usize) -> RecordBatch {
    let padding = [Some(-1); 3].into_iter();
    let values = padding.chain((base..base + rows as u64).map(input_value)).chain([None]);
    let column = Arc::new(values.collect::<Int64Array>());
    RecordBatch::try_new(schema("x", DataType::Int64), vec![column]).unwrap().slice(3, rows)
}

fn lines(batch: &RecordBatch) -> Vec<Line> {
    let (x, y) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
    let kinds = batch.column_by_name("error").map(|e| e.as_struct().column(0).as_string::<i32>());
    let kind = |row| kinds.and_then(|kinds| kinds.iter().nth(row).flatten()).map(str::to_owned);
    x.iter().zip(y).enumerate().map(|(row, (x, y))| (x, y.map(str::to_owned), kind(row))).collect()
}

/// What row `ordinal` puts out.
fn reference(ordinal: u64, answer: Answer, on_error: OnError) -> Vec<Line> {
    let x = input_value(ordinal);
    match (answer, on_error) {
        (Answer::Results(n), _) => (0..n).map(|n| (x, result_value(ordinal, n), None)).collect(),
        (Answer::Failure, OnError::Drop) => vec![],
        (Answer::Failure, OnError::Capture) => vec![(x, None, Some(format!("kind {ordinal}")))],
        (Answer::Failure, _) => vec![(x, None, None)],
    }
}

/// Accepts the results of `group` as one chunk, returned in the order of `group`.
fn accept_chunk(
    store: &mut RowStore,
    group: &[(RowRef, Answer)],
    reversed: bool,
) -> Vec<ResultRows> {
    let ordinals: Vec<u64> = group.iter().map(|(row, _)| store.inputs().ordinal(*row)).collect();
    let count = |i: usize| if let Answer::Results(n) = group[i].1 { n } else { 0 };
    let mut places: Vec<usize> = (0..group.len()).collect();
    if reversed {
        places.reverse();
    }
    let values = places.iter().flat_map(|&i| (0..count(i)).map(move |n| (i, n)));
    let column: StringArray = values.map(|(i, n)| result_value(ordinals[i], n)).collect();
    let chunk = RecordBatch::try_new(schema("y", DataType::Utf8), vec![Arc::new(column)]).unwrap();
    let mut rest = store.accept_results(chunk).unwrap();
    let mut dealt: Vec<_> = places.iter().map(|&i| (i, rest.split_front(count(i)))).collect();
    dealt.sort_by_key(|(i, _)| *i);
    dealt.into_iter().map(|(_, results)| results).collect()
}

fn run(scenario: &Scenario) -> (Vec<Line>, Vec<Line>) {
    let (x, y) = (schema("x", DataType::Int64), schema("y", DataType::Utf8));
    let mut store = RowStore::new(x, y, OutputColumns::Append, scenario.on_error).unwrap();
    let mut rows = Vec::new();
    for &len in &scenario.batches {
        rows.extend(store.accept_input(sliced_input(rows.len() as u64, len)).unwrap());
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| (i / scenario.disorder, scenario.random[i]));
    let mut answered: Vec<_> = order.iter().map(|&i| (rows[i], scenario.answers[i])).collect();

    let (mut expected, mut got) = (Vec::new(), Vec::new());
    let mut rest = answered.as_mut_slice();
    while !rest.is_empty() {
        let (group, behind) = rest.split_at_mut(scenario.rows_per_chunk.min(rest.len()));
        rest = behind;
        let results = accept_chunk(&mut store, group, scenario.reversed);
        for ((row, answer), results) in group.iter().zip(results) {
            let ordinal = store.inputs().ordinal(*row);
            expected.extend(reference(ordinal, *answer, scenario.on_error));
            if let Answer::Results(_) = answer {
                store.push(*row, results);
            } else {
                let kind = format!("kind {ordinal}").into();
                let failure =
                    RowFailure { kind, message: String::new(), attempts: 1, status: None };
                store.push_failure(*row, failure).unwrap();
            }
            while store.is_full(scenario.max_rows, scenario.max_bytes) {
                got.extend(take(&mut store, scenario, &expected[got.len()..]));
            }
        }
        if scenario.compacts && store.is_sparse() {
            store.compact(rest.iter_mut().map(|(row, _)| row)).unwrap();
        }
    }
    while store.row_count() > 0 {
        got.extend(take(&mut store, scenario, &expected[got.len()..]));
    }
    assert!(store.take(scenario.max_rows, scenario.max_bytes).unwrap().is_none());
    assert_eq!((store.inputs().held_batches(), store.chunks().held_chunks()), (0, 0));
    assert_eq!((store.inputs().held_bytes(), store.chunks().held_bytes()), (0, 0));
    (got, expected)
}

/// The bytes of a row: a number, and a text with its offset; of a row that failed the kind and an empty
/// message with their offsets, attempts and status, as all its other columns are null.
fn bytes(line: &Line, on_error: OnError) -> usize {
    let captured = line.2.as_ref().filter(|_| on_error == OnError::Capture);
    8 + match captured {
        Some(kind) => kind.len() + 16,
        None => 4 + line.1.as_ref().map_or(0, String::len),
    }
}

/// Takes a batch, which has the first of `waiting`, and as many as the bounds permit.
fn take(store: &mut RowStore, scenario: &Scenario, waiting: &[Line]) -> Vec<Line> {
    let Scenario { max_rows, max_bytes, on_error, .. } = *scenario;
    let batch = store.take(max_rows, max_bytes).unwrap().unwrap();
    let rows = batch.num_rows();
    assert!((1..=max_rows).contains(&rows));
    assert_eq!(&batch.schema(), store.output_schema());
    if on_error != OnError::Null {
        let size =
            |rows: usize| waiting[..rows].iter().map(|it| bytes(it, on_error)).sum::<usize>();
        assert!(rows == 1 || size(rows) <= max_bytes, "{} of {max_bytes}", size(rows));
        let is_all = rows == max_rows || rows == waiting.len() || size(rows + 1) > max_bytes;
        assert!(is_all, "{rows} rows of {} bytes of {max_bytes}", size(rows));
    }
    lines(&batch)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn output_equals_the_row_by_row_reference(scenario in scenario()) {
        let (got, expected) = run(&scenario);
        prop_assert_eq!(got, expected);
    }
}
