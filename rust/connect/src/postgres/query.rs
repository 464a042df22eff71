// SPDX-License-Identifier: Apache-2.0
//! Sends the statement for some rows and answers their calls.

use std::pin::pin;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::SchemaRef;
use futures_util::{StreamExt, stream};
use sparkawait_core::operator::AttemptId;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::error::TaskError;
use crate::function::{FailedCall, Replies, ReplyGroup};
use crate::lookup::{LookupReply, Misses};
use crate::postgres::arguments::{ArrayArgument, ValueArgument, convert};
use crate::postgres::failure::Failure;
use crate::postgres::found::Found;
use crate::postgres::plan::{Plan, Request};
use crate::postgres::pool::{Lease, Pool};
use crate::postgres::session::{Query, Session};
use crate::postgres::types::Wire;
use crate::postgres::waiting::{Keys, is_null};

/// What all queries of a started lookup share.
pub(crate) struct Lookup {
    pub(crate) key: Arc<str>,
    pub(crate) statement: String,
    /// The argument columns.
    pub(crate) names: Vec<String>,
    pub(crate) schema: SchemaRef,
    pub(crate) misses: Misses,
    pub(crate) wants_batches: bool,
    pub(crate) pool: Arc<Pool>,
    pub(crate) replies: Replies,
}

/// Looks some rows up and replies to all of their calls, whatever happens.
pub(crate) async fn answer(lookup: Arc<Lookup>, keys: Keys) {
    let attempts = keys.attempts.clone();
    // Refused only when the task has ended.
    let _ = match lookup.look_up(keys).await {
        Ok(Ok(reply)) => lookup.replies.send(reply),
        Ok(Err(failure)) => lookup.replies.send(all_failed(&attempts, &failure)),
        Err(error) => lookup.replies.fail(error),
    };
}

impl Lookup {
    /// Answers calls that have a null among their arguments.
    pub(crate) fn answer_null_keys(&self, attempts: &[AttemptId]) {
        if attempts.is_empty() {
            return;
        }
        let mut reply = LookupReply::new(self.misses, attempts.len());
        let nulls = attempts.iter().filter(|attempt| reply.null_key(**attempt)).count();
        let columns = self.schema.fields().iter();
        let columns = columns.map(|field| new_null_array(field.data_type(), nulls)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(nulls));
        let schema = SchemaRef::clone(&self.schema);
        let _ = match RecordBatch::try_new_with_options(schema, columns, &options) {
            Ok(rows) => self.replies.send(reply.finish(rows)),
            Err(error) => self.replies.fail(TaskError::Internal(error.to_string())),
        };
    }

