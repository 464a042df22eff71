// SPDX-License-Identifier: Apache-2.0

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::policy::{Answer, Gcra, Ledger, LimitConfig, LimitLeft, PolicyConfig, Rate};
use operator::{Op, State, TestOperator, ops};

mod operator;

fn table(max_concurrency: u32, exclusive: u32, floating: u32, limit: u32) -> ChannelTable {
    let config = ChannelConfig {
        exclusive,
        floating,
        max_per_channel: limit,
        max_backlog: 1_000_000,
        max_backlog_per_channel: 3,
        policy: PolicyConfig::NONE,
        is_single: false,
    };
    ChannelTable::new(config, max_concurrency)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(2_000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn credits_are_conserved_and_used_whatever_happens(
        max_concurrency in 1_u32..9,
        exclusive in 0_u32..4,
        floating in 0_u32..9,
        limit in 0_u32..9,
        sequence in prop::collection::vec(ops(), 0..120),
    ) {
        let mut operator = TestOperator::new(table(max_concurrency, exclusive, floating, limit));
        for op in sequence {
            operator.run(op);
        }
        // Nothing starves: what waits is served when calls end.
        for _ in 0..operator.records.len() {
            operator.in_state(State::BackOff).into_iter().for_each(|it| operator.retry(it));
            operator.in_state(State::Running).into_iter().for_each(|it| operator.finish(it, true));
        }
        prop_assert_eq!(operator.in_state(State::Done).len(), operator.records.len());
        // A newcomer gets all that floats, whatever the others kept, once all credits may be used.
        operator.table.set_window(NonZeroUsize::MAX);
        let limit = operator.table.config.max_per_channel;
        let most = limit.min(operator.table.pool.size());
        (0..most).for_each(|_| operator.admit(99));
        prop_assert_eq!(operator.count(99, &[State::Running]), most as usize);
        operator.in_state(State::Running).into_iter().for_each(|it| operator.finish(it, true));
        operator.table.forget_idle();
        prop_assert_eq!(operator.table.pool.lent(), 0);
        prop_assert_eq!(operator.table.sheltered(), 0);
    }
}

#[test]
fn a_stalled_channel_keeps_its_limit_and_the_others_go_on() {
    let mut operator = TestOperator::new(table(20, 1, 10, 4));
    (0..50).for_each(|_| operator.admit(1));
    assert_eq!(operator.started.len(), 4);

    for _ in 0..50 {
        operator.admit(2);
        let running = *operator.started.last().unwrap();
        assert_eq!(operator.records[running].0, 2);
        operator.finish(running, true);
    }

    assert_eq!(operator.count(1, &[State::Running]), 4);
    assert_eq!(operator.count(2, &[State::Done]), 50);
}

#[test]
fn a_channel_has_the_same_part_of_the_window_as_of_all_credits() {
    let mut operator = TestOperator::new(table(100, 2, 80, 10));
    operator.admit(1);
    let limit = |operator: &TestOperator, key| {
        let id = operator.records.iter().find(|it| it.0 == key).unwrap().1;
        operator.table.channels[id].account.limit()
    };

    for (window, share) in [(50, 5), (12, 1), (1, 1), (99, 9), (100, 10), (7_000, 10)] {
        operator.run(Op::SetWindow(window));
        assert_eq!(limit(&operator, 1), share, "of {window}");
    }
    operator.run(Op::SetWindow(50));
    operator.admit(2);
    assert_eq!(limit(&operator, 2), 5, "one that comes later, too");
    operator.run(Op::SetLimit(2, 3));
    assert_eq!(limit(&operator, 2), 3, "a limit of its own holds if it is lower");
}

#[test]
fn a_channel_that_may_take_all_that_floats_leaves_part_of_the_window_to_the_others() {
    let mut operator = TestOperator::new(table(100, 2, 80, 100));
    operator.run(Op::SetWindow(50));

    (0..200).for_each(|_| operator.admit(1));

    assert_eq!(operator.count(1, &[State::Running]), 41, "82 of 100");
    operator.run(Op::SetWindow(100));
    assert_eq!(operator.count(1, &[State::Running]), 82);
    operator.run(Op::SetWindow(50));
    (0..41).for_each(|record| operator.finish(record, true));
    assert_eq!(operator.count(1, &[State::Running]), 41, "none starts until enough have ended");
    operator.finish(41, true);
    assert_eq!(operator.count(1, &[State::Running]), 41);
}

#[test]
fn equal_channels_are_served_equally() {
    let mut operator = TestOperator::new(table(8, 0, 8, 8));
    (0..4_000).for_each(|record| operator.admit(1 + record % 100));
    let mut running: VecDeque<usize> = operator.in_state(State::Running).into();
    for _ in 0..2_000 {
        let record = running.pop_front().unwrap();
        let before = operator.started.len();
        operator.finish(record, true);
        running.extend(&operator.started[before..]);
    }

    let served = (1..=100).map(|key| operator.count(key, &[State::Done, State::Running]));
    let served: Vec<usize> = served.collect();
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(most - least <= 1, "from {least} to {most}");
}

#[test]
fn memory_follows_the_active_channels() {
    let mut table = table(10, 1, 5, 10);
    for key in 0..100_000 {
        let (id, starts) = table.admit(Some(Key::new(key)), true, ProcessingTime::ZERO);
        assert!(starts);
        table.end_call(id, 0);
    }

    assert!(table.channels.places() <= REMEMBERED + 2, "{} places", table.channels.places());
    assert!(table.channels.capacity() <= 4 * REMEMBERED);
    let report = table.report(10, ProcessingTime::ZERO);
    assert_eq!(
        report.rest.calls + report.top.iter().map(|it| it.totals.calls).sum::<u64>(),
        100_000
    );
}

#[test]
fn more_channels_than_exclusive_credits_live_on_floating_ones() {
    let mut operator = TestOperator::new(table(4, 2, 1, 4));
    (1..=5).for_each(|key| operator.admit(key));

    // Two exclusive credits for the first, one that was left for the second, one that floats.
    assert_eq!(operator.in_state(State::Running), [0, 1, 2]);
    operator.check();
    operator.finish(2, true);
    assert_eq!(operator.in_state(State::Running), [0, 1, 3], "the first in line");
}

#[test]
fn a_retry_goes_before_first_calls_of_its_channel() {
    let mut operator = TestOperator::new(table(1, 0, 1, 1));
    (0..3).for_each(|_| operator.admit(1));
    operator.finish(0, false);
    operator.retry(0);

    operator.finish(1, true);

    assert_eq!(operator.started, [0, 1, 0]);
}

#[test]
fn time_without_a_credit_is_counted_while_something_waits() {
    let at = ProcessingTime::from_nanos;
    let mut operator = TestOperator::new(table(1, 0, 1, 1));
    operator.admit(1);
    operator.now = at(10);
    operator.admit(1);
    operator.now = at(25);

    let starved =
        |operator: &TestOperator| operator.table.report(1, operator.now).top[0].totals.starved;
    assert_eq!(starved(&operator), Duration::from_nanos(15));
    operator.finish(0, true);
    operator.now = at(99);

    assert_eq!(starved(&operator), Duration::from_nanos(15));
}

#[test]
fn the_report_shows_those_who_wait_most_and_adds_the_others() {
    let mut operator = TestOperator::new(table(2, 0, 2, 1));
    for (key, records) in [(1, 2), (2, 5), (3, 1), (0, 4)] {
        (0..records).for_each(|_| operator.admit(key));
    }

    let report = operator.table.report(2, operator.now);

    let top: Vec<_> = report.top.iter().map(|it| (it.key, it.backlog, it.in_flight)).collect();
    assert_eq!(top, [(None, 4, 0), (Some(Key::new(2)), 4, 1)]);
    assert_eq!((report.active, report.rest_backlog, report.rest_in_flight), (4, 2, 1));
}

#[test]
fn credits_that_an_idle_channel_kept_go_to_whoever_needs_them() {
    let mut operator = TestOperator::new(table(8, 0, 8, 8));
    (0..8).for_each(|_| operator.admit(1));
    (0..8).for_each(|it| operator.finish(it, true));
    assert_eq!(operator.table.pool.free(), 0, "kept, as nobody needs them");

    (0..5).for_each(|_| operator.admit(2));
    (0..5).for_each(|_| operator.admit(3));

    assert_eq!(operator.count(2, &[State::Running]), 5);
    assert_eq!(operator.count(3, &[State::Running]), 3);
    operator.check();
    operator.finish(8, true);
    assert_eq!(operator.count(3, &[State::Running]), 4, "and the next one that comes back, too");
}

#[test]
fn a_busy_channel_keeps_none_that_another_waits_for() {
    let mut operator = TestOperator::new(table(4, 0, 4, 4));
    (0..4).for_each(|_| operator.admit(1));
    (0..2).for_each(|it| operator.finish(it, true));
    (0..3).for_each(|_| operator.admit(2));
    assert_eq!(operator.count(2, &[State::Running]), 2);

    operator.admit(1);
    operator.finish(2, true);

    assert_eq!(operator.count(2, &[State::Running]), 3, "it has waited longer");
    assert_eq!(operator.count(1, &[State::Running]), 1);
}

#[test]
fn credits_are_kept_again_when_a_quarter_of_the_pool_is_free() {
    let mut operator = TestOperator::new(table(8, 0, 8, 8));
    (0..8).for_each(|_| operator.admit(1));
    operator.admit(2);
    for (record, free) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 3)] {
        operator.finish(record, true);
        assert_eq!(operator.table.pool.free(), free, "after record {record}");
        operator.check();
    }
}

