// SPDX-License-Identifier: Apache-2.0
//! A task that answers each row with itself, when it is told to.

// Each test binary uses a part of this module.
#![allow(dead_code, clippy::allow_attributes, reason = "shared by several test binaries")]

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use sparkawait_arrow::{ERROR_COLUMN, OnError, OutputColumns};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Config, OutputMode, Retry};
use sparkawait_holder::{DetachedTask, state};
use sparkawait_runtime::{AsyncFunction, BufferTimeout, DriverConfig};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{Calls, FailedCall, Replies, ReplyGroup, ResultGroup};
use sparkawait_task::row_config::RowConfig;
use sparkawait_task::row_prices::PriceSettings;
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskConfig, TaskDriver, TaskFeeder};

/// Rows from here on are not answered before they are let go.
pub(crate) const SLOW: i64 = 1000;

/// A row whose call fails.
pub(crate) const BAD: i64 = -1;

/// A row whose call panics; the function then panics once more when it is closed.
pub(crate) const BROKEN: i64 = -13;

pub(crate) fn schema(name: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]))
}

pub(crate) fn batch(name: &str, values: &[i64]) -> RecordBatch {
    let column = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_new(schema(name), vec![column]).unwrap()
}

pub(crate) type Waiting = Arc<Mutex<Vec<(AttemptId, i64)>>>;

/// Answers each row with itself, except slow ones.
struct Echo {
    waiting: Waiting,
    replies: Replies,
    is_broken: bool,
}

fn answer(replies: &Replies, calls: &[(AttemptId, i64)]) {
    let values: Vec<i64> = calls.iter().map(|(_, row)| *row).collect();
    let attempts = calls.iter().map(|(attempt, _)| *attempt).collect();
    let rows = batch("result", &values);
    let group = ResultGroup::one_each(attempts, rows);
    replies.send(group.into());
}

impl AsyncFunction<Calls> for Echo {
    fn invoke(&mut self, calls: Calls) {
        let rows = calls.calls.iter().map(|call| {
            let rows = &calls.batches[call.batch as usize].batch;
            let row = rows.column(0).as_primitive::<Int64Type>().value(call.row as usize);
            (call.attempt, row)
        });
        let rows: Vec<_> = rows.collect();
        self.is_broken = rows.iter().any(|(_, row)| *row == BROKEN);
        assert!(!self.is_broken, "a call of {BROKEN}");
        let (slow, quick): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, row)| *row >= SLOW);
        self.waiting.lock().unwrap().extend(slow);
        let (bad, quick): (Vec<_>, Vec<_>) = quick.into_iter().partition(|(_, row)| *row == BAD);
        for (attempt, _) in bad {
            let (message, summary) = ("is down".to_owned(), "is down".to_owned());
            let kind = ErrorKind::UserFunctionFailed;
            let failure =
                Box::new(CallFailure { kind, message, summary, raised: None, status: None });
            let failures = vec![FailedCall::new(attempt, failure, Retry::No)];
            self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
        }
        if !quick.is_empty() {
            answer(&self.replies, &quick);
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {
        assert!(!self.is_broken, "closed behind a call of {BROKEN}");
    }
}

pub(crate) struct Started {
    pub(crate) task: Arc<DetachedTask>,
    pub(crate) waiting: Waiting,
    replies: Replies,
}

impl Started {
    /// Answers all slow calls.
    pub(crate) fn let_go(&self) {
        let calls = std::mem::take(&mut *self.waiting.lock().unwrap());
        answer(&self.replies, &calls);
    }
}

/// A task that was not started.
pub(crate) struct Built {
    pub(crate) driver: TaskDriver,
    pub(crate) feeder: TaskFeeder,
    waiting: Waiting,
    replies: Replies,
}

/// Builds a task over rows of these columns, the first a number, which goes on with what was saved.
pub(crate) fn build(
    saved: Vec<SavedOperator>,
    mode: OutputMode,
    input: SchemaRef,
    capacity: usize,
) -> Built {
    let operator = Config::new(mode, NonZeroUsize::new(capacity).unwrap());
    let rows = RowConfig {
        input,
        hidden: Arc::new(Schema::empty()),
        carried: Arc::new(Schema::empty()),
        results: schema("result"),
        output: OutputColumns::Append,
        on_error: OnError::Fail,
        error_column: ERROR_COLUMN.to_owned(),
        info_column: None,
        keeps_causes: true,
        reads: Vec::new(),
        key: None,
        channel: None,
        prices: PriceSettings::default(),
        watermark: None,
        function: "echo".to_owned(),
        partition: 0,
        names_of_rows: Vec::new(),
        journal: None,
        is_branch: false,
        timeout: Duration::MAX,
        attempt_timeout: Duration::MAX,
        not_repeated: None,
    };
    let driver = DriverConfig {
        max_rows_per_batch: 1000,
        max_bytes_per_batch: 64 << 20,
        buffer_timeout: BufferTimeout::Never,
        target_latency: None,
        warm_up: None,
        expected_result_bytes: None,
        capacity_bytes: None,
        growth: None,
    };
    let concurrency = Concurrency::unbounded();
    let config = TaskConfig { operator, driver, rows, layers: Vec::new(), concurrency };
    let (waiting, mut kept) = (Waiting::default(), None);
    let builder = TaskBuilder::restored(saved.into(), config, |replies| {
        kept = Some(replies.clone());
        Ok(Box::new(Echo { waiting: Arc::clone(&waiting), replies, is_broken: false }) as Box<_>)
    });
    let (driver, feeder) = builder.unwrap().build();
    Built { driver, feeder, waiting, replies: kept.unwrap() }
}

/// Starts a task that puts rows out as they are answered.
pub(crate) fn start(saved: &[Vec<u8>], input: SchemaRef, capacity: usize) -> Started {
    start_in(OutputMode::Unordered, saved, input, capacity)
}

/// Starts a task on a thread of its own.
pub(crate) fn start_in(
    mode: OutputMode,
    saved: &[Vec<u8>],
    input: SchemaRef,
    capacity: usize,
) -> Started {
    let saved = state::read_operators(saved).unwrap();
    let Built { driver, feeder, waiting, replies } = build(saved, mode, input, capacity);
    let task = DetachedTask::start(driver, feeder, "run".to_owned(), Duration::ZERO).unwrap();
    Started { task, waiting, replies }
}
