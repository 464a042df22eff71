// SPDX-License-Identifier: Apache-2.0
//! Sends the statement for some rows and answers their calls.

use std::pin::pin;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use futures_util::{StreamExt, stream};
use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, GROUP_BYTES, Replies, ReplyGroup};
use sparkawait_task::shared::Lent;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::failure::Failure;
use crate::lines::Lines;
use crate::lookup::{LookupReply, Misses};
use crate::postgres::arguments::{ArrayArgument, ValueArgument};
use crate::postgres::backlog::{Backlog, Segments, Unasked};
use crate::postgres::failure::{Class, Fault};
use crate::postgres::found_rows::FoundRows;
use crate::postgres::keys::Keys;
use crate::postgres::most_found::MostFound;
use crate::postgres::parts::Parts;
use crate::postgres::plan::{Plan, PlannedQuery, Request};
use crate::postgres::pool::{Lease, Pool};
use crate::postgres::server::Rules;
use crate::postgres::session::Session;
use crate::requests::{Asks, AwaitedCalls};

/// What all queries of a started lookup share.
pub(crate) struct Lookup {
    pub(crate) backlog: Backlog,
    pub(crate) request: Arc<Request>,
    /// Positions of the columns that what is found must not leave null.
    pub(crate) required: Vec<usize>,
    pub(crate) misses: Misses,
    /// Whether the statement only reads.
    pub(crate) reads: bool,
    pub(crate) most_found: MostFound,
    pub(crate) pool: Lent<Pool>,
    /// How its statements are sent.
    pub(crate) rules: Rules,
    pub(crate) replies: Replies,
}

/// Why the calls of a query were not answered.
enum Stop {
    /// All of them fail with that.
    Failed(Fault),
    /// One of them is at fault, or too much was found for all together.
    OfRows {
        keys: Keys,
        failure: Fault,
        /// How far the query got, if that is known.
        reached: Option<usize>,
    },
    /// The task ends.
    Task(TaskError),
}

/// A connection, and what to send over it.
type Connected = (Lease, Arc<Plan>);

impl From<TaskError> for Stop {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

/// How the statement is run for some rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// One query for all, if there is one.
    Together,
    /// One after the other.
    Singly,
}

/// What a query for many rows came to.
enum Batched {
    Found(FoundRows),
    /// The server gave rows to calls that do not exist.
    Unknown,
    Failed {
        failure: Fault,
        /// How far it got, if that is known.
        reached: Option<usize>,
    },
}

/// What happened to rows that were asked for singly.
struct Ran {
    /// The failure of one of them.
    failed: Option<Fault>,
    /// Which of them were not answered; ask for them again.
    again: Vec<bool>,
}

impl Asks for Lookup {
    type Rows = Segments;
    type Batch = Keys;
    type Ended = ();

    const NAME: &'static str = "postgres.lookup";

    fn replies(&self) -> &Replies {
        &self.replies
    }

    fn add(&self, calls: &Calls, waiting: &mut Lines<Segments>) -> Result<(), TaskError> {
        let Unasked { null_keys, too_large } = self.backlog.add(calls, waiting)?;
        if !null_keys.is_empty() {
            self.send(LookupReply::null_keys(self.misses, &self.request.schema, &null_keys)?);
        }
        if !too_large.is_empty() {
            let failure = Fault::permanent(
                "PostgreSQL: the row's arguments have more bytes than a message to the server may, \
                 1 GB",
            );
            self.send(all_failed(&too_large, &failure));
        }
        Ok(())
    }

    fn take(&self, rows: &mut Segments, requests: usize) -> Result<Keys, TaskError> {
        self.backlog.take(rows, requests)
    }

    fn remove(&self, rows: &mut Segments, cancelled: &[AttemptId]) {
        rows.remove(cancelled);
    }

    fn attempts(keys: &Keys) -> &[AttemptId] {
        &keys.attempts
    }

    async fn ask(self: Arc<Self>, keys: Keys, wanted: Arc<AwaitedCalls>) -> Result<(), TaskError> {
        self.answer(keys, &wanted).await
    }
}

