// SPDX-License-Identifier: Apache-2.0
//! Sends the statement for some rows and answers their calls.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::SchemaRef;
use futures_util::future::join_all;
use sparkawait_core::operator::AttemptId;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::error::TaskError;
use crate::function::{FailedCall, Replies, ReplyGroup};
use crate::lookup::{LookupReply, Misses};
use crate::postgres::arguments::{ArrayArgument, ValueArgument, convert};
use crate::postgres::columns::Rows;
use crate::postgres::failure::Failure;
use crate::postgres::plan::Plan;
use crate::postgres::pool::{Lease, Pool, Request};
use crate::postgres::types::Wire;
use crate::postgres::waiting::Keys;

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

/// What became of each call of a query, in their order.
type Outcomes = Vec<Result<Vec<Row>, Failure>>;

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
        let batched = match &plan.batched {
            Some(_) if keys.attempts.len() > 1 => self.run_batched(&lease, &plan, &keys).await,
            _ => None,
        };
        let (rows, first) = match batched {
            Some(Ok(rows)) => (rows, 1),
            Some(Err(failure)) if !failure.is_of_rows => {
                if failure.is_stale {
                    lease.forget_plans().await;
                }
                return Ok(Err(failure));
            }
            // One of the rows is at fault, so that each is tried for itself.
            _ => (run_single(&lease, &plan, &keys).await, 0),
        };
        if rows.iter().any(|outcome| matches!(outcome, Err(failure) if failure.is_stale)) {
            lease.forget_plans().await;
        }
        drop(lease);
        self.reply(reply, &plan, &keys.attempts, rows, first).map(Ok)
    }

    async fn connect(&self) -> Result<(Lease, Arc<Plan>), Failure> {
        let lease = self.pool.lease().await?;
        let request = Request {
            key: &self.key,
            statement: &self.statement,
            arguments: self.names.len(),
            schema: &self.schema,
            wants_batches: self.wants_batches,
        };
        let plan = lease.plan(request).await?;
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
            let column = match convert(&keys.arguments[index], *wire, name) {
                Ok(column) => column,
                Err(failure) => return Ok(Err(failure)),
            };
            if column.null_count() > 0 {
                for row in (0..column.len()).filter(|row| column.is_null(*row)) {
                    if keep[row] {
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

    /// Runs one query for all rows; `None` if the server gave rows to unknown calls.
    async fn run_batched(
        &self,
        lease: &Lease,
        plan: &Plan,
        keys: &Keys,
    ) -> Option<Result<Outcomes, Failure>> {
        let statement = plan.batched.as_ref()?;
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
        let rows = match lease.client.query(statement, &parameters).await {
            Ok(rows) => rows,
            Err(error) => return Some(Err(Failure::of("the statement", &error))),
        };
        let mut outcomes: Outcomes = keys.attempts.iter().map(|_| Ok(Vec::new())).collect();
        for row in rows {
            let ordinal: i64 = row.try_get(0).ok()?;
            let call = usize::try_from(ordinal).ok()?.checked_sub(1)?;
            outcomes.get_mut(call)?.as_mut().ok()?.push(row);
        }
        Some(Ok(outcomes))
    }

    /// Makes the reply out of what became of each call.
    fn reply(
        &self,
        mut reply: LookupReply,
        plan: &Plan,
        attempts: &[AttemptId],
        outcomes: Outcomes,
        first: usize,
    ) -> Result<ReplyGroup, TaskError> {
        let mut rows = Rows::new(&self.schema, &plan.results, attempts.len());
        for (attempt, outcome) in attempts.iter().zip(outcomes) {
            match outcome {
                Ok(found) if found.is_empty() => {
                    if reply.missed(*attempt) {
                        rows.push_nulls();
                    }
                }
                Ok(found) => {
                    reply.found(*attempt, u32::try_from(found.len()).unwrap_or(u32::MAX));
                    for row in &found {
                        rows.push(row, first);
                    }
                }
                Err(failure) => reply.failed(*attempt, failure.call_failure(), failure.retry()),
            }
        }
        let (rows, bad) = rows.finish()?;
        reply.finish_without(&rows, bad)
    }
}

/// Returns the type of the elements of an argument for many rows.
fn element(wire: Wire, of: &Type) -> Type {
    if wire == Wire::ByText { Type::TEXT } else { of.clone() }
}

/// Sends the statement for each row, without waiting for answers in between.
async fn run_single(lease: &Lease, plan: &Plan, keys: &Keys) -> Outcomes {
    let queries = (0..keys.attempts.len()).map(|row| async move {
        let arguments: Vec<ValueArgument<'_>> = plan
            .arguments
            .iter()
            .zip(&keys.arguments)
            .map(|((wire, _), values)| ValueArgument { wire: *wire, values, row })
            .collect();
        let parameters: Vec<&(dyn ToSql + Sync)> =
            arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        let rows = lease.client.query(&plan.single, &parameters).await;
        rows.map_err(|error| Failure::of("the statement", &error))
    });
    join_all(queries).await
}

fn all_failed(attempts: &[AttemptId], failure: &Failure) -> ReplyGroup {
    let failures = attempts.iter().map(|attempt| FailedCall {
        attempt: *attempt,
        failure: Box::new(failure.call_failure()),
        retry: failure.retry(),
    });
    ReplyGroup { results: None, failures: failures.collect() }
}
