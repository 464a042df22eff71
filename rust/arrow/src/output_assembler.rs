// SPDX-License-Identifier: Apache-2.0
//! Emissions collected, in order, into output batches.
//!
//! Invariant: the runs of the input side and of the result side have the same
//! number of rows. Belongs to the task thread.

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{FieldRef, Schema, SchemaRef},
    error::ArrowError,
};

use crate::{
    call_info::{CallInfo, TellCalls},
    error::Error,
    gather::{Gather, Positions},
    input_rows::{InputRows, RowRef},
    invalid_texts::bytes_fields,
    output_schema::{OnError, OutputColumns, output_schema},
    result_chunks::{ResultChunks, ResultRows},
    row_bytes::bytes_of_rows,
    row_failure::{self, RowFailure},
    run_list::{Run, RunList, Window},
    tally::{RowSum, Tally},
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
    /// Whether a column tells of the calls of each row.
    has_info: bool,
    /// Hidden columns of the input that are put out behind all others: the last so many.
    carried: usize,
    /// The input row of each output row; repeated for several results.
    inputs: RunList,
    /// The result row of each output row; nulls for a failure.
    results: RunList,
    /// Failures by output row, counted from the task's first, ascending.
    failures: VecDeque<(u64, RowFailure)>,
    /// What they take.
    failure_bytes: usize,
    /// Output rows waiting.
    rows: usize,
    /// Output rows taken so far.
    taken: u64,
    left: RowsLeft,
    positions: Positions,
}

/// Input rows that have left, by what happened to them; a row with several results has left with
/// its last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowsLeft {
    /// Rows that were put out, with their results or with what a failure leaves.
    pub put_out: u64,
    /// Rows without a result.
    pub without_result: u64,
    /// Rows that failed, where those are dropped.
    pub dropped: u64,
    /// Rows of the batches that they left in: one for each of their results.
    pub output: u64,
    /// Which they were.
    tally: Tally,
}

