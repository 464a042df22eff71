// SPDX-License-Identifier: Apache-2.0
//! Emissions collected, in order, into output batches.
//!
//! Invariant: the runs of the input side and of the result side have the same
//! number of rows. Belongs to the task thread.

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{Schema, SchemaRef},
    error::ArrowError,
};

use crate::{
    error::Error,
    gather::{Gather, Positions},
    input_rows::{InputRows, RowRef},
    output_schema::{OnError, OutputColumns, output_schema},
    result_chunks::{ResultChunks, ResultRows},
    row_failure::{self, RowFailure},
    run_list::{RunList, Window},
};

/// Builds output batches from input rows and their results, in emission order.
///
/// Rows are noted as runs; columns are touched when a batch is taken. Rows that
/// are still neighbours then, as in ordered mode, leave as slices of the batches
/// that they came in; others are gathered column by column.
///
/// ```text
///  push(row 3 of A, row 0 of R)     input   [A 3..6][B 0..1]
///  push(row 4 of A, row 1 of R)  ─► results [R 0..2][S 7..8][R 2..3]   ─► take
///  push(row 5 of A, row 7 of S)
///  push(row 0 of B, row 2 of R)
/// ```
///
/// The rows stay in the tables that hold them, which are passed in, and are
/// released there when they have been put out.
#[derive(Debug)]
pub struct OutputAssembler {
    schema: SchemaRef,
    output: OutputColumns,
    on_error: OnError,
    /// The input row of each output row; repeated for several results.
    inputs: RunList,
    /// The result row of each output row; nulls for a failure.
    results: RunList,
    /// Failures by output row, counted from the task's first, ascending.
    failures: VecDeque<(u64, RowFailure)>,
    /// Output rows waiting.
    rows: usize,
    /// Output rows taken so far.
    taken: u64,
    positions: Positions,
}

impl OutputAssembler {
    /// Creates an assembler for rows of `input` and results of `result`.
    ///
    /// # Errors
    ///
    /// As [`output_schema`].
    pub fn new(
        input: &Schema,
        result: &Schema,
        output: OutputColumns,
        on_error: OnError,
        error_column: &str,
    ) -> Result<Self, Error> {
        Ok(Self {
            schema: Arc::new(output_schema(input, result, output, on_error, error_column)?),
            output,
            on_error,
            inputs: RunList::default(),
            results: RunList::default(),
            failures: VecDeque::new(),
            rows: 0,
            taken: 0,
            positions: Positions::default(),
        })
    }

    /// The schema of every output batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends `row`, once for each of its results.
    ///
    /// A row without results is released at once.
    #[inline]
    pub fn push(&mut self, inputs: &mut InputRows, row: RowRef, results: ResultRows) {
        if results.is_empty() {
            inputs.release(row.batch, 1);
            return;
        }
        self.inputs.push_repeated(row.batch, row.row, results.len);
        self.results.push(results.chunk, results.start, results.len);
        self.rows += results.len as usize;
    }

    /// Appends a row that has failed, or releases it, as [`OnError`] says.
    ///
    /// # Errors
    ///
    /// Hands `failure` back with [`OnError::Fail`]: the task is to fail with it.
    pub fn push_failure(
        &mut self,
        inputs: &mut InputRows,
        row: RowRef,
        failure: RowFailure,
    ) -> Result<(), RowFailure> {
        match self.on_error {
            OnError::Fail => return Err(failure),
            OnError::Drop => {
                inputs.release(row.batch, 1);
                return Ok(());
            }
            OnError::Capture => self.failures.push_back((self.taken + self.rows as u64, failure)),
            OnError::Null => {}
        }
        self.inputs.push(row.batch, row.row, 1);
        self.results.push_null();
        self.rows += 1;
        Ok(())
    }

    /// Output rows waiting to be taken.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Whether a batch of `max_rows_per_batch` rows can be taken.
    pub fn is_full(&self, max_rows_per_batch: usize) -> bool {
        self.rows >= max_rows_per_batch
    }

    /// Takes a batch of the first rows, at most `max_rows`; never an empty one.
    ///
    /// # Errors
    ///
    /// When a kernel fails, for instance because the strings of one column
    /// outgrow 32-bit offsets. The rows are lost: the task is to fail.
    pub fn take(
        &mut self,
        inputs: &mut InputRows,
        chunks: &mut ResultChunks,
        max_rows: usize,
    ) -> Result<Option<RecordBatch>, Error> {
        let rows = self.rows.min(max_rows);
        if rows == 0 {
            return Ok(None);
        }
        let (input, result) = (self.inputs.take(rows), self.results.take(rows));
        let batch = self
            .build(inputs, &input, chunks, &result)
            .map_err(|source| Error::Kernel { rows, source })?;
        input.release_rows(|batch, rows| inputs.release(batch, rows));
        result.release_rows(|chunk, rows| chunks.release(chunk, rows));
        self.rows -= rows;
        self.taken += rows as u64;
        Ok(Some(batch))
    }

    fn build(
        &mut self,
        inputs: &InputRows,
        input: &Window,
        chunks: &ResultChunks,
        result: &Window,
    ) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        if self.output == OutputColumns::Append {
            let gather = Gather::new(input, &mut self.positions, |id| &inputs.batch(id).batch);
            append_columns(&mut columns, &gather, inputs.schema())?;
        }
        let gather = Gather::new(result, &mut self.positions, |id| chunks.chunk(id));
        append_columns(&mut columns, &gather, chunks.schema())?;
        if self.on_error == OnError::Capture {
            columns.push(self.take_failures(result.rows));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(result.rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }

    /// Builds the error column of the next `rows` rows.
    fn take_failures(&mut self, rows: usize) -> ArrayRef {
        let end = self.taken + rows as u64;
        let count = self.failures.partition_point(|(row, _)| *row < end);
        let failures: Vec<(usize, RowFailure)> = self
            .failures
            .drain(..count)
            // Within the window, so it fits whatever `rows` fits.
            .map(|(row, failure)| (usize::try_from(row - self.taken).unwrap_or(rows), failure))
            .collect();
        row_failure::column(rows, &failures)
    }
}

fn append_columns(
    columns: &mut Vec<ArrayRef>,
    gather: &Gather<'_>,
    schema: &Schema,
) -> Result<(), ArrowError> {
    for (index, field) in schema.fields().iter().enumerate() {
        columns.push(gather.column(index, field.data_type())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
