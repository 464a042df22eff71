// SPDX-License-Identifier: Apache-2.0
//! Sends the statement for some rows and answers their calls.

use std::pin::pin;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, SchemaRef};
use futures_util::{StreamExt, stream};
use sparkawait_core::operator::AttemptId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::TaskError;
use crate::function::{FailedCall, Replies, ReplyGroup};
use crate::lookup::{LookupReply, Misses, service_failure};
use crate::postgres::arguments::{ArrayArgument, ValueArgument};
use crate::postgres::failure::Failure;
use crate::postgres::found::Found;
use crate::postgres::plan::{Plan, Request};
use crate::postgres::pool::{Lease, Pool};
use crate::postgres::session::{Query, Session};
use crate::postgres::waiting::Keys;

/// What all queries of a started lookup share.
pub(crate) struct Lookup {
    pub(crate) key: Arc<str>,
    pub(crate) statement: String,
    /// Names and types of the argument columns.
    pub(crate) arguments: Vec<(String, DataType)>,
    pub(crate) schema: SchemaRef,
    /// Positions of the columns that what is found must not leave null.
    pub(crate) required: Vec<usize>,
    pub(crate) misses: Misses,
    pub(crate) wants_batches: bool,
    /// Most that is read for one row.
    pub(crate) most_bytes: usize,
    pub(crate) pool: Arc<Pool>,
    pub(crate) replies: Replies,
}

/// Why the calls of a query were not answered.
enum Stop {
    /// All of them fail with that.
    Failed(Failure),
    /// Too much was found for all of them together; they may be asked for in parts.
    TooLarge(Keys),
    /// The task ends.
    Task(TaskError),
}

impl From<TaskError> for Stop {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

/// Looks some rows up and replies to all of their calls, whatever happens.
pub(crate) async fn answer(lookup: Arc<Lookup>, keys: Keys) {
    let mut parts = vec![keys];
    while let Some(keys) = parts.pop() {
        let attempts = keys.attempts.clone();
        match lookup.look_up(keys).await {
            Ok(()) => {}
            Err(Stop::Failed(failure)) if failure.is_of_types() => {
                lookup.replies.fail(TaskError::Start(failure.start_error()));
                return;
            }
            Err(Stop::Failed(failure)) => lookup.send(all_failed(&attempts, &failure)),
            Err(Stop::TooLarge(keys)) => {
                let (first, second) = keys.halves();
                parts.extend([second, first]);
            }
            Err(Stop::Task(error)) => {
                lookup.replies.fail(error);
                return;
            }
        }
    }
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
        match RecordBatch::try_new_with_options(schema, columns, &options) {
            Ok(rows) => self.send(reply.finish(rows)),
            Err(error) => {
                self.replies.fail(TaskError::Internal(error.to_string()));
            }
        }
    }

    /// Runs the query and replies to its calls, unless all of them share an outcome.
    async fn look_up(&self, keys: Keys) -> Result<(), Stop> {
        let (lease, plan) = self.connect().await.map_err(Stop::Failed)?;
        let keys = self.convert(&plan, keys)?;
        if let Some(query) = plan.batched.as_ref().filter(|_| keys.attempts.len() > 1) {
            match lease.wanted(self.run_batched(&lease, query, &plan, &keys)).await {
                Some(Ok(found)) => {
                    drop(lease);
                    return Ok(self.reply(found, &keys.attempts)?);
                }
                Some(Err(failure)) if failure.is_too_large() => return Err(Stop::TooLarge(keys)),
                Some(Err(failure)) if !failure.is_of_rows() => {
                    if failure.is_stale() {
                        lease.plans.forget();
                    }
                    return Err(Stop::Failed(failure));
                }
                // One of the rows is at fault, so that each is tried for itself.
                _ => {}
            }
        }
        Ok(lease.wanted(self.run_single(&lease, &plan, &keys)).await?)
    }

    async fn connect(&self) -> Result<(Lease, Arc<Plan>), Failure> {
        let lease = self.pool.lease().await?;
        let request = Request {
            key: &self.key,
            statement: &self.statement,
            arguments: &self.arguments,
            schema: &self.schema,
            wants_batches: self.wants_batches,
            keeps: self.pool.keeps_statements(),
        };
        let plan = lease.within_limit(self.pool.plan(&lease, request)).await??;
        Ok((lease, plan))
    }

    fn found(&self, plan: &Plan, calls: usize) -> Found {
        Found::new(&self.schema, &plan.results, calls, self.misses.how)
    }

    fn send(&self, reply: ReplyGroup) {
        // Refused only when the task has ended.
        let _ = self.replies.send(reply);
    }