impl RowsLeft {
    /// Whether they are the rows of `tally`, each of them once.
    pub(crate) fn are(&self, tally: &Tally) -> bool {
        self.tally == *tally
    }
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
        info_column: Option<&str>,
    ) -> Result<Self, Error> {
        let schema = output_schema(input, result, output, on_error, error_column, info_column)?;
        Ok(Self {
            schema: Arc::new(schema),
            output,
            on_error,
            has_info: info_column.is_some(),
            carried: 0,
            inputs: RunList::default(),
            results: RunList::default(),
            failures: VecDeque::new(),
            failure_bytes: 0,
            rows: 0,
            taken: 0,
            left: RowsLeft::default(),
            positions: Positions::default(),
        })
    }

    /// Puts the last hidden columns of the input out behind all others: `carried`, with bytes in the
    /// place of texts.
    pub fn carry(&mut self, carried: &Schema) {
        let carried_fields = bytes_fields(carried.fields());
        let mut fields: Vec<FieldRef> = self.schema.fields().iter().cloned().collect();
        fields.extend(carried_fields.iter().cloned());
        self.schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        self.carried = carried.fields().len();
    }

    /// Whether columns of the input are in the output.
    fn has_input(&self) -> bool {
        self.output == OutputColumns::Append || self.carried > 0
    }

    /// The schema of every output batch; where texts that came are not UTF-8, a batch has bytes in
    /// the place of those of their column.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends `row`, once for each of its results.
    ///
    /// A row without results is released at once.
    #[inline]
    pub fn push(&mut self, inputs: &mut InputRows, row: RowRef, results: ResultRows) {
        if results.is_empty() {
            self.left.without_result += 1;
            self.left.tally.add(row.batch, RowSum::run(row.row, 1));
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
                self.left.dropped += 1;
                self.left.tally.add(row.batch, RowSum::run(row.row, 1));
                inputs.release(row.batch, 1);
                return Ok(());
            }
            OnError::Capture => {
                self.failure_bytes += failure.bytes();
                self.failures.push_back((self.taken + self.rows as u64, failure));
            }
            OnError::Null => {}
        }
        self.inputs.push(row.batch, row.row, 1);
        self.results.push_null();
        self.rows += 1;
        Ok(())
    }

    /// The input rows that have left so far.
    pub fn left(&self) -> RowsLeft {
        RowsLeft {
            put_out: self.left.tally.rows() - self.left.without_result - self.left.dropped,
            output: self.taken,
            ..self.left
        }
    }

    /// Output rows waiting to be taken.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Whether a batch of `max_rows` rows, or of about `max_bytes` bytes, can be taken.
    ///
    /// Bytes are looked at only while more than `max_bytes` are held at all, and then once for
    /// each run of rows, by the average row of its source; captured failures have theirs.
    pub fn is_full(
        &mut self,
        inputs: &InputRows,
        chunks: &ResultChunks,
        max_rows: usize,
        max_bytes: usize,
    ) -> bool {
        if self.rows >= max_rows {
            return true;
        }
        if inputs.held_bytes() + chunks.held_bytes() + self.failure_bytes < max_bytes {
            return false;
        }
        let of_results = self.results.weigh(|chunk| chunks.bytes_per_row(chunk));
        let of_results = of_results + self.failure_bytes;
        if !self.has_input() {
            return of_results >= max_bytes;
        }
        of_results + self.inputs.weigh(|batch| inputs.bytes_per_row(batch)) >= max_bytes
    }

    /// Takes a batch of the first rows, at most `max_rows` and `max_bytes`; never an empty one.
    /// `calls` tells what those of a row were, if there is a column for it.
    ///
    /// The first row is taken however large it is. With at most [`MOST_COLUMN_BYTES`] no column
    /// outgrows its offsets.
    ///
    /// # Errors
    ///
    /// When a kernel fails. The rows are lost: the task is to fail.
    ///
    /// [`MOST_COLUMN_BYTES`]: crate::MOST_COLUMN_BYTES
    pub fn take(
        &mut self,
        inputs: &mut InputRows,
        chunks: &mut ResultChunks,
        max_rows: usize,
        max_bytes: usize,
        calls: TellCalls<'_>,
    ) -> Result<Option<RecordBatch>, Error> {
        let mut rows = self.rows.min(max_rows);
        if rows == 0 {
            return Ok(None);
        }
        // What is held, each row once, cannot be more than all of it.
        let held = inputs.held_bytes() + chunks.held_bytes() + self.failure_bytes;
        if held > max_bytes || (self.inputs.has_repeats() && self.has_input()) {
            rows = self.rows_within(inputs, chunks, rows, max_bytes);
        }
        let (input, result) = (self.inputs.take(rows), self.results.take(rows));
        let batch = self
            .build(inputs, &input, chunks, &result, calls)
            .map_err(|source| Error::Kernel { rows, source })?;
        let left = &mut self.left.tally;
        input.release_rows(|batch, rows| {
            left.add(batch, rows);
            inputs.release(batch, rows.rows);
        });
        result.release_rows(|chunk, rows| chunks.release(chunk, rows.rows));
        self.rows -= rows;
        self.taken += rows as u64;
        Ok(Some(batch))
    }

    /// Returns how many of the first `rows` rows have at most `max_bytes`; at least 1.
    fn rows_within(
        &self,
        inputs: &InputRows,
        chunks: &ResultChunks,
        rows: usize,
        max_bytes: usize,
    ) -> usize {
        let of_inputs = |run: &Run, len| {
            let kept = match self.output {
                OutputColumns::Append => run_bytes(run, len, |id| &inputs.batch(id).batch),
                OutputColumns::Replace => 0,
            };
            match self.carried {
                0 => kept,
                _ => kept + run_bytes(run, len, |id| &inputs.batch(id).hidden),
            }
        };
        let of_both = |input: &Run, result: &Run, row, len| {
            let results = run_bytes(result, len, |id| chunks.chunk(id));
            of_inputs(input, len) + results + self.failure_bytes_of(row, len)
        };
        let (mut inputs, mut results) = (self.inputs.iter(), self.results.iter());
        let (mut input, mut result) = (inputs.next(), results.next());
        let (mut fitting, mut room) = (0, max_bytes);
        while let (Some(one), Some(other)) = (&mut input, &mut result)
            && fitting < rows
        {
            let len = one.len.min(other.len);
            let bytes = of_both(one, other, fitting, len);
            if bytes > room {
                fitting += most_within(len, |len| of_both(one, other, fitting, len) <= room);
                break;
            }
            room -= bytes;
            fitting += len as usize;
            if one.skip(len) {
                input = inputs.next();
            }
            if other.skip(len) {
                result = results.next();
            }
        }
        fitting.clamp(1, rows)
    }

    /// Returns the bytes of the failures among `len` of the rows that wait, from `row` on.
    fn failure_bytes_of(&self, row: usize, len: u32) -> usize {
        let row = self.taken + row as u64;
        let first = self.failures.partition_point(|(of, _)| *of < row);
        let rest = self.failures.range(first..);
        let within = rest.take_while(|(of, _)| *of < row + u64::from(len));
        within.map(|(_, failure)| failure.bytes()).sum()
    }

    /// The bytes of the failures that wait to be taken.
    pub fn bytes_of_failures(&self) -> usize {
        self.failure_bytes
    }

    fn build(
        &mut self,
        inputs: &InputRows,
        input: &Window,
        chunks: &ResultChunks,
        result: &Window,
        calls: TellCalls<'_>,
    ) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        let mut schema = Arc::clone(&self.schema);
        if self.output == OutputColumns::Append {
            let originals = inputs.originals(input.runs.iter().map(|run| run.source))?;
            let gather = Gather::new(input, &mut self.positions, |id| match &originals {
                Some(originals) => &originals[&id],
                None => &inputs.batch(id).batch,
            });
            append_columns(&mut columns, &gather, inputs.schema())?;
            if originals.is_some() {
                schema = with_types_of(&schema, &columns);
            }
        }
        let gather = Gather::new(result, &mut self.positions, |id| chunks.chunk(id));
        append_columns(&mut columns, &gather, chunks.schema())?;
        if self.on_error == OnError::Capture {
            columns.push(self.take_failures(result.rows));
        }
        if self.has_info {
            let mut infos = Vec::with_capacity(result.rows);
            input.each_row(|batch, row, times, ends| {
                let info = calls(inputs.batch(batch).ordinal(row as usize), ends);
                infos.extend(std::iter::repeat_n(info, times as usize));
            });
            columns.push(Arc::new(CallInfo::column(&infos)));
        }
        if self.carried > 0 {
            let gather = Gather::new(input, &mut self.positions, |id| &inputs.batch(id).hidden);
            let fields = self.schema.fields();
            let hidden = gather.columns().saturating_sub(self.carried);
            for (index, field) in fields[fields.len() - self.carried..].iter().enumerate() {
                columns.push(gather.column(hidden + index, field.data_type())?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(result.rows));
        RecordBatch::try_new_with_options(schema, columns, &options)
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
        self.failure_bytes -= failures.iter().map(|(_, failure)| failure.bytes()).sum::<usize>();
        row_failure::column(rows, &failures)
    }
}

/// Returns the bytes of the first `len` rows of `run`.
fn run_bytes<'a>(run: &Run, len: u32, batch: impl Fn(u32) -> &'a RecordBatch) -> usize {
    if run.is_nulls() {
        return 0;
    }
    let (batch, start, len) = (batch(run.source), run.start as usize, len as usize);
    match run.step {
        0 => bytes_of_rows(batch, start, 1).saturating_mul(len),
        _ => bytes_of_rows(batch, start, len),
    }
}

/// Returns the largest number below `len` that fits; all smaller ones do.
fn most_within(len: u32, fits: impl Fn(u32) -> bool) -> usize {
    let (mut most, mut too_many) = (0, len);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if fits(middle) {
            most = middle;
        } else {
            too_many = middle;
        }
    }
    most as usize
}

/// Returns `schema` with the types of its first columns.
fn with_types_of(schema: &SchemaRef, columns: &[ArrayRef]) -> SchemaRef {
    let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    for (field, column) in fields.iter_mut().zip(columns) {
        if field.data_type() != column.data_type() {
            let typed = field.as_ref().clone().with_data_type(column.data_type().clone());
            *field = Arc::new(typed);
        }
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
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
