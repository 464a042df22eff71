// SPDX-License-Identifier: Apache-2.0
//! A row that waits for the call of another row makes none: it has no attempt, and tells nothing of
//! the service. On a clock that is moved by hand; calls are counted at the service.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch, StructArray};
use arrow::datatypes::Int32Type;
use sparkawait_arrow::OnError;
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{AttemptId, Begins, Metrics, OutputMode};
use sparkawait_core::policy::{PauseConfig, PolicyConfig, RetryBudgetConfig};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::parker::Parker;
use sparkawait_runtime::{AsyncFunction, Turn};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::function::{Calls, Replies, ResultGroup, TaskFunction};
use sparkawait_task::layer::cache::{CacheConfig, CacheSettings};
use sparkawait_task::task::{TaskBuilder, TaskConfig};

use crate::support::{column, nullable_column, schema, task_config, with_on_error};

const MILLI: u64 = 1_000_000;

/// How long the service takes for the call number `nth`, from 0, of a key, in milliseconds; `None`: it
/// never answers.
type Takes = fn(key: i64, nth: usize) -> Option<u64>;

/// A service that answers on a clock of its own.
#[derive(Clone)]
struct Service(Arc<Mutex<State>>);

struct State {
    now: u64,
    takes: Takes,
    /// Whether calls wait for a connection, which is there a moment later.
    says: bool,
    /// Whether its thread is about to make a call when it is told that nobody wants it.
    is_late: bool,
    /// The call that began last.
    begun: Option<AttemptId>,
    replies: Option<Replies>,
    /// Keys of the calls, with their times in milliseconds.
    calls: Vec<(i64, u64)>,
    /// When calls begin, and when they are answered.
    due: BTreeMap<u64, Vec<(AttemptId, Option<i64>)>>,
}

