// SPDX-License-Identifier: Apache-2.0
//! One connection: writes the commands of jobs and hands their replies out, in order.
//!
//! ```text
//!   jobs --> [ unwritten bytes ] --> server --> [ unread bytes ] --> oldest job
//! ```
//!
//! One tokio task a link. It connects with the first job, again after a failure,
//! and waits longer after each failure in a row; jobs that come meanwhile fail at
//! once and say when to come again. After a panic it goes on with a new connection.
//!
//! | a connection ends because | what it owes |
//! |---|---|
//! | it was lost | what only reads goes to the next one, once, and jobs without a byte that was sent do; the others fail |
//! | the server was silent for `idle_timeout`, or while all calls of the oldest job were cancelled | likewise |
//! | the server is not the primary any more, or the connection is old | nothing: what was sent is answered first |

use std::collections::VecDeque;
use std::io;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sparkawait_core::operator::Retry;
use sparkawait_task::cause::Cause;
use sparkawait_task::supervision::{Backoff, Service, keep_running};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::dial::{Duplex, HIGHEST_AGE};
use crate::failure::Failure;

use super::command::ends;
use super::connect::Target;
use super::failure;
use super::job::{Job, Loss};
use super::resp::Garbage;
use super::scanner::Scanner;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// A buffer that has grown beyond this is given back when it is empty.
const KEPT_BYTES: usize = 4 << 20;

/// No further job is taken while so many bytes wait to be written.
const UNWRITTEN_BYTES: usize = 4 << 20;

/// How often a server that owes replies is looked at, unless `idle_timeout` is short.
const LONGEST_TICK: Duration = Duration::from_millis(250);

/// A handle to the task of one connection; the task ends with the handle, after its last job.
pub(super) struct Link {
    jobs: UnboundedSender<Job>,
}

impl Link {
    /// Starts the task; it connects with the first job.
    pub(super) fn start(
        runtime: &Handle,
        target: Arc<Target>,
        idle: Duration,
        when_lost: Box<dyn Fn() + Send>,
    ) -> Self {
        let (jobs, receiver) = unbounded_channel();
        let never = failure::of_no_connection(target.address(), "it was never made");
        let line = Line {
            target,
            idle,
            when_lost,
            jobs: receiver,
            again: VecDeque::new(),
            connection: None,
            backoff: Backoff::default(),
            last: never,
        };
        keep_running(runtime, "redis.link", line);
        Self { jobs }
    }

    /// Hands a job over.
    ///
    /// # Errors
    ///
    /// Returns the job if the task has ended.
    pub(super) fn send(&self, job: Job) -> Result<(), Box<Job>> {
        self.jobs.send(job).map_err(|refused| Box::new(refused.0))
    }
}

/// Serves jobs over one connection after the other.
struct Line {
    target: Arc<Target>,
    idle: Duration,
    /// Told of a connection that was lost, or could not be made.
    when_lost: Box<dyn Fn() + Send>,
    jobs: UnboundedReceiver<Job>,
    /// What is sent once more over the next connection.
    again: VecDeque<Sent>,
    /// What is under way, or waits for a connection that is being made.
    connection: Option<Connection>,
    /// While it rests, jobs fail as the last connection did.
    backoff: Backoff,
    last: Failure,
}

/// Commands that were sent, or are about to be.
struct Sent {
    job: Job,
    /// How many of them another connection has sent; `None`: this is their first one.
    before: Option<usize>,
}