    /// Makes arguments of the statement's types, and replies to calls for which that is impossible.
    fn convert(&self, plan: &Plan, mut keys: Keys) -> Result<Keys, Stop> {
        let mut keep = vec![true; keys.attempts.len()];
        let mut failures = Vec::new();
        for (index, argument) in plan.arguments.iter().enumerate() {
            let given = &keys.arguments[index];
            let column = argument.convert(given).map_err(Stop::Failed)?;
            if column.null_count() > 0 {
                let nulls = given.logical_nulls();
                for row in (0..column.len()).filter(|row| column.is_null(*row)) {
                    if keep[row] && !nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                        keep[row] = false;
                        failures.push(failed_call(keys.attempts[row], &argument.misfit()));
                    }
                }
            }
            keys.arguments[index] = column;
        }
        if failures.is_empty() {
            return Ok(keys);
        }
        self.send(ReplyGroup { results: None, failures });
        Ok(keys.keep(keep)?)
    }

    /// Runs one query for all rows; `None` if the server gave rows to unknown calls.
    async fn run_batched(
        &self,
        session: &Session,
        query: &Query,
        plan: &Plan,
        keys: &Keys,
    ) -> Option<Result<Found, Failure>> {
        let arguments: Vec<ArrayArgument> = plan
            .arguments
            .iter()
            .zip(&keys.arguments)
            .map(|(argument, values)| ArrayArgument {
                wire: argument.wire,
                values: Arc::clone(values),
                element: argument.element(),
            })
            .collect();
        let parameters: Vec<&(dyn ToSql + Sync)> =
            arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        let mut found = self.found(plan, keys.attempts.len());
        let mut is_known = true;
        let take = |row: &Row| {
            match call_of(row).filter(|call| *call < found.calls()) {
                Some(call) => found.push(call, row, 1),
                None => is_known = false,
            }
            self.check_size(found.bytes())
        };
        let read = match session.within_limit(session.send(query, &parameters)).await {
            Ok(Ok(answer)) => answer.read(take).await,
            Ok(Err(failure)) | Err(failure) => Err(failure),
        };
        is_known.then(|| read.map(|()| found))
    }

    /// Sends the statement for each row, without waiting for answers in between, and replies.
    async fn run_single(
        &self,
        session: &Session,
        plan: &Plan,
        keys: &Keys,
    ) -> Result<(), TaskError> {
        let calls = keys.attempts.len();
        let sent = (0..calls).map(|row| async move {
            let arguments: Vec<ValueArgument<'_>> = plan
                .arguments
                .iter()
                .zip(&keys.arguments)
                .map(|(argument, values)| ValueArgument { wire: argument.wire, values, row })
                .collect();
            let parameters: Vec<&(dyn ToSql + Sync)> =
                arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
            session.send(&plan.single, &parameters).await
        });
        // All are sent at once; the server answers in the order in which they are read here. None
        // may be left of the rows, and a buffer for none would wait for ever.
        let mut answers = pin!(stream::iter(sent).buffered(calls.max(1)));
        let (mut found, mut first) = (self.found(plan, calls), 0);
        for call in 0..calls {
            let before = found.bytes();
            let read = match session.within_limit(answers.next()).await {
                Ok(Some(Ok(answer))) => {
                    let take = |row: &Row| {
                        found.push(call - first, row, 0);
                        self.check_size(found.bytes() - before)
                    };
                    answer.read(take).await
                }
                Ok(Some(Err(failure))) | Err(failure) => Err(failure),
                Ok(None) => Err(Failure::transient("the statement was not sent")),
            };
            if let Err(failure) = read {
                if failure.is_stale() {
                    session.plans.forget();
                }
                found.fail(call - first, failure);
            }
            // No more is held than one reply may have.
            if call + 1 == calls || found.bytes() > self.most_bytes {
                let rest = self.found(plan, calls - call - 1);
                found.truncate(call + 1 - first);
                self.reply(std::mem::replace(&mut found, rest), &keys.attempts[first..=call])?;
                first = call + 1;
            }
        }
        Ok(())
    }

    fn check_size(&self, bytes: usize) -> Result<(), Failure> {
        if bytes <= self.most_bytes {
            return Ok(());
        }
        Err(Failure::too_large(self.most_bytes))
    }

    /// Replies with what was found for some calls.
    fn reply(&self, found: Found, attempts: &[AttemptId]) -> Result<(), TaskError> {
        let outcome = found.finish()?;
        let mut reply = LookupReply::new(self.misses, attempts.len());
        let mut failures = outcome.failures.iter().peekable();
        for (call, (attempt, count)) in attempts.iter().zip(outcome.counts).enumerate() {
            if let Some((_, failure)) = failures.next_if(|(failed, _)| *failed == call) {
                reply.failed(*attempt, failure.call_failure(), failure.retry());
            } else if count == 0 {
                reply.missed(*attempt);
            } else {
                reply.found(*attempt, count);
            }
        }
        let mut bad = outcome.bad;
        for (row, column) in reply.nulls(outcome.rows.columns(), &self.required) {
            let name = self.schema.field(column).name();
            let message = format!("`{name}` is declared as not null, and PostgreSQL has none");
            bad.push((row, service_failure(message.clone(), message)));
        }
        bad.sort_by_key(|(row, _)| *row);
        self.send(reply.finish_without(&outcome.rows, bad)?);
        Ok(())
    }
}

/// Reads the call of a row, which the server counts from 1.
fn call_of(row: &Row) -> Option<usize> {
    let ordinal: i64 = row.try_get(0).ok()?;
    usize::try_from(ordinal).ok()?.checked_sub(1)
}

fn all_failed(attempts: &[AttemptId], failure: &Failure) -> ReplyGroup {
    let failures = attempts.iter().map(|attempt| failed_call(*attempt, failure)).collect();
    ReplyGroup { results: None, failures }
}

fn failed_call(attempt: AttemptId, failure: &Failure) -> FailedCall {
    FailedCall { attempt, failure: Box::new(failure.call_failure()), retry: failure.retry() }
}
