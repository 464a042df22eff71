// SPDX-License-Identifier: Apache-2.0
//! Result columns out of responses.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, new_null_array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::ReplyGroup;

use super::call::{Found, Outcome};
use super::config::Returns;
use crate::json::{Decoded, JsonRows};
use crate::lookup::{LookupReply, Misses, nulls};
use crate::text::TextColumn;

/// What the values of one header may come to in a reply: less than a column can hold.
const MOST_HEADER_BYTES: usize = 1 << 30;

/// How responses become rows: columns of the body, then the status, then headers.
pub(super) struct ResponseColumns {
    schema: SchemaRef,
    /// Reads the first columns; `None` if the body is not JSON.
    json: Option<JsonRows>,
    returns: Returns,
    has_status: bool,
    /// How many of the first columns are left null.
    blank: usize,
    /// How many columns behind them come from the body.
    of_body: usize,
    misses: Misses,
    most_header_bytes: usize,
}

/// What responses have in their bodies.
struct Bodies {
    columns: Vec<ArrayRef>,
    /// The rows of each response.
    counts: Vec<u32>,
    /// The responses that could not be read, ascending, and why.
    unreadable: Vec<(usize, CallFailure)>,
    /// The rows that do not fit, ascending.
    bad: Vec<(usize, CallFailure)>,
}

impl ResponseColumns {
    /// Divides the columns of `schema`.
    #[expect(clippy::too_many_arguments, reason = "what the function was told of its results")]
    pub(super) fn new(
        schema: SchemaRef,
        returns: Returns,
        rows: Option<&str>,
        paths: &[(String, String)],
        required: &[String],
        blank: usize,
        has_status: bool,
        headers: usize,
        most_bytes: usize,
        misses: Misses,
    ) -> Result<Self, StartError> {
        let others = usize::from(has_status) + headers;
        let fields = schema.fields();
        let of_body = fields.len().checked_sub(others + blank);
        let of_body = of_body.filter(|count| match returns {
            Returns::Json => *count > 0,
            Returns::Body => *count == 1,
            Returns::Nothing => *count == 0,
        });
        let of_body = of_body.ok_or_else(|| {
            StartError::option("the result schema does not fit what the function returns")
        })?;
        let json = if returns == Returns::Json {
            // A miss has nulls, but what is found must have what was declared as not null.
            let field = |field: &FieldRef| {
                let is_nullable = field.is_nullable() && !required.contains(field.name());
                field.as_ref().clone().with_nullable(is_nullable)
            };
            let schema =
                Schema::new(fields[blank..blank + of_body].iter().map(field).collect::<Vec<_>>());
            let json = JsonRows::new(Arc::new(schema), rows, paths)?;
            Some(json.making_at_most(most_bytes).telling_of_absent(paths))
        } else {
            None
        };
        let most_header_bytes = MOST_HEADER_BYTES;
        Ok(Self { schema, json, returns, has_status, blank, of_body, misses, most_header_bytes })
    }

    /// Has each body be one row, whatever it is.
    pub(super) fn one_each(self) -> Self {
        Self { json: self.json.map(JsonRows::one_each), ..self }
    }

    /// Replies to calls that have ended, mostly at once.
    pub(super) fn reply(
        &self,
        host: &str,
        ended: Vec<(AttemptId, Outcome)>,
        mut send: impl FnMut(ReplyGroup),
    ) -> Result<(), TaskError> {
        let mut reply = LookupReply::new(self.misses, ended.len());
        let mut found = Vec::with_capacity(ended.len());
        let mut missed = Vec::new();
        for (attempt, outcome) in ended {
            match outcome {
                Outcome::Found(response) => found.push((attempt, response)),
                Outcome::Missed => missed.push((attempt, true)),
                Outcome::NullKey => missed.push((attempt, false)),
                Outcome::Failed(failed) => reply.failed(attempt, *failed),
            }
        }
        self.reply_found(host, &found, reply, missed, &mut send)
    }

