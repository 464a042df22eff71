// SPDX-License-Identifier: Apache-2.0
//! The cache in front of a function: what it saves, what it keeps, and who makes the call.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use sparkawait_arrow::OnError;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, OutputMode, Retry};
use sparkawait_runtime::AsyncFunction;
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{Calls, FailedCall, Replies, ReplyGroup, ResultGroup};
use sparkawait_task::layer::Layer;
use sparkawait_task::layer::cache::{CacheConfig, CacheMetrics, CacheSettings};
use sparkawait_task::task::TaskConfig;

use crate::support::{
    Answers, KEYS, TestTask, column, input, nullable_column, schema, task_config, with_on_error,
};

/// A task whose results depend on the column `key`, with a cache of its own name.
fn cached(id: &str, capacity: usize) -> (TaskConfig, Arc<CacheMetrics>) {
    cached_with(id, capacity, CacheConfig { cache_missing: true, ..CacheConfig::default() })
}

fn cached_with(id: &str, capacity: usize, config: CacheConfig) -> (TaskConfig, Arc<CacheMetrics>) {
    let metrics = Arc::<CacheMetrics>::default();
    let mut task = task_config(OutputMode::Ordered, capacity);
    task.layers.push(cache(id, config, &metrics));
    (task, metrics)
}

fn cache(id: &str, config: CacheConfig, metrics: &Arc<CacheMetrics>) -> Arc<dyn Layer> {
    let (key, metrics) = (vec!["key".to_owned()], Arc::clone(metrics));
    Arc::new(CacheSettings { id: id.to_owned(), config, key, caches: None, metrics })
}

fn counts(metrics: &CacheMetrics) -> (u64, u64, u64) {
    (metrics.hits(), metrics.misses(), metrics.loads())
}

#[test]
fn rows_with_one_key_make_one_call() {
    let (config, metrics) = cached("one call", 100);
    let mut task = TestTask::answered(config, Answers::default());

    let output = task.run(vec![input(0..50), input(50..100)]).unwrap();

    // The first row with a key made the call, whose result is its position.
    let keys: Vec<i64> = output.iter().flat_map(|batch| column(batch, "key")).collect();
    let results: Vec<i64> = output.iter().flat_map(|batch| column(batch, "result")).collect();
    assert_eq!(keys.len(), 100);
    assert_eq!(results, keys);
    assert_eq!(metrics.loads(), KEYS.unsigned_abs());
    assert_eq!(metrics.hits() + metrics.misses(), 100);
}

#[test]
fn the_next_task_of_the_process_makes_no_call() {
    let (config, _) = cached("next task", 100);
    TestTask::answered(config, Answers::default()).run(vec![input(0..10)]).unwrap();

    let (config, metrics) = cached("next task", 100);
    let output = TestTask::answered(config, Answers::default()).run(vec![input(100..110)]).unwrap();

    assert_eq!(counts(&metrics), (10, 0, 0));
    assert_eq!(column(&output[0], "result"), column(&output[0], "key"));
}

#[test]
fn a_cache_of_another_name_or_other_settings_is_another_cache() {
    let (config, _) = cached("other", 100);
    TestTask::answered(config, Answers::default()).run(vec![input(0..10)]).unwrap();

    for (id, cache_missing) in [("another", true), ("other", false)] {
        let settings = CacheConfig { cache_missing, ..CacheConfig::default() };
        let (config, metrics) = cached_with(id, 100, settings);
        TestTask::answered(config, Answers::default()).run(vec![input(0..10)]).unwrap();
        assert_eq!(metrics.loads(), KEYS.unsigned_abs());
    }
}

#[test]
fn several_rows_and_none_are_kept_as_they_are() {
    let answers = Answers { count: |row| u32::try_from(row).unwrap(), ..Answers::default() };
    let (config, _) = cached("several rows", 100);
    TestTask::answered(config, answers.clone()).run(vec![input(0..5)]).unwrap();

    let (config, metrics) = cached("several rows", 100);
    let output = TestTask::answered(config, answers).run(vec![input(0..5)]).unwrap();

    assert_eq!(counts(&metrics), (5, 0, 0));
    assert_eq!(column(&output[0], "result"), [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]);
}

