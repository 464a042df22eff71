// SPDX-License-Identifier: Apache-2.0
//! How many rows a second does a whole task take when calls cost nothing?
//!
//! Record batches of 4 columns (int64, utf8, float64, timestamp) come from a
//! feeder thread, the simulated function completes at once on the task's thread,
//! timeouts are armed, capacity is 1 000. The baseline hands the same batches
//! through a bounded channel and copies them with a kernel of Arrow.
//!
//! Goal: at least 5 million rows a second, ordered and unordered.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Schema;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_arrow::{ERROR_COLUMN, OnError, OutputColumns};
use sparkawait_benches::batches;
use sparkawait_core::operator::{Config, OutputMode};
use sparkawait_runtime::{BufferTimeout, DriverConfig, Turn, tokio_runtime};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::row_config::RowConfig;
use sparkawait_task::row_prices::PriceSettings;
use sparkawait_task::task::{TaskConfig, build};
use sparkawait_testing::latency::Latency;
use sparkawait_testing::simulated::{self, SimulatedConfig};

/// As Spark makes them.
const ROWS_PER_BATCH: usize = 10_000;
const BATCHES: usize = 100;
const ROWS: usize = ROWS_PER_BATCH * BATCHES;
const CAPACITY: usize = 1_000;

fn config(mode: OutputMode, batch: &RecordBatch) -> TaskConfig {
    let mut operator = Config::new(mode, NonZeroUsize::new(CAPACITY).unwrap());
    operator.timeout = Some(Duration::from_secs(60));
    let driver = DriverConfig {
        max_rows_per_batch: 8192,
        max_bytes_per_batch: 64 << 20,
        capacity_bytes: None,
        growth: None,
        buffer_timeout: BufferTimeout::After(Duration::from_millis(100)),
        target_latency: None,
        warm_up: None,
        expected_result_bytes: None,
    };
    let rows = RowConfig {
        journal: None,
        input: batch.schema(),
        hidden: Arc::new(Schema::empty()),
        carried: Arc::new(Schema::empty()),
        results: simulated::result_schema(false),
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
        function: "simulated".to_owned(),
        partition: 0,
        is_branch: false,
        timeout: Duration::from_secs(60),
        attempt_timeout: Duration::ZERO,
        not_repeated: None,
        names_of_rows: Vec::new(),
    };
    TaskConfig { operator, driver, rows, layers: Vec::new(), concurrency: Concurrency::unbounded() }
}

/// Runs one task over all batches; returns the rows that came out.
fn run(mode: OutputMode, batch: &RecordBatch) -> usize {
    let runtime = tokio_runtime::handle().unwrap();
    let simulated =
        SimulatedConfig { latency: Latency::None, error_rate: 0.0, seed: 0, timestamps: false };
    let (mut driver, feeder) = build(config(mode, batch), |replies| {
        let results = simulated::result_schema(false);
        Ok(simulated::start(simulated, results, replies, &runtime).unwrap())
    })
    .unwrap();
    let batch = batch.clone();
    let feeding = thread::spawn(move || {
        let is_fed = (0..BATCHES).all(|_| feeder.put(batch.clone()));
        assert!(is_fed, "the task ended early");
        feeder.put_end();
    });
    let mut rows = 0;
    loop {
        match driver.take_turn().unwrap() {
            Turn::Output(batch) => rows += black_box(batch).num_rows(),
            Turn::Paused => {}
            Turn::Finished => break,
        }
    }
    feeding.join().unwrap();
    rows
}

/// Hands the batches through a channel and copies them.
fn copy(batch: &RecordBatch) -> usize {
    let (sender, receiver) = sync_channel::<RecordBatch>(2);
    let batch = batch.clone();
    let indices = UInt32Array::from_iter_values(0..u32::try_from(ROWS_PER_BATCH).unwrap());
    let feeding = thread::spawn(move || {
        for _ in 0..BATCHES {
            sender.send(batch.clone()).unwrap();
        }
    });
    let copies = receiver.iter().map(|batch| take_record_batch(&batch, &indices).unwrap());
    let rows = copies.map(|copy| black_box(copy).num_rows()).sum();
    feeding.join().unwrap();
    rows
}

fn tasks(criterion: &mut Criterion) {
    let batch = batches::input(ROWS_PER_BATCH);
    let mut group = criterion.benchmark_group("task");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.sample_size(20);
    group.bench_function("baseline-copy", |b| b.iter(|| assert_eq!(copy(&batch), ROWS)));
    for (name, mode) in [("ordered", OutputMode::Ordered), ("unordered", OutputMode::Unordered)] {
        group.bench_function(name, |b| b.iter(|| assert_eq!(run(mode, &batch), ROWS)));
    }
    group.finish();
}

criterion_group!(benches, tasks);
criterion_main!(benches);
