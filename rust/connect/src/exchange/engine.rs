// SPDX-License-Identifier: Apache-2.0
//! Asks a client for the rows of one task.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use futures_util::FutureExt;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::CallSign;
use sparkawait_runtime::panic_message;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{Calls, GROUP_BYTES, Replies};
use sparkawait_task::native::Start;
use sparkawait_task::worker::Worker;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::client::{Answer, Client, Exchange};
use crate::failure::{Failure, plain_failure};
use crate::lines::Lines;
use crate::lookup::{LookupReply, Misses};
use crate::pool::{Condition, Connection, Dial, Kept, Lease, Pool, Wish};
use crate::reply_budget::{ReplyBudget, ReplyShare};
use crate::requests::{Asks, AwaitedCalls, Requests};
use crate::template::{BoundTemplate, Escape};
use crate::text::TextColumn;

/// How connections are made.
struct Login<C> {
    client: Arc<C>,
    limit: Duration,
}

/// A connection, which serves one request after the other.
struct Line<C: Client> {
    connection: C::Connection,
    client: Arc<C>,
}

/// What the requests of a task share.
pub(super) struct Engine<C: Client> {
    client: Arc<C>,
    key: BoundTemplate,
    most_rows: usize,
    is_repeatable: bool,
    pool: Arc<Pool<Login<C>>>,
    budget: Arc<ReplyBudget>,
    misses: Misses,
    schema: SchemaRef,
    required: Vec<usize>,
    replies: Replies,
}

impl<C: Client> Engine<C> {
    /// Starts the function of one task.
    pub(super) fn start(
        of: &Exchange<C>,
        key: BoundTemplate,
        required: Vec<usize>,
        start: Start,
    ) -> Worker {
        let Start { replies, runtime, results: schema, channel_share, .. } = start;
        let connections = of.connections.max(1);
        let requests = channel_share.map_or(connections, |it| it.of(connections));
        let login = Login { client: Arc::clone(&of.client), limit: of.connect_timeout };
        let engine = Self {
            client: Arc::clone(&of.client),
            key,
            most_rows: of.rows.max(1),
            is_repeatable: of.is_repeatable,
            pool: Pool::new(login, Some(1)),
            budget: ReplyBudget::of_task(),
            misses: of.misses,
            schema,
            required,
            replies,
        };
        Requests::start(engine, requests, Arc::new(Semaphore::new(connections)), &runtime)
    }
}

impl<C: Client> Asks for Engine<C> {
    type Rows = VecDeque<(AttemptId, Vec<u8>)>;
    type Batch = (Vec<AttemptId>, Vec<Vec<u8>>);
    type Ended = ();

    const NAME: &'static str = C::NAME;

    fn replies(&self) -> &Replies {
        &self.replies
    }

    fn add(&self, calls: &Calls, waiting: &mut Lines<Self::Rows>) -> Result<(), TaskError> {
        // The columns were checked at the start, so this fails for no user.
        let internal = |error: StartError| TaskError::Internal(error.message);
        let rows = calls.batches.iter().map(|it| self.key.rows(&it.batch).map_err(internal));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let mut nulls = Vec::new();
        for call in &calls.calls {
            let mut key = Vec::new();
            if rows[call.batch as usize].write(call.row as usize, Escape::None, &mut key) {
                let add = |line: &mut VecDeque<_>| line.push_back((call.attempt, key));
                waiting.change(calls.channel(call), add);
            } else {
                nulls.push(call.attempt);
            }
        }
        if !nulls.is_empty() {
            self.replies.send(LookupReply::null_keys(self.misses, &self.schema, &nulls)?);
        }
        Ok(())
    }

    fn take(&self, rows: &mut Self::Rows, requests: usize) -> Result<Self::Batch, TaskError> {
        let many = rows.len().div_ceil(requests).min(self.most_rows);
        Ok(rows.drain(..many).unzip())
    }

    fn remove(&self, rows: &mut Self::Rows, cancelled: &[AttemptId]) {
        rows.retain(|(attempt, _)| cancelled.binary_search(attempt).is_err());
    }

    fn attempts((attempts, _): &Self::Batch) -> &[AttemptId] {
        attempts
    }

    async fn ask(
        self: Arc<Self>,
        (attempts, keys): Self::Batch,
        wanted: Arc<AwaitedCalls>,
    ) -> Result<(), TaskError> {
        if let Some(first) = attempts.first() {
            self.replies.requested(*first);
        }
        // Its answers have it until they are results.
        let mut share = self.budget.share();
        let answers = tokio::select! {
            biased;
            () = wanted.none_of(&attempts) => return Ok(()),
            answers = self.answers(&attempts, &keys, &mut share) => answers,
        };
        let failed = |failure| vec![Answer::Failed(failure); attempts.len()];
        let answers = answers.unwrap_or_else(failed);
        self.reply(attempts, answers)
    }
}

impl<C: Client> Connection for Line<C> {
    type Room = Infallible;

    fn condition(&mut self) -> Condition {
        if self.client.is_open(&mut self.connection) { Condition::Good } else { Condition::Closed }
    }
}

impl<C: Client> Dial for Login<C> {
    type Connection = Line<C>;
    type Failure = Failure;

    const NAME: &'static str = C::NAME;

