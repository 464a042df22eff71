// SPDX-License-Identifier: Apache-2.0
//! How many instructions does the core take for 1 000 elements?
//!
//! Valgrind counts them, so nothing else on the machine matters. Each bench runs once unmeasured, in
//! its set-up, and once measured. `make bench-check` compares with `instructions.json`.
#![expect(missing_docs, unused_qualifications, reason = "what the macros of Gungraun write")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::task::Waker;
use std::time::Duration;

use gungraun::{library_benchmark, library_benchmark_group, main};
use sparkawait_core::mailbox::{Mail, MailboxProcessor, Step};
use sparkawait_core::operator::{Config, OutputMode};
use sparkawait_core::queue::{
    EntryId, OrderedStreamElementQueue, StreamElementQueue, UnorderedStreamElementQueue,
};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};

#[path = "../../rust/benches/work/operator.rs"]
mod operator_work;
#[path = "../../rust/benches/work/queue.rs"]
mod queue_work;

const ELEMENTS: usize = 1_000;

fn elements() -> NonZeroUsize {
    NonZeroUsize::new(ELEMENTS).unwrap_or(NonZeroUsize::MIN)
}

/// A queue after its first round, with what a round needs.
struct Queue<Q> {
    inner: Q,
    ids: Vec<EntryId>,
    order: Vec<usize>,
    watermark_every: usize,
}

impl<Q: StreamElementQueue<u64, u64>> Queue<Q> {
    fn new(queue: Q, watermark_every: usize) -> Self {
        let order = queue_work::shuffled(ELEMENTS);
        Self { inner: queue, ids: Vec::with_capacity(ELEMENTS), order, watermark_every }.round()
    }

    fn round(mut self) -> Self {
        queue_work::round(&mut self.inner, &mut self.ids, &self.order, self.watermark_every);
        self
    }
}

fn ordered_queue(watermark_every: usize) -> Queue<OrderedStreamElementQueue<u64, u64>> {
    Queue::new(OrderedStreamElementQueue::new(elements()), watermark_every)
}

fn unordered_queue(watermark_every: usize) -> Queue<UnorderedStreamElementQueue<u64, u64>> {
    Queue::new(UnorderedStreamElementQueue::new(elements()), watermark_every)
}

// What is returned is dropped outside of the count.

#[library_benchmark]
#[bench::plain(args = (usize::MAX), setup = ordered_queue)]
#[bench::watermark_100(args = (100), setup = ordered_queue)]
fn queue_ordered(
    queue: Queue<OrderedStreamElementQueue<u64, u64>>,
) -> Queue<OrderedStreamElementQueue<u64, u64>> {
    queue.round()
}

#[library_benchmark]
#[bench::plain(args = (usize::MAX), setup = unordered_queue)]
#[bench::watermark_100(args = (100), setup = unordered_queue)]
#[bench::watermark_1(args = (1), setup = unordered_queue)]
fn queue_unordered(
    queue: Queue<UnorderedStreamElementQueue<u64, u64>>,
) -> Queue<UnorderedStreamElementQueue<u64, u64>> {
    queue.round()
}

type Operator = AsyncWaitOperator<u64, u64, ()>;

fn operator(mode: OutputMode, armed: bool) -> Operator {
    let mut config = Config::new(mode, elements());
    if armed {
        config.timeout = Some(Duration::from_secs(60));
        config.retry = Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_secs(1)));
    }
    let mut operator = AsyncWaitOperator::new(config);
    operator_work::round(&mut operator, ProcessingTime::from_nanos(10_000));
    operator
}

#[library_benchmark]
#[bench::ordered(args = (OutputMode::Ordered, false), setup = operator)]
#[bench::ordered_armed(args = (OutputMode::Ordered, true), setup = operator)]
#[bench::unordered(args = (OutputMode::Unordered, false), setup = operator)]
#[bench::unordered_armed(args = (OutputMode::Unordered, true), setup = operator)]
fn operator_round(mut operator: Operator) -> Operator {
    operator_work::round(&mut operator, ProcessingTime::from_nanos(20_000));
    operator
}

fn burst(processor: &mut MailboxProcessor<u64>) {
    for payload in 0..ELEMENTS as u64 {
        // The mailbox stays open while a bench runs.
        let _ = processor.inbox().put(Mail::new(payload, 0, "bench"));
    }
    for _ in 0..ELEMENTS {
        if let Step::RunMail(mail) = processor.next_step() {
            black_box(mail.payload);
        }
    }
}

fn mailbox() -> MailboxProcessor<u64> {
    let mut processor = MailboxProcessor::new(Waker::noop().clone());
    let _ = processor.suspend_default_action();
    burst(&mut processor);
    processor
}

#[library_benchmark]
#[bench::burst(setup = mailbox)]
fn mailbox_put_then_run(mut processor: MailboxProcessor<u64>) -> MailboxProcessor<u64> {
    burst(&mut processor);
    processor
}

library_benchmark_group!(
    name = core_group,
    benchmarks = [queue_ordered, queue_unordered, operator_round, mailbox_put_then_run]
);
main!(library_benchmark_groups = core_group);
