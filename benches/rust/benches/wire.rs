// SPDX-License-Identifier: Apache-2.0
//! What does it cost to collect what another process holds, and do shards hold one another?
//!
//! Rows of 200 B wait completed, in batches of 1,000, and are collected over a Unix socket again and
//! again, as by a step that is carried out once more. Both ends are in this process, with a thread
//! each.
//!
//! Goals: at least 1 GB/s, which is at most 1 us a row; three shards beside one whose step takes
//! nothing at least 0.95 of what they have undisturbed.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../../../rust/holder/tests/support/echo.rs"]
mod echo;

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use criterion::{BenchmarkId, Criterion, Throughput};
use echo::{SLOW, Started};
use sparkawait_holder::endpoint::{Address, Answer, RemoteTask, listen};
use sparkawait_holder::{Begun, PartEnd};
use sparkawait_runtime::Patience;

/// Rows of a shard; their answer must be one that is kept.
const ROWS: i64 = 100_000;

/// What makes a row, and the number that it is answered with, 200 B.
const TEXT: usize = 200 - 8 - 8 - 4;

/// Has a task complete its rows in the part before the one that is collected.
fn completed() -> Started {
    let fields =
        vec![Field::new("row", DataType::Int64, true), Field::new("text", DataType::Utf8, true)];
    let schema = Arc::new(Schema::new(fields));
    let started = echo::start(&[], Arc::clone(&schema), ROWS.try_into().unwrap());
    assert_eq!(started.task.begin("run", 0), Begun::Yes);
    let numbers = Int64Array::from_iter_values((0..ROWS).map(|it| SLOW + it));
    let texts = StringArray::from_iter_values((0..ROWS).map(|_| "x".repeat(TEXT)));
    let columns = vec![Arc::new(numbers) as _, Arc::new(texts) as _];
    started.task.put(RecordBatch::try_new(schema, columns).unwrap());
    end_part(&started, Patience::Linger(Duration::ZERO));
    started.let_go();
    assert_eq!(started.task.begin("run", 1), Begun::Yes);
    let end = end_part(&started, Patience::Drain);
    assert_eq!(end.output_rows, ROWS.unsigned_abs());
    started
}

fn end_part(started: &Started, patience: Patience) -> Arc<PartEnd> {
    assert!(started.task.put_end(patience));
    started.task.wait(Duration::from_secs(60)).unwrap().unwrap()
}

/// Collects what a task has completed.
fn collect(address: &Address, started: &Started) -> PartEnd {
    let mut task = RemoteTask::begin(address, started.task.id(), "run", 1).unwrap();
    while !task.put_end(Patience::Drain).unwrap() {}
    let mut answer = Answer::default();
    while !task.wait(&mut answer).unwrap() {}
    answer.finish()
}

fn main() {
    let address = listen().unwrap();
    let shards: Vec<Started> = (0..4).map(|_| completed()).collect();
    let bytes: usize = collect(&address, &shards[0]).outputs.iter().map(Vec::len).sum();
    let mut criterion = Criterion::default().configure_from_args();

    let mut group = criterion.benchmark_group("collect");
    group.throughput(Throughput::Bytes(bytes.try_into().unwrap()));
    group.bench_function("bytes", |it| it.iter(|| black_box(collect(&address, &shards[0]))));
    group.throughput(Throughput::Elements(ROWS.unsigned_abs()));
    group.bench_function("rows", |it| it.iter(|| black_box(collect(&address, &shards[0]))));
    group.finish();

    let mut group = criterion.benchmark_group("three_shards");
    group.throughput(Throughput::Bytes((3 * bytes).try_into().unwrap()));
    for stalls in [false, true] {
        // It is sent what it has credit for, and takes nothing.
        let stalled = stalls.then(|| {
            let mut task = RemoteTask::begin(&address, shards[3].task.id(), "run", 1).unwrap();
            while !task.put_end(Patience::Drain).unwrap() {}
            task
        });
        let name = if stalls { "beside_a_stalled_one" } else { "undisturbed" };
        group.bench_function(BenchmarkId::from_parameter(name), |it| {
            it.iter(|| {
                thread::scope(|scope| {
                    for shard in &shards[..3] {
                        scope.spawn(|| black_box(collect(&address, shard)));
                    }
                });
            });
        });
        drop(stalled);
    }
    group.finish();
    criterion.final_summary();
}
