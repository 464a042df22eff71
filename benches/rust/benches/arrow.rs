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

use arrow::array::{Array, RecordBatch};
use arrow::compute::{concat, concat_batches, interleave};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_arrow::{
    KeyColumns, OnError, OutputColumns, RowStore, WatermarkGenerator, WatermarkStrategy,
};
use sparkawait_benches::batches::{input, results};
use sparkawait_benches::row_stores::{self, BATCH_BYTES, BATCH_ROWS, Shape, accepted};
use sparkawait_benches::shuffle::shuffle;

const ROWS: usize = 8 * BATCH_ROWS;

fn push(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push");
    group.throughput(Throughput::Elements(BATCH_ROWS as u64));
    for shape in Shape::ALL {
        group.bench_function(shape.name, |bencher| {
            bencher.iter_batched_ref(
                || {
                    // The first batch brings the lists to their size.
                    let (mut store, emissions) = accepted(shape, ROWS);
                    for &(row, results) in &emissions[..BATCH_ROWS] {
                        store.push(row, results);
                    }
                    store.take(BATCH_ROWS, BATCH_BYTES).unwrap();
                    (store, emissions)
                },
                |(store, emissions)| {
                    for &(row, results) in &emissions[BATCH_ROWS..2 * BATCH_ROWS] {
                        store.push(row, results);
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
    for shape in Shape::ALL {
        group.bench_function(shape.name, |bencher| {
            bencher.iter_batched_ref(
                || accepted(shape, ROWS),
                |(store, emissions)| row_stores::emit(store, emissions),
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
        let mut store = RowStore::new(schema, fresh, OutputColumns::Append, OnError::Fail).unwrap();
        group.throughput(Throughput::Elements(chunk_rows as u64));
        group.bench_function(BenchmarkId::new("chunk", chunk_rows), |bencher| {
            bencher.iter(|| {
                let rows = store.accept_results(chunk.clone()).unwrap();
                store.discard(black_box(rows));
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
