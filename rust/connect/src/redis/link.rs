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

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sparkawait_core::operator::Retry;
use sparkawait_task::supervision::{Service, keep_running, pause};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::connect::{Stream, Target};
use super::failure::{self, Failure};
use super::job::{Awaiting, Job};
use super::resp::Garbage;
use super::scanner::Scanner;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// A buffer that has grown beyond this is given back when it is empty.
const KEPT_BYTES: usize = 4 << 20;

/// No further job is taken while so many bytes wait to be written.
const UNWRITTEN_BYTES: usize = 4 << 20;

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
        let resume = Instant::now();
        let line = Line {
            target,
            idle,
            when_lost,
            jobs: receiver,
            connection: None,
            failures: 0,
            resume,
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
    /// What is under way, or waits for a connection that is being made.
    connection: Option<Connection>,
    /// Connections that failed one after the other.
    failures: u32,
    /// Before this, jobs fail as the last connection did.
    resume: Instant,
    last: Failure,
}

impl Service for Line {
    async fn run(&mut self) {
        while let Some(job) = self.jobs.recv().await {
            let now = Instant::now();
            if now < self.resume {
                if self.last.retry != Retry::No {
                    self.last.retry = Retry::After(self.resume - now);
                }
                job.answers.fail(&self.last);
                continue;
            }
            let connection = Connection::new(job, self.target.max_reply_bytes());
            let connection = self.connection.insert(connection);
            match self.target.connect().await {
                Ok(stream) => {
                    let served = connection.serve(stream, self.idle, &mut self.jobs);
                    let Some(reason) = served.await else { return };
                    let address = self.target.address();
                    tracing::warn!(address, reason, "connection to Redis lost");
                    self.last = failure::of_connection(address, reason);
                }
                Err(failed) => {
                    tracing::warn!(reason = failed.call.summary, "no connection to Redis");
                    self.last = failed;
                }
            }
            self.lose();
        }
    }

    fn fail(&mut self, reason: &str) {
        self.last = failure::of_panic(self.target.address(), reason);
        if let Some(connection) = self.connection.take() {
            connection.jobs.into_iter().for_each(|job| job.abandon(&self.last));
        }
    }
}

impl Line {
    /// Fails what the connection did not answer, and sees to it that the next one is not made at
    /// once.
    fn lose(&mut self) {
        let connection = self.connection.take();
        let had_replies = connection.as_ref().is_some_and(|it| it.had_replies);
        self.failures = if had_replies { 0 } else { self.failures + 1 };
        for job in connection.into_iter().flat_map(|it| it.jobs) {
            job.fail(&self.last);
        }
        (self.when_lost)();
        self.resume = Instant::now() + pause(self.failures);
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
    jobs: VecDeque<Box<dyn Awaiting>>,
    /// Whether the server ever answered.
    had_replies: bool,
}

impl Connection {
    fn new(job: Job, max_reply_bytes: usize) -> Self {
        let mut connection = Self {
            unwritten: BytesMut::new(),
            unread: BytesMut::new(),
            scanner: Scanner::new(max_reply_bytes),
            jobs: VecDeque::new(),
            had_replies: false,
        };
        connection.add(job);
        connection
    }

    fn add(&mut self, job: Job) {
        self.unwritten.extend_from_slice(&job.bytes);
        self.jobs.push_back(job.answers);
    }

    /// Serves jobs until the connection or the link ends; says why the connection did.
    async fn serve(
        &mut self,
        stream: Box<dyn Stream>,
        idle: Duration,
        jobs: &mut UnboundedReceiver<Job>,
    ) -> Option<&'static str> {
        let (mut reader, mut writer) = split(stream);
        let mut ticks = interval(idle);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let mut is_flushed = true;
        let mut was_read = true;
        // Whether jobs may come; when its handle is gone, those that came are still served.
        let mut is_held = true;
        loop {
            self.unread.reserve(READ_BYTES);
            tokio::select! {
                read = reader.read_buf(&mut self.unread) => {
                    was_read = true;
                    match read {
                        Ok(0) => return Some("the server closed it"),
                        Ok(_) if self.take_replies().is_err() => {
                            return Some("the server sent what is no reply");
                        }
                        Ok(_) if !is_held && self.jobs.is_empty() => return None,
                        Ok(_) => {}
                        Err(_) => return Some("reading from it failed"),
                    }
                }
                written = write(&mut writer, &self.unwritten),
                    if !(is_flushed && self.unwritten.is_empty()) =>
                {
                    is_flushed = self.unwritten.is_empty();
                    match written {
                        Ok(count) => self.unwritten.advance(count),
                        Err(_) => return Some("writing to it failed"),
                    }
                }
                job = jobs.recv(), if is_held && self.unwritten.len() < UNWRITTEN_BYTES => match job {
                    Some(job) => {
                        // Silence before a job says nothing of the server.
                        was_read |= self.jobs.is_empty();
                        self.add(job);
                    }
                    None if self.jobs.is_empty() => return None,
                    None => is_held = false,
                },
                _ = ticks.tick() => {
                    if !was_read && !self.jobs.is_empty() {
                        return Some("the server was silent for longer than `idle_timeout`");
                    }
                    was_read = false;
                }
            }
        }
    }

    /// Gives complete replies to their jobs.
    fn take_replies(&mut self) -> Result<(), Garbage> {
        let mut used = 0;
        let result = loop {
            let unread = &self.unread[used..];
            // What comes without a job to await it is no reply.
            let Some(job) = self.jobs.front_mut() else {
                break if unread.is_empty() { Ok(()) } else { Err(Garbage) };
            };
            match job.take_all(&mut self.scanner, unread) {
                Ok(taken) => {
                    used += taken.bytes;
                    if !taken.is_done {
                        break Ok(());
                    }
                    if let Some(done) = self.jobs.pop_front() {
                        done.finish();
                    }
                }
                Err(garbage) => break Err(garbage),
            }
        };
        self.had_replies |= used > 0;
        self.unread.advance(used);
        if self.unread.is_empty() && self.unread.capacity() > KEPT_BYTES {
            self.unread = BytesMut::new();
        }
        result
    }
}
