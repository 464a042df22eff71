// SPDX-License-Identifier: Apache-2.0
//! One connection: writes the commands of jobs and hands their replies out, in order.
//!
//! ```text
//!   jobs --> [ unwritten bytes ] --> server --> [ unread bytes ] --> oldest job
//! ```
//!
//! One tokio task a link. It connects with the first job, again after a failure,
//! and waits longer after each failure in a row; jobs that come meanwhile fail at
//! once and say when to come again.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use sparkawait_core::operator::Retry;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::answers::Answers;
use super::connect::{Stream, Target};
use super::failure::{self, Failure};
use super::resp::{Garbage, Reply};
use super::router::Router;
use super::scanner::Scanner;
use super::topology::TopologyAnswer;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// A buffer that has grown beyond this is given back when it is empty.
const KEPT_BYTES: usize = 4 << 20;

/// No further job is taken while so many bytes wait to be written.
const UNWRITTEN_BYTES: usize = 4 << 20;

/// Pause after the first failure; doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Commands, and what becomes of the replies.
pub(super) struct Job {
    /// The packed commands.
    pub(super) bytes: Vec<u8>,
    /// Awaits a reply to each.
    pub(super) answers: Awaited,
}

/// Who awaits replies.
#[expect(clippy::large_enum_variant, reason = "nearly all jobs are calls")]
pub(super) enum Awaited {
    /// Rows.
    Calls(Answers),
    /// The router, for one reply.
    Topology(TopologyAnswer),
}

impl Awaited {
    /// Takes the next reply; returns whether it was the last one.
    #[inline]
    fn take(&mut self, reply: Reply<'_>) -> bool {
        match self {
            Self::Calls(answers) => answers.take(reply),
            Self::Topology(answer) => {
                answer.take(reply);
                true
            }
        }
    }

    fn finish(self) {
        if let Self::Calls(answers) = self {
            answers.finish();
        }
    }

    /// Says that no further reply comes.
    pub(super) fn fail(self, failure: &Failure) {
        if let Self::Calls(answers) = self {
            answers.fail(failure);
        }
    }
}

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
        lost: (Weak<Router>, usize),
    ) -> Self {
        let (jobs, receiver) = unbounded_channel();
        runtime.spawn(run(target, idle, lost, receiver));
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
async fn run(
    target: Arc<Target>,
    idle: Duration,
    (router, node): (Weak<Router>, usize),
    mut jobs: UnboundedReceiver<Job>,
) {
    let mut failures = 0_u32;
    let mut resume = Instant::now();
    let mut last = failure::of_connection(target.address(), "it was never made");
    while let Some(job) = jobs.recv().await {
        let now = Instant::now();
        if now < resume {
            if last.retry != Retry::No {
                last.retry = Retry::After(resume - now);
            }
            job.answers.fail(&last);
            continue;
        }
        match target.connect().await {
            Ok(stream) => {
                let connection = Connection::new(job, target.max_reply_bytes());
                let (had_replies, reason) =
                    connection.serve(stream, idle, &target, &mut jobs).await;
                let Some(reason) = reason else { return };
                tracing::warn!(address = target.address(), reason, "connection to Redis lost");
                failures = if had_replies { 0 } else { failures + 1 };
                last = failure::of_connection(target.address(), reason);
            }
            Err(failed) => {
                tracing::warn!(reason = failed.failure.summary, "no connection to Redis");
                failures += 1;
                job.answers.fail(&failed);
                last = failed;
            }
        }
        if let Some(router) = router.upgrade() {
            router.forget(node);
        }
        resume = Instant::now() + pause(failures);
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

/// Returns how long to wait after so many failures in a row.
fn pause(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => (FIRST_PAUSE * (1 << doublings.min(10))).min(LONGEST_PAUSE),
    }
}

/// What is under way on a connection.
struct Connection {
    unwritten: BytesMut,
    unread: BytesMut,
    scanner: Scanner,
    /// Whose replies did not all come, oldest first.
    jobs: VecDeque<Awaited>,
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
        mut self,
        stream: Box<dyn Stream>,
        idle: Duration,
        target: &Target,
        jobs: &mut UnboundedReceiver<Job>,
    ) -> (bool, Option<&'static str>) {
        let (mut reader, mut writer) = split(stream);
        let mut ticks = interval(idle);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let mut is_flushed = true;
        let mut was_read = true;
        // Whether jobs may come; when its handle is gone, those that came are still served.
        let mut is_held = true;
        let reason = loop {
            self.unread.reserve(READ_BYTES);
            tokio::select! {
                read = reader.read_buf(&mut self.unread) => {
                    was_read = true;
                    match read {
                        Ok(0) => break Some("the server closed it"),
                        Ok(_) if self.take_replies().is_err() => {
                            break Some("the server sent what is no reply");
                        }
                        Ok(_) if !is_held && self.jobs.is_empty() => break None,
                        Ok(_) => {}
                        Err(_) => break Some("reading from it failed"),
                    }
                }
                written = write(&mut writer, &self.unwritten),
                    if !(is_flushed && self.unwritten.is_empty()) =>
                {
                    is_flushed = self.unwritten.is_empty();
                    match written {
                        Ok(count) => self.unwritten.advance(count),
                        Err(_) => break Some("writing to it failed"),
                    }
                }
                job = jobs.recv(), if is_held && self.unwritten.len() < UNWRITTEN_BYTES => match job {
                    Some(job) => {
                        // Silence before a job says nothing of the server.
                        was_read |= self.jobs.is_empty();
                        self.add(job);
                    }
                    None if self.jobs.is_empty() => break None,
                    None => is_held = false,
                },
                _ = ticks.tick() => {
                    if !was_read && !self.jobs.is_empty() {
                        break Some("the server was silent for longer than `idle_timeout`");
                    }
                    was_read = false;
                }
            }
        };
        self.fail(target, reason);
        (self.had_replies, reason)
    }

    /// Gives complete replies to their jobs.
    fn take_replies(&mut self) -> Result<(), Garbage> {
        let mut used = 0;
        let result = loop {
            match self.scanner.next(&self.unread[used..]) {
                Ok((Some(reply), length)) => {
                    let Some(job) = self.jobs.front_mut() else { break Err(Garbage) };
                    used += length;
                    if job.take(reply)
                        && let Some(done) = self.jobs.pop_front()
                    {
                        done.finish();
                    }
                }
                Ok((None, length)) => {
                    used += length;
                    break Ok(());
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

    /// Fails what was not answered.
    fn fail(&mut self, target: &Target, reason: Option<&'static str>) {
        let reason = reason.unwrap_or("its process ends");
        let failure = failure::of_connection(target.address(), reason);
        for job in self.jobs.drain(..) {
            job.fail(&failure);
        }
    }
}
