// SPDX-License-Identifier: Apache-2.0
//! What do channels cost a record in the operator: none, one, and a thousand of them?
//!
//! The work of `operator.rs`, with a destination for each record. Every credit is free, as with
//! destinations that answer in time: what is measured is what everybody pays.
//! To reach: one channel at most 3 % more than none, a thousand at most 15 % more.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{Completion, Config, OutputMode, Retry};
use sparkawait_core::{AsyncWaitOperator, Key, ProcessingTime, StreamRecord};

const IN_FLIGHT: u32 = 1_000;

/// Admits as many records as fit, to `channels` in turn, completes them with a stride, empties the
/// output.
fn round(operator: &mut AsyncWaitOperator<u64, u64, ()>, channels: u64, now: ProcessingTime) {
    for value in 0..u64::from(IN_FLIGHT).min(operator.free_slots() as u64) {
        // Keys are hashes.
        let key = Key((value % channels).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let _ = operator.process_element_on(Some(key), StreamRecord::new(value, None), None, now);
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

/// Settings where `channels` channels have two credits each and share the others.
fn config(mode: OutputMode, channels: u32) -> Config {
    let capacity = NonZeroUsize::new(IN_FLIGHT as usize).unwrap_or(NonZeroUsize::MIN);
    let mut config = Config::new(mode, capacity);
    config.timeout = Some(Duration::from_secs(60));
    config.channels = (channels > 0).then(|| {
        let exclusive = (IN_FLIGHT / channels).min(2) * u32::from(channels < 500);
        let floating = IN_FLIGHT - exclusive * channels;
        ChannelConfig { exclusive, floating, ..ChannelConfig::floating(IN_FLIGHT, 10_000) }
    });
    config
}

fn channels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("channels");
    group.throughput(Throughput::Elements(IN_FLIGHT.into()));
    for (name, mode) in [("ordered", OutputMode::Ordered), ("unordered", OutputMode::Unordered)] {
        for channels in [0, 1, 10, 1_000] {
            group.bench_function(BenchmarkId::new(name, channels), |b| {
                let mut operator = AsyncWaitOperator::new(config(mode, channels));
                let mut nanos = 0;
                b.iter(|| {
                    nanos += 10_000;
                    let now = ProcessingTime::from_nanos(nanos);
                    round(&mut operator, channels.max(1).into(), now);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, channels);
criterion_main!(benches);