impl Service {
    fn new(takes: Takes) -> Self {
        let (replies, calls, due) = (None, Vec::new(), BTreeMap::new());
        let (now, says, is_late, begun) = (0, false, false, None);
        let state = State { now, takes, says, is_late, begun, replies, calls, due };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl State {
    /// Makes a call, which the service sees now.
    fn call(&mut self, attempt: AttemptId, key: i64) {
        let nth = self.calls.iter().filter(|it| it.0 == key).count();
        self.calls.push((key, self.now / MILLI));
        if let Some(millis) = (self.takes)(key, nth) {
            let at = self.now + millis * MILLI;
            self.due.entry(at).or_default().push((attempt, None));
        }
    }

    /// Says that a call begins, and makes it if the task may know of it.
    fn begin(&mut self, attempt: AttemptId, key: i64) {
        if self.replies.as_ref().unwrap().started(&[attempt]) {
            self.begun = Some(attempt);
            self.call(attempt, key);
        }
    }

    /// Does what is due.
    fn work(&mut self) {
        while let Some(first) = self.due.first_entry().filter(|it| *it.key() <= self.now) {
            let mut ended = Vec::new();
            for (attempt, begins) in first.remove() {
                match begins {
                    Some(key) => self.begin(attempt, key),
                    None => ended.push(attempt),
                }
            }
            if !ended.is_empty() {
                let rows = Arc::new(Int64Array::from_iter_values(ended.iter().map(|_| 7))) as _;
                let rows = RecordBatch::try_new(schema(&["result"]), vec![rows]).unwrap();
                self.replies.as_ref().unwrap().send(ResultGroup::one_each(ended, rows).into());
            }
        }
    }
}

impl Clock for Service {
    fn now(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.0.lock().unwrap().now)
    }

    fn park(&self, _parker: &Parker, timeout: Duration) {
        let mut state = self.0.lock().unwrap();
        let until = state.now + u64::try_from(timeout.as_nanos()).unwrap();
        state.now = state.due.keys().next().map_or(until, |it| until.min(*it)).max(state.now);
        state.work();
    }
}

impl AsyncFunction<Calls> for Service {
    fn invoke(&mut self, calls: Calls) {
        let mut state = self.0.lock().unwrap();
        for call in &calls.calls {
            let key = column(&calls.batches[call.batch as usize].batch, "key")[call.row as usize];
            if state.says {
                let later = state.now + MILLI;
                state.due.entry(later).or_default().push((call.attempt, Some(key)));
            } else {
                state.call(call.attempt, key);
            }
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        let mut state = self.0.lock().unwrap();
        let mut late = Vec::new();
        for due in state.due.values_mut() {
            late.extend(due.extract_if(.., |it| attempts.contains(&it.0)));
        }
        for (attempt, begins) in late {
            if let Some(key) = begins.filter(|_| state.is_late) {
                state.begin(attempt, key);
            }
        }
    }

    fn close(&mut self) {}
}

/// What a task came to.
struct Ended {
    /// Keys of all rows, and their results.
    rows: Vec<(i64, Option<i64>)>,
    /// Attempts of each row, and whether its answer was known.
    info: Vec<(i32, bool)>,
    /// Keys of the calls at the service, and their times in milliseconds.
    calls: Vec<(i64, u64)>,
    metrics: Metrics,
    /// When it ended, in milliseconds.
    at: u64,
    /// Whether a call might begin behind the end.
    is_told: bool,
}

impl Ended {
    fn failed(&self, is_asked: impl Fn(i64) -> bool) -> usize {
        self.rows.iter().filter(|it| is_asked(it.0) && it.1.is_none()).count()
    }
}

fn config(calls: usize) -> TaskConfig {
    let mut config = with_on_error(task_config(OutputMode::Unordered, 1000), OnError::Null);
    config.operator.max_concurrency = calls.try_into().unwrap();
    config.rows.info_column = Some("info".to_owned());
    config
}

fn cached(mut config: TaskConfig, id: &str) -> TaskConfig {
    config.layers.push(Arc::new(CacheSettings {
        id: id.to_owned(),
        config: CacheConfig::default(),
        key: vec!["key".to_owned()],
        caches: None,
        metrics: Arc::default(),
    }));
    config
}

fn retried(mut config: TaskConfig) -> TaskConfig {
    config.operator.timeout = Some(Duration::from_secs(3));
    config.operator.attempt_timeout = Some(Duration::from_millis(200));
    let (retries, delay) = (3, Duration::from_millis(10));
    config.operator.retry = Some(AsyncRetryStrategy::fixed_delay(retries, delay));
    config.operator.retry_budget = Some(RetryBudgetConfig::new(0.2, 10));
    config
}

fn policed(mut config: TaskConfig, policy: &PolicyConfig) -> TaskConfig {
    config.operator.channels = Some(ChannelConfig::single(*policy));
    config
}

/// A circuit breaker that opens after so many lost calls in a row.
fn breaker(after: u32) -> PolicyConfig {
    PolicyConfig { pause: Some(PauseConfig::new(Some(after), 5, 7)), ..PolicyConfig::NONE }
}

fn run(config: TaskConfig, takes: Takes, keys: impl IntoIterator<Item = i64>) -> Ended {
    let service = Service::new(takes);
    service.0.lock().unwrap().says = config.concurrency != Concurrency::unbounded();
    run_on(&service, config, keys)
}

fn run_on(service: &Service, mut config: TaskConfig, keys: impl IntoIterator<Item = i64>) -> Ended {
    config.driver.max_rows_per_batch = 7;
    let function = service.clone();
    let kept = service.clone();
    let builder = TaskBuilder::new(config, move |replies| {
        kept.0.lock().unwrap().replies = Some(replies);
        Ok(Box::new(function) as TaskFunction)
    });
    let (mut driver, feeder) = builder.unwrap().build_on(service.clone());
    let keys = Int64Array::from_iter_values(keys);
    let numbers = Int64Array::from_iter_values(0..i64::try_from(keys.len()).unwrap());
    let input = RecordBatch::try_new(
        schema(&["row", "key"]),
        vec![Arc::new(numbers) as _, Arc::new(keys.clone()) as _],
    );
    assert!(feeder.put(input.unwrap()));
    feeder.put_end();
    let (mut rows, mut info) = (Vec::new(), Vec::new());
    loop {
        match driver.take_turn().unwrap() {
            Turn::Output(batch) => {
                rows.extend(
                    column(&batch, "key").into_iter().zip(nullable_column(&batch, "result")),
                );
                info.extend(told(batch.column_by_name("info").unwrap().as_struct()));
            }
            Turn::Paused => {}
            Turn::Finished => break,
        }
    }
    let metrics = driver.metrics_reader().read()[0].operator;
    driver.close();
    let mut state = service.0.lock().unwrap();
    let replies = state.replies.take().unwrap();
    let is_told = state.begun.is_some_and(|it| replies.started(&[it]));
    assert_eq!(rows.len(), keys.len(), "rows in, rows out");
    Ended { rows, info, calls: state.calls.clone(), metrics, at: state.now / MILLI, is_told }
}

fn told(info: &StructArray) -> Vec<(i32, bool)> {
    let attempts = info.column_by_name("attempts").unwrap().as_primitive::<Int32Type>();
    let cached = info.column_by_name("cached").unwrap().as_boolean();
    attempts.values().iter().copied().zip(cached.values().iter()).collect()
}

/// The first call of each key is lost, the others take 20 ms.
fn loses_the_first(_key: i64, nth: usize) -> Option<u64> {
    (nth > 0).then_some(20)
}

#[test]
fn rows_of_a_hot_key_wait_for_the_second_call_where_the_first_one_takes_too_long() {
    for (says, calls) in [(false, 500), (true, 500), (false, 50)] {
        let mut config = cached(retried(config(calls)), &format!("hot {says} {calls}"));
        if says {
            config.concurrency = Concurrency::default().beginning(Begins::WhenSaid);
        }
        let (rows, later) = (if calls == 50 { 51 } else { 200 }, u64::from(says));

        let ended = run(config, loses_the_first, (0..rows).map(|_| 13));

        assert_eq!(ended.failed(|_| true), 0, "{says} {calls}");
        // One of those that wait makes the second call, at once: its time begins only then.
        assert_eq!(ended.calls, [(13, later), (13, 200 + 2 * later)]);
        assert_eq!(ended.at, 220 + 2 * later);
        assert_eq!((ended.metrics.attempts, ended.metrics.retries), (2, 0));
        assert_eq!(ended.info.iter().map(|it| it.0).sum::<i32>(), 2);
        assert_eq!(ended.info.iter().filter(|it| it.1).count(), usize::try_from(rows).unwrap() - 1);
    }
}

#[test]
fn each_hot_key_has_calls_of_its_own_and_only_those_that_made_them_need_tokens() {
    for budget in [None, Some(RetryBudgetConfig::new(0.2, 10))] {
        let mut config = cached(retried(config(500)), &format!("five {budget:?}"));
        config.operator.retry_budget = budget;

        let ended = run(config, loses_the_first, (0..100).map(|it| it % 5));

        assert_eq!((ended.failed(|_| true), ended.calls.len()), (0, 10));
        assert_eq!(ended.metrics.attempts, 10);
    }
}

#[test]
fn a_row_that_takes_a_call_over_has_all_its_attempts_left() {
    let mut config = cached(retried(config(500)), "three");
    config.operator.retry_budget = None;

    let ended = run(config, |_, nth| (nth > 3).then_some(20), (0..3).map(|_| 13));

    // Each of them makes one call, and the first one another.
    let times: Vec<u64> = ended.calls.iter().map(|it| it.1).collect();
    assert_eq!(times, [0, 200, 400, 600, 800]);
    assert_eq!((ended.failed(|_| true), ended.metrics.attempts), (0, 5));
    assert_eq!(ended.metrics.retries, 2);
}

#[test]
fn rows_that_wait_for_a_call_and_time_out_do_not_open_the_circuit_breaker_for_other_keys() {
    for refuses in [false, true] {
        let mut policy = breaker(3);
        policy.pause = policy.pause.map(|it| PauseConfig { refuses, ..it });
        let mut config = cached(policed(config(150), &policy), &format!("others {refuses}"));
        config.operator.timeout = Some(Duration::from_millis(400));
        // A hundred rows of a key that is lost, then those of other keys, which wait for a call.
        let keys = (0..100).map(|_| 13).chain(100..200);
        let takes: Takes = |key, _| (key != 13).then_some(30);

        let ended = run(config, takes, keys);

        assert_eq!(ended.failed(|it| it != 13), 0, "refuses: {refuses}");
        assert_eq!(ended.failed(|it| it == 13), 100);
        let of_hot = ended.calls.iter().filter(|it| it.0 == 13).count();
        assert_eq!((of_hot, ended.calls.len()), (1, 101));
        assert_eq!(ended.metrics.attempts, 101);
    }
}

#[test]
fn one_lost_call_is_one_lost_call_to_a_circuit_breaker_that_refuses() {
    let mut policy = breaker(20);
    policy.pause = policy.pause.map(|it| PauseConfig { refuses: true, ..it });
    let config = cached(policed(retried(config(500)), &policy), "refuses");

    let ended = run(config, loses_the_first, (0..200).map(|_| 13));

    assert_eq!((ended.failed(|_| true), ended.calls.len()), (0, 2));
}

#[test]
fn a_row_that_times_out_while_it_waits_for_a_call_has_no_attempt() {
    let mut config = cached(config(500), "no attempt");
    config.operator.timeout = Some(Duration::from_millis(400));

    let ended = run(config, |_, _| None, (0..20).map(|_| 13));

    assert_eq!((ended.failed(|_| true), ended.calls.len()), (20, 1));
    assert_eq!(ended.metrics.attempts, 1);
    let mut attempts: Vec<i32> = ended.info.iter().map(|it| it.0).collect();
    attempts.sort_unstable();
    assert_eq!((attempts[18], attempts[19]), (0, 1));
}

#[test]
fn attempts_are_the_calls_that_the_service_sees() {
    let answers: Takes = |_, _| Some(20);

    let ended = run(cached(config(500), "counted"), answers, (0..600).map(|it| it % 20));
    assert_eq!((ended.calls.len(), ended.metrics.attempts), (20, 20));

    let ended = run(config(500), answers, (0..600).map(|it| it % 20));
    assert_eq!((ended.calls.len(), ended.metrics.attempts), (600, 600));
}

#[test]
fn a_call_that_begins_as_the_task_ends_is_counted_or_not_made() {
    for is_cached in [false, true] {
        let service = Service::new(|_, _| None);
        let mut config = config(500);
        if is_cached {
            config = cached(config, "late");
        }
        config.concurrency = Concurrency::default().beginning(Begins::WhenSaid);
        config.operator.timeout = Some(Duration::from_micros(700));
        {
            let mut state = service.0.lock().unwrap();
            (state.says, state.is_late) = (true, true);
        }

        let ended = run_on(&service, config, 0..13);

        // All rows time out at once, and the thread of the service had come to their calls.
        assert_eq!((ended.calls.len(), ended.metrics.attempts), (13, 13), "{is_cached}");
        assert!(!ended.is_told, "one that begins later is not made");
    }
}