#[test]
fn exclusive_credits_of_idle_channels_go_to_the_next_active_one() {
    let mut operator = TestOperator::new(table(6, 2, 2, 6));
    for round in 0..100 {
        // Two channels can have exclusive credits at a time; these are always other ones.
        let records: Vec<usize> = (0..2)
            .map(|it| {
                operator.admit(1 + round * 2 + it);
                operator.records.len() - 1
            })
            .collect();
        for record in records {
            let id = operator.records[record].1;
            assert_eq!(operator.table.channels[id].account.exclusive(), 2);
            operator.finish(record, true);
        }
    }
    operator.check();
}

#[test]
fn what_is_counted_is_exact_whether_credits_are_kept_or_not() {
    let mut operator = TestOperator::new(table(4, 1, 2, 4));
    for round in 0..50 {
        (0..3 + round % 3).for_each(|it| operator.admit(1 + it % 2));
        let running = operator.in_state(State::Running);
        running.into_iter().skip(1).for_each(|it| operator.finish(it, true));
        let report = operator.table.report(2, operator.now);
        for it in &report.top {
            let key = it.key.unwrap().as_u64();
            let running = operator.count(key, &[State::Running]);
            let done = operator.count(key, &[State::Done]) as u64;
            assert_eq!((it.in_flight as usize, it.totals.calls), (running, done));
            assert_eq!(it.totals.latency, Duration::from_nanos(done));
            assert!(it.credits >= it.in_flight);
        }
        let active = (1..=2).filter(|key| {
            operator.count(*key, &[State::Running, State::Waiting, State::BackOff]) > 0
        });
        assert_eq!(report.active, active.count());
    }
}

