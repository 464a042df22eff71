// SPDX-License-Identifier: Apache-2.0
//! What does an element cost in a queue: put, complete in random order, emit?
//!
//! Goal: at most 40 ns an element at 1 000 and 10 000 in flight, ordered and unordered.

use std::hint::black_box;
use std::num::NonZeroUsize;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_core::element::{Timestamp, Watermark};
use sparkawait_core::queue::{
    EntryId, OrderedStreamElementQueue, StreamElementQueue, UnorderedStreamElementQueue,
};

/// A permutation of `0..count` from a fixed seed.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, usize::try_from(state >> 33).unwrap_or(0) % (last + 1));
    }
    order
}

/// Fills the queue, completes all in `order`, empties it; a watermark every `watermark_every`.
fn round(
    queue: &mut impl StreamElementQueue<u64, u64>,
    ids: &mut Vec<EntryId>,
    order: &[usize],
    watermark_every: usize,
) {
    ids.clear();
    for value in 0..order.len() {
        ids.extend(queue.try_put(value as u64));
        if (value + 1) % watermark_every == 0 {
            queue.put_watermark(Watermark(Timestamp(i64::try_from(value).unwrap_or(0))));
        }
    }
    for &index in order {
        let _ = queue.complete(ids[index], 1);
    }
    while let Some(element) = queue.pop_completed() {
        black_box(element);
    }
}

fn queues(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    for in_flight in [1, 100, 1_000, 10_000] {
        let order = shuffled(in_flight);
        let capacity = NonZeroUsize::new(in_flight).unwrap_or(NonZeroUsize::MIN);
        let mut ids = Vec::with_capacity(in_flight);
        group.throughput(Throughput::Elements(in_flight as u64));
        group.bench_with_input(BenchmarkId::new("ordered", in_flight), &order, |b, order| {
            let mut queue = OrderedStreamElementQueue::new(capacity);
            b.iter(|| round(&mut queue, &mut ids, order, usize::MAX));
        });
        for (name, every) in [
            ("unordered", usize::MAX),
            ("unordered-watermark-100", 100),
            ("unordered-watermark-1", 1),
        ] {
            group.bench_with_input(BenchmarkId::new(name, in_flight), &order, |b, order| {
                let mut queue = UnorderedStreamElementQueue::new(capacity);
                b.iter(|| round(&mut queue, &mut ids, order, every));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, queues);
criterion_main!(benches);
