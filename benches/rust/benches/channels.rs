// SPDX-License-Identifier: Apache-2.0
//! What do channels cost a record in the operator: none, one, and a thousand of them?
//!
//! The work of `operator.rs`, with a destination for each record. Every credit is free, as with
//! destinations that answer in time: what is measured is what everybody pays.
//! To reach: one channel at most 3 % more than none, a thousand at most 15 % more.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_benches::operators::{IN_FLIGHT, config_with_channels, round_on};
use sparkawait_core::operator::OutputMode;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};

fn channels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("channels");
    group.throughput(Throughput::Elements(IN_FLIGHT as u64));
    for (name, mode) in [("ordered", OutputMode::Ordered), ("unordered", OutputMode::Unordered)] {
        for channels in [0_u16, 1, 10, 1_000] {
            group.bench_function(BenchmarkId::new(name, channels), |b| {
                let mut operator =
                    AsyncWaitOperator::new(config_with_channels(mode, channels.into()));
                let mut nanos = 0;
                b.iter(|| {
                    nanos += 10_000;
                    let now = ProcessingTime::from_nanos(nanos);
                    round_on(&mut operator, channels.max(1).into(), now);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, channels);
criterion_main!(benches);
