// SPDX-License-Identifier: Apache-2.0
//! What does a record cost in the operator: admit, start, complete in random order, emit?
//!
//! With and without timeouts armed that never fire.

use std::num::NonZeroUsize;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_core::operator::{Config, OutputMode};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};

#[path = "work/operator.rs"]
mod work;

use work::round;

const IN_FLIGHT: usize = 1_000;

fn operators(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("operator");
    group.throughput(Throughput::Elements(IN_FLIGHT as u64));
    for (name, mode) in [("ordered", OutputMode::Ordered), ("unordered", OutputMode::Unordered)] {
        for armed in [false, true] {
            let mut config =
                Config::new(mode, NonZeroUsize::new(IN_FLIGHT).unwrap_or(NonZeroUsize::MIN));
            if armed {
                config.timeout = Some(Duration::from_secs(60));
                config.retry = Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_secs(1)));
            }
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
