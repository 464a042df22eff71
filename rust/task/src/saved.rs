// SPDX-License-Identifier: Apache-2.0
//! What an operator holds, as batches that can be kept elsewhere.

use std::fmt;

use arrow::array::RecordBatch;

/// Everything that an operator admitted and did not emit, and its input that it did not admit.
///
/// ```text
///   snapshot   one element a record, in the order of arrival: attempts, state,
///        |                            `-- results: a range of rows of `results`
///        `-- record: (index into `rows`, row of that batch)
/// ```
#[derive(Clone, Debug, Default)]
pub struct SavedOperator {
    /// The rows of all records.
    pub rows: Vec<SavedRows>,
    /// The results of those that are completed.
    pub results: Option<SavedBatch>,
    /// Input behind them.
    pub inputs: Vec<SavedBatch>,
    /// The records, see `encode_snapshot`.
    pub snapshot: Vec<u8>,
    /// Records without an outcome.
    pub pending: usize,
    /// Records with one.
    pub completed: usize,
}

/// Rows that were restored equally often.
#[derive(Clone, Debug)]
pub struct SavedRows {
    /// How often.
    pub restarts: u32,
    /// The rows, and behind their columns those that only say where they go.
    pub batch: SavedBatch,
}

/// A batch, of which nothing is shown but its size: row contents do not belong in logs.
#[derive(Clone, PartialEq)]
pub struct SavedBatch(pub RecordBatch);

impl fmt::Debug for SavedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows", self.0.num_rows())
    }
}
