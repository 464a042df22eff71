// SPDX-License-Identifier: Apache-2.0
//! The shape of a lookup: found rows, a miss, or a failure for each call.

use arrow::array::{Array, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use serde::Deserialize;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;

use crate::failure::{Failure, plain_failure};
use crate::text::ParsedColumn;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{FailedCall, Known, ReplyGroup, ResultGroup};

/// What happens to a row whose key finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It gets one result of nulls, as in a left join.
    #[default]
    Left,
    /// It is dropped, as in an inner join.
    Inner,
}

/// What all lookups are told of misses.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Misses {
    /// What happens to the row.
    #[serde(default)]
    pub how: How,
    /// Whether a miss asks for another attempt.
    #[serde(default)]
    pub retry: bool,
    /// Whether a row fails that was called for: some services always have something to say.
    #[serde(default)]
    pub fails: bool,
}

/// Collects the outcomes of some calls, in the order in which their result rows
/// are appended to a batch that the caller builds beside it.
///
/// ```text
///   found(a, 2)   missed(b)   found(c, 1)   failed(d, ..)
///   row row       nulls       row                          with how = left
/// ```
#[derive(Debug)]
pub struct LookupReply {
    on_miss: Misses,
    attempts: Vec<AttemptId>,
    counts: Vec<u32>,
    /// Whether each call has exactly one row.
    is_one_each: bool,
    /// Filled with the first miss that asks for another attempt.
    retries: Option<Vec<bool>>,
    /// Filled with the first miss that has a row.
    misses: Option<Vec<bool>>,
    /// Filled with the first row that nobody was called for.
    known: Option<Vec<bool>>,
    failures: Vec<FailedCall>,
}

impl LookupReply {
    /// Makes a reply to about `calls` calls.
    pub fn new(on_miss: Misses, calls: usize) -> Self {
        Self {
            on_miss,
            attempts: Vec::with_capacity(calls),
            counts: Vec::with_capacity(calls),
            is_one_each: true,
            retries: None,
            misses: None,
            known: None,
            failures: Vec::new(),
        }
    }

    /// Says that the next `rows` rows belong to `attempt`; none is a miss without a row of nulls.
    #[inline]
    pub fn found(&mut self, attempt: AttemptId, rows: u32) {
        self.push(attempt, rows, rows == 0, false);
    }

    /// Says that `attempt` found nothing; returns whether a row of nulls must be appended for it.
    #[inline]
    pub fn missed(&mut self, attempt: AttemptId) -> bool {
        if self.on_miss.fails {
            let says = "the service answered with nothing: no content, `null`, or an empty list";
            self.failed(attempt, CallFailure::new(ErrorKind::ResultSchemaMismatch, says));
            return false;
        }
        let has_row = self.on_miss.how == How::Left;
        self.push(attempt, u32::from(has_row), true, self.on_miss.retry);
        has_row
    }

    /// Says that the row of `attempt` has a null key: a miss that no retry changes.
    #[inline]
    pub fn null_key(&mut self, attempt: AttemptId) -> bool {
        let has_row = self.on_miss.how == How::Left;
        push_flag(&mut self.known, self.attempts.len(), true);
        self.push_known(attempt, u32::from(has_row), true, false);
        has_row
    }

    /// Says that `attempt` failed; no row belongs to it.
    pub fn failed(&mut self, attempt: AttemptId, failure: impl Into<Failure>) {
        self.failures.push(failure.into().of_call(attempt));
    }

    /// Makes the reply to calls whose rows have a null key.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if a column cannot be null.
    pub fn null_keys(
        on_miss: Misses,
        schema: &SchemaRef,
        attempts: &[AttemptId],
    ) -> Result<ReplyGroup, TaskError> {
        let mut reply = Self::new(on_miss, attempts.len());
        let rows = attempts.iter().filter(|attempt| reply.null_key(**attempt)).count();
        Ok(reply.finish(nulls(schema, rows)?))
    }

