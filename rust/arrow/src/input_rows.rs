// SPDX-License-Identifier: Apache-2.0
//! The input batches whose rows are still needed.
//!
//! Invariant: a batch is held as long as one of its rows is unreleased, and no
//! longer. Belongs to the task thread; an [`InputBatch`] may be read by any.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::{Arc, OnceLock},
};

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::{Schema, SchemaRef},
    error::ArrowError,
};

use crate::{
    conform::Conform,
    error::{Error, Side},
    held_values::{HeldValues, Sparse},
    invalid_texts::{InvalidTexts, TextColumns, columns_of_bytes, with_bytes, without_texts},
    key_columns::Keys,
    refused_rows::RefusedRows,
    row_bytes::{RowBytes, bytes_of_rows},
    tally::{RowSum, Tally},
};

mod compaction;

/// A row of a held input batch: the element that the operator handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowRef {
    /// Handle of the batch.
    pub batch: u32,
    /// Position in the batch.
    pub row: u32,
}

/// An input batch and its place in the task's input.
#[non_exhaustive]
pub struct InputBatch {
    /// Columns of exactly the declared types.
    pub batch: RecordBatch,
    /// Columns that are in no row: options, such as a key, were computed into them.
    pub hidden: RecordBatch,
    /// Where texts in `batch` are not what came; `None`: nowhere.
    pub invalid_texts: Option<Box<InvalidTexts>>,
    /// Rows that must not be called; none until somebody sets them, which happens as soon as the
    /// batch is held.
    pub refused: OnceLock<RefusedRows>,
    /// The channel of each row; empty without channels.
    pub channels: Keys,
    ordinals: Ordinals,
    /// How often its rows were restored; of rows that were copied together, the one that was most
    /// often.
    pub restarts: u32,
}

/// Where rows stand in the input of their task.
enum Ordinals {
    /// Consecutive places, from there on.
    From(u64),
    /// Each by itself.
    Each(Box<[u64]>),
}

impl InputBatch {
    /// Position of a row in the input of its task, counted from 0.
    ///
    /// # Panics
    ///
    /// When the batch has no such row.
    pub fn ordinal(&self, row: usize) -> u64 {
        match &self.ordinals {
            Ordinals::From(first) => first + row as u64,
            Ordinals::Each(ordinals) => ordinals[row],
        }
    }

    /// The batch as it came: with bytes instead of texts that are not all UTF-8.
    pub fn original(&self) -> &RecordBatch {
        self.invalid_texts.as_deref().map_or(&self.batch, InvalidTexts::original)
    }

    /// Returns the column at `position` as it came, with bytes instead of texts; the hidden columns
    /// follow those of the rows.
    pub fn column(&self, position: usize) -> &ArrayRef {
        match position.checked_sub(self.batch.num_columns()) {
            None => self.original().column(position),
            Some(hidden) => self.hidden.column(hidden),
        }
    }
}

// Shows the size only: row contents do not belong in logs.
sparkawait_core::opaque_debug!(InputBatch, rows: batch.num_rows());

/// The rows of one accepted batch, first to last.
///
/// Borrows nothing, so it can be kept as the cursor of rows that wait for
/// admission.
#[derive(Clone, Debug)]
pub struct BatchRows {
    batch: u32,
    rows: Range<u32>,
}

impl BatchRows {
    /// Handle of the batch; valid while a row is left.
    pub fn batch(&self) -> u32 {
        self.batch
    }

    /// The rows that were not handed out.
    pub fn rest(&self) -> Range<u32> {
        self.rows.clone()
    }

    /// The row that was handed out last.
    pub fn last_row(&self) -> Option<u32> {
        self.rows.start.checked_sub(1)
    }

    /// Whether every row has been handed out.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes the row back that was handed out last; returns false if that was another one.
    #[must_use]
    pub fn put_back(&mut self, row: RowRef) -> bool {
        let is_last = row.batch == self.batch && self.last_row() == Some(row.row);
        if is_last {
            self.rows.start = row.row;
        }
        is_last
    }
}

impl Iterator for BatchRows {
    type Item = RowRef;

