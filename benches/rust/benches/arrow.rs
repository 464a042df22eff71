// SPDX-License-Identifier: Apache-2.0
//! What does a row cost on its way through Arrow batches: accept, emit, take?
//!
//! Input rows have 4 columns (int64, utf8, float64, timestamp), results 2
//! (utf8, float64). Goal: a push takes at most 5 ns where rows are neighbours
//! and 15 ns where they are not.
//!
//! | group | question |
//! |---|---|
//! | `push` | what does noting one emission cost? |
//! | `emit` | what do push and take cost together, per row? |
//! | `accept` | what does a result cost by the size of its chunk? |
//! | `kernels` | from which run length is `concat` cheaper than `interleave`? |
//! | `columns` | what do keys and event times cost? |

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::{concat, concat_batches, interleave};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_arrow::{
    KeyColumns, OnError, OutputColumns, ResultRows, RowExchange, RowRef, WatermarkGenerator,
    WatermarkStrategy,
};

/// Rows of an input batch and, at most, of an output batch.
const BATCH_ROWS: usize = 8_192;
const ROWS: usize = 8 * BATCH_ROWS;
/// Rows in flight: how far unordered results get out of order.
const IN_FLIGHT: usize = 1_000;

fn number(row: usize) -> i64 {
    i64::try_from(row).unwrap()
}

#[expect(clippy::cast_precision_loss, reason = "any float will do")]
fn float(row: usize) -> f64 {
    row as f64
}

fn text(row: usize) -> String {
    format!("value {row}")
}