    /// Returns the rows of calls that found something, but have a null in a column that must have
    /// none: ascending, with the position of that column. A miss has nulls whatever was declared.
    fn rows_with_nulls(&self, rows: &RecordBatch, required: &[usize]) -> Vec<(usize, usize)> {
        let columns = rows.columns();
        let with_nulls = required.iter().filter(|column| columns[**column].null_count() > 0);
        let mut found = Vec::new();
        for &column in with_nulls {
            let mut rows = 0..columns[column].len();
            for (index, count) in self.counts.iter().enumerate() {
                let is_miss = self.misses.as_ref().is_some_and(|misses| misses[index]);
                for row in rows.by_ref().take(*count as usize) {
                    if !is_miss && columns[column].is_null(row) {
                        found.push((row, column));
                    }
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Makes the reply, with the rows of the calls that did not fail.
    pub fn finish(self, rows: RecordBatch) -> ReplyGroup {
        let results = (!self.attempts.is_empty()).then_some(ResultGroup {
            attempts: self.attempts,
            counts: (!self.is_one_each).then_some(self.counts),
            retries: self.retries,
            misses: self.misses,
            known: self.known.map_or(Known::None, Known::Each),
            rows,
        });
        ReplyGroup { results, failures: self.failures, ..ReplyGroup::default() }
    }

    /// Makes the reply as [`finish`](Self::finish) does, except for the calls that have one of
    /// `bad` rows, by ascending index into `rows`: those fail, and no retry helps.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if the rows do not fit the calls.
    pub fn finish_without(
        mut self,
        rows: &RecordBatch,
        bad: Vec<(usize, CallFailure)>,
    ) -> Result<ReplyGroup, TaskError> {
        if bad.is_empty() {
            return Ok(self.finish(rows.clone()));
        }
        let mut bad = bad.into_iter().peekable();
        let mut keep = Vec::with_capacity(rows.num_rows());
        let (mut attempts, mut counts) = (Vec::new(), Vec::new());
        let (mut retries, mut misses, mut known) = (None, None, None);
        let mut end = 0;
        for (index, &attempt) in self.attempts.iter().enumerate() {
            let count = self.counts[index];
            end += count as usize;
            let mut failure = None;
            while let Some((_, found)) = bad.next_if(|(row, _)| *row < end) {
                failure.get_or_insert(found);
            }
            keep.resize(end, failure.is_none());
            if let Some(failure) = failure {
                self.failures.push(Failure::from(failure).of_call(attempt));
            } else {
                let is_set = |flags: &Option<Vec<bool>>| flags.as_ref().is_some_and(|it| it[index]);
                push_flag(&mut retries, attempts.len(), is_set(&self.retries));
                push_flag(&mut misses, attempts.len(), is_set(&self.misses));
                push_flag(&mut known, attempts.len(), is_set(&self.known));
                attempts.push(attempt);
                counts.push(count);
            }
        }
        let rows = filter_record_batch(rows, &BooleanArray::from(keep)).map_err(|error| {
            TaskError::Internal(format!("rows do not fit their calls: {error}"))
        })?;
        (self.retries, self.misses, self.known) = (retries, misses, known);
        (self.attempts, self.counts) = (attempts, counts);
        Ok(self.finish(rows))
    }

    /// Makes the reply as [`finish_without`](Self::finish_without) does, where rows with a null in one of
    /// the `required` columns are bad, too; others are in any order. `service` has no value for them.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn finish_required(
        self,
        rows: &RecordBatch,
        mut bad: Vec<(usize, CallFailure)>,
        required: &[usize],
        service: &str,
    ) -> Result<ReplyGroup, TaskError> {
        bad.extend(self.rows_with_nulls(rows, required).into_iter().map(|(row, column)| {
            let name = rows.schema_ref().field(column).name();
            let text = format!("`{name}` is declared as not null, and {service} has none");
            (row, plain_failure(text))
        }));
        bad.sort_by_key(|(row, _)| *row);
        self.finish_without(rows, bad)
    }

    /// Makes the reply as [`finish_required`](Self::finish_required) does, out of columns that texts were
    /// read into: rows with one that could not be read are bad, too.
    ///
    /// # Errors
    ///
    /// As there, or the columns do not fit the schema.
    pub fn finish_columns(
        self,
        columns: Vec<ParsedColumn>,
        schema: &SchemaRef,
        required: &[usize],
        service: &str,
    ) -> Result<ReplyGroup, TaskError> {
        let rows = self.counts.iter().map(|it| *it as usize).sum();
        let (rows, bad) = rows_of(columns, schema, rows)?;
        self.finish_required(&rows, bad, required, service)
    }

    #[inline]
    fn push(&mut self, attempt: AttemptId, rows: u32, is_miss: bool, retry: bool) {
        push_flag(&mut self.known, self.attempts.len(), false);
        self.push_known(attempt, rows, is_miss, retry);
    }

    #[inline]
    fn push_known(&mut self, attempt: AttemptId, rows: u32, is_miss: bool, retry: bool) {
        push_flag(&mut self.retries, self.attempts.len(), retry);
        push_flag(&mut self.misses, self.attempts.len(), is_miss);
        self.attempts.push(attempt);
        self.counts.push(rows);
        self.is_one_each &= rows == 1;
    }
}

/// Appends a flag to flags that begin with the first one set, as number `index`.
#[inline]
fn push_flag(flags: &mut Option<Vec<bool>>, index: usize, flag: bool) {
    if flag && flags.is_none() {
        *flags = Some(vec![false; index]);
    }
    if let Some(flags) = flags {
        flags.push(flag);
    }
}

/// Makes `count` rows of columns; returns which of them have a value that could not be read, in any order,
/// with what is wrong.
///
/// # Errors
///
/// [`TaskError::Internal`] if the columns do not fit the schema.
pub(crate) fn rows_of(
    columns: Vec<ParsedColumn>,
    schema: &SchemaRef,
    count: usize,
) -> Result<(RecordBatch, Vec<(usize, CallFailure)>), TaskError> {
    let (mut arrays, mut bad) = (Vec::with_capacity(columns.len()), Vec::new());
    for ParsedColumn { array, bad: unread } in columns {
        arrays.push(array);
        bad.extend(unread.into_iter().map(|(row, what)| (row, plain_failure(what))));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let rows = RecordBatch::try_new_with_options(SchemaRef::clone(schema), arrays, &options);
    let misfit = |error| TaskError::Internal(format!("values do not fit the schema: {error}"));
    Ok((rows.map_err(misfit)?, bad))
}

/// Makes rows of nulls.
///
/// # Errors
///
/// [`TaskError::Internal`] if a column cannot be null.
pub fn nulls(schema: &SchemaRef, rows: usize) -> Result<RecordBatch, TaskError> {
    let fields = schema.fields().iter();
    let columns = fields.map(|field| new_null_array(field.data_type(), rows)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(SchemaRef::clone(schema), columns, &options)
        .map_err(|error| TaskError::Internal(format!("a miss does not fit the schema: {error}")))
}

/// Returns the positions of columns that a call which finds something must not leave null.
///
/// # Errors
///
/// The results have no column of that name.
pub fn positions(required: &[String], results: &Schema) -> Result<Vec<usize>, StartError> {
    let position = |name: &String| {
        results.index_of(name).map_err(|_| {
            StartError::option(format!("`schema` has no column `{name}` that could be not null"))
        })
    };
    required.iter().map(position).collect()
}

#[cfg(test)]
mod tests;