    /// Runs the query; the outer error ends the task, the inner one fails all calls.
    async fn look_up(&self, keys: Keys) -> Result<Result<ReplyGroup, Failure>, TaskError> {
        let (lease, plan) = match self.connect().await {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let (keys, refused) = match self.convert(&plan, keys)? {
            Ok(converted) => converted,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut reply = LookupReply::new(self.misses, keys.attempts.len());
        for (attempt, failure) in refused {
            reply.failed(attempt, failure.call_failure(), failure.retry());
        }
        let found =
            || Found::new(&self.schema, &plan.results, keys.attempts.len(), self.misses.how);
        let batched = match &plan.batched {
            Some(query) if keys.attempts.len() > 1 => {
                run_batched(&lease, query, &plan, &keys, found()).await
            }
            _ => None,
        };
        let found = match batched {
            Some(Ok(found)) => found,
            Some(Err(failure)) if !failure.is_of_rows => {
                if failure.is_stale {
                    lease.plans.forget();
                }
                return Ok(Err(failure));
            }
            // One of the rows is at fault, so that each is tried for itself.
            _ => run_single(&lease, &plan, &keys, found()).await,
        };
        let outcome = found.finish()?;
        if outcome.failures.iter().any(|(_, failure)| failure.is_stale) {
            lease.plans.forget();
        }
        drop(lease);
        let mut failures = outcome.failures.iter().peekable();
        for (call, (attempt, count)) in keys.attempts.iter().zip(outcome.counts).enumerate() {
            if let Some((_, failure)) = failures.next_if(|(failed, _)| *failed == call) {
                reply.failed(*attempt, failure.call_failure(), failure.retry());
            } else if count == 0 {
                reply.missed(*attempt);
            } else {
                reply.found(*attempt, count);
            }
        }
        reply.finish_without(&outcome.rows, outcome.bad).map(Ok)
    }

    async fn connect(&self) -> Result<(Lease, Arc<Plan>), Failure> {
        let lease = self.pool.lease().await?;
        let request = Request {
            key: &self.key,
            statement: &self.statement,
            arguments: self.names.len(),
            schema: &self.schema,
            wants_batches: self.wants_batches,
            keeps: self.pool.keeps_statements(),
        };
        let plan = self.pool.plan(&lease, request).await?;
        Ok((lease, plan))
    }

    /// Makes arguments of the statement's types; returns the calls for which that is impossible.
    #[expect(clippy::type_complexity, reason = "the two errors end different things")]
    fn convert(
        &self,
        plan: &Plan,
        mut keys: Keys,
    ) -> Result<Result<(Keys, Vec<(AttemptId, Failure)>), Failure>, TaskError> {
        let mut refused = Vec::new();
        let mut keep = vec![true; keys.attempts.len()];
        for (index, (wire, of)) in plan.arguments.iter().enumerate() {
            let name = &self.names[index];
            let given = &keys.arguments[index];
            let column = match convert(given, *wire, name) {
                Ok(column) => column,
                Err(failure) => return Ok(Err(failure)),
            };
            if column.null_count() > 0 {
                for row in (0..column.len()).filter(|row| column.is_null(*row)) {
                    if keep[row] && !is_null(given, row) {
                        keep[row] = false;
                        let text = format!("the value of argument column `{name}` is no `{of}`");
                        refused.push((keys.attempts[row], Failure::permanent(text)));
                    }
                }
            }
            keys.arguments[index] = column;
        }
        let keys = if refused.is_empty() { keys } else { keys.keep(keep)? };
        Ok(Ok((keys, refused)))
    }
}

/// Runs one query for all rows; `None` if the server gave rows to unknown calls.
async fn run_batched(
    session: &Session,
    query: &Query,
    plan: &Plan,
    keys: &Keys,
    mut found: Found,
) -> Option<Result<Found, Failure>> {
    let arguments: Vec<ArrayArgument> = plan
        .arguments
        .iter()
        .zip(&keys.arguments)
        .map(|((wire, of), values)| ArrayArgument {
            wire: *wire,
            values: Arc::clone(values),
            element: element(*wire, of),
        })
        .collect();
    let parameters: Vec<&(dyn ToSql + Sync)> =
        arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
    let mut is_known = true;
    let read = async {
        let answer = session.send(query, &parameters).await?;
        answer
            .read(|row| match call_of(row).filter(|call| *call < found.calls()) {
                Some(call) => found.push(call, row, 1),
                None => is_known = false,
            })
            .await
    };
    let read = read.await;
    is_known.then(|| read.map(|()| found))
}

/// Reads the call of a row, which the server counts from 1.
fn call_of(row: &Row) -> Option<usize> {
    let ordinal: i64 = row.try_get(0).ok()?;
    usize::try_from(ordinal).ok()?.checked_sub(1)
}

/// Returns the type of the elements of an argument for many rows.
fn element(wire: Wire, of: &Type) -> Type {
    if wire == Wire::ByText { Type::TEXT } else { of.clone() }
}

/// Sends the statement for each row, without waiting for answers in between.
async fn run_single(session: &Session, plan: &Plan, keys: &Keys, mut found: Found) -> Found {
    let calls = keys.attempts.len();
    let answers = (0..calls).map(|row| async move {
        let arguments: Vec<ValueArgument<'_>> = plan
            .arguments
            .iter()
            .zip(&keys.arguments)
            .map(|((wire, _), values)| ValueArgument { wire: *wire, values, row })
            .collect();
        let parameters: Vec<&(dyn ToSql + Sync)> =
            arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        session.send(&plan.single, &parameters).await
    });
    // All are sent at once; the server answers in the order in which they are read here. None may
    // be left of the rows, and a buffer for none would wait for ever.
    let mut answers = pin!(stream::iter(answers).buffered(calls.max(1)).enumerate());
    while let Some((call, answer)) = answers.next().await {
        let read = match answer {
            Ok(answer) => answer.read(|row| found.push(call, row, 0)).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = read {
            found.fail(call, failure);
        }
    }
    found
}

fn all_failed(attempts: &[AttemptId], failure: &Failure) -> ReplyGroup {
    let failures = attempts.iter().map(|attempt| FailedCall {
        attempt: *attempt,
        failure: Box::new(failure.call_failure()),
        retry: failure.retry(),
    });
    ReplyGroup { results: None, failures: failures.collect() }
}
