// SPDX-License-Identifier: Apache-2.0
//! Second calls beside slow ones, behind a cache: a key has one call and its second one, however
//! many rows wait.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use sparkawait_arrow::OnError;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_core::policy::{HedgeAfter, HedgeConfig};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::{AsyncFunction, Driver, Turn};
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{
    Calls, FailedCall, Replies, ReplyGroup, ResultGroup, TaskFunction,
};
use sparkawait_task::layer::cache::{CacheConfig, CacheMetrics, CacheSettings};
use sparkawait_task::task::{TaskBuilder, TaskConfig, TaskFeeder};
use sparkawait_task::task_codec::TaskCodec;

use crate::support::{column, nullable_column, schema, task_config, with_on_error, with_retries};

/// Each look at the clock takes most of a turn.
#[derive(Clone, Default)]
struct TickingClock(Arc<AtomicU64>);

const TICK: u64 = 99_999_000;

impl Clock for TickingClock {
    fn now(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.0.fetch_add(TICK, Ordering::SeqCst))
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// What the function behind the cache is asked for.
#[derive(Clone, Default)]
struct Asked {
    /// Attempts and rows of the calls, in order.
    calls: Arc<Mutex<Vec<(AttemptId, i64)>>>,
    /// What is done when calls are cancelled.
    on_cancel: Arc<Mutex<VecDeque<Work>>>,
}

impl AsyncFunction<Calls> for Asked {
    fn invoke(&mut self, calls: Calls) {
        let rows = calls.calls.iter().map(|call| {
            let batch = &calls.batches[call.batch as usize].batch;
            (call.attempt, column(batch, "row")[call.row as usize])
        });
        self.calls.lock().unwrap().extend(rows);
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {
        let next = self.on_cancel.lock().unwrap().pop_front();
        if let Some(work) = next {
            work();
        }
    }

    fn close(&mut self) {}
}

/// A task with a cache, whose calls a test answers.
struct Task {
    driver: Driver<TaskCodec, TaskFunction, TickingClock>,
    feeder: TaskFeeder,
    clock: TickingClock,
    asked: Asked,
    replies: Replies,
    metrics: Arc<CacheMetrics>,
    rows: Vec<(i64, Option<i64>)>,
}

fn config(after: HedgeAfter, max_extra: f64) -> TaskConfig {
    let config = with_on_error(task_config(OutputMode::Unordered, 500), OnError::Null);
    let mut config = with_retries(config, 3);
    config.operator.hedge = Some(HedgeConfig { after, max_extra });
    config
}

const AFTER: HedgeAfter = HedgeAfter::Time(Duration::from_secs(7));

impl Task {
    fn new(id: &str, mut config: TaskConfig) -> Self {
        let metrics = Arc::<CacheMetrics>::default();
        config.layers.push(Arc::new(CacheSettings {
            id: id.to_owned(),
            config: CacheConfig::default(),
            key: vec!["key".to_owned()],
            caches: None,
            metrics: Arc::clone(&metrics),
        }));
        let (asked, mut kept) = (Asked::default(), None);
        let function = asked.clone();
        let builder = TaskBuilder::new(config, |replies| {
            kept = Some(replies.clone());
            Ok(Box::new(function) as TaskFunction)
        });
        let clock = TickingClock::default();
        let (driver, feeder) = builder.unwrap().build_on(clock.clone());
        Self { driver, feeder, clock, asked, replies: kept.unwrap(), metrics, rows: Vec::new() }
    }

    /// Feeds rows of one key.
    fn feed(&self, rows: Range<i64>, key: i64) {
        let keys = Int64Array::from_iter_values(rows.clone().map(|_| key));
        let columns = vec![Arc::new(Int64Array::from_iter_values(rows)) as _, Arc::new(keys) as _];
        assert!(self.feeder.put(RecordBatch::try_new(schema(&["row", "key"]), columns).unwrap()));
    }

    /// Works for some seconds; keeps the rows that leave.
    fn work(&mut self, seconds: u64) {
        let end = self.nanos() + seconds * 1_000_000_000;
        while self.nanos() < end {
            match self.driver.take_turn().unwrap() {
                Turn::Output(batch) => {
                    let results = nullable_column(&batch, "result");
                    self.rows.extend(column(&batch, "row").into_iter().zip(results));
                }
                Turn::Paused => {}
                Turn::Finished => return,
            }
        }
    }

    /// Works to the end of the input.
    fn end(mut self) -> Vec<(i64, Option<i64>)> {
        self.feeder.put_end();
        self.work(1_000);
        self.rows.sort_unstable();
        self.rows
    }

    fn nanos(&self) -> u64 {
        self.clock.0.load(Ordering::SeqCst)
    }

    fn calls(&self) -> Vec<(AttemptId, i64)> {
        self.asked.calls.lock().unwrap().clone()
    }

    /// The rows that were called for, and of each whether it is a second call.
    fn called(&self) -> Vec<(i64, bool)> {
        self.calls().iter().map(|(attempt, row)| (*row, attempt.is_hedge())).collect()
    }