#[test]
fn memory_is_given_back_without_new_channels() {
    let mut table = table(10, 0, 5, 10);
    let many: Vec<_> = (0..50_000)
        .map(|key| table.admit(Some(Key::new(key)), false, ProcessingTime::ZERO).0)
        .collect();
    for id in many {
        table.leave(id);
    }

    for _ in 0..200_000 {
        let (id, starts) = table.admit(Some(Key::new(7)), true, ProcessingTime::ZERO);
        assert!(starts);
        table.end_call(id, 0);
    }

    assert!(table.channels.places() <= REMEMBERED, "{} places", table.channels.places());
}

/// A table with two permits, and 3 calls in 21 ns that all channels share, one of them at a time.
fn table_with_a_shared_limit() -> ChannelTable {
    let rate = Rate::new(NonZeroU64::new(3).unwrap(), Duration::from_nanos(21)).unwrap();
    let limit = LimitConfig::new(Gcra::new(rate, NonZeroU64::MIN));
    let policy = PolicyConfig::limited(limit);
    ChannelTable::new(ChannelConfig { policy, ..ChannelConfig::floating(2, 13) }, 2)
}

/// Lets a record wait in a channel.
fn put(table: &mut ChannelTable, key: u64, record: u64, now: ProcessingTime) -> ChannelId {
    let (id, _) = table.admit(Some(Key::new(key)), false, now);
    table.suspend(id);
    table.wait(id, EntryId::from_u64(record), false, now, now);
    id
}

