// SPDX-License-Identifier: Apache-2.0
//! A function that only takes time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_runtime::AsyncFunction;
use sparkawait_task::error::{CallFailure, StartError};
use sparkawait_task::function::{
    Calls, FailedCall, Replies, ReplyGroup, ResultGroup, TaskFunction,
};
use sparkawait_task::native::{NativeFunction, Start};
use sparkawait_task::worker::{Command, Commands, Worker};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use crate::latency::{InvalidLatency, Latency, LatencySampler};

/// The most that a call may end before its due time: two ticks of tokio's timer.
const MOST_EARLY: Duration = Duration::from_millis(2);

/// One in so many parts of the mean error is corrected at once.
const DAMPING: i64 = 16;

/// What a simulated function does.
#[derive(Clone, Debug)]
pub struct SimulatedConfig {
    /// How long a call takes.
    pub latency: Latency,
    /// Share of the calls that fail.
    pub error_rate: f64,
    /// Determines latencies and failures, in the order of the calls.
    pub seed: u64,
    /// Whether the results tell when their calls began.
    pub timestamps: bool,
}

impl NativeFunction for SimulatedConfig {
    fn check(&self, _input: &SchemaRef, _results: &SchemaRef) -> Result<(), StartError> {
        LatencySampler::new(self.latency.clone(), self.seed)
            .map(drop)
            .map_err(|error| StartError::option(error.to_string()))
    }

    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        self::start(self.clone(), start.results, start.replies, &start.runtime)
            .map_err(|error| StartError::option(error.to_string()))
    }
}

/// Returns the schema of the results: `ordinal: int64`, with timestamps also `began: int64`.
pub fn result_schema(timestamps: bool) -> SchemaRef {
    let names = ["ordinal", "began"].into_iter().take(if timestamps { 2 } else { 1 });
    let fields: Vec<Field> = names.map(|it| Field::new(it, DataType::Int64, true)).collect();
    Arc::new(Schema::new(fields))
}

/// Starts a function that waits and returns the row's position in its task.
///
/// `results` are the columns of [`result_schema`], by whatever names.
///
/// With timestamps it also tells when the row's call began, in nanoseconds of the system's
/// monotonic clock: one look at the clock for all calls that start together.
///
/// Serves tests and benches: it shows what the operator costs, and what a
/// latency does to throughput. All of its calls live in one tokio task, which a
/// burst of calls reaches by one message and leaves by one reply. Without latency
/// there is nothing to wait for: then the task thread answers a burst itself, as a
/// Flink function does that completes its `ResultFuture` in `asyncInvoke`.
///
/// # Errors
///
/// The latency's parameters are out of range.
pub fn start(
    config: SimulatedConfig,
    results: SchemaRef,
    replies: Replies,
    runtime: &Handle,
) -> Result<TaskFunction, InvalidLatency> {
    let is_immediate = matches!(config.latency, Latency::None | Latency::Constant(Duration::ZERO));
    let latency = LatencySampler::new(config.latency, config.seed)?;
    let answers = Answers {
        error_rate: config.error_rate,
        random: StdRng::seed_from_u64(config.seed ^ 0x5EED),
        schema: results,
        timestamps: config.timestamps,
        replies: replies.clone(),
    };
    if is_immediate {
        return Ok(Box::new(Immediate { answers: Some(answers) }));
    }
    let calls = RunningCalls { latency, due: BinaryHeap::new(), early: MOST_EARLY / 4, answers };
    Ok(Box::new(Worker::start(runtime, "simulated", replies, |commands| calls.run(commands))))
}

/// Calls that end in the moment they start, on the thread that starts them.
struct Immediate {
    /// `None` once closed.
    answers: Option<Answers>,
}