    fn answer(&self, attempt: AttemptId, value: i64) {
        let rows = Arc::new(Int64Array::from(vec![value])) as _;
        let rows = RecordBatch::try_new(schema(&["result"]), vec![rows]).unwrap();
        self.replies.send(ResultGroup::one_each(vec![attempt], rows).into());
    }

    fn fail(&self, attempt: AttemptId, retry: Retry) {
        let (message, summary) = ("down".to_owned(), "down".to_owned());
        let kind = ErrorKind::UserFunctionFailed;
        let failure = Box::new(CallFailure { kind, message, summary, raised: None, status: None });
        let failures = vec![FailedCall::new(attempt, failure, retry)];
        self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
    }
}

fn all(rows: Range<i64>, result: Option<i64>) -> Vec<(i64, Option<i64>)> {
    rows.map(|row| (row, result)).collect()
}

#[test]
fn rows_that_wait_for_the_call_of_their_key_get_no_second_calls() {
    let mut task = Task::new("waiting", config(AFTER, 1.0));
    task.feed(0..37, 3);
    task.work(20);
    assert_eq!(task.called(), [(0, false), (0, true)]);

    task.answer(task.calls()[1].0, 11);
    let (metrics, rows) = (Arc::clone(&task.metrics), task.end());

    assert_eq!(rows, all(0..37, Some(11)));
    assert_eq!((metrics.hits(), metrics.misses(), metrics.loads()), (0, 38, 2));
}

#[test]
fn rows_that_the_cache_answers_earn_no_second_calls_and_say_nothing_of_how_long_calls_take() {
    for after in [AFTER, HedgeAfter::Percentile(0.95)] {
        let mut task = Task::new(&format!("hits {after:?}"), config(after, 0.05));
        task.feed(0..1, 3);
        task.work(1);
        task.answer(task.calls()[0].0, 11);
        task.work(1);
        task.feed(1..401, 3);
        task.work(2);
        task.feed(401..402, 4);
        task.work(20);

        assert_eq!(task.called(), [(0, false), (401, false)], "{after:?}");
        task.answer(task.calls()[1].0, 11);
        assert_eq!(task.end(), all(0..402, Some(11)));
    }
}

#[test]
fn a_call_that_fails_beside_another_one_leaves_the_flight_to_that() {
    for first_fails in [true, false] {
        let mut task = Task::new(&format!("fails {first_fails}"), config(AFTER, 1.0));
        task.feed(0..13, 3);
        task.work(10);
        let calls = task.calls();
        let (failing, other) = if first_fails { (0, 1) } else { (1, 0) };
        task.fail(calls[failing].0, Retry::Yes);
        task.work(2);
        task.answer(calls[other].0, 17);

        let (metrics, rows) = (Arc::clone(&task.metrics), task.end());

        assert_eq!((rows, metrics.loads()), (all(0..13, Some(17)), 2));
    }
}

#[test]
fn the_failure_of_both_calls_is_told_to_all_who_wait() {
    let mut task = Task::new("both fail", config(AFTER, 1.0));
    task.feed(0..13, 3);
    task.work(10);
    task.fail(task.calls()[0].0, Retry::Yes);
    task.work(2);
    task.fail(task.calls()[1].0, Retry::No);

    assert_eq!(task.end(), all(0..13, None));
}

#[test]
fn a_first_call_that_takes_too_long_leaves_the_flight_to_the_second_one() {
    let mut leading = config(AFTER, 1.0);
    leading.operator.attempt_timeout = Some(Duration::from_secs(11));
    let mut leader = Task::new("left alone", leading);
    let mut follower = Task::new("left alone", config(HedgeAfter::Time(Duration::MAX), 1.0));
    leader.feed(0..1, 3);
    leader.work(1);
    follower.feed(1..8, 3);
    follower.work(1);
    leader.work(13);
    follower.work(13);
    assert_eq!(follower.called(), [], "the second call is under way");

    leader.answer(leader.calls()[1].0, 19);

    assert_eq!(leader.end(), all(0..1, Some(19)));
    assert_eq!(follower.end(), all(1..8, Some(19)));
}

#[test]
fn a_row_that_is_cancelled_while_it_takes_a_flight_over_is_not_called() {
    let timed = |seconds| {
        let mut config = config(AFTER, 0.0);
        config.operator.timeout = Some(Duration::from_secs(seconds));
        config
    };
    let (mut leader, mut follower) = (Task::new("nobody", timed(5)), Task::new("nobody", timed(3)));
    leader.feed(0..1, 3);
    leader.work(1);
    follower.feed(1..2, 3);
    follower.work(1);
    let calls = Arc::clone(&follower.asked.calls);
    let follower = Arc::new(Mutex::new(follower));
    let of_leader = Arc::clone(&follower);
    // Its time passes while the leader's call is taken back.
    let work = move || of_leader.lock().unwrap().work(10);
    leader.asked.on_cancel.lock().unwrap().push_back(Box::new(work));

    leader.work(10);

    assert_eq!(calls.lock().unwrap().clone(), []);
    assert!(leader.asked.on_cancel.lock().unwrap().is_empty());
    drop(leader);
    let follower = Arc::into_inner(follower).unwrap().into_inner().unwrap();
    assert_eq!(follower.end(), [(1, None)]);
}
