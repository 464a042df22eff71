// SPDX-License-Identifier: Apache-2.0
//! Layers between the operator and the function: each sees the calls and the replies on its way.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{Arc, Mutex, MutexGuard};

use arrow::array::{Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use sparkawait_core::operator::{AttemptId, OutputMode};
use sparkawait_runtime::AsyncFunction;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, Replies, ReplyGroup, ReplySink, ResultGroup, TaskFunction};
use sparkawait_task::layer::cache::{CacheConfig, CacheSettings};
use sparkawait_task::layer::{Inner, Layer};
use sparkawait_task::row_config::RowConfig;
use sparkawait_task::task::TaskConfig;

use crate::support::{Answers, KEYS, TestTask, column, input, schema, task_config};

/// What went by a layer.
#[derive(Debug, Default)]
struct Seen {
    /// Positions of the rows that were called for.
    calls: Vec<u64>,
    answered: usize,
    failed: usize,
    cancelled: usize,
    failures_of_the_task: usize,
    types: Vec<SchemaRef>,
}

/// A layer that looks on.
#[derive(Clone, Debug, Default)]
struct Observer {
    seen: Arc<Mutex<Seen>>,
}

impl Observer {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }
}

impl Layer for Observer {
    fn wrap(
        &self,
        inner: Inner<'_>,
        replies: Replies,
        _rows: &RowConfig,
    ) -> Result<TaskFunction, TaskError> {
        let sink = Observed { observer: self.clone(), below: replies };
        let function = (inner.make)(Replies::to(sink))?;
        Ok(Box::new(Observed { observer: self.clone(), below: function }))
    }
}

/// A function, or a way of replies, behind an observer.
#[derive(Debug)]
struct Observed<T> {
    observer: Observer,
    below: T,
}

impl AsyncFunction<Calls> for Observed<TaskFunction> {
    fn invoke(&mut self, calls: Calls) {
        self.observer.seen().calls.extend(calls.calls.iter().map(|call| calls.ordinal(call)));
        self.below.invoke(calls);
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.below.ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        self.observer.seen().cancelled += attempts.len();
        self.below.cancel(attempts);
    }

    fn close(&mut self) {
        self.below.close();
    }
}

impl ReplySink for Observed<Replies> {
    fn send(&self, group: ReplyGroup) -> bool {
        let mut seen = self.observer.seen();
        seen.failed += group.failures.len();
        if let Some(results) = &group.results {
            seen.answered += results.attempts.len();
            seen.types.push(results.rows.schema());
        }
        drop(seen);
        self.below.send(group)
    }

    fn started(&self, attempts: Vec<AttemptId>) -> bool {
        self.below.started(&attempts)
    }

    fn fail(&self, error: TaskError) -> bool {
        self.observer.seen().failures_of_the_task += 1;
        self.below.fail(error)
    }
}

/// A cache by the column `key`, for this test alone.
fn cache(id: &str) -> Arc<dyn Layer> {
    let config = CacheConfig { cache_missing: true, ..CacheConfig::default() };
    let (key, metrics) = (vec!["key".to_owned()], Arc::default());
    Arc::new(CacheSettings { id: id.to_owned(), config, key, caches: None, metrics })
}

fn layered(capacity: usize, layers: Vec<Arc<dyn Layer>>) -> TaskConfig {
    TaskConfig { layers, ..task_config(OutputMode::Ordered, capacity) }
}

/// An observer above a cache, and one below it.
fn around_a_cache(id: &str, capacity: usize) -> (Observer, Observer, TaskConfig) {
    let (above, below) = (Observer::default(), Observer::default());
    let layers = vec![Arc::new(above.clone()) as _, cache(id), Arc::new(below.clone()) as _];
    (above, below, layered(capacity, layers))
}