    #[inline]
    fn next(&mut self) -> Option<RowRef> {
        self.rows.next().map(|row| RowRef { batch: self.batch, row })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl ExactSizeIterator for BatchRows {}

/// Holds the input batches of a task, each until its last row is released.
///
/// One slow row keeps its whole batch alive, until [`compact`](Self::compact) puts
/// such rows together.
#[derive(Debug)]
pub struct InputRows {
    conform: Conform,
    texts: TextColumns,
    /// Whether a batch has come in which not all texts are UTF-8.
    has_invalid_texts: bool,
    sizes: RowBytes,
    held: HeldValues<Arc<InputBatch>>,
    /// Rows accepted so far.
    accepted: u64,
    /// Which they are, where they lie now.
    tally: Tally,
    /// What was left of batches with few rows when they were looked at last.
    left_alone: Sparse,
}

impl InputRows {
    /// Creates a table for batches of `schema`.
    pub fn new(schema: SchemaRef) -> Self {
        let (sizes, texts) = (RowBytes::of(&schema), TextColumns::of(&schema));
        let conform = Conform::new(Side::Input, schema);
        let (held, accepted, has_invalid_texts) = (HeldValues::new(), 0, false);
        let (left_alone, tally) = (Sparse::default(), Tally::default());
        Self { conform, texts, has_invalid_texts, sizes, held, accepted, tally, left_alone }
    }

    /// The schema that every batch must have.
    pub fn schema(&self) -> &SchemaRef {
        self.conform.schema()
    }

    /// Holds `batch` and returns its rows; a batch without rows is not held.
    ///
    /// Its columns must have the names and types of the schema. Names and nullability inside of
    /// lists and maps may differ and are set right. A column may have bytes instead of texts that
    /// are not all UTF-8.
    ///
    /// # Errors
    ///
    /// When a column does not fit the schema, or is null where the schema has
    /// no nulls. Nothing is held then.
    pub fn accept(&mut self, batch: RecordBatch) -> Result<BatchRows, Error> {
        let hidden = RecordBatch::new_empty(Arc::new(Schema::empty()));
        self.accept_with(batch, hidden, Keys::default(), 0)
    }

    /// Does as [`accept`](Self::accept), and keeps the rows' hidden columns and channels with it, and how
    /// often they were restored.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn accept_with(
        &mut self,
        batch: RecordBatch,
        hidden: RecordBatch,
        channels: Keys,
        restarts: u32,
    ) -> Result<BatchRows, Error> {
        let rows = batch.num_rows();
        let len = u32::try_from(rows).map_err(|_| Error::TooManyRows { rows })?;
        let read = self.texts.read(batch);
        let (batch, invalid_texts) = read.map_err(|source| Error::Kernel { rows, source })?;
        let batch = self.conform.conform(batch)?;
        if len == 0 {
            return Ok(BatchRows { batch: 0, rows: 0..0 });
        }
        let hidden = without_texts(hidden).map_err(|source| Error::Kernel { rows, source })?;
        self.has_invalid_texts |= invalid_texts.is_some();
        let ordinals = Ordinals::From(self.accepted);
        self.accepted += u64::from(len);
        let refused = OnceLock::new();
        let input =
            InputBatch { batch, hidden, invalid_texts, refused, channels, ordinals, restarts };
        Ok(BatchRows { batch: self.hold(input, len), rows: 0..len })
    }

    fn hold(&mut self, input: InputBatch, rows: u32) -> u32 {
        let hidden = &input.hidden;
        let bytes = self.sizes.of_batch(&input.batch) + bytes_of_rows(hidden, 0, hidden.num_rows());
        let handle = self.held.insert(Arc::new(input), rows, bytes);
        self.tally.add(handle, RowSum::run(0, rows));
        handle
    }

    /// The batch under a handle.
    ///
    /// # Panics
    ///
    /// When all rows of the batch have been released.
    pub fn batch(&self, batch: u32) -> &Arc<InputBatch> {
        self.held.get(batch)
    }

    /// The batches under some handles as they came, in columns of one type each; `None` if these
    /// are the batches themselves, which differ only in texts that are not UTF-8.
    ///
    /// # Errors
    ///
    /// Only if Arrow refuses to build what was taken apart.
    pub(crate) fn originals(
        &self,
        handles: impl Iterator<Item = u32> + Clone,
    ) -> Result<Option<HashMap<u32, RecordBatch>>, ArrowError> {
        if !self.has_invalid_texts {
            return Ok(None);
        }
        let invalid = |handle| self.batch(handle).invalid_texts.as_deref();
        let columns = columns_of_bytes(handles.clone().filter_map(invalid));
        if columns.is_empty() {
            return Ok(None);
        }
        let mut originals = HashMap::new();
        for handle in handles {
            if let Entry::Vacant(original) = originals.entry(handle) {
                original.insert(with_bytes(self.batch(handle).original(), &columns)?);
            }
        }
        Ok(Some(originals))
    }

    /// Position of a row in the input of its task, counted from 0.
    ///
    /// # Panics
    ///
    /// When all rows of the batch have been released.
    pub fn ordinal(&self, row: RowRef) -> u64 {
        self.batch(row.batch).ordinal(row.row as usize)
    }

    /// Says that `rows` further rows of a batch are not needed any more.
    ///
    /// The batch is dropped with its last row, unless someone shares it.
    pub fn release(&mut self, batch: u32, rows: u32) {
        self.held.release(batch, rows);
    }

    /// All rows accepted so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The bytes of all batches held at the moment.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// The share of a row in the bytes of its batch.
    pub(crate) fn bytes_per_row(&self, batch: u32) -> usize {
        self.held.bytes_per_row(batch)
    }

    /// Returns whether a row is held that was restored `times` times, or more often.
    pub fn holds_restored(&self, times: u32) -> bool {
        self.held.values().any(|batch| batch.restarts >= times)
    }

    /// Batches held at the moment.
    pub fn held_batches(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Array, ArrayRef, BinaryArray, Int64Array, record_batch},
        datatypes::{DataType, Field},
    };

