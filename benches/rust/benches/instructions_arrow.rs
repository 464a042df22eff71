// SPDX-License-Identifier: Apache-2.0
//! How many instructions does a row cost on its way through Arrow batches?
//!
//! Counted by Callgrind over 10 000 rows each, without what prepares them.
//! `make bench-check` compares with `benches/baseline/instructions.json`.

#![expect(missing_docs, unused_qualifications, reason = "the macros write so")]
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Duration;

use arrow::array::RecordBatch;
use gungraun::{library_benchmark, library_benchmark_group, main};
use sparkawait_arrow::{
    KeyColumns, OnError, OutputColumns, RowStore, WatermarkGenerator, WatermarkStrategy,
    content_keys,
};
use sparkawait_benches::RECORDS;
use sparkawait_benches::batches::{input, results};
use sparkawait_benches::row_stores::{self, Emissions, Shape, accepted};

type Accepted = (RowStore, Emissions);

fn all(shape: Shape) -> Accepted {
    accepted(shape, RECORDS)
}

// Runs of neighbours are sliced or concatenated, single rows are gathered.
#[library_benchmark(setup = all)]
#[bench::ordered_whole(Shape::ORDERED_WHOLE)]
#[bench::ordered_bursts(Shape::ORDERED_BURSTS)]
#[bench::ordered_single(Shape::ORDERED_SINGLE)]
#[bench::unordered_bursts(Shape::UNORDERED_BURSTS)]
#[bench::unordered_single(Shape::UNORDERED_SINGLE)]
fn emit((mut store, emissions): Accepted) -> Accepted {
    row_stores::emit(&mut store, black_box(&emissions));
    (store, emissions)
}

/// A row store, and results in chunks of so many rows.
fn chunks(rows: usize) -> (RowStore, Vec<RecordBatch>) {
    let chunk = results(rows);
    let store =
        RowStore::new(input(1).schema(), chunk.schema(), OutputColumns::Append, OnError::Fail);
    (store.unwrap(), vec![chunk; RECORDS / rows])
}

#[library_benchmark(setup = chunks)]
#[bench::chunk_of_1(1)]
#[bench::chunk_of_500(500)]
fn accept((mut store, chunks): (RowStore, Vec<RecordBatch>)) -> RowStore {
    for chunk in chunks {
        let rows = store.accept_results(chunk).unwrap();
        store.discard(black_box(rows));
    }
    store
}

fn keyed(names: &[&str]) -> (KeyColumns, RecordBatch) {
    let batch = input(RECORDS);
    (KeyColumns::new(batch.schema_ref(), names).unwrap(), batch)
}

#[library_benchmark(setup = keyed)]
#[bench::integer(&["id"])]
#[bench::integer_and_text(&["id", "name"])]
fn key((mut key, batch): (KeyColumns, RecordBatch)) -> RecordBatch {
    black_box(key.keys(black_box(&batch)).unwrap());
    batch
}

fn of_columns(names: &[&str]) -> RecordBatch {
    let batch = input(RECORDS);
    let columns = names.iter().map(|it| batch.schema().index_of(it).unwrap());
    batch.project(&columns.collect::<Vec<_>>()).unwrap()
}

#[library_benchmark(setup = of_columns)]
#[bench::integer(&["id"])]
#[bench::integer_and_text(&["id", "name"])]
fn content_key(batch: RecordBatch) -> RecordBatch {
    black_box(content_keys(b"bench", black_box(&batch)).unwrap());
    batch
}

fn timed(every: Option<NonZeroUsize>) -> (WatermarkGenerator, RecordBatch) {
    let batch = input(RECORDS);
    let strategy = WatermarkStrategy { column: "time".to_owned(), delay: Duration::ZERO, every };
    (WatermarkGenerator::new(batch.schema_ref(), &strategy).unwrap(), batch)
}

#[library_benchmark(setup = timed)]
#[bench::every_batch(None)]
#[bench::every_row(Some(NonZeroUsize::MIN))]
fn watermarks((mut generator, batch): (WatermarkGenerator, RecordBatch)) -> RecordBatch {
    let mut watermarks = VecDeque::new();
    generator.observe(black_box(&batch), &mut watermarks);
    black_box(watermarks);
    batch
}

library_benchmark_group!(name = benches, benchmarks = [emit, accept, key, content_key, watermarks]);
main!(library_benchmark_groups = benches);