#[test]
fn a_layer_above_the_cache_sees_every_call_and_one_below_it_only_those_that_are_made() {
    let (above, below, config) = around_a_cache("layers", 10);

    let output = TestTask::answered(config, Answers::default()).run(vec![input(0..100)]).unwrap();

    let (above, below) = (above.seen(), below.seen());
    assert_eq!(above.calls, (0..100).collect::<Vec<_>>());
    assert_eq!(above.answered, 100);
    assert_eq!(below.calls, (0..KEYS.unsigned_abs()).collect::<Vec<_>>());
    assert_eq!(below.answered as u64, KEYS.unsigned_abs());
    let rows: Vec<i64> = output.iter().flat_map(|batch| column(batch, "row")).collect();
    assert_eq!(rows, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_hit_keeps_its_place_behind_a_row_that_is_called_for() {
    let (_, _, config) = around_a_cache("place", 100);
    TestTask::answered(config, Answers::default()).run(vec![input(1..2)]).unwrap();
    let (above, below, config) = around_a_cache("place", 100);

    // Row 0 is called for, row 1 is a hit that is answered before it.
    let output = TestTask::answered(config, Answers::default()).run(vec![input(0..2)]).unwrap();

    assert_eq!(column(&output[0], "row"), [0, 1]);
    assert_eq!((above.seen().answered, below.seen().answered), (2, 1));
}

#[test]
fn failures_pass_each_layer_once() {
    let (above, below, config) = around_a_cache("failures", 1);
    let answers = Answers { failing: Some(3), gives_up_at: 1, ..Answers::default() };

    TestTask::answered(config, answers).run(vec![input(0..KEYS)]).unwrap_err();

    assert_eq!((above.seen().failed, below.seen().failed), (1, 1));
}

#[test]
fn what_fails_the_task_passes_each_layer() {
    let observers = [Observer::default(), Observer::default()];
    let layers = observers.iter().map(|it| Arc::new(it.clone()) as _).collect();

    // The function's column has another name than the schema says.
    let answers = Answers { column: "other", ..Answers::default() };
    let error = TestTask::answered(layered(4, layers), answers).run(vec![input(0..1)]);

    assert!(matches!(error, Err(TaskError::Arrow(_))));
    assert_eq!(observers.map(|it| it.seen().failures_of_the_task), [1, 1]);
}

/// Answers with another representation of the type that was declared.
struct Narrow {
    replies: Replies,
    /// Tells whether the function is still there.
    _alive: Arc<()>,
}

impl AsyncFunction<Calls> for Narrow {
    fn invoke(&mut self, calls: Calls) {
        let attempts: Vec<_> = calls.calls.iter().map(|call| call.attempt).collect();
        let fields = vec![Field::new("result", DataType::Int32, true)];
        let values = Arc::new(Int32Array::from(vec![7; attempts.len()]));
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![values]).unwrap();
        let results = ResultGroup::one_each(attempts, rows);
        self.replies.send(results.into());
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

#[test]
fn every_layer_sees_results_of_the_declared_types() {
    let (above, below, config) = around_a_cache("types", 10);
    let alive = Arc::default();
    let mut task = TestTask::new(config, |replies| Box::new(Narrow { replies, _alive: alive }));

    let output = task.run(vec![input(0..10)]).unwrap();

    assert_eq!(column(&output[0], "result"), [7; 10]);
    for observer in [above, below] {
        assert!(observer.seen().types.iter().all(|it| *it == schema(&["result"])));
        assert!(!observer.seen().types.is_empty());
    }
}

#[test]
fn nothing_of_a_task_is_left_when_it_is_dropped() {
    for runs in [true, false] {
        let alive = Arc::default();
        let (above, below, config) = around_a_cache("dropped", 10);
        let held = Arc::clone(&alive);
        let mut task = TestTask::new(config, |replies| Box::new(Narrow { replies, _alive: held }));
        if runs {
            task.run(vec![input(0..10)]).unwrap();
        }

        drop(task);

        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!([above, below].map(|it| Arc::strong_count(&it.seen)), [1, 1]);
    }
}

#[test]
fn a_function_that_cannot_be_made_leaves_nothing_behind() {
    let (above, below, config) = around_a_cache("not made", 10);

    let built = sparkawait_task::task::build(config, |_replies| {
        Err(TaskError::Internal("no function".to_owned()))
    });

    assert_eq!(built.unwrap_err().to_string(), "no function; please report this");
    assert_eq!([above, below].map(|it| Arc::strong_count(&it.seen)), [1, 1]);
}
