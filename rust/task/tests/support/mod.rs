// SPDX-License-Identifier: Apache-2.0
//! A task over record batches of numbered rows, and a function that answers at once.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
// Each test binary uses a part of this module.
#![allow(dead_code, clippy::allow_attributes, reason = "shared by several test binaries")]

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use sparkawait_arrow::{ERROR_COLUMN, OnError, OutputColumns};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Config, EndOfInput, FailurePolicy, OutputMode, Retry};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::parker::Parker;
use sparkawait_runtime::{AsyncFunction, BufferTimeout, DriverConfig, Turn};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::{CallFailure, TaskError};
use sparkawait_task::function::{
    Call, Calls, FailedCall, Replies, ReplyGroup, ResultGroup, TaskFunction,
};
use sparkawait_task::row_config::RowConfig;
use sparkawait_task::row_prices::PriceSettings;
use sparkawait_task::task::{TaskConfig, TaskDriver, TaskFeeder, build};

/// Number of keys in the column `key`.
pub(crate) const KEYS: i64 = 5;

/// A schema of nullable integers.
pub(crate) fn schema(columns: &[&str]) -> SchemaRef {
    let fields = columns.iter().map(|name| Field::new(*name, DataType::Int64, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows that are numbered, and have a key.
pub(crate) fn input(rows: Range<i64>) -> RecordBatch {
    let keys = rows.clone().map(|row| row % KEYS);
    let columns = [Int64Array::from_iter_values(rows), Int64Array::from_iter_values(keys)];
    let columns = columns.map(|it| Arc::new(it) as _).to_vec();
    RecordBatch::try_new(schema(&["row", "key"]), columns).unwrap()
}

/// The values of a column without nulls.
pub(crate) fn column(batch: &RecordBatch, name: &str) -> Vec<i64> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

/// The values of a column.
pub(crate) fn nullable_column(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().iter().collect()
}

/// A task without time limits whose failures fail it, with batches as large as can be.
pub(crate) fn task_config(mode: OutputMode, capacity: usize) -> TaskConfig {
    let mut operator = Config::new(mode, NonZeroUsize::new(capacity).unwrap());
    operator.at_end_of_input = EndOfInput::KeepRetrying;
    let rows = RowConfig {
        input: schema(&["row", "key"]),
        hidden: Arc::new(Schema::empty()),
        carried: Arc::new(Schema::empty()),
        results: schema(&["result"]),
        output: OutputColumns::Append,
        on_error: OnError::Fail,
        error_column: ERROR_COLUMN.to_owned(),
        info_column: None,
        keeps_causes: true,
        reads: Vec::new(),
        key: (mode == OutputMode::KeyOrdered).then(|| vec!["key".to_owned()]),
        channel: None,
        prices: PriceSettings::default(),
        watermark: None,
        function: "lookup".to_owned(),
        partition: 0,
        names_of_rows: Vec::new(),
        journal: None,
        is_branch: false,
        timeout: Duration::MAX,
        attempt_timeout: Duration::MAX,
        not_repeated: None,
    };
    let driver = DriverConfig {
        max_rows_per_batch: 8192,
        max_bytes_per_batch: 64 << 20,
        capacity_bytes: None,
        growth: None,
        buffer_timeout: BufferTimeout::Never,
        target_latency: None,
        warm_up: None,
        expected_result_bytes: None,
    };
    TaskConfig { operator, driver, rows, layers: Vec::new(), concurrency: Concurrency::unbounded() }
}

pub(crate) fn with_retries(mut config: TaskConfig, max_retries: u32) -> TaskConfig {
    let strategy = AsyncRetryStrategy::fixed_delay(max_retries, Duration::from_nanos(1));
    config.operator.retry = Some(strategy);
    config
}

pub(crate) fn with_on_error(mut config: TaskConfig, on_error: OnError) -> TaskConfig {
    config.rows.on_error = on_error;
    config.operator.on_failure = FailurePolicy::Emit;
    config
}

/// A clock that goes on while its task waits.
#[derive(Clone, Default)]
pub(crate) struct HandClock(Rc<Cell<u64>>);

impl Clock for HandClock {
    fn now(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.0.get())
    }

    fn park(&self, _parker: &Parker, timeout: Duration) {
        self.0.set(self.0.get() + u64::try_from(timeout.as_nanos()).unwrap());
    }
}

/// A task that was built and not started.
pub(crate) struct TestTask {
    pub(crate) driver: TaskDriver,
    pub(crate) feeder: TaskFeeder,
}

impl TestTask {
    pub(crate) fn new(config: TaskConfig, function: impl FnOnce(Replies) -> TaskFunction) -> Self {
        let (driver, feeder) = build(config, |replies| Ok(function(replies))).unwrap();
        Self { driver, feeder }
    }

    pub(crate) fn answered(config: TaskConfig, answers: Answers) -> Self {
        Self::new(config, |replies| Box::new(Answering { answers, replies }))
    }

    /// Takes all turns while another thread hands over `batches`.
    pub(crate) fn run(&mut self, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, TaskError> {
        let feeder = self.feeder.clone();
        let feeding = thread::spawn(move || {
            if batches.into_iter().all(|batch| feeder.put(batch)) {
                feeder.put_end();
            }
        });
        let mut output = Vec::new();
        let end = loop {
            match self.driver.take_turn() {
                Ok(Turn::Output(batch)) => output.push(batch),
                Ok(Turn::Paused) => {}
                Ok(Turn::Finished) => break Ok(output),
                Err(error) => break Err(error),
            }
        };
        feeding.join().unwrap();
        end
    }
}

/// How the calls of a task are answered.
#[derive(Clone)]
pub(crate) struct Answers {
    /// Result rows of each row; each holds the row's position.
    pub(crate) count: fn(i64) -> u32,
    /// The row that fails, and what its first attempts and the one after them say of a retry.
    pub(crate) failing: Option<i64>,
    pub(crate) retry: Retry,
    /// The first attempt whose failure is final.
    pub(crate) gives_up_at: u32,
    /// The first attempt of it that is never answered.
    pub(crate) hangs_at: u32,
    /// Name of the result column.
    pub(crate) column: &'static str,
    /// Whether each call is answered twice.
    pub(crate) is_doubled: bool,
    /// All results given.
    pub(crate) given: Arc<Mutex<Vec<Int64Array>>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            count: |_| 1,
            failing: None,
            retry: Retry::Yes,
            gives_up_at: u32::MAX,
            hangs_at: u32::MAX,
            column: "result",
            is_doubled: false,
            given: Arc::default(),
        }
    }
}

/// Answers a burst of calls as soon as it starts.
pub(crate) struct Answering {
    pub(crate) answers: Answers,
    pub(crate) replies: Replies,
}

impl Answering {
    fn fails(&self, calls: &Calls, call: &Call) -> bool {
        i64::try_from(calls.ordinal(call)).ok() == self.answers.failing
    }

    fn failed(&self, call: &Call) -> FailedCall {
        let kind = ErrorKind::UserFunctionFailed;
        let (message, summary) = ("is down".to_owned(), "is down".to_owned());
        let failure = Box::new(CallFailure { kind, message, summary, raised: None, status: None });
        let is_final = call.attempt.attempt >= self.answers.gives_up_at;
        let retry = if is_final { Retry::No } else { self.answers.retry };
        FailedCall::new(call.attempt, failure, retry)
    }

    fn results(&self, calls: &Calls, answered: &[Call]) -> ResultGroup {
        let ordinals = answered.iter().map(|call| i64::try_from(calls.ordinal(call)).unwrap());
        let ordinals: Vec<i64> = ordinals.collect();
        let counts: Vec<u32> = ordinals.iter().map(|row| (self.answers.count)(*row)).collect();
        let values = ordinals.iter().zip(&counts);
        let values = values.flat_map(|(row, count)| std::iter::repeat_n(*row, *count as usize));
        let values = Int64Array::from_iter_values(values);
        self.answers.given.lock().unwrap().push(values.clone());
        let schema = schema(&[self.answers.column]);
        let attempts = answered.iter().map(|call| call.attempt).collect();
        let rows = RecordBatch::try_new(schema, vec![Arc::new(values)]).unwrap();
        ResultGroup { counts: Some(counts), ..ResultGroup::one_each(attempts, rows) }
    }
}

impl AsyncFunction<Calls> for Answering {
    fn invoke(&mut self, calls: Calls) {
        let (failing, answered): (Vec<Call>, Vec<Call>) =
            calls.calls.iter().partition(|call| self.fails(&calls, call));
        for _ in 0..=u32::from(self.answers.is_doubled) {
            let results = Some(self.results(&calls, &answered));
            let failed = failing.iter().filter(|it| it.attempt.attempt < self.answers.hangs_at);
            let failures = failed.map(|call| self.failed(call)).collect();
            self.replies.send(ReplyGroup { results, failures, ..ReplyGroup::default() });
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}
