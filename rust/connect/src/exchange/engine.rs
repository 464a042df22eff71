// SPDX-License-Identifier: Apache-2.0
//! Asks a client for the rows of one task.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::CallSign;
use sparkawait_core::{ErrorKind, Key};
use sparkawait_runtime::panic_message;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError, TaskError};
use sparkawait_task::function::{Calls, GROUP_BYTES, Replies};
use sparkawait_task::native::Start;
use sparkawait_task::supervision::Backoff;
use sparkawait_task::worker::{Command, Commands, Worker};
use tokio::time::{Instant, timeout};

use super::client::{Answer, Client, Exchange};
use crate::dial::{HIGHEST_AGE, HIGHEST_IDLE};
use crate::failure::{Failure, plain_failure};
use crate::lines::Lines;
use crate::lookup::{LookupReply, Misses};
use crate::template::{BoundTemplate, Escape};
use crate::text::TextColumn;

type RequestId = u64;

/// What the requests of a task share.
struct Asker<C> {
    client: Arc<C>,
    connect_timeout: Duration,
    is_repeatable: bool,
    backoff: Mutex<Backoff>,
}

/// A connection that serves one request after the other.
struct Kept<C: Client> {
    connection: C::Connection,
    made: Instant,
    used: Instant,
}

/// The end of a request; without a connection where that is of no more use.
struct Asked<C: Client> {
    kept: Option<Kept<C>>,
    answers: Result<Vec<Answer>, Failure>,
}

/// A request on its way.
struct Sent {
    channel: Option<Key>,
    attempts: Vec<AttemptId>,
    /// Calls that nobody waits for any more.
    cancelled: usize,
    abort: AbortHandle,
}

/// The calls of a task that were not answered.
pub(super) struct Engine<C: Client> {
    asker: Arc<Asker<C>>,
    key: BoundTemplate,
    columns: Columns,
    most_rows: usize,
    most_requests: usize,
    waiting: Lines<VecDeque<(AttemptId, Vec<u8>)>>,
    sent: HashMap<RequestId, Sent>,
    running: FuturesUnordered<BoxFuture<'static, (RequestId, Option<Asked<C>>)>>,
    kept: Vec<Kept<C>>,
    next: RequestId,
}

/// How answers become rows.
struct Columns {
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
        let asker = Asker {
            client: Arc::clone(&of.client),
            connect_timeout: of.connect_timeout,
            is_repeatable: of.is_repeatable,
            backoff: Mutex::default(),
        };
        let engine = Self {
            asker: Arc::new(asker),
            key,
            columns: Columns { misses: of.misses, schema, required, replies: replies.clone() },
            most_rows: of.rows.max(1),
            most_requests: connections,
            waiting: Lines::new(channel_share.map_or(connections, |it| it.of(connections))),
            sent: HashMap::new(),
            running: FuturesUnordered::new(),
            kept: Vec::new(),
            next: 0,
        };
        Worker::start(&runtime, C::NAME, replies, |commands| engine.run(commands))
    }

    /// Serves commands until the function is closed; then all requests end with it.
    async fn run(mut self, mut commands: Commands) {
        loop {
            let done = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Invoke(calls)) => self.add(&calls),
                    Some(Command::Cancel(cancelled)) => {
                        self.cancel(&cancelled);
                        Ok(())
                    }
                    None => return,
                },
                Some((id, asked)) = self.running.next(), if !self.running.is_empty() => {
                    self.end(id, asked)
                }
            };
            if let Err(error) = done {
                self.columns.replies.fail(error);
                return;
            }
            self.send();
        }
    }

    /// Has the rows of a burst wait for their requests.
    fn add(&mut self, calls: &Calls) -> Result<(), TaskError> {
        // The columns were checked at the start, so this fails for no user.
        let internal = |error: StartError| TaskError::Internal(error.message);
        let rows = calls.batches.iter().map(|it| self.key.rows(&it.batch).map_err(internal));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let mut nulls = Vec::new();
        for call in &calls.calls {
            let mut key = Vec::new();
            if rows[call.batch as usize].write(call.row as usize, Escape::None, &mut key) {
                let add = |line: &mut VecDeque<_>| line.push_back((call.attempt, key));
                self.waiting.change(calls.channel(call), add);
            } else {
                nulls.push(call.attempt);
            }
        }
        if !nulls.is_empty() {
            let Columns { misses, schema, replies, .. } = &self.columns;
            replies.send(LookupReply::null_keys(*misses, schema, &nulls)?);
        }
        Ok(())
    }

    /// Sends what may be sent: rows are spread over the connections that are free.
    fn send(&mut self) {
        while self.sent.len() < self.most_requests {
            let (free, ready) = (self.most_requests - self.sent.len(), self.waiting.ready());
            let most = self.most_rows;
            let taken = self.waiting.take(|line, room| {
                let requests = (free / ready).min(room).max(1);
                let rows = line.len().div_ceil(requests).min(most);
                line.drain(..rows).unzip()
            });
            let Some((channel, (attempts, keys))): Option<(_, (Vec<AttemptId>, Vec<_>))> = taken
            else {
                return;
            };
            self.columns.replies.started(&attempts);
            if let Some(first) = attempts.first() {
                self.columns.replies.requested(*first);
            }
            self.next += 1;
            let (id, now) = (self.next, Instant::now());
            self.kept.retain(|it| it.is_fresh(now));
            let asking = Arc::clone(&self.asker).ask(self.kept.pop(), keys);
            let (abort, registration) = AbortHandle::new_pair();
            let asking = Abortable::new(asking, registration);
            self.running.push(asking.map(move |asked| (id, asked.ok())).boxed());
            self.sent.insert(id, Sent { channel, attempts, cancelled: 0, abort });
        }
    }

    fn end(&mut self, id: RequestId, asked: Option<Asked<C>>) -> Result<(), TaskError> {
        let Some(Sent { channel, attempts, .. }) = self.sent.remove(&id) else { return Ok(()) };
        self.waiting.ended(channel);
        // Of what was aborted nobody waits for anything.
        let Some(Asked { kept, answers }) = asked else { return Ok(()) };
        self.kept.extend(kept);
        let answers =
            answers.unwrap_or_else(|failure| vec![Answer::Failed(failure); attempts.len()]);
        self.columns.reply(attempts, answers)
    }

    /// Forgets rows, and ends the requests that have no others.
    fn cancel(&mut self, cancelled: &[AttemptId]) {
        let is_cancelled = |it: &AttemptId| cancelled.binary_search(it).is_ok();
        self.waiting.remove(|_, line| line.retain(|(attempt, _)| !is_cancelled(attempt)));
        for sent in self.sent.values_mut() {
            sent.cancelled += sent.attempts.iter().filter(|it| is_cancelled(it)).count();
            if sent.cancelled == sent.attempts.len() {
                sent.abort.abort();
            }
        }
    }
}

