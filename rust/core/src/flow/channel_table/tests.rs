// SPDX-License-Identifier: Apache-2.0

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Every record of a test: its channel, and what it does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Running,
    BackOff,
    Done,
}

/// An operator in miniature around a table, which checks it after each step.
struct Bench {
    table: ChannelTable,
    now: ProcessingTime,
    records: Vec<(u64, ChannelId, State)>,
    /// What started, in order.
    started: Vec<usize>,
}

fn table(max_concurrency: u32, exclusive: u32, floating: u32, limit: u32) -> ChannelTable {
    let config = ChannelConfig {
        exclusive,
        floating,
        max_per_channel: limit,
        max_backlog: 1_000_000,
        max_backlog_per_channel: 3,
        adaptive: None,
    };
    ChannelTable::new(config, max_concurrency)
}

impl Bench {
    fn new(table: ChannelTable) -> Self {
        Self { table, now: ProcessingTime::ZERO, records: Vec::new(), started: Vec::new() }
    }

    fn admit(&mut self, key: u64) {
        // Key 0 stands for the null channel.
        let record = self.records.len();
        let (id, starts) = self.table.admit((key > 0).then_some(Key::new(key)), true);
        self.check_endowment(id);
        if starts {
            self.started.push(record);
            self.records.push((key, id, State::Running));
        } else {
            self.table.suspend(id);
            self.table.wait(id, EntryId::from_u64(record as u64), false, self.now);
            self.records.push((key, id, State::Waiting));
        }
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        let index = |entry: EntryId| usize::try_from(entry.as_u64()).unwrap();
        loop {
            let records = &self.records;
            let is_live = |entry| records[index(entry)].2 == State::Waiting;
            let Some(entry) = self.table.next_start(self.now, is_live) else { return };
            let record = index(entry);
            self.table.resume(self.records[record].1);
            self.records[record].2 = State::Running;
            self.started.push(record);
        }
    }

    /// Ends the call of a record, which is then done or in back-off.
    fn finish(&mut self, record: usize, ends: bool) {
        let id = self.records[record].1;
        if ends {
            self.records[record].2 = State::Done;
            self.table.end_call(id, 1);
        } else {
            self.records[record].2 = State::BackOff;
            self.table.finish_call(id, 1);
            self.table.suspend(id);
        }
        self.start_waiting();
    }

    fn retry(&mut self, record: usize) {
        let id = self.records[record].1;
        self.records[record].2 = State::Waiting;
        self.table.wait(id, EntryId::from_u64(record as u64), true, self.now);
        self.start_waiting();
    }

    /// Gives up a record that waits.
    fn time_out(&mut self, record: usize) {
        let (_, id, state) = self.records[record];
        self.records[record].2 = State::Done;
        self.table.resume(id);
        if state == State::Waiting {
            let records = &self.records;
            let is_live =
                |it: EntryId| records[usize::try_from(it.as_u64()).unwrap()].2 == State::Waiting;
            self.table.stop_waiting(id, self.now, is_live);
        }
        self.table.leave(id);
        self.start_waiting();
    }

    fn in_state(&self, state: State) -> Vec<usize> {
        (0..self.records.len()).filter(|it| self.records[*it].2 == state).collect()
    }

    fn count(&self, key: u64, states: &[State]) -> usize {
        self.records.iter().filter(|it| it.0 == key && states.contains(&it.2)).count()
    }

    fn check(&self) {
        let table = &self.table;
        let held: u32 = table.channels.iter().map(|it| it.account.held()).sum();
        let all = held + table.pool.free() + table.unassigned;
        assert_eq!(all, table.max_concurrency + table.pool.overdrawn(), "conserved");
        let keys: HashSet<u64> = self.records.iter().map(|it| it.0).collect();
        let mut sheltered = 0;
        for key in keys {
            let id = self.records.iter().rfind(|it| it.0 == key).map(|it| it.1).unwrap();
            let running = self.count(key, &[State::Running]);
            let waiting = self.count(key, &[State::Waiting]);
            let pending = self.count(key, &[State::Waiting, State::BackOff]);
            sheltered += pending.min(table.config.max_backlog_per_channel as usize);
            let of_key = |it: &&Channel| {
                !it.is_idle() && it.key == if key > 0 { Key::new(key) } else { NULL }
            };
            let Some(channel) = table.channels.get(id.0 as usize).filter(of_key) else {
                assert_eq!(running + pending, 0, "an active channel is known");
                continue;
            };
            let account = &channel.account;
            assert_eq!(account.in_use() as usize, running);
            assert_eq!(account.required() as usize, waiting);
            assert_eq!(channel.resting as usize, pending);
            let may_take = account.in_use() < channel.account.limit();
            let has_credit = account.free() > 0 || table.pool.free() > 0;
            assert!(waiting == 0 || !may_take || !has_credit, "a credit is free for {key}");
            let is_in_line = account.is_waiting();
            assert!(waiting == 0 || account.held() >= channel.account.limit() || is_in_line);
        }
        assert_eq!(table.sheltered(), sheltered);
        self.check_kept();
    }