#[test]
fn who_may_start_next_is_a_record_or_a_time_or_nobody() {
    let (mut table, at) = (table_with_a_shared_limit(), ProcessingTime::from_nanos);
    assert_eq!(table.next_start(at(5)), Next::None, "nothing waits");
    let ids = [(1, 0), (2, 1), (1, 2)].map(|(key, record)| put(&mut table, key, record, at(5)));

    assert_eq!(table.next_start(at(5)), Next::Start(EntryId::from_u64(0)));
    for now in [5, 11] {
        assert_eq!(table.next_start(at(now)), Next::WaitUntil(at(12)), "a permit each 7 ns");
        assert_eq!(table.poll_timeout(), Some(at(12)));
    }
    assert_eq!(table.next_start(at(12)), Next::Start(EntryId::from_u64(1)));
    assert_eq!(table.next_start(at(99)), Next::None, "both permits are used");

    table.end_call(ids[0], 1);
    assert_eq!(table.next_start(at(99)), Next::Start(EntryId::from_u64(2)));
    assert_eq!((table.next_start(at(99)), table.sheltered()), (Next::None, 3));
}

#[test]
fn a_channel_that_waits_for_what_all_share_keeps_its_place() {
    let (mut table, at) = (table_with_a_shared_limit(), ProcessingTime::from_nanos);
    let first = put(&mut table, 1, 0, at(0));
    assert_eq!(table.next_start(at(0)), Next::Start(EntryId::from_u64(0)));
    table.end_call(first, 1);
    let ids = [(2, 1), (3, 2), (1, 3)].map(|(key, record)| {
        let id = put(&mut table, key, record, at(1));
        assert_eq!(table.next_start(at(1)), Next::WaitUntil(at(7)), "before record {record}");
        id
    });

    for (record, id) in (1..).zip(ids) {
        let now = at(7 * record);
        assert_eq!(table.next_start(now), Next::Start(EntryId::from_u64(record)));
        assert!(matches!(table.next_start(now), Next::WaitUntil(_) | Next::None));
        table.end_call(id, 1);
    }
    assert_eq!(table.next_start(at(99)), Next::None, "three in, three out");
}

/// A limit that others take from, too: counts what is taken of it.
#[derive(Debug, Default)]
struct Taken(AtomicU64);

impl Ledger for Taken {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        self.0.fetch_add(cost, Ordering::Relaxed);
        Answer::Ticket(now)
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.0.fetch_add(actual.wrapping_sub(taken), Ordering::Relaxed);
    }

    fn lower_to(
        &self,
        _left: &LimitLeft,
        in_flight: u64,
        _started: ProcessingTime,
        _now: ProcessingTime,
    ) -> u64 {
        in_flight
    }

    fn drain(&self, _owed: u64, _now: ProcessingTime) {}
}

#[derive(Debug, Default)]
struct OfAllChannels(Arc<Taken>);

impl Ledgers for OfAllChannels {
    fn open(&self, _limit: usize, channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        let taken: Arc<dyn Ledger> = Arc::<Taken>::clone(&self.0);
        channel.map(|_| taken)
    }
}

