// SPDX-License-Identifier: Apache-2.0
//! Result columns out of responses.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, new_null_array};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::ReplyGroup;

use super::Returns;
use super::call::{Found, Outcome};
use crate::json::{Decoded, JsonRows};
use crate::lookup::{LookupReply, Misses};
use crate::text::TextColumn;

/// Stands for the rows of a document that could not be read.
const UNREADABLE: u32 = u32::MAX;

/// How responses become rows: columns of the body, then the status, then headers.
pub(super) struct ResultColumns {
    schema: SchemaRef,
    /// Reads the first columns; `None` if the body is no JSON.
    json: Option<JsonRows>,
    returns: Returns,
    has_status: bool,
    /// How many columns come from the body.
    of_body: usize,
    misses: Misses,
}

impl ResultColumns {
    /// Divides the columns of `schema`.
    #[expect(clippy::too_many_arguments, reason = "what the function was told of its results")]
    pub(super) fn new(
        schema: SchemaRef,
        returns: Returns,
        rows: Option<&str>,
        paths: &[(String, String)],
        required: &[String],
        has_status: bool,
        headers: usize,
        misses: Misses,
    ) -> Result<Self, StartError> {
        let others = usize::from(has_status) + headers;
        let fields = schema.fields();
        let of_body = fields.len().checked_sub(others);
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
            let schema = Schema::new(fields[..of_body].iter().map(field).collect::<Vec<_>>());
            Some(JsonRows::new(Arc::new(schema), rows, paths)?)
        } else {
            None
        };
        Ok(Self { schema, json, returns, has_status, of_body, misses })
    }

    /// Makes the reply to calls that have ended.
    pub(super) fn reply(
        &self,
        host: &str,
        ended: Vec<(AttemptId, Outcome)>,
    ) -> Result<ReplyGroup, TaskError> {
        let mut reply = LookupReply::new(self.misses, ended.len());
        let mut found = Vec::with_capacity(ended.len());
        let mut missed = Vec::new();
        for (attempt, outcome) in ended {
            match outcome {
                Outcome::Found(response) => found.push((attempt, response)),
                Outcome::Missed => missed.push((attempt, true)),
                Outcome::NullKey => missed.push((attempt, false)),
                Outcome::Failed(failed) => reply.failed(attempt, failed.0, failed.1),
            }
        }
        let (rows, bad) = self.found(host, &found, &mut reply, &mut missed)?;
        let mut null_rows = 0;
        for (attempt, may_retry) in missed {
            let has_row = if may_retry { reply.missed(attempt) } else { reply.null_key(attempt) };
            null_rows += usize::from(has_row);
        }
        if null_rows == 0 {
            return reply.finish_without(&rows, bad);
        }
        let nulls = self.schema.fields().iter();
        let nulls = nulls.map(|field| new_null_array(field.data_type(), null_rows)).collect();
        let nulls =
            RecordBatch::try_new(SchemaRef::clone(&self.schema), nulls).map_err(internal)?;
        let rows = concat_batches(&self.schema, [&rows, &nulls]).map_err(internal)?;
        reply.finish_without(&rows, bad)
    }

    /// Makes the rows of the calls that found something; those that did not join `missed`.
    fn found(
        &self,
        host: &str,
        found: &[(AttemptId, Found)],
        reply: &mut LookupReply,
        missed: &mut Vec<(AttemptId, bool)>,
    ) -> Result<(RecordBatch, Vec<(usize, CallFailure)>), TaskError> {
        if found.is_empty() {
            return Ok((RecordBatch::new_empty(SchemaRef::clone(&self.schema)), Vec::new()));
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        let mut counts = vec![1; found.len()];
        if let Some(json) = &self.json {
            let documents: Vec<&[u8]> = found.iter().map(|(_, it)| it.body.as_ref()).collect();
            let Decoded { batch, documents } = json.decode(&documents)?;
            columns.extend_from_slice(batch.columns());
            for ((count, document), (attempt, _)) in counts.iter_mut().zip(documents).zip(found) {
                *count = match document {
                    Ok(rows) => rows,
                    Err(message) => {
                        reply.failed(*attempt, bad_body(host, &message), Retry::No);
                        UNREADABLE
                    }
                };
            }
        }
        let mut bad = Vec::new();
        if self.returns == Returns::Body {
            let mut column = TextColumn::new(&self.schema.fields()[0], found.len());
            for (_, response) in found {
                column.push(&response.body);
            }
            let parsed = column.finish()?;
            let describe = |(row, message): (usize, String)| (row, bad_body(host, &message));
            bad.extend(parsed.bad.into_iter().map(describe));
            columns.push(parsed.array);
        }
        for ((attempt, _), count) in found.iter().zip(&counts) {
            match count {
                0 => missed.push((*attempt, true)),
                count if *count == UNREADABLE => {}
                count => reply.found(*attempt, *count),
            }
        }
        for count in &mut counts {
            *count = if *count == UNREADABLE { 0 } else { *count };
        }
        self.push_envelope(found, &counts, &mut columns)?;
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns);
        Ok((rows.map_err(internal)?, bad))
    }

    /// Appends status and headers, repeated for each row of a response.
    fn push_envelope(
        &self,
        found: &[(AttemptId, Found)],
        counts: &[u32],
        columns: &mut Vec<ArrayRef>,
    ) -> Result<(), TaskError> {
        let mut fields = self.schema.fields()[self.of_body..].iter();
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
            // A header that is no UTF-8 is null: it is not what the row was looked up for.
            columns.push(column.finish()?.array);
        }
        Ok(())
    }
}

/// Makes the failure of a body that does not fit the schema.
fn bad_body(host: &str, message: &str) -> CallFailure {
    let text = format!("{host}: {message}");
    CallFailure {
        kind: ErrorKind::ResultSchemaMismatch,
        message: text.clone(),
        summary: text,
        cause: None,
    }
}

fn internal(error: impl std::fmt::Display) -> TaskError {
    TaskError::Internal(format!("responses do not fit the result columns: {error}"))
}
