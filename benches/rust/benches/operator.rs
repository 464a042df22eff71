// SPDX-License-Identifier: Apache-2.0
//! What does a record cost in the operator: admit, start, complete in random order, emit?
//!
//! With and without timeouts armed that never fire.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_benches::operators::{IN_FLIGHT, config, round};
use sparkawait_core::operator::OutputMode;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};

fn operators(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("operator");
    group.throughput(Throughput::Elements(IN_FLIGHT as u64));
    for (name, mode) in [("ordered", OutputMode::Ordered), ("unordered", OutputMode::Unordered)] {
        for armed in [false, true] {
            let config = config(mode, armed);
            let label = if armed { "timeouts-and-retries-armed" } else { "plain" };
            group.bench_function(BenchmarkId::new(name, label), |b| {
                let mut operator = AsyncWaitOperator::new(config.clone());
                let mut nanos = 0;
                b.iter(|| {
                    nanos += 10_000;
                    round(&mut operator, ProcessingTime::from_nanos(nanos));
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, operators);
criterion_main!(benches);
