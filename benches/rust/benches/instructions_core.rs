// SPDX-License-Identifier: Apache-2.0
//! How many instructions does a record cost in the core?
//!
//! Counted by Callgrind over 10 000 records each, without what prepares them.
//! `make bench-check` compares with `benches/baseline/instructions.json`.

#![expect(missing_docs, unused_qualifications, reason = "the macros write so")]

use std::hint::black_box;
use std::task::Waker;

use gungraun::{library_benchmark, library_benchmark_group, main};
use sparkawait_benches::RECORDS;
use sparkawait_benches::operators::{self, IN_FLIGHT};
use sparkawait_benches::queues::{capacity, keyed_round, round};
use sparkawait_benches::shuffle::shuffled;
use sparkawait_core::mailbox::{Mail, MailboxProcessor, Step};
use sparkawait_core::operator::{Config, OutputMode};
use sparkawait_core::queue::{
    EntryId, KeyOrderedStreamElementQueue, OrderedStreamElementQueue, StreamElementQueue,
    UnorderedStreamElementQueue,
};
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};

const ROUNDS: usize = RECORDS / IN_FLIGHT;

/// A queue that has its size, and in which order its elements complete.
struct Prepared<Q> {
    queue: Q,
    ids: Vec<EntryId>,
    order: Vec<usize>,
    watermark_every: usize,
}

fn warm<Q: StreamElementQueue<u64, u64>>(mut queue: Q, watermark_every: usize) -> Prepared<Q> {
    let (mut ids, order) = (Vec::new(), shuffled(IN_FLIGHT));
    round(&mut queue, &mut ids, &order, watermark_every);
    Prepared { queue, ids, order, watermark_every }
}

fn ordered(watermark_every: usize) -> Prepared<OrderedStreamElementQueue<u64, u64>> {
    warm(OrderedStreamElementQueue::new(capacity(IN_FLIGHT)), watermark_every)
}

fn unordered(watermark_every: usize) -> Prepared<UnorderedStreamElementQueue<u64, u64>> {
    warm(UnorderedStreamElementQueue::new(capacity(IN_FLIGHT)), watermark_every)
}

fn key_ordered(keys: u64) -> (Prepared<KeyOrderedStreamElementQueue<u64, u64>>, u64) {
    let mut queue = KeyOrderedStreamElementQueue::new(capacity(IN_FLIGHT));
    let (mut ids, order) = (Vec::new(), shuffled(IN_FLIGHT));
    keyed_round(&mut queue, &mut ids, &order, keys);
    (Prepared { queue, ids, order, watermark_every: usize::MAX }, keys)
}

fn rounds<Q: StreamElementQueue<u64, u64>>(mut it: Prepared<Q>) -> Prepared<Q> {
    for _ in 0..ROUNDS {
        round(&mut it.queue, &mut it.ids, black_box(&it.order), it.watermark_every);
    }
    it
}

#[library_benchmark(setup = ordered)]
#[bench::plain(usize::MAX)]
fn queue_ordered(
    queue: Prepared<OrderedStreamElementQueue<u64, u64>>,
) -> Prepared<OrderedStreamElementQueue<u64, u64>> {
    rounds(queue)
}

#[library_benchmark(setup = unordered)]
#[bench::plain(usize::MAX)]
#[bench::watermark_every_100(100)]
#[bench::watermark_every_row(1)]
fn queue_unordered(
    queue: Prepared<UnorderedStreamElementQueue<u64, u64>>,
) -> Prepared<UnorderedStreamElementQueue<u64, u64>> {
    rounds(queue)
}

#[library_benchmark(setup = key_ordered)]
#[bench::keys_1000(1_000)]
#[bench::keys_10(10)]
fn queue_key_ordered(
    (mut it, keys): (Prepared<KeyOrderedStreamElementQueue<u64, u64>>, u64),
) -> Prepared<KeyOrderedStreamElementQueue<u64, u64>> {
    for _ in 0..ROUNDS {
        keyed_round(&mut it.queue, &mut it.ids, black_box(&it.order), keys);
    }
    it
}

type Operator = AsyncWaitOperator<u64, u64, ()>;

/// An operator whose queues have their size.
fn operator(config: Config) -> Operator {
    let mut operator = AsyncWaitOperator::new(config);
    operators::round(&mut operator, ProcessingTime::ZERO);
    operator
}

fn plain(mode: OutputMode) -> Operator {
    operator(operators::config(mode, false))
}

fn armed(mode: OutputMode) -> Operator {
    operator(operators::config(mode, true))
}

#[library_benchmark]
#[bench::ordered(args = (OutputMode::Ordered), setup = plain)]
#[bench::ordered_armed(args = (OutputMode::Ordered), setup = armed)]
#[bench::unordered(args = (OutputMode::Unordered), setup = plain)]
#[bench::unordered_armed(args = (OutputMode::Unordered), setup = armed)]
#[bench::key_ordered(args = (OutputMode::KeyOrdered), setup = plain)]
#[bench::key_ordered_armed(args = (OutputMode::KeyOrdered), setup = armed)]
fn operator_round(mut operator: Operator) -> Operator {
    for time in 1..=ROUNDS as u64 {
        operators::round(&mut operator, ProcessingTime::from_nanos(time * 10_000));
    }
    operator
}

/// An operator with so many channels, each of which has been used; 0: without channels.
fn on_channels(channels: u16) -> (Operator, u16) {
    let config = operators::config_with_channels(OutputMode::Unordered, channels.into());
    let mut operator = AsyncWaitOperator::new(config);
    let channels = channels.max(1);
    operators::round_on(&mut operator, channels.into(), ProcessingTime::ZERO);
    (operator, channels)
}

#[library_benchmark(setup = on_channels)]
#[bench::none(0)]
#[bench::one(1)]
#[bench::ten(10)]
#[bench::thousand(1_000)]
fn operator_channels((mut operator, channels): (Operator, u16)) -> Operator {
    for time in 1..=ROUNDS as u64 {
        let now = ProcessingTime::from_nanos(time * 10_000);
        operators::round_on(&mut operator, channels.into(), now);
    }
    operator
}

/// A mailbox that has its size.
fn mailbox(burst: usize) -> (MailboxProcessor<u64>, usize) {
    let mut processor = MailboxProcessor::new(Waker::noop().clone());
    processor.suspend_default_action();
    mails(&mut processor, burst);
    (processor, burst)
}

/// Puts mails into the mailbox and runs them.
fn mails(processor: &mut MailboxProcessor<u64>, burst: usize) {
    for payload in 0..burst as u64 {
        #[expect(clippy::let_underscore_must_use, reason = "what is measured is not looked at")]
        let _ = processor.inbox().put(Mail::new(payload, 0, "bench"));
    }
    while let Step::RunMail(mail) = processor.next_step() {
        black_box(mail.payload);
    }
}

#[library_benchmark(setup = mailbox)]
#[bench::each(1)]
#[bench::burst_of_1000(1_000)]
fn mailbox_mail((mut processor, burst): (MailboxProcessor<u64>, usize)) -> MailboxProcessor<u64> {
    for _ in 0..RECORDS / burst {
        mails(&mut processor, burst);
    }
    processor
}

library_benchmark_group!(
    name = benches,
    benchmarks = [
        queue_ordered,
        queue_unordered,
        queue_key_ordered,
        operator_round,
        operator_channels,
        mailbox_mail
    ]
);
main!(library_benchmark_groups = benches);