fn input(rows: usize) -> RecordBatch {
    let times = TimestampMicrosecondArray::from_iter_values((0..rows).map(number));
    let columns: [(_, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values((0..rows).map(number)))),
        ("name", Arc::new(StringArray::from_iter_values((0..rows).map(text)))),
        ("score", Arc::new(Float64Array::from_iter_values((0..rows).map(float)))),
        ("time", Arc::new(times.with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn results(rows: usize) -> RecordBatch {
    let columns: [(_, ArrayRef); 2] = [
        ("weather", Arc::new(StringArray::from_iter_values((0..rows).map(text)))),
        ("wind", Arc::new(Float64Array::from_iter_values((0..rows).map(float)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Shuffles `order` within windows of `window`, from a fixed seed.
fn shuffle(order: &mut [usize], window: usize) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for part in order.chunks_mut(window) {
        for last in (1..part.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            part.swap(last, usize::try_from(state >> 33).unwrap() % (last + 1));
        }
    }
}

/// How the rows of a task come out.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    /// Rows are put out in random order within so many.
    disorder: usize,
    chunk_rows: usize,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "ordered, chunk of 8192", disorder: 1, chunk_rows: BATCH_ROWS },
    Shape { name: "ordered, chunk of 500", disorder: 1, chunk_rows: 500 },
    Shape { name: "ordered, chunk of 1", disorder: 1, chunk_rows: 1 },
    Shape { name: "unordered, chunk of 500", disorder: IN_FLIGHT, chunk_rows: 500 },
    Shape { name: "unordered, chunk of 1", disorder: IN_FLIGHT, chunk_rows: 1 },
];

/// An exchange that has accepted everything, and the emissions to come.
fn accepted(shape: Shape) -> (RowExchange, Vec<(RowRef, ResultRows)>) {
    let (batch, chunk) = (input(BATCH_ROWS), results(shape.chunk_rows));
    let mut exchange =
        RowExchange::new(batch.schema(), chunk.schema(), OutputColumns::Append, OnError::Fail)
            .unwrap();
    let mut rows: Vec<RowRef> = Vec::with_capacity(ROWS);
    while rows.len() < ROWS {
        rows.extend(exchange.accept_input(batch.clone()).unwrap());
    }
    let mut order: Vec<usize> = (0..ROWS).collect();
    shuffle(&mut order, shape.disorder);
    let mut rest = ResultRows::EMPTY;
    let emissions = order.iter().map(|&i| {
        if rest.is_empty() {
            rest = exchange.accept_results(chunk.clone()).unwrap();
        }
        (rows[i], rest.split_front(1))
    });
    let emissions = emissions.collect();
    exchange.discard(rest);
    (exchange, emissions)
}

fn push(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push");
    group.throughput(Throughput::Elements(BATCH_ROWS as u64));
    for shape in SHAPES {
        group.bench_function(shape.name, |bencher| {
            bencher.iter_batched_ref(
                || {
                    // The first batch brings the lists to their size.
                    let (mut exchange, emissions) = accepted(shape);
                    for &(row, results) in &emissions[..BATCH_ROWS] {
                        exchange.push(row, results);
                    }
                    exchange.take(BATCH_ROWS).unwrap();
                    (exchange, emissions)
                },
                |(exchange, emissions)| {
                    for &(row, results) in &emissions[BATCH_ROWS..2 * BATCH_ROWS] {
                        exchange.push(row, results);
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
}

fn emit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("emit");
    group.throughput(Throughput::Elements(ROWS as u64));
    for shape in SHAPES {
        group.bench_function(shape.name, |bencher| {
            bencher.iter_batched_ref(
                || accepted(shape),
                |(exchange, emissions)| {
                    for &(row, results) in emissions.iter() {
                        exchange.push(row, results);
                        if exchange.is_full(BATCH_ROWS) {
                            black_box(exchange.take(BATCH_ROWS).unwrap());
                        }
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.bench_function("baseline: copy of the columns", |bencher| {
        let halves = |batch: RecordBatch| {
            let half = batch.num_rows() / 2;
            [batch.slice(0, half), batch.slice(half, half)]
        };
        let (input, results) = (halves(input(BATCH_ROWS)), halves(results(BATCH_ROWS)));
        bencher.iter(|| {
            for _ in 0..ROWS / BATCH_ROWS {
                black_box(concat_batches(input[0].schema_ref(), &input).unwrap());
                black_box(concat_batches(results[0].schema_ref(), &results).unwrap());
            }
        });
    });
}

fn accept(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("accept");
    for chunk_rows in [1, 10, 500] {
        let chunk = results(chunk_rows);
        let schema = input(1).schema();
        // A producer that makes a schema of its own for each chunk, as an import does.
        let fresh = Arc::new(chunk.schema().as_ref().clone());
        let mut exchange =
            RowExchange::new(schema, fresh, OutputColumns::Append, OnError::Fail).unwrap();
        group.throughput(Throughput::Elements(chunk_rows as u64));
        group.bench_function(BenchmarkId::new("chunk", chunk_rows), |bencher| {
            bencher.iter(|| {
                let rows = exchange.accept_results(chunk.clone()).unwrap();
                exchange.discard(black_box(rows));
            });
        });
    }
}

fn kernels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernels");
    group.throughput(Throughput::Elements(BATCH_ROWS as u64));
    let batch = input(BATCH_ROWS);
    for run in [1, 2, 4, 8, 16, 32, 64] {
        let mut runs: Vec<usize> = (0..BATCH_ROWS / run).collect();
        shuffle(&mut runs, BATCH_ROWS);
        group.bench_function(BenchmarkId::new("concat", run), |bencher| {
            bencher.iter(|| {
                for column in batch.columns() {
                    let pieces: Vec<_> = runs.iter().map(|i| column.slice(i * run, run)).collect();
                    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                    black_box(concat(&pieces).unwrap());
                }
            });
        });
        group.bench_function(BenchmarkId::new("interleave", run), |bencher| {
            bencher.iter(|| {
                let rows: Vec<_> = runs
                    .iter()
                    .flat_map(|i| (i * run..(i + 1) * run).map(|row| (0, row)))
                    .collect();
                for column in batch.columns() {
                    black_box(interleave(&[column.as_ref()], &rows).unwrap());
                }
            });
        });
    }
    whole_rows(&mut group, &batch);
}

/// Sources of a single row each, which `concat` needs no slices for.
fn whole_rows<M: criterion::measurement::Measurement>(
    group: &mut criterion::BenchmarkGroup<'_, M>,
    batch: &RecordBatch,
) {
    let rows: Vec<RecordBatch> = (0..BATCH_ROWS).map(|row| batch.slice(row, 1)).collect();
    let places: Vec<(usize, usize)> = (0..BATCH_ROWS).map(|source| (source, 0)).collect();
    let columns = |index: usize| -> Vec<&dyn Array> {
        rows.iter().map(|row| row.column(index).as_ref()).collect()
    };
    group.bench_function("concat/1-row sources", |bencher| {
        bencher.iter(|| (0..4).map(|i| concat(&columns(i)).unwrap().len()).sum::<usize>());
    });
    group.bench_function("interleave/1-row sources", |bencher| {
        bencher.iter(|| {
            (0..4).map(|i| interleave(&columns(i), &places).unwrap().len()).sum::<usize>()
        });
    });
}

fn columns(criterion: &mut Criterion) {
    let batch = input(BATCH_ROWS);
    let mut group = criterion.benchmark_group("columns");
    group.throughput(Throughput::Elements(BATCH_ROWS as u64));
    for names in [&["id"][..], &["id", "name"]] {
        let mut key = KeyColumns::new(batch.schema_ref(), names).unwrap();
        group.bench_function(BenchmarkId::new("key", names.join(" and ")), |bencher| {
            bencher.iter(|| key.keys(black_box(&batch)).unwrap());
        });
    }
    for every in [None, NonZeroUsize::new(1)] {
        let strategy =
            WatermarkStrategy { column: "time".to_owned(), delay: Duration::ZERO, every };
        let name = if every.is_some() { "every row" } else { "every batch" };
        group.bench_function(BenchmarkId::new("watermarks", name), |bencher| {
            bencher.iter(|| {
                let mut watermarks = VecDeque::new();
                let mut generator = WatermarkGenerator::new(batch.schema_ref(), &strategy).unwrap();
                generator.observe(black_box(&batch), &mut watermarks);
                watermarks
            });
        });
    }
}

criterion_group!(benches, push, emit, accept, kernels, columns);
criterion_main!(benches);
