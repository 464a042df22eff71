// SPDX-License-Identifier: Apache-2.0
//! Rows on their way through Arrow batches.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use sparkawait_arrow::{OnError, OutputColumns, ResultRows, RowRef, RowStore};

use crate::batches::{input, results};
use crate::shuffle::shuffle;

/// Rows of an input batch and, at most, of an output batch.
pub const BATCH_ROWS: usize = 8_192;

/// Bytes of an output batch: as by default.
pub const BATCH_BYTES: usize = 64 << 20;
/// Rows in flight: how far unordered results get out of order.
const IN_FLIGHT: usize = 1_000;

/// How the rows of a task come out.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Names the bench.
    pub name: &'static str,
    /// Rows are put out in random order within so many.
    disorder: usize,
    /// Rows of a result chunk.
    chunk_rows: usize,
}

impl Shape {
    /// Rows leave as they came; results come in whole batches.
    pub const ORDERED_WHOLE: Self =
        Self { name: "ordered, chunk of 8192", disorder: 1, chunk_rows: BATCH_ROWS };
    /// Rows leave as they came; results come in bursts.
    pub const ORDERED_BURSTS: Self =
        Self { name: "ordered, chunk of 500", disorder: 1, chunk_rows: 500 };
    /// Rows leave as they came; results come one by one.
    pub const ORDERED_SINGLE: Self =
        Self { name: "ordered, chunk of 1", disorder: 1, chunk_rows: 1 };
    /// Rows leave out of order; results come in bursts.
    pub const UNORDERED_BURSTS: Self =
        Self { name: "unordered, chunk of 500", disorder: IN_FLIGHT, chunk_rows: 500 };
    /// Rows leave out of order; results come one by one.
    pub const UNORDERED_SINGLE: Self =
        Self { name: "unordered, chunk of 1", disorder: IN_FLIGHT, chunk_rows: 1 };
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ORDERED_WHOLE,
        Self::ORDERED_BURSTS,
        Self::ORDERED_SINGLE,
        Self::UNORDERED_BURSTS,
        Self::UNORDERED_SINGLE,
    ];
}

/// Rows with their results, in the order in which they leave.
pub type Emissions = Vec<(RowRef, ResultRows)>;

/// Returns a row store that has accepted `count` rows and their results, and the emissions to come.
///
/// # Panics
///
/// Never: batches and chunks have the schemas of the row store.
pub fn accepted(shape: Shape, count: usize) -> (RowStore, Emissions) {
    let (batch, chunk) = (input(BATCH_ROWS), results(shape.chunk_rows));
    let mut store =
        RowStore::new(batch.schema(), chunk.schema(), OutputColumns::Append, OnError::Fail)
            .unwrap();
    let mut rows: Vec<RowRef> = Vec::with_capacity(count);
    while rows.len() < count {
        rows.extend(store.accept_input(batch.clone()).unwrap());
    }
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, shape.disorder);
    let mut rest = ResultRows::EMPTY;
    let emissions = order.iter().map(|&i| {
        if rest.is_empty() {
            rest = store.accept_results(chunk.clone()).unwrap();
        }
        (rows[i], rest.split_front(1))
    });
    let emissions = emissions.collect();
    store.discard(rest);
    (store, emissions)
}

/// Puts all emissions out and takes the batches that they fill, and the last one.
///
/// # Panics
///
/// Never: all columns can be copied.
pub fn emit(store: &mut RowStore, emissions: &[(RowRef, ResultRows)]) {
    for &(row, results) in emissions {
        store.push(row, results);
        // As the task does; bytes are looked at once a turn.
        if store.row_count() >= BATCH_ROWS {
            black_box(store.take(BATCH_ROWS, BATCH_BYTES).unwrap());
        }
    }
    black_box(store.take(BATCH_ROWS, BATCH_BYTES).unwrap());
}