impl Lookup {
    async fn answer(&self, keys: Keys, wanted: &AwaitedCalls) -> Result<(), TaskError> {
        let connected = tokio::select! {
            biased;
            () = wanted.none_of(&keys.attempts) => return Ok(()),
            connected = self.connect() => connected,
        };
        let connected = match connected {
            // What they waited for was made for others too, and tells nothing of their own requests.
            Ok(connected) if self.replies.started(&keys.attempts) => connected,
            Ok(_) => return Ok(()),
            Err(failure) if failure.is(Class::Setting) => {
                return Err(TaskError::Start(failure.start_error()));
            }
            Err(failure) => {
                self.send(all_failed(&keys.attempts, &failure));
                return Ok(());
            }
        };
        let mut connected = Some(connected);
        let mut parts = Parts::new(keys);
        while let Some(part) = parts.next() {
            let part = part.awaited(wanted)?;
            let attempts = part.attempts.clone();
            if attempts.is_empty() {
                continue;
            }
            let asked = tokio::select! {
                biased;
                () = wanted.none_of(&attempts) => continue,
                asked = self.look_up(part, How::Together, connected.take()) => asked,
            };
            let failure = match asked {
                Ok(None) => {
                    parts.answered();
                    continue;
                }
                Ok(Some(failure)) => failure,
                Err(Stop::OfRows { keys, failure, .. }) if failure.is(Class::TooLarge) => {
                    self.halve(&mut parts, &keys, failure);
                    continue;
                }
                Err(Stop::OfRows { keys, failure, reached }) => {
                    parts.split(&keys, reached);
                    failure
                }
                Err(Stop::Failed(failure)) if failure.is(Class::Setting) => {
                    return Err(TaskError::Start(failure.start_error()));
                }
                Err(Stop::Failed(failure)) => {
                    self.send(all_failed(&attempts, &failure));
                    self.fail_all(parts.rest(), &failure);
                    return Ok(());
                }
                Err(Stop::Task(error)) => return Err(error),
            };
            if !parts.failed() {
                return self.answer_rest(parts.rest(), wanted, &failure).await;
            }
        }
        Ok(())
    }

    /// Puts the rows of a query back in two halves, or fails them if it may have been carried out.
    fn halve(&self, parts: &mut Parts, keys: &Keys, failure: Fault) {
        if self.reads {
            parts.halve(keys);
        } else {
            self.send(all_failed(&keys.attempts, &failure.of_query_that_writes()));
        }
    }

    /// Answers rows if too many of them are at fault to find them with queries for several.
    async fn answer_rest(
        &self,
        parts: impl Iterator<Item = Keys>,
        wanted: &AwaitedCalls,
        failure: &Fault,
    ) -> Result<(), TaskError> {
        if failure.is(Class::Slow) {
            self.fail_all(parts, &failure.of_others());
            return Ok(());
        }
        let parts: Vec<Keys> = parts.collect();
        let rest = Keys::concat(&parts, self.request.arguments.len())?.awaited(wanted)?;
        let attempts = rest.attempts.clone();
        let asked = tokio::select! {
            biased;
            () = wanted.none_of(&attempts) => return Ok(()),
            asked = self.look_up(rest, How::Singly, None) => asked,
        };
        match asked {
            Ok(_) => {}
            Err(Stop::Failed(failure) | Stop::OfRows { failure, .. }) => {
                self.send(all_failed(&attempts, &failure));
            }
            Err(Stop::Task(error)) => return Err(error),
        }
        Ok(())
    }

    fn fail_all(&self, parts: impl Iterator<Item = Keys>, failure: &Fault) {
        for part in parts {
            self.send(all_failed(&part.attempts, failure));
        }
    }

