// SPDX-License-Identifier: Apache-2.0
//! The way of rows through a task: batches in, rows out, results in, batches out.
//!
//! Belongs to the task thread.

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};

use crate::{
    call_info::{CallInfo, TellCalls},
    error::Error,
    input_rows::{BatchRows, InputRows, RowRef},
    key_columns::Keys,
    output_assembler::{OutputAssembler, RowsLeft},
    output_schema::{ERROR_COLUMN, OnError, OutputColumns},
    result_chunks::{ResultChunks, ResultRows},
    row_failure::RowFailure,
};

/// Owns the input rows, the results and the output of one task.
///
/// Each accepted row ends with exactly one [`push`](Self::push) or
/// [`push_failure`](Self::push_failure), and all accepted results with a `push`
/// or a [`discard`](Self::discard); then nothing is held once the output is taken.
///
/// # Examples
///
/// ```
/// use arrow::array::record_batch;
/// use sparkawait_arrow::{OnError, OutputColumns, RowStore};
///
/// let input = record_batch!(("x", Int64, [1, 2]))?;
/// let results = record_batch!(("y", Utf8, ["one", "two"]))?;
/// let (input_schema, result_schema) = (input.schema(), results.schema());
/// let mut store =
///     RowStore::new(input_schema, result_schema, OutputColumns::Append, OnError::Fail)?;
///
/// let rows = store.accept_input(input)?;
/// let mut answers = store.accept_results(results)?;
/// for row in rows {
///     store.push(row, answers.split_front(1));
/// }
///
/// let output = store.take(8192, 64 << 20)?.unwrap();
/// assert_eq!((output.num_rows(), output.num_columns()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RowStore {
    inputs: InputRows,
    chunks: ResultChunks,
    output: OutputAssembler,
}

impl RowStore {
    /// Creates a row store between batches of `input` and results of `result`.
    ///
    /// # Errors
    ///
    /// When two output columns would have the same name.
    pub fn new(
        input: SchemaRef,
        result: SchemaRef,
        output: OutputColumns,
        on_error: OnError,
    ) -> Result<Self, Error> {
        Self::with_columns(input, result, output, on_error, ERROR_COLUMN, None)
    }

    /// Creates a row store that captures failures in the column `error_column`, and tells of the
    /// calls of each row in the column `info_column`, if there is one.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_columns(
        input: SchemaRef,
        result: SchemaRef,
        output: OutputColumns,
        on_error: OnError,
        error_column: &str,
        info_column: Option<&str>,
    ) -> Result<Self, Error> {
        let output =
            OutputAssembler::new(&input, &result, output, on_error, error_column, info_column)?;
        Ok(Self { inputs: InputRows::new(input), chunks: ResultChunks::new(result), output })
    }

    /// Puts the last hidden columns of the input out behind all others: `carried`.
    #[must_use]
    pub fn carrying(mut self, carried: &Schema) -> Self {
        self.output.carry(carried);
        self
    }

    /// The schema of every output batch.
    pub fn output_schema(&self) -> &SchemaRef {
        self.output.schema()
    }

    /// The input batches held.
    pub fn inputs(&self) -> &InputRows {
        &self.inputs
    }

    /// The result chunks held.
    pub fn chunks(&self) -> &ResultChunks {
        &self.chunks
    }

    /// Holds an input batch and returns its rows.
    ///
    /// # Errors
    ///
    /// As [`InputRows::accept`].
    pub fn accept_input(&mut self, batch: RecordBatch) -> Result<BatchRows, Error> {
        self.inputs.accept(batch)
    }

    /// Does as [`accept_input`](Self::accept_input), and keeps the rows' hidden columns and channels,
    /// and how often they were restored.
    ///
    /// # Errors
    ///
    /// As [`InputRows::accept`].
    pub fn accept_input_with(
        &mut self,
        batch: RecordBatch,
        hidden: RecordBatch,
        channels: Keys,
        restarts: u32,
    ) -> Result<BatchRows, Error> {
        self.inputs.accept_with(batch, hidden, channels, restarts)
    }

    /// Holds a chunk of results and returns all of its rows.
    ///
    /// # Errors
    ///
    /// As [`ResultChunks::accept`].
    pub fn accept_results(&mut self, chunk: RecordBatch) -> Result<ResultRows, Error> {
        self.chunks.accept(chunk)
    }

    /// Drops results that nobody waits for.
    pub fn discard(&mut self, results: ResultRows) {
        self.chunks.discard(results);
    }

    /// Puts `row` out with its results, after everything that was put out before.
    #[inline]
    pub fn push(&mut self, row: RowRef, results: ResultRows) {
        self.output.push(&mut self.inputs, row, results);
    }

    /// Ends a row that has failed, as [`OnError`] says.
    ///
    /// # Errors
    ///
    /// Hands `failure` back with [`OnError::Fail`]: the task is to fail with it.
    pub fn push_failure(&mut self, row: RowRef, failure: RowFailure) -> Result<(), RowFailure> {
        self.output.push_failure(&mut self.inputs, row, failure)
    }

    /// Whether [`compact`](Self::compact) would free much of the input that is held.
    pub fn is_sparse(&self) -> bool {
        self.inputs.is_sparse()
    }

    /// Copies input rows out of batches that need few of theirs.
    ///
    /// # Errors
    ///
    /// As [`InputRows::compact`].
    pub fn compact<'a>(&mut self, rows: impl Iterator<Item = &'a mut RowRef>) -> Result<(), Error> {
        self.inputs.compact(rows)
    }

    /// The input rows that have left so far.
    pub fn left(&self) -> RowsLeft {
        self.output.left()
    }

    /// Whether each accepted row has left, once.
    pub fn has_each_left_once(&self) -> bool {
        self.output.left().are(self.inputs.tally())
    }

    /// The bytes of the captured failures that wait to be taken.
    pub fn bytes_of_failures(&self) -> usize {
        self.output.bytes_of_failures()
    }

    /// Output rows waiting to be taken.
    pub fn row_count(&self) -> usize {
        self.output.row_count()
    }

    /// Whether a batch of `max_rows` rows, or of about `max_bytes` bytes, can be taken.
    pub fn is_full(&mut self, max_rows: usize, max_bytes: usize) -> bool {
        self.output.is_full(&self.inputs, &self.chunks, max_rows, max_bytes)
    }

    /// Takes a batch of the first rows, at most `max_rows` and `max_bytes`; never an empty one.
    ///
    /// # Errors
    ///
    /// As [`OutputAssembler::take`].
    pub fn take(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Option<RecordBatch>, Error> {
        self.take_with(max_rows, max_bytes, &mut |_, _| CallInfo::default())
    }

    /// Does as [`take`](Self::take); `calls` tells what those of a row were, if there is a column
    /// for it.
    ///
    /// # Errors
    ///
    /// As [`OutputAssembler::take`].
    pub fn take_with(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
        calls: TellCalls<'_>,
    ) -> Result<Option<RecordBatch>, Error> {
        self.output.take(&mut self.inputs, &mut self.chunks, max_rows, max_bytes, calls)
    }
}