    /// Checks that credits are kept only while nobody needs them, and can all be found.
    fn check_kept(&self) {
        let table = &self.table;
        assert!(table.is_scarce || !table.pool.has_waiting(), "none is kept while anybody waits");
        for (id, channel) in (0..).map(ChannelId).zip(&table.channels) {
            let account = &channel.account;
            let kept = account.floating().min(account.free().saturating_sub(account.required()));
            assert!(kept == 0 || !table.is_scarce, "{kept} credits are withheld from the others");
            let listed = table.borrowers.iter().filter(|it| **it == id).count();
            assert_eq!(listed, usize::from(channel.is_borrower), "listed once");
            assert!(channel.is_borrower || account.floating() == 0, "loans are known");
            let listed = table.owners.iter().filter(|it| **it == id).count();
            assert_eq!(listed, usize::from(channel.is_owner), "listed once");
            let is_withheld = channel.is_idle() && account.exclusive() > 0;
            assert!(channel.is_owner || !is_withheld, "idle owners are known");
            assert!(!channel.is_forgotten || account.held() == 0, "who is forgotten holds nothing");
        }
    }

    /// Checks that no idle channel has exclusive credits that a channel lacks which became active.
    fn check_endowment(&self, id: ChannelId) {
        let table = &self.table;
        let channel = &table.channels[id.0 as usize];
        if channel.account.in_use() + channel.resting > 1 {
            return;
        }
        let wanted = table.config.exclusive.min(channel.account.limit());
        let idle = table.channels.iter().filter(|it| it.is_idle());
        let withheld = idle.map(|it| it.account.exclusive()).sum::<u32>() + table.unassigned;
        assert!(channel.account.exclusive() >= wanted || withheld == 0);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Admit(u64),
    Finish(prop::sample::Index, bool),
    Retry(prop::sample::Index),
    TimeOut(prop::sample::Index, bool),
    SetLimit(u64, u32),
    ForgetIdle,
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u64..5).prop_map(Op::Admit),
        6 => (any::<prop::sample::Index>(), prop::bool::weighted(0.7))
            .prop_map(|(it, ends)| Op::Finish(it, ends)),
        2 => any::<prop::sample::Index>().prop_map(Op::Retry),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(it, w)| Op::TimeOut(it, w)),
        1 => (0_u64..5, 0_u32..9).prop_map(|(key, limit)| Op::SetLimit(key, limit)),
        1 => Just(Op::ForgetIdle),
    ]
}

fn any_of(index: prop::sample::Index, of: &[usize]) -> Option<usize> {
    (!of.is_empty()).then(|| *index.get(of))
}

impl Bench {
    fn run(&mut self, op: Op) {
        match op {
            Op::Admit(key) => self.admit(key),
            Op::Finish(index, ends) => {
                if let Some(it) = any_of(index, &self.in_state(State::Running)) {
                    self.finish(it, ends);
                }
            }
            Op::Retry(index) => {
                if let Some(it) = any_of(index, &self.in_state(State::BackOff)) {
                    self.retry(it);
                }
            }
            Op::TimeOut(index, waits) => {
                let state = if waits { State::Waiting } else { State::BackOff };
                if let Some(it) = any_of(index, &self.in_state(state)) {
                    self.time_out(it);
                }
            }
            Op::SetLimit(key, limit) => {
                self.table.set_limit((key > 0).then_some(Key::new(key)), limit);
                self.start_waiting();
            }
            Op::ForgetIdle => self.table.forget_idle(),
        }
        self.check();
    }
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
        let mut bench = Bench::new(table(max_concurrency, exclusive, floating, limit));
        for op in sequence {
            bench.run(op);
        }
        // Nothing starves: what waits is served when calls end.
        for _ in 0..bench.records.len() {
            bench.in_state(State::BackOff).into_iter().for_each(|it| bench.retry(it));
            bench.in_state(State::Running).into_iter().for_each(|it| bench.finish(it, true));
        }
        prop_assert_eq!(bench.in_state(State::Done).len(), bench.records.len());
        // A newcomer gets all that floats, whatever the others kept.
        let limit = bench.table.config.max_per_channel;
        let most = limit.min(bench.table.pool.size());
        (0..most).for_each(|_| bench.admit(99));
        prop_assert_eq!(bench.count(99, &[State::Running]), most as usize);
        bench.in_state(State::Running).into_iter().for_each(|it| bench.finish(it, true));
        bench.table.forget_idle();
        prop_assert_eq!(bench.table.pool.lent(), 0);
        prop_assert_eq!(bench.table.sheltered(), 0);
    }
}