    /// Asks for some rows and replies to their calls, unless all of them share an outcome; returns
    /// the failure of a row that failed alone.
    async fn look_up(
        &self,
        mut keys: Keys,
        how: How,
        mut connected: Option<Connected>,
    ) -> Result<Option<Fault>, Stop> {
        let mut failed = None;
        // What a table that was changed has made useless is planned and sent again, once.
        for is_last in [false, true] {
            let (lease, plan) = match connected.take() {
                Some(connected) => connected,
                None => self.connect().await.map_err(Stop::Failed)?,
            };
            let arguments;
            (keys, arguments) = self.convert(&plan, keys)?;
            let is_together = how == How::Together && keys.len() > 1;
            if let Some(query) = plan.batched.as_ref().filter(|_| is_together) {
                let calls = keys.len();
                match lease.wanted(self.run_batched(&lease, query, &plan, calls, &arguments)).await
                {
                    Batched::Found(found) => {
                        drop(lease);
                        self.reply(found, &keys.attempts)?;
                        return Ok(None);
                    }
                    Batched::Failed { failure, reached } => {
                        let failure = self.after(&lease, failure);
                        if !is_last && failure.is_to_be_planned_again(self.reads) {
                            continue;
                        }
                        return Err(if failure.is_of_rows() || failure.is(Class::TooLarge) {
                            Stop::OfRows { keys, failure, reached }
                        } else {
                            Stop::Failed(failure)
                        });
                    }
                    Batched::Unknown if self.reads => {}
                    Batched::Unknown => {
                        lease.retire();
                        return Err(Stop::Failed(Fault::of_unknown_rows()));
                    }
                }
            }
            let attempts = &keys.attempts;
            let run = self.run_single(&lease, &plan, attempts, &arguments, is_last);
            let ran = lease.wanted(run).await?;
            failed = failed.or(ran.failed);
            if !ran.again.contains(&true) {
                break;
            }
            keys = keys.keep(ran.again)?;
        }
        Ok(failed)
    }

    /// Sees to the connection of a query that failed, and returns what its calls fail with.
    fn after(&self, lease: &Lease, failure: Fault) -> Fault {
        if failure.is(Class::Stale) {
            lease.plans.forget();
        }
        if failure.is(Class::TooLarge) {
            // What else there is would be read to its end.
            lease.give_up();
        }
        let is_demoted = failure.is(Class::ReadOnly) && !self.reads;
        if is_demoted || failure.is(Class::Transient) {
            lease.retire();
        }
        if is_demoted { failure.demoted() } else { failure }
    }

    async fn connect(&self) -> Result<Connected, Fault> {
        let lease = self.pool.lease(!self.reads).await?;
        let planning = self.pool.plan(&lease, &self.request, self.rules.silence);
        let plan = lease.within_limit(&self.rules, planning).await??;
        Ok((lease, plan))
    }

    fn found(&self, plan: &Plan, calls: usize) -> FoundRows {
        FoundRows::new(&self.request.schema, &plan.results, calls, self.misses.how)
    }

    fn send(&self, reply: ReplyGroup) {
        // Refused only when the task has ended.
        let _ = self.replies.send(reply);
    }