    async fn dial(&self) -> Result<Line<C>, Failure> {
        let connecting = AssertUnwindSafe(self.client.connect()).catch_unwind();
        match timeout(self.limit, connecting).await {
            Ok(Ok(connected)) => {
                let line = |connection| Line { connection, client: Arc::clone(&self.client) };
                connected.map(line).map_err(Failure::before_call)
            }
            Ok(Err(panic)) => {
                Err(internal::<C>(&format!("panicked: {}", panic_message(panic.as_ref()))))
            }
            Err(_) => {
                let what = "a connection was not made within `connect_timeout`";
                let call = plain_failure(format!("{}: {what}", C::NAME));
                let sign = CallSign::TimedOut;
                Err(Failure { sign, ..Failure::passing(Cause::of(false, false), call) })
            }
        }
    }

    fn panicked() -> Failure {
        internal::<C>("panicked while it connected")
    }
}

impl<C: Client> Engine<C> {
    /// Asks for some keys; once more where a connection that was kept has ended under it.
    async fn answers(
        &self,
        attempts: &[AttemptId],
        keys: &[Vec<u8>],
        share: &mut ReplyShare,
    ) -> Result<Vec<Answer>, Failure> {
        let mut wish = Wish { is_new: false, careful: !self.is_repeatable };
        let mut used = self.take(wish).await?;
        // A connection is made for all: how long that takes tells nothing of these rows.
        if !self.replies.started(attempts) {
            self.pool.keep(used);
            let ended = plain_failure(format!("{}: its task has ended", C::NAME));
            return Err(Failure::lasting(Cause::NotSent, ended));
        }
        loop {
            let asking =
                AssertUnwindSafe(self.client.ask(&mut used.connection.connection, keys, share));
            let failure = match asking.catch_unwind().await {
                Ok(Ok(answers)) if answers.len() == keys.len() => {
                    self.pool.keep(used);
                    return Ok(answers);
                }
                Ok(Ok(answers)) => {
                    internal::<C>(&format!("answered {} of {} keys", answers.len(), keys.len()))
                }
                Ok(Err(failure)) => failure,
                Err(panic) => {
                    internal::<C>(&format!("panicked: {}", panic_message(panic.as_ref())))
                }
            };
            let is_again = failure.may_pass() && failure.cause.may_repeat(self.is_repeatable);
            let Some(idle_since) = used.age.idle_since().filter(|_| is_again) else {
                return Err(failure);
            };
            self.pool.close_before(idle_since);
            wish.is_new = true;
            used = self.take(wish).await?;
        }
    }

    async fn take(&self, wish: Wish) -> Result<Kept<Line<C>>, Failure> {
        match self.pool.take(wish).await? {
            Lease::Whole(kept) => Ok(kept),
            Lease::Room(never) => match never {},
        }
    }

    /// Replies to the calls of a request, in as many groups as the answers are large.
    fn reply(&self, attempts: Vec<AttemptId>, answers: Vec<Answer>) -> Result<(), TaskError> {
        let mut left = attempts.into_iter().zip(answers).peekable();
        while left.peek().is_some() {
            let mut reply = LookupReply::new(self.misses, left.len());
            let fields = self.schema.fields().iter();
            let mut columns: Vec<_> = fields.map(|it| TextColumn::new(it, left.len())).collect();
            let mut bytes = 0;
            while bytes <= GROUP_BYTES
                && let Some((attempt, answer)) = left.next()
            {
                match answer {
                    Answer::Found(texts) if texts.len() % columns.len().max(1) != 0 => {
                        reply.failed(attempt, misfit(texts.len(), columns.len()));
                    }
                    Answer::Found(texts) if !texts.is_empty() => {
                        let found = texts.len() / columns.len();
                        reply.found(attempt, u32::try_from(found).unwrap_or(u32::MAX));
                        let width = columns.len();
                        for (index, text) in texts.iter().enumerate() {
                            let column = &mut columns[index % width];
                            match text {
                                Some(text) => {
                                    bytes += text.len();
                                    column.push(text);
                                }
                                None => column.push_null(),
                            }
                        }
                    }
                    Answer::Found(_) | Answer::Missed => {
                        if reply.missed(attempt) {
                            columns.iter_mut().for_each(TextColumn::push_null);
                        }
                    }
                    Answer::Failed(failure) => reply.failed(attempt, failure),
                }
            }
            let columns = columns.into_iter().map(TextColumn::finish).collect::<Result<_, _>>()?;
            let Self { schema, required, replies, .. } = self;
            replies.send(reply.finish_columns(columns, schema, required, "the service")?);
        }
        Ok(())
    }
}

/// Makes the failure of calls of a connector that does what it must not do.
fn internal<C: Client>(what: &str) -> Failure {
    tracing::error!(connector = C::NAME, what, "a connector is broken");
    let text = format!("the connector `{}` is broken; the log says why", C::NAME);
    let call = CallFailure::new(ErrorKind::Internal, text);
    Failure { sign: CallSign::Neutral, ..Failure::lasting(Cause::Unknown, call) }
}

fn misfit(texts: usize, columns: usize) -> CallFailure {
    let text = format!("an answer has {texts} texts, which do not fit rows of {columns} columns");
    CallFailure::new(ErrorKind::ResultSchemaMismatch, text)
}