#[test]
fn a_stalled_channel_keeps_its_limit_and_the_others_go_on() {
    let mut bench = Bench::new(table(20, 1, 10, 4));
    (0..50).for_each(|_| bench.admit(1));
    assert_eq!(bench.started.len(), 4);

    for _ in 0..50 {
        bench.admit(2);
        let running = *bench.started.last().unwrap();
        assert_eq!(bench.records[running].0, 2);
        bench.finish(running, true);
    }

    assert_eq!(bench.count(1, &[State::Running]), 4);
    assert_eq!(bench.count(2, &[State::Done]), 50);
}

#[test]
fn equal_channels_are_served_equally() {
    let mut bench = Bench::new(table(8, 0, 8, 8));
    (0..4_000).for_each(|record| bench.admit(1 + record % 100));
    let mut running: VecDeque<usize> = bench.in_state(State::Running).into();
    for _ in 0..2_000 {
        let record = running.pop_front().unwrap();
        let before = bench.started.len();
        bench.finish(record, true);
        running.extend(&bench.started[before..]);
    }

    let served = (1..=100).map(|key| bench.count(key, &[State::Done, State::Running]));
    let served: Vec<usize> = served.collect();
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(most - least <= 1, "from {least} to {most}");
}

#[test]
fn memory_follows_the_active_channels() {
    let mut table = table(10, 1, 5, 10);
    for key in 0..100_000 {
        let (id, starts) = table.admit(Some(Key::new(key)), true);
        assert!(starts);
        table.end_call(id, 0);
    }

    assert!(table.channels.len() <= REMEMBERED + 2, "{} places", table.channels.len());
    assert!(table.by_key.capacity() <= 4 * REMEMBERED);
    let report = table.report(10, ProcessingTime::ZERO);
    assert_eq!(
        report.rest.calls + report.top.iter().map(|it| it.totals.calls).sum::<u64>(),
        100_000
    );
}

#[test]
fn more_channels_than_exclusive_credits_live_on_floating_ones() {
    let mut bench = Bench::new(table(4, 2, 1, 4));
    (1..=5).for_each(|key| bench.admit(key));

    // Two exclusive credits for the first, one that was left for the second, one that floats.
    assert_eq!(bench.in_state(State::Running), [0, 1, 2]);
    bench.check();
    bench.finish(2, true);
    assert_eq!(bench.in_state(State::Running), [0, 1, 3], "the first in line");
}

#[test]
fn a_retry_goes_before_first_calls_of_its_channel() {
    let mut bench = Bench::new(table(1, 0, 1, 1));
    (0..3).for_each(|_| bench.admit(1));
    bench.finish(0, false);
    bench.retry(0);

    bench.finish(1, true);

    assert_eq!(bench.started, [0, 1, 0]);
}

#[test]
fn time_without_a_credit_is_counted_while_something_waits() {
    let at = ProcessingTime::from_nanos;
    let mut bench = Bench::new(table(1, 0, 1, 1));
    bench.admit(1);
    bench.now = at(10);
    bench.admit(1);
    bench.now = at(25);

    let starved = |bench: &Bench| bench.table.report(1, bench.now).top[0].totals.starved;
    assert_eq!(starved(&bench), Duration::from_nanos(15));
    bench.finish(0, true);
    bench.now = at(99);

    assert_eq!(starved(&bench), Duration::from_nanos(15));
}