#[test]
fn missing_results_are_kept_only_by_choice() {
    for (cache_missing, loads) in [(true, 0), (false, KEYS.unsigned_abs())] {
        let settings = CacheConfig { cache_missing, ..CacheConfig::default() };
        let answers = Answers { count: |_| 0, ..Answers::default() };
        let (config, _) = cached_with("missing", 100, settings);
        TestTask::answered(config, answers.clone()).run(vec![input(0..5)]).unwrap();

        let (config, metrics) = cached_with("missing", 100, settings);
        TestTask::answered(config, answers).run(vec![input(0..5)]).unwrap();

        assert_eq!(metrics.loads(), loads);
    }
}

#[test]
fn a_failure_is_handed_to_all_who_wait_and_not_kept() {
    let answers = Answers { failing: Some(0), retry: Retry::No, ..Answers::default() };
    let (config, _) = cached("failure", 100);
    let mut task = TestTask::answered(with_on_error(config, OnError::Null), answers);
    let output = task.run(vec![input(0..10)]).unwrap();
    let results = nullable_column(&output[0], "result");
    assert_eq!((results[0], results[5]), (None, None));
    assert_eq!(results.iter().flatten().count(), 8);

    let (config, metrics) = cached("failure", 100);
    let output = TestTask::answered(config, Answers::default()).run(vec![input(0..10)]).unwrap();

    assert_eq!(metrics.loads(), 1);
    assert_eq!(column(&output[0], "result").len(), 10);
}

#[test]
fn keys_beyond_the_bound_leave() {
    let settings = CacheConfig { max_rows: Some(2), ..CacheConfig::default() };
    let (config, metrics) = cached_with("bound", 1, settings);

    TestTask::answered(config, Answers::default()).run(vec![input(0..100)]).unwrap();

    assert!(metrics.evictions() > 0);
    assert!(metrics.loads() > KEYS.unsigned_abs());
}

#[test]
fn a_key_column_that_does_not_exist_is_refused() {
    let (mut config, metrics) = cached("no column", 1);
    let key = vec!["nope".to_owned()];
    let (id, settings) = ("no column".to_owned(), CacheConfig::default());
    config.layers =
        vec![Arc::new(CacheSettings { id, config: settings, key, caches: None, metrics })];

    let error = sparkawait_task::task::build(config, |_| {
        Err(sparkawait_task::error::TaskError::Internal("was made".to_owned()))
    })
    .unwrap_err();

    assert_eq!(
        error.to_string(),
        "`cache` names column `nope`, which the input does not have; it has `row`, `key`"
    );
}

/// A function whose calls a test answers, and the test's end of it.
struct ByHand {
    calls: Sender<Calls>,
    cancelled: Sender<Vec<AttemptId>>,
}

struct Hand {
    replies: Replies,
    calls: Receiver<Calls>,
    cancelled: Receiver<Vec<AttemptId>>,
}

impl AsyncFunction<Calls> for ByHand {
    fn invoke(&mut self, calls: Calls) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a test that has ended looks at no calls"
        )]
        let _ = self.calls.send(calls);
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a test that has ended looks at no calls"
        )]
        let _ = self.cancelled.send(attempts);
    }

    fn close(&mut self) {}
}

/// Starts a task by hand on a thread of its own, which returns the task's results.
fn started(config: TaskConfig) -> (Hand, thread::JoinHandle<Option<Vec<RecordBatch>>>) {
    started_with(config, input(0..1))
}

fn started_with(
    config: TaskConfig,
    rows: RecordBatch,
) -> (Hand, thread::JoinHandle<Option<Vec<RecordBatch>>>) {
    let (hands, hand) = channel();
    let thread = thread::spawn(move || {
        let mut task = TestTask::new(config, |replies| {
            let (calls, called) = channel();
            let (cancelled, cancellations) = channel();
            hands.send(Hand { replies, calls: called, cancelled: cancellations }).unwrap();
            Box::new(ByHand { calls, cancelled })
        });
        task.run(vec![rows]).ok()
    });
    (hand.recv().unwrap(), thread)
}

