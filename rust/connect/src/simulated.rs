// SPDX-License-Identifier: Apache-2.0
//! A function that only takes time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_runtime::AsyncFunction;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use crate::error::CallFailure;
use crate::function::{Calls, FailedCall, Replies, ReplyGroup, ResultGroup, TaskFunction};
use crate::latency::{InvalidLatency, Latency, LatencySampler};
use crate::native::{NativeFunction, Start, StartError};
use crate::worker::{Command, Commands, Worker};

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
}

impl NativeFunction for SimulatedConfig {
    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        self::start(self.clone(), start.replies, &start.runtime)
            .map_err(|error| StartError::option(error.to_string()))
    }
}

/// Returns the schema of the results: one column `ordinal: int64`.
pub fn result_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("ordinal", DataType::Int64, true)]))
}

/// Starts a function that waits and returns the row's position in its task.
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
    replies: Replies,
    runtime: &Handle,
) -> Result<TaskFunction, InvalidLatency> {
    let is_immediate = matches!(config.latency, Latency::None | Latency::Constant(Duration::ZERO));
    let latency = LatencySampler::new(config.latency, config.seed)?;
    let answers = Answers {
        error_rate: config.error_rate,
        random: StdRng::seed_from_u64(config.seed ^ 0x5EED),
        schema: result_schema(),
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
            answers.reply(attempts, ordinals);
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

/// The calls that have not ended.
struct RunningCalls {
    latency: LatencySampler,
    /// Due time, attempt and ordinal of each call, earliest first.
    due: BinaryHeap<Reverse<(Instant, AttemptId, i64)>>,
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
            let next = self.due.peek().map(|Reverse((due, ..))| *due);
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
                self.due.retain(|Reverse((_, attempt, _))| !cancelled.contains(attempt));
            }
            Command::Invoke(calls) => {
                let now = Instant::now();
                for (attempt, ordinal) in ordinals(&calls) {
                    self.due.push(Reverse((now + self.latency.sample(), attempt, ordinal)));
                }
            }
        }
    }

    /// Ends the calls whose time has come.
    fn end_due(&mut self) {
        let now = Instant::now();
        let (mut attempts, mut ordinals) = (Vec::new(), Vec::new());
        let mut error = 0;
        while self.due.peek().is_some_and(|Reverse((due, ..))| *due <= now + self.early) {
            if let Some(Reverse((due, attempt, ordinal))) = self.due.pop() {
                attempts.push(attempt);
                ordinals.push(ordinal);
                error += nanos(now.saturating_duration_since(due))
                    - nanos(due.saturating_duration_since(now));
            }
        }
        if attempts.is_empty() {
            return;
        }
        let ended = i64::try_from(attempts.len()).unwrap_or(i64::MAX).max(1);
        let early = nanos(self.early) + error / ended / DAMPING;
        self.early = Duration::from_nanos(early.max(0).unsigned_abs()).min(MOST_EARLY);
        self.answers.reply(attempts, ordinals);
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
    replies: Replies,
}

impl Answers {
    /// Answers some calls with their ordinals, but for those that fail.
    fn reply(&mut self, mut attempts: Vec<AttemptId>, mut ordinals: Vec<i64>) {
        let mut group = ReplyGroup::default();
        if self.error_rate > 0.0 {
            let fails: Vec<bool> =
                attempts.iter().map(|_| self.random.random_bool(self.error_rate)).collect();
            let failed = attempts.iter().zip(&fails).filter(|(_, fails)| **fails);
            group.failures = failed.map(|(attempt, _)| simulated_failure(*attempt)).collect();
            keep_unless(&mut attempts, &fails);
            keep_unless(&mut ordinals, &fails);
        }
        let column = Arc::new(Int64Array::from(ordinals));
        // One nullable int64 column always fits its schema.
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), vec![column]).ok();
        group.results = rows.filter(|rows| rows.num_rows() > 0).map(|rows| ResultGroup {
            attempts,
            counts: None,
            retries: None,
            misses: None,
            rows,
        });
        self.replies.send(group);
    }
}

/// Removes the values whose flag is set.
fn keep_unless<T>(values: &mut Vec<T>, flags: &[bool]) {
    let mut flags = flags.iter();
    values.retain(|_| flags.next().is_none_or(|flag| !flag));
}

fn simulated_failure(attempt: AttemptId) -> FailedCall {
    let text = "simulated failure".to_owned();
    let failure = CallFailure {
        kind: ErrorKind::UserFunctionFailed,
        message: text.clone(),
        summary: text,
        cause: None,
    };
    FailedCall { attempt, failure: Box::new(failure), retry: Retry::Yes }
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