#[test]
fn the_report_shows_those_who_wait_most_and_adds_the_others() {
    let mut bench = Bench::new(table(2, 0, 2, 1));
    for (key, records) in [(1, 2), (2, 5), (3, 1), (0, 4)] {
        (0..records).for_each(|_| bench.admit(key));
    }

    let report = bench.table.report(2, bench.now);

    let top: Vec<_> = report.top.iter().map(|it| (it.key, it.backlog, it.in_flight)).collect();
    assert_eq!(top, [(None, 4, 0), (Some(Key::new(2)), 4, 1)]);
    assert_eq!((report.active, report.rest_backlog, report.rest_in_flight), (4, 2, 1));
}

#[test]
fn credits_that_an_idle_channel_kept_go_to_whoever_needs_them() {
    let mut bench = Bench::new(table(8, 0, 8, 8));
    (0..8).for_each(|_| bench.admit(1));
    (0..8).for_each(|it| bench.finish(it, true));
    assert_eq!(bench.table.pool.free(), 0, "kept, as nobody needs them");

    (0..5).for_each(|_| bench.admit(2));
    (0..5).for_each(|_| bench.admit(3));

    assert_eq!(bench.count(2, &[State::Running]), 5);
    assert_eq!(bench.count(3, &[State::Running]), 3);
    bench.check();
    bench.finish(8, true);
    assert_eq!(bench.count(3, &[State::Running]), 4, "and so does the next one that comes back");
}

#[test]
fn a_busy_channel_keeps_none_that_another_waits_for() {
    let mut bench = Bench::new(table(4, 0, 4, 4));
    (0..4).for_each(|_| bench.admit(1));
    (0..2).for_each(|it| bench.finish(it, true));
    (0..3).for_each(|_| bench.admit(2));
    assert_eq!(bench.count(2, &[State::Running]), 2);

    bench.admit(1);
    bench.finish(2, true);

    assert_eq!(bench.count(2, &[State::Running]), 3, "it has waited longer");
    assert_eq!(bench.count(1, &[State::Running]), 1);
}

#[test]
fn credits_are_kept_again_when_a_quarter_of_the_pool_is_free() {
    let mut bench = Bench::new(table(8, 0, 8, 8));
    (0..8).for_each(|_| bench.admit(1));
    bench.admit(2);
    for (record, free) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 3)] {
        bench.finish(record, true);
        assert_eq!(bench.table.pool.free(), free, "after record {record}");
        bench.check();
    }
}

#[test]
fn exclusive_credits_of_idle_channels_go_to_the_next_active_one() {
    let mut bench = Bench::new(table(6, 2, 2, 6));
    for round in 0..100 {
        // Two channels can have exclusive credits at a time; these are always other ones.
        let records: Vec<usize> = (0..2)
            .map(|it| {
                bench.admit(1 + round * 2 + it);
                bench.records.len() - 1
            })
            .collect();
        for record in records {
            let id = bench.records[record].1;
            assert_eq!(bench.table.channels[id.0 as usize].account.exclusive(), 2);
            bench.finish(record, true);
        }
    }
    bench.check();
}

#[test]
fn what_is_counted_is_exact_whether_credits_are_kept_or_not() {
    let mut bench = Bench::new(table(4, 1, 2, 4));
    for round in 0..50 {
        (0..3 + round % 3).for_each(|it| bench.admit(1 + it % 2));
        let running = bench.in_state(State::Running);
        running.into_iter().skip(1).for_each(|it| bench.finish(it, true));
        let report = bench.table.report(2, bench.now);
        for it in &report.top {
            let key = it.key.unwrap().as_u64();
            let running = bench.count(key, &[State::Running]);
            let done = bench.count(key, &[State::Done]) as u64;
            assert_eq!((it.in_flight as usize, it.totals.calls), (running, done));
            assert_eq!(it.totals.latency, Duration::from_nanos(done));
            assert!(it.credits >= it.in_flight);
        }
        let active = (1..=2)
            .filter(|key| bench.count(*key, &[State::Running, State::Waiting, State::BackOff]) > 0);
        assert_eq!(report.active, active.count());
    }
}

#[test]
fn memory_is_given_back_without_new_channels() {
    let mut table = table(10, 0, 5, 10);
    let many: Vec<_> = (0..50_000).map(|key| table.admit(Some(Key::new(key)), false).0).collect();
    for id in many {
        table.leave(id);
    }

    for _ in 0..200_000 {
        let (id, starts) = table.admit(Some(Key::new(7)), true);
        assert!(starts);
        table.end_call(id, 0);
    }

    assert!(table.channels.len() <= REMEMBERED, "{} places", table.channels.len());
}