fn answer(hand: &Hand, calls: &Calls, value: i64) {
    let values = Int64Array::from(vec![value; calls.calls.len()]);
    let results = ResultGroup::one_each(
        calls.calls.iter().map(|call| call.attempt).collect(),
        RecordBatch::try_new(schema(&["result"]), vec![Arc::new(values)]).unwrap(),
    );
    hand.replies.send(results.into());
}

/// Waits until the calls of a task have come to its cache.
fn wait_for_misses(metrics: &CacheMetrics, misses: u64) {
    while metrics.misses() < misses {
        thread::yield_now();
    }
}

#[test]
fn a_task_waits_for_the_call_of_another() {
    let (config, _) = cached("two tasks", 10);
    let (leader, leading) = started(config);
    let calls = leader.calls.recv().unwrap();
    let (config, metrics) = cached("two tasks", 10);
    let (follower, following) = started(config);
    wait_for_misses(&metrics, 1);

    answer(&leader, &calls, 7);

    for thread in [leading, following] {
        assert_eq!(column(&thread.join().unwrap().unwrap()[0], "result"), [7]);
    }
    assert_eq!(metrics.loads(), 0);
    assert!(follower.calls.try_recv().is_err());
}

#[test]
fn who_waits_for_a_task_that_fails_makes_the_call() {
    let (config, _) = cached("abandoned", 10);
    let (leader, leading) = started(config);
    leader.calls.recv().unwrap();
    let (config, metrics) = cached("abandoned", 10);
    let (follower, following) = started(config);
    wait_for_misses(&metrics, 1);

    let error = sparkawait_task::error::TaskError::Internal("stop".to_owned());
    leader.replies.fail(error);

    let calls = follower.calls.recv().expect("the follower makes the call");
    answer(&follower, &calls, 8);
    assert!(leading.join().unwrap().is_none());
    assert_eq!(column(&following.join().unwrap().unwrap()[0], "result"), [8]);
    assert_eq!(metrics.loads(), 1);
}

#[test]
fn who_waits_for_calls_that_time_out_together_makes_them() {
    let rows = || input(0..4 * KEYS);
    let (mut config, _) = cached("timed out", 1000);
    config.operator.timeout = Some(Duration::from_millis(20));
    let (leader, leading) = started_with(with_on_error(config, OnError::Capture), rows());
    let (config, metrics) = cached("timed out", 1000);
    let (follower, following) = started_with(config, rows());

    // The follower's calls come once the leader's have timed out, with all that waited for them.
    let mut answered = 0;
    while answered < KEYS.unsigned_abs() {
        let calls = follower.calls.recv().unwrap();
        answer(&follower, &calls, 9);
        answered += calls.calls.len() as u64;
    }

    let rows_of =
        |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert_eq!(rows_of(&leading.join().unwrap().unwrap()), rows().num_rows());
    let found = following.join().unwrap().unwrap();
    assert_eq!(rows_of(&found), rows().num_rows());
    assert!(found.iter().all(|batch| column(batch, "result").iter().all(|value| *value == 9)));
    assert_eq!(metrics.loads(), KEYS.unsigned_abs());
    drop(leader);
}

#[test]
fn a_failed_call_of_another_task_fails_those_that_wait() {
    let (config, _) = cached("failed elsewhere", 10);
    let (leader, leading) = started(config);
    let calls = leader.calls.recv().unwrap();
    let (config, metrics) = cached("failed elsewhere", 10);
    let (_follower, following) = started(config);
    wait_for_misses(&metrics, 1);

    let text = "down".to_owned();
    let failure = CallFailure {
        kind: ErrorKind::UserFunctionFailed,
        message: text.clone(),
        summary: text,
        raised: None,
        status: None,
    };
    let attempt = calls.calls[0].attempt;
    let failed = FailedCall::new(attempt, Box::new(failure), Retry::No);
    leader.replies.send(ReplyGroup { failures: vec![failed], ..ReplyGroup::default() });

    assert!(leading.join().unwrap().is_none());
    assert!(following.join().unwrap().is_none());
    assert!(leader.cancelled.try_recv().is_err());
}