/// Makes channels of one call each, which have a limit each that others take from, too, and all together one
/// of this task alone.
fn table_with_a_limit_of_others(all: Gcra) -> (ChannelTable, Arc<Taken>) {
    let rate = Rate::new(NonZeroU64::new(3).unwrap(), Duration::from_nanos(21)).unwrap();
    let own = LimitConfig::new(Gcra::new(rate, NonZeroU64::MIN));
    let mut policy = PolicyConfig::limited(LimitConfig { is_per_channel: true, ..own });
    policy.limits[1] = Some(LimitConfig::new(all));
    let config = ChannelConfig { policy, max_per_channel: 1, ..ChannelConfig::floating(2, 13) };
    let sources = OfAllChannels::default();
    let taken = Arc::clone(&sources.0);
    (ChannelTable::with_sources(config, 2, Some(Arc::new(sources))), taken)
}

fn one_in(time: Duration) -> Gcra {
    Gcra::new(Rate::new(NonZeroU64::MIN, time).unwrap(), NonZeroU64::MIN)
}

#[test]
fn a_channel_without_a_credit_takes_nothing_of_a_limit_that_others_share() {
    let (mut table, taken) = table_with_a_limit_of_others(one_in(Duration::from_nanos(7)));
    let (at, taken) = (ProcessingTime::from_nanos, || taken.0.load(Ordering::Relaxed));
    let busy = put(&mut table, 2, 0, at(5));
    assert_eq!((table.next_start(at(5)), taken()), (Next::Start(EntryId::from_u64(0)), 1));

    // Its place would be over before it has a credit, and nobody else could use it.
    for record in 1..=13 {
        let now = at(record * 333_000_000);
        put(&mut table, 2, record, now);
        assert_eq!((table.next_start(now), taken()), (Next::None, 1));
    }
    let late = at(7_000_000_000);
    table.end_call(busy, 1);

    assert_eq!((table.next_start(late), taken()), (Next::Start(EntryId::from_u64(1)), 2));
}

#[test]
fn a_new_record_without_a_credit_takes_nothing_of_a_limit_that_others_share() {
    let (mut table, taken) = table_with_a_limit_of_others(one_in(Duration::from_nanos(7)));
    let (at, taken) = (ProcessingTime::from_nanos, || taken.0.load(Ordering::Relaxed));
    let (id, starts) = table.admit(Some(Key::new(1)), true, at(5));
    assert_eq!((starts, taken()), (true, 1));

    for record in 1..=13 {
        let (_, starts) = table.admit(Some(Key::new(1)), true, at(record * 333_000_000));
        assert_eq!((starts, taken()), (false, 1));
    }
    table.end_call(id, 1);
    assert!(table.try_start(id, EntryId::from_u64(1), at(7_000_000_000)));
    assert_eq!(taken(), 2);
}

#[test]
fn who_waits_for_one_limit_takes_nothing_of_another_one() {
    let (mut table, taken) = table_with_a_limit_of_others(one_in(Duration::from_secs(7)));
    let (at, taken) = (ProcessingTime::from_nanos, || taken.0.load(Ordering::Relaxed));
    put(&mut table, 1, 0, at(5));
    assert_eq!((table.next_start(at(5)), taken()), (Next::Start(EntryId::from_u64(0)), 1));
    let later = at(7_000_000_005);

    // The first of them waits for what all share, and the others are behind it.
    for record in 1..=13 {
        let now = at(record * 333_000_000);
        put(&mut table, 1 + record, record, now);
        assert_eq!((table.next_start(now), taken()), (Next::WaitUntil(later), 1));
        let (_, starts) = table.admit(Some(Key::new(100 + record)), true, now);
        assert_eq!((starts, taken()), (false, 1), "record {record}");
    }
    assert_eq!((table.next_start(later), taken()), (Next::Start(EntryId::from_u64(1)), 2));
}