/// Why a connection has ended.
enum Ended {
    /// Its handle is gone, and nothing is owed.
    Unused,
    /// It is old, and nothing is owed.
    Old,
    /// The server is not what it was connected for, and nothing is owed.
    Left,
    /// It was lost for a reason.
    Lost(&'static str),
    /// The server answers with something that is not a reply.
    Garbage,
    /// The server is silent for a reason that is known.
    Silent(&'static str),
}

impl Service for Line {
    async fn run(&mut self) {
        loop {
            if self.again.is_empty() {
                let Some(job) = self.jobs.recv().await else { return };
                if let Some(rest) = self.backoff.rest(Instant::now()) {
                    if self.last.may_pass() {
                        self.last.retry = Retry::After(rest);
                    }
                    let unsent = self.last.clone().before_call();
                    job.answers.fail(&Loss::unsent(&unsent));
                    continue;
                }
                self.again.push_back(Sent { job, before: None });
            }
            let first = take(&mut self.again);
            let connection = Connection::new(first, self.target.max_reply_bytes());
            let connection = self.connection.insert(connection);
            let ended = match self.target.connect().await {
                Ok(stream) => connection.serve(stream, self.idle, &mut self.jobs).await,
                Err(failed) => {
                    tracing::warn!(reason = failed.call.summary, "no connection to Redis");
                    self.last = failed;
                    self.lose(false);
                    continue;
                }
            };
            let address = self.target.address();
            match ended {
                Ended::Unused => return,
                Ended::Old => self.connection = None,
                Ended::Left => {
                    tracing::warn!(address, "Redis is not the primary any more; it is left");
                    self.target.leave();
                    self.last = failure::of_no_connection(address, "it is not the primary");
                    self.lose(false);
                }
                Ended::Lost(reason) | Ended::Silent(reason) => {
                    tracing::warn!(address, reason, "connection to Redis lost");
                    self.last = failure::of_connection(address, reason);
                    self.lose(true);
                }
                Ended::Garbage => {
                    let reason = "the server sent something that is not a reply of Redis";
                    tracing::warn!(address, reason, "connection to Redis lost");
                    self.last = failure::of_connection(address, reason);
                    self.lose(false);
                }
            }
        }
    }

    fn fail(&mut self, reason: &str) {
        self.last = failure::of_panic(self.target.address(), reason);
        if let Some(connection) = self.connection.take() {
            connection.jobs.into_iter().for_each(|it| it.job.answers.abandon(&self.last));
        }
    }
}

impl Line {
    /// Fails what the connection did not answer, unless it may be sent once more, and sees to it that
    /// the next connection is not made at once.
    fn lose(&mut self, may_send_again: bool) {
        let mut connection = self.connection.take();
        let was_good = connection.as_ref().is_some_and(|it| it.was_good);
        let unsent = self.last.clone().before_call();
        // What an earlier connection has sent may have been carried out, whatever this one says.
        let lost = Failure { cause: Cause::Unknown, ..self.last.clone() };
        for (written, Sent { mut job, before }) in
            connection.iter_mut().flat_map(Connection::take_jobs)
        {
            let is_good = may_send_again && was_good;
            if is_good && written == 0 && job.answers.is_wanted() == Some(true) {
                self.again.push_back(Sent { job, before });
                continue;
            }
            let sent = ends(&job.bytes[..written]).count().max(before.unwrap_or_default());
            if is_good && before.is_none() && job.answers.may_be_repeated() {
                let answered = job.answers.go_on();
                if answered > 0 {
                    let end = ends(&job.bytes).nth(answered - 1).unwrap_or_default();
                    job.bytes.drain(..end);
                }
                self.again.push_back(Sent { job, before: Some(sent.saturating_sub(answered)) });
            } else {
                let failure = if before.is_some() { &lost } else { &self.last };
                job.answers.fail(&Loss { failure, sent, unsent: &unsent });
            }
        }
        (self.when_lost)();
        self.backoff.note(!was_good, Instant::now());
    }
}

/// Writes a part of `bytes`, or makes sure that what was written leaves. Cancel safe.
async fn write(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(bytes).await {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        written => written,
    }
}

/// What is under way on a connection.
struct Connection {
    unwritten: BytesMut,
    unread: BytesMut,
    scanner: Scanner,
    /// Whose replies did not all come, oldest first.
    jobs: VecDeque<Sent>,
    /// Whether the server ever answered with something else than an error: one that is full says so
    /// and hangs up.
    was_good: bool,
    /// Whether no further job is taken, because the server is not the primary any more.
    is_left: bool,
    opened: Instant,
    /// When something was read, or began to be owed.
    heard: Instant,
}

impl Connection {
    fn new(jobs: VecDeque<Sent>, max_reply_bytes: usize) -> Self {
        let mut unwritten = BytesMut::new();
        for sent in &jobs {
            unwritten.extend_from_slice(&sent.job.bytes);
        }
        let now = Instant::now();
        Self {
            unwritten,
            unread: BytesMut::new(),
            scanner: Scanner::new(max_reply_bytes),
            jobs,
            was_good: false,
            is_left: false,
            opened: now,
            heard: now,
        }
    }

    fn add(&mut self, job: Job) {
        if self.jobs.is_empty() {
            // Silence before a job says nothing of the server.
            self.heard = Instant::now();
        }
        self.unwritten.extend_from_slice(&job.bytes);
        self.jobs.push_back(Sent { job, before: None });
    }

    /// Takes the jobs out, each with how many of its bytes were written.
    fn take_jobs(&mut self) -> Vec<(usize, Sent)> {
        let mut unwritten = self.unwritten.len();
        let mut jobs: Vec<(usize, Sent)> = take(&mut self.jobs)
            .into_iter()
            .rev()
            .map(|sent| {
                let bytes = sent.job.bytes.len();
                let rest = unwritten.min(bytes);
                unwritten -= rest;
                (bytes - rest, sent)
            })
            .collect();
        jobs.reverse();
        jobs
    }

    /// Serves jobs until the connection or the link ends.
    async fn serve(
        &mut self,
        stream: Box<dyn Duplex>,
        idle: Duration,
        jobs: &mut UnboundedReceiver<Job>,
    ) -> Ended {
        let (mut reader, mut writer) = split(stream);
        let mut ticks = interval((idle / 4).min(LONGEST_TICK));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        self.heard = Instant::now();
        let mut is_flushed = true;
        // Whether jobs may come; when its handle is gone, those that came are still served.
        let mut is_held = true;
        loop {
            let is_open = is_held && !self.is_left && self.opened.elapsed() < HIGHEST_AGE;
            if !is_open && self.jobs.is_empty() {
                return match (is_held, self.is_left) {
                    (_, true) => Ended::Left,
                    (true, false) => Ended::Old,
                    (false, false) => Ended::Unused,
                };
            }
            self.unread.reserve(READ_BYTES);
            tokio::select! {
                read = reader.read_buf(&mut self.unread) => {
                    self.heard = Instant::now();
                    match read {
                        Ok(0) => return Ended::Lost("the server closed it"),
                        Ok(_) if self.take_replies().is_err() => return Ended::Garbage,
                        Ok(_) => {}
                        Err(_) => return Ended::Lost("reading from it failed"),
                    }
                }
                written = write(&mut writer, &self.unwritten),
                    if !(is_flushed && self.unwritten.is_empty()) =>
                {
                    is_flushed = self.unwritten.is_empty();
                    match written {
                        Ok(count) => self.unwritten.advance(count),
                        Err(_) => return Ended::Lost("writing to it failed"),
                    }
                }
                job = jobs.recv(), if is_open && self.unwritten.len() < UNWRITTEN_BYTES => match job {
                    Some(job) => self.add(job),
                    None => is_held = false,
                },
                _ = ticks.tick(), if !self.jobs.is_empty() => {
                    if let Some(reason) = self.silence(idle) {
                        return Ended::Silent(reason);
                    }
                }
            }
        }
    }

    /// Returns why the server's silence means that it is gone, if it does.
    fn silence(&self, idle: Duration) -> Option<&'static str> {
        let silent = self.heard.elapsed();
        if silent >= idle {
            return Some("the server was silent for longer than `idle_timeout`");
        }
        // The one that asked last may be answered yet; jobs that nobody has made tell nothing.
        let is_wanted = || self.jobs.iter().find_map(|it| it.job.answers.is_wanted());
        let is_over = silent >= LONGEST_TICK.min(idle / 4) && is_wanted() == Some(false);
        is_over.then_some("all calls of its oldest commands were given up, and it says nothing")
    }

    /// Gives complete replies to their jobs.
    fn take_replies(&mut self) -> Result<(), Garbage> {
        let mut used = 0;
        let result = loop {
            let unread = &self.unread[used..];
            // What comes without a job to await it is not a reply.
            let Some(Sent { job, .. }) = self.jobs.front_mut() else {
                break if unread.is_empty() { Ok(()) } else { Err(Garbage) };
            };
            match job.answers.take_all(&mut self.scanner, unread) {
                Ok(taken) => {
                    self.was_good |= taken.bytes > 0 && unread[0] != b'-';
                    used += taken.bytes;
                    self.is_left |= job.answers.leaves();
                    if !taken.is_done {
                        break Ok(());
                    }
                    if let Some(done) = self.jobs.pop_front() {
                        done.job.answers.finish();
                    }
                }
                Err(garbage) => break Err(garbage),
            }
        };
        self.unread.advance(used);
        if self.unread.is_empty() && self.unread.capacity() > KEPT_BYTES {
            self.unread = BytesMut::new();
        }
        result
    }
}
