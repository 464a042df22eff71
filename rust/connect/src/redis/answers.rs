// SPDX-License-Identifier: Apache-2.0
//! Result columns out of the replies to one job.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use serde::Deserialize;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{GROUP_BYTES, Replies, ReplyGroup};

use crate::json::JsonRows;
use crate::lookup::{LookupReply, Misses, service_failure};
use crate::owed::Owed;
use crate::text::{ParsedColumn, TextColumn, check_columns};

use super::failure::{self, Failure};
use super::join::PartAnswers;
use super::map::MapColumn;
use super::redirects::Redirects;
use super::resp::{Array, Reply};

/// What a reply becomes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Shape {
    /// A value is the only column; an array is one row, an element for each column.
    Row,
    /// An array is a row for each element, which is a value or an array itself.
    Rows,
    /// An array of names and values is a map, the only column.
    Map,
    /// A value is a JSON document.
    Document {
        /// Path of the array whose elements are rows.
        rows: Option<String>,
        /// Path of each column that is not the member of its own name.
        paths: Vec<(String, String)>,
    },
}

impl Shape {
    /// Checks the shape against the result columns.
    pub(super) fn check(&self, results: &SchemaRef) -> Result<Self, StartError> {
        match self {
            Self::Document { rows, paths } => {
                JsonRows::new(SchemaRef::clone(results), rows.as_deref(), paths)?;
            }
            Self::Map => {
                map_column(results, 0)?;
            }
            Self::Row | Self::Rows => check_columns(results.fields(), "schema")?,
        }
        Ok(self.clone())
    }
}

fn map_column(results: &SchemaRef, rows: usize) -> Result<MapColumn, StartError> {
    match results.fields().as_ref() {
        [field] => MapColumn::new(field, rows),
        fields => Err(StartError::option(format!(
            "`schema` must have one column to take all fields of a hash, got {}",
            fields.len()
        ))),
    }
}

/// What all jobs of a task have in common.
pub(super) struct Spec {
    pub(super) shape: Shape,
    pub(super) misses: Misses,
    /// Schema of the results.
    pub(super) schema: SchemaRef,
    /// Positions of the columns that what is found must not leave null.
    pub(super) required: Vec<usize>,
    pub(super) replies: Replies,
}