impl<C: Client> Kept<C> {
    fn is_fresh(&self, now: Instant) -> bool {
        now - self.used < HIGHEST_IDLE && now - self.made < HIGHEST_AGE
    }
}

impl<C: Client> Asker<C> {
    /// Asks for some keys; once more where a connection that was kept has ended under it.
    async fn ask(self: Arc<Self>, mut kept: Option<Kept<C>>, keys: Vec<Vec<u8>>) -> Asked<C> {
        loop {
            let was_kept = kept.is_some();
            let mut used = match kept.take() {
                Some(kept) => kept,
                None => match self.connect().await {
                    Ok(made) => made,
                    Err(failure) => return Asked { kept: None, answers: Err(failure) },
                },
            };
            let asking = AssertUnwindSafe(self.client.ask(&mut used.connection, &keys));
            let failure = match asking.catch_unwind().await {
                Ok(Ok(answers)) if answers.len() == keys.len() => {
                    used.used = Instant::now();
                    return Asked { kept: Some(used), answers: Ok(answers) };
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
            if !was_kept || !is_again {
                return Asked { kept: None, answers: Err(failure) };
            }
        }
    }

    /// Makes a connection, after a pause that grows with each that failed before.
    async fn connect(&self) -> Result<Kept<C>, Failure> {
        let backoff = *self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
        backoff.wait().await;
        let connecting = AssertUnwindSafe(self.client.connect()).catch_unwind();
        let connected = match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connected)) => connected.map_err(Failure::before_call),
            Ok(Err(panic)) => {
                Err(internal::<C>(&format!("panicked: {}", panic_message(panic.as_ref()))))
            }
            Err(_) => {
                let what = "a connection was not made within `connect_timeout`";
                let call = plain_failure(format!("{}: {what}", C::NAME));
                let sign = CallSign::TimedOut;
                Err(Failure { sign, ..Failure::passing(Cause::of(false, false), call) })
            }
        };
        let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        backoff.note(connected.is_err(), now);
        Ok(Kept { connection: connected?, made: now, used: now })
    }
}

/// Makes the failure of calls of a connector that does what it must not do.
fn internal<C: Client>(what: &str) -> Failure {
    tracing::error!(connector = C::NAME, what, "a connector is broken");
    let text = format!("the connector `{}` is broken; the log says why", C::NAME);
    let call = CallFailure::new(ErrorKind::Internal, text);
    Failure { sign: CallSign::Neutral, ..Failure::lasting(Cause::Unknown, call) }
}

impl Columns {
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

fn misfit(texts: usize, columns: usize) -> CallFailure {
    let text = format!("an answer has {texts} texts, which do not fit rows of {columns} columns");
    CallFailure::new(ErrorKind::ResultSchemaMismatch, text)
}