    use super::*;

    fn rows_of(values: &[i64]) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap()
    }

    fn table() -> InputRows {
        InputRows::new(rows_of(&[]).schema())
    }

    #[test]
    fn a_row_reference_is_eight_bytes() {
        assert_eq!(size_of::<RowRef>(), 8);
    }

    #[test]
    fn ordinal_counts_the_rows_of_earlier_batches() {
        let mut input = table();
        input.accept(rows_of(&[1, 2, 3])).unwrap();

        let ordinals: Vec<_> =
            input.accept(rows_of(&[4, 5])).unwrap().map(|row| input.ordinal(row)).collect();

        assert_eq!(ordinals, [3, 4]);
    }

    #[test]
    fn batch_is_dropped_with_its_last_row() {
        let mut input = table();
        let rows = input.accept(rows_of(&[1, 2])).unwrap();
        let batch = Arc::downgrade(input.batch(rows.batch()));

        input.release(rows.batch(), 1);
        assert!(batch.upgrade().is_some());

        input.release(rows.batch(), 1);
        assert!(batch.upgrade().is_none());
    }

    #[test]
    fn batch_without_rows_is_not_held() {
        let mut input = table();

        let mut rows = input.accept(rows_of(&[])).unwrap();

        assert!(rows.is_empty());
        assert_eq!((rows.next(), input.held_batches()), (None, 0));
    }

    #[test]
    fn column_of_another_type_is_refused_by_name() {
        let error = table().accept(record_batch!(("x", Utf8, ["a"])).unwrap()).unwrap_err();

        assert_eq!(
            error.to_string(),
            "input column `x`: the declared schema says `Int64`, the batch has `Utf8`"
        );
    }

    #[test]
    fn column_of_another_name_is_refused() {
        let error = table().accept(record_batch!(("y", Int64, [1])).unwrap()).unwrap_err();

        assert_eq!(
            error.to_string(),
            "input column 0: the declared schema says `x`, the batch says `y`"
        );
    }

    #[test]
    fn null_in_a_column_declared_without_nulls_is_refused() {
        let schema = Schema::new(vec![Field::new("x", DataType::Int64, false)]);
        let mut input = InputRows::new(Arc::new(schema));

        let error = input.accept(record_batch!(("x", Int64, [Some(1), None])).unwrap());

        assert_eq!(
            error.unwrap_err().to_string(),
            "input column `x` is declared without nulls, but has 1"
        );
    }

    #[test]
    fn hidden_columns_come_behind_those_of_the_rows() {
        let mut input = table();
        let hidden = record_batch!(("h", Utf8, ["a", "b"])).unwrap();

        let rows = input.accept_with(rows_of(&[1, 2]), hidden, Keys::default(), 0).unwrap();

        let held = input.batch(rows.batch());
        assert_eq!(held.column(0).as_ref(), &Int64Array::from(vec![1, 2]) as &dyn Array);
        // Only compared, and as bytes.
        let bytes = BinaryArray::from(vec![b"a".as_slice(), b"b"]);
        assert_eq!(held.column(1).as_ref(), &bytes as &dyn Array);
    }

    #[test]
    fn debug_shows_no_row_contents() {
        let mut input = table();
        let rows = input.accept(rows_of(&[421_337])).unwrap();

        assert!(!format!("{:?}", input.batch(rows.batch())).contains("421337"));
    }
}