impl Spec {
    /// The schema of what is found, where a miss has nulls whatever was declared.
    fn found_schema(&self) -> SchemaRef {
        let fields = self.schema.fields().iter().enumerate().map(|(position, field)| {
            let is_nullable = field.is_nullable() && !self.required.contains(&position);
            field.as_ref().clone().with_nullable(is_nullable)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// What collects the replies.
enum Collected {
    Columns { columns: Vec<TextColumn>, is_rows: bool },
    Map(Box<MapColumn>),
    Parts(PartAnswers),
    Documents { reader: JsonRows, bytes: Vec<u8>, found: Vec<(AttemptId, Option<Range<usize>>)> },
}

/// The calls of a job, whose replies come in their order.
pub(super) struct Answers {
    attempts: Vec<AttemptId>,
    /// The same, failed if these are dropped.
    owed: Option<Owed>,
    /// Calls that were answered.
    next: usize,
    reply: LookupReply,
    collected: Collected,
    /// Of the replies in it, as they were sent.
    bytes: usize,
    spec: Arc<Spec>,
    /// Where commands are sent again that belong to another node.
    redirects: Option<Redirects>,
    /// Whether the next reply is to an `ASKING`.
    is_skipping: bool,
}

impl Answers {
    /// Awaits the replies to `attempts`.
    pub(super) fn new(
        spec: Arc<Spec>,
        attempts: Vec<AttemptId>,
        redirects: Option<Redirects>,
    ) -> Result<Self, TaskError> {
        let collected = Collected::new(&spec, attempts.len())?;
        Ok(Self::collecting(collected, spec, attempts, redirects))
    }

    /// Awaits the replies to commands that ask for parts of rows.
    pub(super) fn of_parts(
        spec: Arc<Spec>,
        attempts: Vec<AttemptId>,
        parts: PartAnswers,
        redirects: Option<Redirects>,
    ) -> Self {
        Self::collecting(Collected::Parts(parts), spec, attempts, redirects)
    }

    /// Awaits the replies to some of the calls again.
    pub(super) fn again(&self, indices: &[usize], redirects: Redirects) -> Result<Self, TaskError> {
        let attempts = indices.iter().map(|index| self.attempts[*index]).collect();
        let spec = Arc::clone(&self.spec);
        match &self.collected {
            Collected::Parts(parts) => {
                Ok(Self::of_parts(spec, attempts, parts.again(indices), Some(redirects)))
            }
            _ => Self::new(spec, attempts, Some(redirects)),
        }
    }

    fn collecting(
        collected: Collected,
        spec: Arc<Spec>,
        attempts: Vec<AttemptId>,
        redirects: Option<Redirects>,
    ) -> Self {
        let reply = LookupReply::new(spec.misses, attempts.len());
        let is_skipping = redirects.as_ref().is_some_and(Redirects::is_asking);
        let owed = Owed::new("the connection to Redis", attempts.clone(), spec.replies.clone());
        let owed = Some(owed);
        Self { attempts, owed, next: 0, reply, collected, bytes: 0, spec, redirects, is_skipping }
    }

    /// Takes the next reply, of so many bytes; returns whether it was the last one.
    #[inline]
    pub(super) fn take(&mut self, reply: Reply<'_>, bytes: usize) -> bool {
        if self.is_skipping {
            self.is_skipping = false;
            return false;
        }
        if self.bytes > 0 && self.bytes + bytes > GROUP_BYTES {
            self.reply_early();
        }
        self.bytes += bytes;
        let attempt = self.attempts[self.next];
        self.next += 1;
        if let Some(redirects) = &mut self.redirects {
            self.is_skipping = redirects.is_asking();
            if redirects.take(self.next - 1, reply) {
                return self.next == self.attempts.len();
            }
        }
        if let Collected::Parts(parts) = &mut self.collected {
            parts.take(self.next - 1, reply);
        } else if let Some(Failure { failure, retry }) = failure::of(reply) {
            self.reply.failed(attempt, failure, retry);
        } else {
            match &mut self.collected {
                Collected::Columns { columns, is_rows } => {
                    let taken = if *is_rows {
                        take_rows(&mut self.reply, columns, attempt, reply)
                    } else {
                        take_row(&mut self.reply, columns, attempt, reply)
                    };
                    if let Err(what) = taken {
                        let failure = misfit(what, self.spec.schema.fields().len());
                        self.reply.failed(attempt, failure, Retry::No);
                    }
                }
                Collected::Map(column) => {
                    if let Err(what) = take_map(&mut self.reply, column, attempt, reply) {
                        self.reply.failed(attempt, misfit(what, 1), Retry::No);
                    }
                }
                Collected::Parts(_) => {}
                Collected::Documents { bytes, found, .. } => match reply {
                    Reply::Nil => found.push((attempt, None)),
                    Reply::Text(text) => {
                        let start = bytes.len();
                        bytes.extend_from_slice(text);
                        found.push((attempt, Some(start..bytes.len())));
                    }
                    _ => {
                        let failure = misfit("an array instead of a text", 1);
                        self.reply.failed(attempt, failure, Retry::No);
                    }
                },
            }
        }
        self.next == self.attempts.len()
    }

    /// Fails the calls that were not answered, unless another node can be asked, and replies to
    /// the others.
    pub(super) fn fail(mut self, failure: &Failure) {
        for index in self.next..self.attempts.len() {
            if self.redirects.as_mut().is_some_and(|redirects| redirects.lose(index)) {
                continue;
            }
            if let Collected::Parts(parts) = &mut self.collected {
                parts.fail(index, failure);
            } else {
                self.reply.failed(self.attempts[index], failure.failure.clone(), failure.retry);
            }
        }
        self.finish();
    }

    /// Fails all calls, whatever was collected: it may be in no state to be used.
    pub(super) fn abandon(self, Failure { failure, retry }: &Failure) {
        if let Some(owed) = self.owed {
            owed.fail(failure, *retry);
        }
    }

    /// Replies to all calls.
    pub(super) fn finish(mut self) {
        let spec = Arc::clone(&self.spec);
        let owed = self.owed.take();
        let result = match self.redirects.take() {
            Some(redirects) => {
                redirects.resend(|indices, redirects| self.again(indices, redirects))
            }
            None => Ok(()),
        };
        if let Err(error) = result.and_then(|()| self.collected.reply(self.reply, &spec)) {
            spec.replies.fail(error);
        }
        if let Some(owed) = owed {
            owed.settle();
        }
    }

    /// Replies to the calls that were answered: their replies are large, and more are to come.
    #[cold]
    fn reply_early(&mut self) {
        self.bytes = 0;
        if let Err(error) = self.reply_and_go_on() {
            self.spec.replies.fail(error);
        }
    }

    fn reply_and_go_on(&mut self) -> Result<(), TaskError> {
        if let Collected::Parts(parts) = &mut self.collected {
            return parts.hand_over();
        }
        let missing = self.attempts.len() - self.next;
        let collected = Collected::new(&self.spec, missing)?;
        let collected = std::mem::replace(&mut self.collected, collected);
        let reply = LookupReply::new(self.spec.misses, missing);
        collected.reply(std::mem::replace(&mut self.reply, reply), &self.spec)
    }
}

impl Collected {
    /// Makes room for the replies to `calls` calls.
    fn new(spec: &Spec, calls: usize) -> Result<Self, TaskError> {
        let schema = &spec.schema;
        let columns =
            || schema.fields().iter().map(|field| TextColumn::new(field, calls)).collect();
        Ok(match &spec.shape {
            Shape::Row => Self::Columns { columns: columns(), is_rows: false },
            Shape::Rows => Self::Columns { columns: columns(), is_rows: true },
            Shape::Map => Self::Map(Box::new(
                map_column(schema, calls).map_err(|error| TaskError::Internal(error.message))?,
            )),
            Shape::Document { rows, paths } => Self::Documents {
                reader: JsonRows::new(spec.found_schema(), rows.as_deref(), paths)
                    .map_err(|error| TaskError::Internal(error.message))?,
                bytes: Vec::new(),
                found: Vec::with_capacity(calls),
            },
        })
    }

    /// Replies to the calls whose replies were collected.
    fn reply(self, reply: LookupReply, spec: &Spec) -> Result<(), TaskError> {
        let group = match self {
            Self::Columns { columns, .. } => {
                let columns = columns.into_iter().map(TextColumn::finish).collect();
                finish_columns(reply, columns, spec)?
            }
            Self::Map(column) => {
                let columns = column.finish().map(|column| vec![column]);
                finish_columns(reply, columns, spec)?
            }
            Self::Parts(parts) => return parts.finish(),
            Self::Documents { reader, bytes, found } => {
                finish_documents(reply, &reader, &bytes, found, &spec.schema)?
            }
        };
        spec.replies.send(group);
        Ok(())
    }
}

/// Makes the reply to calls whose key is null.
pub(super) fn null_keys(misses: Misses, schema: &SchemaRef, attempts: &[AttemptId]) -> ReplyGroup {
    let mut reply = LookupReply::new(misses, attempts.len());
    let rows = attempts.iter().filter(|attempt| reply.null_key(**attempt)).count();
    let arrays =
        schema.fields().iter().map(|field| new_null_array(field.data_type(), rows)).collect();
    let batch = RecordBatch::try_new(SchemaRef::clone(schema), arrays)
        .unwrap_or_else(|_| RecordBatch::new_empty(SchemaRef::clone(schema)));
    reply.finish(batch)
}

/// Takes a reply as at most one row.
#[inline]
fn take_row(
    reply: &mut LookupReply,
    columns: &mut [TextColumn],
    attempt: AttemptId,
    answer: Reply<'_>,
) -> Result<(), &'static str> {
    match answer {
        Reply::Text(text) => {
            let [column] = columns else { return Err("one value") };
            column.push(text);
            reply.found(attempt, 1);
        }
        Reply::Array(array) => {
            check_row(array, columns.len())?;
            if array.elements().all(|it| it == Reply::Nil) {
                miss(reply, columns, attempt);
            } else {
                push_row(array, columns);
                reply.found(attempt, 1);
            }
        }
        _ => miss(reply, columns, attempt),
    }
    Ok(())
}

/// Takes a reply as any number of rows.
fn take_rows(
    reply: &mut LookupReply,
    columns: &mut [TextColumn],
    attempt: AttemptId,
    answer: Reply<'_>,
) -> Result<(), &'static str> {
    let Reply::Array(array) = answer else { return take_row(reply, columns, attempt, answer) };
    if array.len() == 0 {
        miss(reply, columns, attempt);
        return Ok(());
    }
    for element in array.elements() {
        match element {
            Reply::Array(row) => check_row(row, columns.len())?,
            _ if columns.len() == 1 => {}
            _ => return Err("rows of one value"),
        }
    }
    for element in array.elements() {
        match element {
            Reply::Array(row) => push_row(row, columns),
            Reply::Text(text) => columns[0].push(text),
            _ => columns[0].push_null(),
        }
    }
    reply.found(attempt, u32::try_from(array.len()).unwrap_or(u32::MAX));
    Ok(())
}

/// Takes a reply as at most one map.
fn take_map(
    reply: &mut LookupReply,
    column: &mut MapColumn,
    attempt: AttemptId,
    answer: Reply<'_>,
) -> Result<(), &'static str> {
    match answer {
        Reply::Array(elements) if elements.len() > 0 => {
            column.push(elements)?;
            reply.found(attempt, 1);
        }
        Reply::Text(_) => return Err("one value"),
        _ => {
            if reply.missed(attempt) {
                column.push_null();
            }
        }
    }
    Ok(())
}

fn miss(reply: &mut LookupReply, columns: &mut [TextColumn], attempt: AttemptId) {
    if reply.missed(attempt) {
        columns.iter_mut().for_each(TextColumn::push_null);
    }
}

/// Checks that an array is a row of plain values.
fn check_row(array: Array<'_>, columns: usize) -> Result<(), &'static str> {
    if array.len() != columns {
        return Err("an array of another length");
    }
    let is_plain = |it| matches!(it, Reply::Text(_) | Reply::Nil);
    if array.elements().all(is_plain) { Ok(()) } else { Err("an array in an array") }
}

fn push_row(array: Array<'_>, columns: &mut [TextColumn]) {
    for (element, column) in array.elements().zip(columns) {
        match element {
            Reply::Text(text) => column.push(text),
            _ => column.push_null(),
        }
    }
}

/// Makes the failure of a call whose reply is `what`.
pub(super) fn misfit(what: &str, columns: usize) -> CallFailure {
    let message =
        format!("Redis answered {what}, which does not fit a schema of {columns} columns");
    service_failure(message.clone(), message)
}

/// Makes the reply out of parsed columns; rows with a value that did not parse fail.
pub(super) fn finish_columns(
    reply: LookupReply,
    columns: Result<Vec<ParsedColumn>, TaskError>,
    spec: &Spec,
) -> Result<ReplyGroup, TaskError> {
    let mut bad = Vec::new();
    let mut arrays = Vec::new();
    for parsed in columns? {
        arrays.push(parsed.array);
        let failure = |message: String| service_failure(message.clone(), message);
        bad.extend(parsed.bad.into_iter().map(|(row, message)| (row, failure(message))));
    }
    for (row, column) in reply.nulls(&arrays, &spec.required) {
        let name = spec.schema.field(column).name();
        let message = format!("`{name}` is declared as not null, and Redis has none");
        bad.push((row, service_failure(message.clone(), message)));
    }
    bad.sort_by_key(|(row, _)| *row);
    let options = RecordBatchOptions::new().with_row_count(arrays.first().map(|it| it.len()));
    let rows = RecordBatch::try_new_with_options(SchemaRef::clone(&spec.schema), arrays, &options)
        .map_err(|error| TaskError::Internal(format!("values do not fit the schema: {error}")))?;
    reply.finish_without(&rows, bad)
}

fn finish_documents(
    mut reply: LookupReply,
    reader: &JsonRows,
    bytes: &[u8],
    found: Vec<(AttemptId, Option<Range<usize>>)>,
    schema: &SchemaRef,
) -> Result<ReplyGroup, TaskError> {
    let texts: Vec<&[u8]> =
        found.iter().filter_map(|(_, range)| range.clone()).map(|range| &bytes[range]).collect();
    let decoded = reader.decode(&texts)?;
    let mut documents = decoded.documents.into_iter();
    // A null index takes a row of nulls.
    let mut indices: Vec<Option<u32>> = Vec::with_capacity(found.len());
    let mut next = 0;
    for (attempt, range) in found {
        let document = range.and_then(|_| documents.next());
        match document {
            Some(Ok(rows)) if rows > 0 => {
                indices.extend((next..next + rows).map(Some));
                next += rows;
                reply.found(attempt, rows);
            }
            Some(Err(message)) => {
                let failure = service_failure(message.clone(), message);
                reply.failed(attempt, failure, Retry::No);
            }
            _ => {
                if reply.missed(attempt) {
                    indices.push(None);
                }
            }
        }
    }
    let columns = decoded.batch.columns().to_vec();
    let rows = RecordBatch::try_new(SchemaRef::clone(schema), columns)
        .and_then(|rows| take_record_batch(&rows, &UInt32Array::from(indices)))
        .map_err(|error| TaskError::Internal(format!("rows do not fit the schema: {error}")))?;
    Ok(reply.finish(rows))
}