    /// Replies to calls that found something, in halves where their headers are too long together,
    /// and to those that missed.
    fn reply_found(
        &self,
        host: &str,
        found: &[(AttemptId, Found)],
        mut reply: LookupReply,
        mut missed: Vec<(AttemptId, bool)>,
        send: &mut impl FnMut(ReplyGroup),
    ) -> Result<(), TaskError> {
        let mut bodies = self.bodies(host, found)?;
        if let Some((one, other)) = found.split_at_checked(bodies.counts.len())
            && !other.is_empty()
        {
            // The rows of all would be too many.
            drop(bodies);
            self.reply_found(host, one, reply, missed, send)?;
            let reply = LookupReply::new(self.misses, other.len());
            return self.reply_found(host, other, reply, Vec::new(), send);
        }
        if self.has_long_headers(found, &bodies.counts) {
            if let Some((one, other)) = found.split_at_checked(found.len() / 2)
                && !one.is_empty()
            {
                self.reply_found(host, one, reply, missed, send)?;
                let reply = LookupReply::new(self.misses, other.len());
                return self.reply_found(host, other, reply, Vec::new(), send);
            }
            bodies = self.bodies(host, &[])?;
            bodies.counts = vec![0; found.len()];
            bodies.unreadable = (0..found.len()).map(|it| (it, long_headers(host))).collect();
        }
        let (rows, bad) = self.rows(found, bodies, &mut reply, &mut missed)?;
        let mut null_rows = 0;
        for (attempt, may_retry) in missed {
            let has_row = if may_retry { reply.missed(attempt) } else { reply.null_key(attempt) };
            null_rows += usize::from(has_row);
        }
        if null_rows == 0 {
            send(reply.finish_without(&rows, bad)?);
            return Ok(());
        }
        let nulls = nulls(&self.schema, null_rows)?;
        let rows = concat_batches(&self.schema, [&rows, &nulls]).map_err(internal)?;
        send(reply.finish_without(&rows, bad)?);
        Ok(())
    }
    /// Reads the bodies of some responses.
    fn bodies(&self, host: &str, found: &[(AttemptId, Found)]) -> Result<Bodies, TaskError> {
        let columns = Vec::with_capacity(self.schema.fields().len());
        let (counts, unreadable) = (vec![1; found.len()], Vec::new());
        let mut bodies = Bodies { columns, counts, unreadable, bad: Vec::new() };
        if let Some(json) = &self.json {
            let documents: Vec<&[u8]> = found.iter().map(|(_, it)| it.body.as_ref()).collect();
            let Decoded { batch, documents, too_large } = json.decode_some(&documents)?;
            bodies.counts.truncate(documents.len());
            bodies.columns.extend_from_slice(batch.columns());
            for (index, document) in documents.into_iter().enumerate() {
                bodies.counts[index] = document.unwrap_or_else(|message| {
                    let failure = if too_large.contains(&index) {
                        CallFailure::new(ErrorKind::ResultTooLarge, format!("{host}: {message}"))
                    } else {
                        bad_body(host, &message)
                    };
                    bodies.unreadable.push((index, failure));
                    0
                });
            }
        }
        if self.returns == Returns::Body {
            let mut column = TextColumn::new(&self.schema.fields()[0], found.len());
            for (_, response) in found {
                column.push(&response.body);
            }
            let parsed = column.finish()?;
            let describe = |(row, message): (usize, String)| (row, bad_body(host, &message));
            bodies.bad.extend(parsed.bad.into_iter().map(describe));
            bodies.columns.push(parsed.array);
        }
        Ok(bodies)
    }

    /// Makes the rows of the calls that found something; those that did not join `missed`.
    fn rows(
        &self,
        found: &[(AttemptId, Found)],
        bodies: Bodies,
        reply: &mut LookupReply,
        missed: &mut Vec<(AttemptId, bool)>,
    ) -> Result<(RecordBatch, Vec<(usize, CallFailure)>), TaskError> {
        let Bodies { mut columns, counts, unreadable, bad } = bodies;
        if found.is_empty() {
            return Ok((RecordBatch::new_empty(SchemaRef::clone(&self.schema)), bad));
        }
        let mut unreadable = unreadable.into_iter().peekable();
        for (index, ((attempt, _), count)) in found.iter().zip(&counts).enumerate() {
            if let Some((_, failure)) = unreadable.next_if(|(failed, _)| *failed == index) {
                reply.failed(*attempt, failure);
            } else if *count == 0 {
                missed.push((*attempt, true));
            } else {
                reply.found(*attempt, *count);
            }
        }
        self.push_envelope(found, &counts, &mut columns)?;
        let count = columns.first().map_or(0, |it| it.len());
        let blank = self.schema.fields()[..self.blank].iter();
        columns.splice(0..0, blank.map(|it| new_null_array(it.data_type(), count)));
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns);
        Ok((rows.map_err(internal)?, bad))
    }

    /// Whether a header of some responses, which each of their rows has, is longer than one may be.
    fn has_long_headers(&self, found: &[(AttemptId, Found)], counts: &[u32]) -> bool {
        let others = self.blank + self.of_body + usize::from(self.has_status);
        let headers = self.schema.fields().len() - others;
        let each = || found.iter().zip(counts);
        let length = |index: usize| {
            let of = |((_, it), count): (&(AttemptId, Found), &u32)| {
                it.headers[index].as_ref().map_or(0, |it| it.len() * *count as usize)
            };
            each().map(of).sum::<usize>()
        };
        (0..headers).any(|index| length(index) > self.most_header_bytes)
    }

    /// Appends status and headers, repeated for each row of a response.
    fn push_envelope(
        &self,
        found: &[(AttemptId, Found)],
        counts: &[u32],
        columns: &mut Vec<ArrayRef>,
    ) -> Result<(), TaskError> {
        let mut fields = self.schema.fields()[self.blank + self.of_body..].iter();
        if self.has_status
            && let Some(field) = fields.next()
        {
            let each = found.iter().zip(counts);
            let statuses = each.flat_map(|((_, response), count)| {
                std::iter::repeat_n(i32::from(response.status), *count as usize)
            });
            let statuses: ArrayRef = Arc::new(Int32Array::from_iter_values(statuses));
            columns.push(cast(&statuses, field.data_type()).map_err(internal)?);
        }
        for (index, field) in fields.enumerate() {
            let mut column = TextColumn::new(field, found.len());
            for ((_, response), count) in found.iter().zip(counts) {
                for _ in 0..*count {
                    match &response.headers[index] {
                        Some(value) => column.push(value.as_bytes()),
                        None => column.push_null(),
                    }
                }
            }
            columns.push(column.finish()?.array);
        }
        Ok(())
    }
}

/// Makes the failure of a body that does not fit the schema.
fn bad_body(host: &str, message: &str) -> CallFailure {
    CallFailure::new(ErrorKind::ResultSchemaMismatch, format!("{host}: {message}"))
}

/// Makes the failure of a response whose header is too long for all of its rows.
fn long_headers(host: &str) -> CallFailure {
    let text = format!(
        "{host}: a header in `response_headers` comes to more than 1 GiB in the rows of the response"
    );
    CallFailure::new(ErrorKind::ResultTooLarge, text)
}

fn internal(error: impl std::fmt::Display) -> TaskError {
    TaskError::Internal(format!("responses do not fit the result columns: {error}"))
}

#[cfg(test)]
mod tests;
