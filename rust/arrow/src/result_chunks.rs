// SPDX-License-Identifier: Apache-2.0
//! The results that have arrived and have not been put out yet.
//!
//! Invariant: a chunk is held as long as one of its rows is unreleased, and no
//! longer. Belongs to the task thread.

use arrow::{array::RecordBatch, datatypes::SchemaRef};

use crate::{
    conform::Conform,
    error::{Error, Side},
    held_values::HeldValues,
    row_bytes::RowBytes,
};

/// The results of one input row: 0..n neighbouring rows of a held chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResultRows {
    /// Handle of the chunk; means nothing when `len` is 0.
    pub chunk: u32,
    /// The first row.
    pub start: u32,
    /// How many rows.
    pub len: u32,
}

impl ResultRows {
    /// No result: the input row is dropped.
    pub const EMPTY: Self = Self { chunk: 0, start: 0, len: 0 };

    /// Whether the input row is dropped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Splits the first `len` rows off, or all when there are fewer.
    ///
    /// Deals a chunk out to the input rows that it answers.
    #[must_use]
    pub fn split_front(&mut self, len: u32) -> Self {
        let front = Self { len: len.min(self.len), ..*self };
        self.start += front.len;
        self.len -= front.len;
        front
    }
}

/// Holds chunks of results, each until its last row is released.
///
/// A chunk holds the results of one row or of thousands, as they arrive.
#[derive(Debug)]
pub struct ResultChunks {
    conform: Conform,
    sizes: RowBytes,
    held: HeldValues<RecordBatch>,
}

impl ResultChunks {
    /// Creates a table for results of `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        let sizes = RowBytes::of(&schema);
        Self { conform: Conform::new(Side::Result, schema), sizes, held: HeldValues::new() }
    }

    /// The schema that the function declares.
    pub fn schema(&self) -> &SchemaRef {
        self.conform.schema()
    }

    /// Holds `batch` and returns all of its rows; a chunk without rows is not held.
    ///
    /// Columns are found by name. Another representation of the declared type
    /// is cast: string and binary kinds, integer and float widths, time units,
    /// also inside of nested types.
    ///
    /// # Errors
    ///
    /// When a column is missing or of another type, a value does not fit, or a
    /// column declared without nulls has one. Nothing is held then.
    pub fn accept(&mut self, batch: RecordBatch) -> Result<ResultRows, Error> {
        let rows = batch.num_rows();
        let len = u32::try_from(rows).map_err(|_| Error::TooManyRows { rows })?;
        // A chunk may be the results of a single row: its batch is moved as seldom as can be.
        let is_as_is = self.conform.is_known_as_is(&batch);
        let batch = if is_as_is { batch } else { self.conform.conform(batch)? };
        if len == 0 {
            return Ok(ResultRows::EMPTY);
        }
        let bytes = self.sizes.of_batch(&batch);
        Ok(ResultRows { chunk: self.held.insert(batch, len, bytes), start: 0, len })
    }

    /// The chunk under a handle.
    ///
    /// # Panics
    ///
    /// When all rows of the chunk have been released.
    pub fn chunk(&self, chunk: u32) -> &RecordBatch {
        self.held.get(chunk)
    }

    /// Drops results that nobody waits for, as those of a row that has timed out.
    pub fn discard(&mut self, results: ResultRows) {
        if !results.is_empty() {
            self.release(results.chunk, results.len);
        }
    }

    /// Says that `rows` further rows of a chunk are not needed any more.
    pub fn release(&mut self, chunk: u32, rows: u32) {
        self.held.release(chunk, rows);
    }

    /// The bytes of all chunks held at the moment.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// The share of a row in the bytes of its chunk.
    pub(crate) fn bytes_per_row(&self, chunk: u32) -> usize {
        self.held.bytes_per_row(chunk)
    }

    /// Chunks held at the moment.
    pub fn held_chunks(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::record_batch;

    use super::*;

    fn chunks() -> ResultChunks {
        ResultChunks::new(record_batch!(("y", Int64, [0])).unwrap().schema())
    }

    #[test]
    fn chunk_is_dealt_out_by_counts() {
        let mut chunks = chunks();
        let mut rest = chunks.accept(record_batch!(("y", Int64, [1, 2, 3])).unwrap()).unwrap();

        let dealt = [1, 0, 2, 5].map(|count| rest.split_front(count));

        assert_eq!(dealt.map(|rows| (rows.start, rows.len)), [(0, 1), (1, 0), (1, 2), (3, 0)]);
    }

    #[test]
    fn chunk_is_dropped_with_its_last_row() {
        let mut chunks = chunks();
        let mut rest = chunks.accept(record_batch!(("y", Int64, [1, 2])).unwrap()).unwrap();

        let first = rest.split_front(1);
        chunks.discard(first);
        assert_eq!(chunks.held_chunks(), 1);

        chunks.discard(rest);
        assert_eq!(chunks.held_chunks(), 0);
    }

    #[test]
    fn chunk_without_rows_is_not_held() {
        let mut chunks = chunks();
        let empty = record_batch!(("y", Int64, [1])).unwrap().slice(0, 0);

        let rows = chunks.accept(empty).unwrap();
        chunks.discard(rows);

        assert!(rows.is_empty());
        assert_eq!(chunks.held_chunks(), 0);
    }

    #[test]
    fn what_is_shown_has_no_values() {
        let mut chunks = chunks();
        let _held = chunks.accept(record_batch!(("y", Int64, [987_654_321])).unwrap()).unwrap();

        let shown = format!("{chunks:?}");

        assert!(shown.contains("held: 1"), "{shown}");
        assert!(!shown.contains("987654321"), "{shown}");
    }
}
