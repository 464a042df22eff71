// SPDX-License-Identifier: Apache-2.0
//! What does a record cost in the operator: admit, start, complete in random order, emit?
//!
//! With and without timeouts armed that never fire.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_core::operator::{Completion, Config, OutputMode, Retry};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime, StreamRecord};

const IN_FLIGHT: usize = 1_000;

/// Admits as many records as fit, completes them with a stride, empties the output.
fn round(operator: &mut AsyncWaitOperator<u64, u64, ()>, now: ProcessingTime) {
    for value in 0..operator.free_slots() as u64 {
        let _ = operator.process_element(StreamRecord::new(value, None), None, now);
    }
    let calls = std::mem::take(&mut operator.actions().invoke);
    for offset in 0..7 {
        for call in calls.iter().skip(offset).step_by(7) {
            let completion = Completion { outcome: Ok(1), retry: Retry::No };
            black_box(operator.handle_completion(call.attempt, completion, now));
        }
    }
    while let Some(element) = operator.pop_output() {
        black_box(element);
    }
    black_box(operator.poll_timeout());
}

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