    /// Makes arguments of the statement's types; replies to calls for which that is impossible, and
    /// leaves them out.
    fn convert(&self, plan: &Plan, mut keys: Keys) -> Result<(Keys, Vec<ArrayRef>), Stop> {
        let mut keep = vec![true; keys.len()];
        let mut failures = Vec::new();
        let mut sent = Vec::with_capacity(keys.arguments.len());
        for (argument, given) in plan.arguments.iter().zip(&keys.arguments) {
            let column = argument.convert(given).map_err(Stop::Failed)?;
            if column.null_count() > 0 {
                let nulls = given.logical_nulls();
                for row in (0..column.len()).filter(|row| column.is_null(*row)) {
                    if keep[row] && !nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                        keep[row] = false;
                        failures
                            .push(Failure::from(&argument.misfit()).of_call(keys.attempts[row]));
                    }
                }
            }
            sent.push(column);
        }
        if !failures.is_empty() {
            self.send(ReplyGroup { failures, ..ReplyGroup::default() });
            sent = Keys { attempts: Vec::new(), arguments: sent }.keep(keep.clone())?.arguments;
            keys = keys.keep(keep)?;
        }
        Ok((keys, sent))
    }

    /// Runs one query for all `calls` rows.
    async fn run_batched(
        &self,
        session: &Session,
        query: &PlannedQuery,
        plan: &Plan,
        calls: usize,
        sent: &[ArrayRef],
    ) -> Batched {
        let arguments: Vec<ArrayArgument> = plan
            .arguments
            .iter()
            .zip(sent)
            .map(|(argument, values)| ArrayArgument {
                wire: argument.wire,
                values: Arc::clone(values),
                element: argument.element(),
            })
            .collect();
        let parameters: Vec<&(dyn ToSql + Sync)> =
            arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        let mut found = self.found(plan, calls);
        let mut is_known = true;
        let take = |row: &Row| {
            // What is too much is not kept.
            self.most_found.check_together(found.bytes() + row.raw_size_bytes())?;
            match call_of(row).filter(|call| *call < found.calls()) {
                Some(call) => found.push(call, row, 1),
                None => is_known = false,
            }
            Ok(())
        };
        let read = match session
            .within_limit(&self.rules, session.send(&self.rules, query, &parameters))
            .await
        {
            Ok(Ok(answer)) => answer.read(take).await,
            Ok(Err(failure)) | Err(failure) => Err(failure),
        };
        match read {
            _ if !is_known => Batched::Unknown,
            Ok(()) => Batched::Found(found),
            Err(failure) => Batched::Failed { failure, reached: found.reached() },
        }
    }

    /// Sends the statement for each row, without waiting for answers in between, and replies. It
    /// leaves out rows to ask for again, unless this `is_last`.
    async fn run_single(
        &self,
        session: &Lease,
        plan: &Plan,
        attempts: &[AttemptId],
        arguments: &[ArrayRef],
        is_last: bool,
    ) -> Result<Ran, TaskError> {
        let calls = attempts.len();
        let sent = (0..calls).map(|row| async move {
            let arguments: Vec<ValueArgument<'_>> = plan
                .arguments
                .iter()
                .zip(arguments)
                .map(|(argument, values)| ValueArgument { wire: argument.wire, values, row })
                .collect();
            let parameters: Vec<&(dyn ToSql + Sync)> =
                arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
            session.send(&self.rules, &plan.single, &parameters).await
        });
        // All are sent at once; the server answers in the order in which they are read here. None
        // may be left of the rows, and a buffer for none would wait for ever.
        let mut answers = pin!(stream::iter(sent).buffered(calls.max(1)));
        let (mut found, mut first) = (self.found(plan, calls), 0);
        let mut ran = Ran { failed: None, again: vec![false; calls] };
        for call in 0..calls {
            let before = found.bytes();
            let read = match session.within_limit(&self.rules, answers.next()).await {
                Ok(Some(Ok(answer))) => {
                    let take = |row: &Row| {
                        let bytes = found.bytes() + row.raw_size_bytes() - before;
                        self.most_found.check_row(bytes)?;
                        found.push(call - first, row, 0);
                        Ok(())
                    };
                    answer.read(take).await
                }
                Ok(Some(Err(failure))) | Err(failure) => Err(failure),
                Ok(None) => Err(Fault::unsent("the statement was not sent")),
            };
            let mut answered = call + 1;
            if let Err(failure) = read {
                // After one that found too much, others may be on their way over the connection.
                let keeps = failure.is(Class::TooLarge) && answered < calls;
                let failure = if keeps { failure } else { self.after(session, failure) };
                if !is_last && failure.is_to_be_planned_again(self.reads) {
                    ran.again[call] = true;
                    answered = call;
                } else {
                    found.fail(call - first, failure.clone());
                    ran.failed = Some(failure);
                }
            }
            // So that a column has room for what a row may find, whatever was found before.
            if call + 1 == calls || answered == call || found.bytes() > GROUP_BYTES {
                let rest = self.found(plan, calls - call - 1);
                found.truncate(answered - first);
                self.reply(std::mem::replace(&mut found, rest), &attempts[first..answered])?;
                first = call + 1;
            }
        }
        Ok(ran)
    }

    /// Replies with what was found for some calls.
    fn reply(&self, found: FoundRows, attempts: &[AttemptId]) -> Result<(), TaskError> {
        let outcome = found.finish()?;
        let mut reply = LookupReply::new(self.misses, attempts.len());
        let mut failures = outcome.failures.iter().peekable();
        for (call, (attempt, count)) in attempts.iter().zip(outcome.counts).enumerate() {
            if let Some((_, failure)) = failures.next_if(|(failed, _)| *failed == call) {
                reply.failed(*attempt, failure);
            } else if count == 0 {
                reply.missed(*attempt);
            } else {
                reply.found(*attempt, count);
            }
        }
        let (rows, bad) = (&outcome.rows, outcome.bad);
        self.send(reply.finish_required(rows, bad, &self.required, "PostgreSQL")?);
        Ok(())
    }
}

/// Reads the call of a row, which the server counts from 1.
fn call_of(row: &Row) -> Option<usize> {
    let ordinal: i64 = row.try_get(0).ok()?;
    usize::try_from(ordinal).ok()?.checked_sub(1)
}

fn all_failed(attempts: &[AttemptId], failure: &Fault) -> ReplyGroup {
    let failures = attempts.iter().map(|it| Failure::from(failure).of_call(*it)).collect();
    ReplyGroup { failures, ..ReplyGroup::default() }
}
