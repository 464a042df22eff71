// SPDX-License-Identifier: Apache-2.0
//! What does an element cost in a queue: put, complete in random order, emit?
//!
//! Goal: at most 40 ns an element at 1 000 and 10 000 in flight, ordered and unordered.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sparkawait_benches::queues::{capacity, round};
use sparkawait_benches::shuffle::shuffled;
use sparkawait_core::queue::{OrderedStreamElementQueue, UnorderedStreamElementQueue};

fn queues(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    for in_flight in [1, 100, 1_000, 10_000] {
        let order = shuffled(in_flight);
        let capacity = capacity(in_flight);
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