impl AsyncFunction<Calls> for Immediate {
    fn invoke(&mut self, calls: Calls) {
        if let Some(answers) = &mut self.answers {
            let (attempts, ordinals) = ordinals(&calls).unzip();
            let told = if answers.timestamps { calls.calls.len() } else { 0 };
            answers.reply(Ended { attempts, ordinals, began: vec![answers.now(); told] });
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {
        // Native functions declare no timeout handler, so that none is ever asked.
    }

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {
        // None is in flight.
    }

    fn close(&mut self) {
        self.answers = None;
    }
}

/// A call that has not ended. The one that is due earliest is the least.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RunningCall {
    due: Instant,
    attempt: AttemptId,
    ordinal: i64,
    began: i64,
}

/// The calls that have not ended.
struct RunningCalls {
    latency: LatencySampler,
    /// Earliest first.
    due: BinaryHeap<Reverse<RunningCall>>,
    /// How long before its due time a call may end.
    ///
    /// Tokio's timer has ticks of a millisecond, rounds up and wakes late. This
    /// follows the error of the calls that ended, so that it vanishes on average.
    early: Duration,
    answers: Answers,
}

impl RunningCalls {
    /// Serves commands until the function is closed.
    async fn run(mut self, mut commands: Commands) {
        loop {
            let next = self.due.peek().map(|Reverse(call)| call.due);
            let command = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => command,
                    None => return,
                },
                () = wait_until(next, self.early) => {
                    self.end_due();
                    continue;
                }
            };
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Cancel(cancelled) => {
                self.due.retain(|Reverse(it)| cancelled.binary_search(&it.attempt).is_err());
            }
            Command::Invoke(calls) => {
                let (now, began) = (Instant::now(), self.answers.now());
                for (attempt, ordinal) in ordinals(&calls) {
                    let due = now + self.latency.sample();
                    self.due.push(Reverse(RunningCall { due, attempt, ordinal, began }));
                }
            }
        }
    }

    /// Ends the calls whose time has come.
    fn end_due(&mut self) {
        let now = Instant::now();
        let mut ended = Ended::default();
        let mut error = 0;
        while self.due.peek().is_some_and(|Reverse(call)| call.due <= now + self.early) {
            if let Some(Reverse(call)) = self.due.pop() {
                error += nanos(now.saturating_duration_since(call.due))
                    - nanos(call.due.saturating_duration_since(now));
                ended.push(&call);
            }
        }
        if ended.attempts.is_empty() {
            return;
        }
        let count = i64::try_from(ended.attempts.len()).unwrap_or(i64::MAX).max(1);
        let early = nanos(self.early) + error / count / DAMPING;
        self.early = Duration::from_nanos(early.max(0).unsigned_abs()).min(MOST_EARLY);
        self.answers.reply(ended);
    }
}

/// Calls that ended together; each of the columns has one value a call.
#[derive(Default)]
struct Ended {
    attempts: Vec<AttemptId>,
    ordinals: Vec<i64>,
    began: Vec<i64>,
}

impl Ended {
    fn push(&mut self, call: &RunningCall) {
        self.attempts.push(call.attempt);
        self.ordinals.push(call.ordinal);
        self.began.push(call.began);
    }

    /// Removes the calls whose flag is set.
    fn keep_unless(&mut self, flags: &[bool]) {
        keep_unless(&mut self.attempts, flags);
        keep_unless(&mut self.ordinals, flags);
        keep_unless(&mut self.began, flags);
    }
}

/// Returns the attempts of some calls, each with the position of its row in the task.
fn ordinals(calls: &Calls) -> impl Iterator<Item = (AttemptId, i64)> {
    calls
        .calls
        .iter()
        .map(|call| (call.attempt, i64::try_from(calls.ordinal(call)).unwrap_or(i64::MAX)))
}

/// Makes the replies.
struct Answers {
    error_rate: f64,
    random: StdRng,
    schema: SchemaRef,
    timestamps: bool,
    replies: Replies,
}

impl Answers {
    /// Returns the time of the monotonic clock in nanoseconds, if anybody wants to know.
    fn now(&self) -> i64 {
        if !self.timestamps {
            return 0;
        }
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    }

    /// Answers some calls, except those that fail.
    fn reply(&mut self, mut ended: Ended) {
        let mut group = ReplyGroup::default();
        if self.error_rate > 0.0 {
            let fails: Vec<bool> =
                ended.attempts.iter().map(|_| self.random.random_bool(self.error_rate)).collect();
            let failed = ended.attempts.iter().zip(&fails).filter(|(_, fails)| **fails);
            group.failures = failed.map(|(attempt, _)| simulated_failure(*attempt)).collect();
            ended.keep_unless(&fails);
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ended.ordinals))];
        if self.timestamps {
            columns.push(Arc::new(Int64Array::from(ended.began)));
        }
        // Nullable int64 columns of one length always fit their schema.
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns).ok();
        group.results = rows
            .filter(|rows| rows.num_rows() > 0)
            .map(|rows| ResultGroup::one_each(ended.attempts, rows));
        self.replies.send(group);
    }
}

/// Removes the values whose flag is set.
fn keep_unless<T>(values: &mut Vec<T>, flags: &[bool]) {
    let mut flags = flags.iter();
    values.retain(|_| flags.next().is_none_or(|flag| !flag));
}

fn simulated_failure(attempt: AttemptId) -> FailedCall {
    let failure = CallFailure::new(ErrorKind::UserFunctionFailed, "simulated failure");
    FailedCall::new(attempt, Box::new(failure), Retry::Yes)
}

/// Returns a short duration in nanoseconds.
fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Waits until `early` before `due`; for ever if there is none.
async fn wait_until(due: Option<Instant>, early: Duration) {
    match due {
        Some(due) => sleep_until(due.checked_sub(early).unwrap_or(due)).await,
        None => std::future::pending().await,
    }
}
