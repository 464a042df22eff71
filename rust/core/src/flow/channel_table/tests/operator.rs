// SPDX-License-Identifier: Apache-2.0
//! An operator in miniature around a table.

use std::collections::HashSet;
use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::{ChannelTable, Next};
use crate::element::Key;
use crate::flow::ChannelId;
use crate::flow::channel::{Channel, NULL};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// Every record of a test: its channel, and what it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Waiting,
    Running,
    BackOff,
    Done,
}

/// An operator in miniature around a table, which checks it after each step.
pub(super) struct TestOperator {
    pub(super) table: ChannelTable,
    pub(super) now: ProcessingTime,
    pub(super) records: Vec<(u64, ChannelId, State)>,
    /// What started, in order.
    pub(super) started: Vec<usize>,
}

impl TestOperator {
    pub(super) fn new(table: ChannelTable) -> Self {
        Self { table, now: ProcessingTime::ZERO, records: Vec::new(), started: Vec::new() }
    }

    pub(super) fn admit(&mut self, key: u64) {
        // Key 0 stands for the null channel.
        let record = self.records.len();
        let (id, starts) = self.table.admit((key > 0).then_some(Key::new(key)), true, self.now);
        self.check_endowment(id);
        if starts {
            self.started.push(record);
            self.records.push((key, id, State::Running));
        } else {
            self.table.suspend(id);
            self.table.wait(id, EntryId::from_u64(record as u64), false, self.now, self.now);
            self.records.push((key, id, State::Waiting));
        }
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        let index = |entry: EntryId| usize::try_from(entry.as_u64()).unwrap();
        while let Next::Start(entry) = self.table.next_start(self.now) {
            let record = index(entry);
            self.table.resume(self.records[record].1);
            self.records[record].2 = State::Running;
            self.started.push(record);
        }
    }

    /// Ends the call of a record, which is then done or in back-off.
    pub(super) fn finish(&mut self, record: usize, ends: bool) {
        let id = self.records[record].1;
        if ends {
            self.records[record].2 = State::Done;
            self.table.end_call(id, 1);
        } else {
            self.records[record].2 = State::BackOff;
            self.table.finish_call(id, 1, self.now);
            self.table.suspend(id);
        }
        self.start_waiting();
    }

    pub(super) fn retry(&mut self, record: usize) {
        let id = self.records[record].1;
        self.records[record].2 = State::Waiting;
        self.table.wait(id, EntryId::from_u64(record as u64), true, self.now, self.now);
        self.start_waiting();
    }

    /// Gives up a record that runs or is in back-off.
    pub(super) fn time_out(&mut self, record: usize) {
        let (_, id, state) = self.records[record];
        self.records[record].2 = State::Done;
        if state == State::Running {
            self.table.finish_call(id, 1, self.now);
        } else {
            self.table.resume(id);
        }
        self.table.leave(id);
        self.start_waiting();
    }

    pub(super) fn in_state(&self, state: State) -> Vec<usize> {
        (0..self.records.len()).filter(|it| self.records[*it].2 == state).collect()
    }

    pub(super) fn count(&self, key: u64, states: &[State]) -> usize {
        self.records.iter().filter(|it| it.0 == key && states.contains(&it.2)).count()
    }

    pub(super) fn check(&self) {
        let table = &self.table;
        let held: u32 = table.channels.iter().map(|it| it.account.held()).sum();
        let all = held + table.pool.free() + table.endowment.unassigned();
        assert_eq!(all, table.max_concurrency, "conserved");
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
            let Some(channel) = table.channels.get(id).filter(of_key) else {
                assert_eq!(running + pending, 0, "an active channel is known");
                continue;
            };
            let account = &channel.account;
            assert_eq!(account.limit(), channel.limit.min(table.share));
            assert_eq!(account.in_use() as usize, running);
            assert_eq!(channel.waiting as usize, waiting);
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
        for id in (0..u32::try_from(table.channels.places()).unwrap()).map(ChannelId) {
            let channel = &table.channels[id];
            let account = &channel.account;
            let kept = account.floating().min(account.free().saturating_sub(account.required()));
            assert!(kept == 0 || !table.is_scarce, "{kept} credits are withheld from the others");
            let listed = table.borrowers.iter().filter(|it| **it == id).count();
            assert_eq!(listed, usize::from(channel.listed.borrower), "listed once");
            assert!(channel.listed.borrower || account.floating() == 0, "loans are known");
            let listed = table.endowment.listed(id);
            assert_eq!(listed, usize::from(channel.listed.owner), "listed once");
            let is_withheld = channel.is_idle() && account.exclusive() > 0;
            assert!(channel.listed.owner || !is_withheld, "idle owners are known");
            assert!(
                !channel.is_forgotten() || account.held() == 0,
                "who is forgotten holds nothing"
            );
        }
    }

    /// Checks that no idle channel has exclusive credits that a channel lacks which became active.
    fn check_endowment(&self, id: ChannelId) {
        let table = &self.table;
        let channel = &table.channels[id];
        if channel.account.in_use() + channel.resting > 1 {
            return;
        }
        let wanted = table.config.exclusive.min(channel.account.limit());
        let idle = table.channels.iter().filter(|it| it.is_idle());
        let withheld =
            idle.map(|it| it.account.exclusive()).sum::<u32>() + table.endowment.unassigned();
        assert!(channel.account.exclusive() >= wanted || withheld == 0);
    }

    /// Does what can be done of an operation, and checks the table.
    pub(super) fn run(&mut self, op: Op) {
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
            Op::Advance(nanos) => self.now = self.now.after_nanos(nanos),
            Op::TimeOut(index, state) => {
                if let Some(it) = any_of(index, &self.in_state(state)) {
                    self.time_out(it);
                }
            }
            Op::SetLimit(key, limit) => {
                let id = self.table.look_up((key > 0).then_some(Key::new(key)), self.now);
                self.table.set_limit_of(id, limit.max(1));
                self.start_waiting();
            }
            Op::SetWindow(calls) => {
                self.table.set_window(NonZeroUsize::new(calls).unwrap());
                self.start_waiting();
            }
            Op::ForgetIdle => self.table.forget_idle(),
        }
        self.check();
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Admit(u64),
    Finish(prop::sample::Index, bool),
    Retry(prop::sample::Index),
    TimeOut(prop::sample::Index, State),
    Advance(u64),
    SetLimit(u64, u32),
    SetWindow(usize),
    ForgetIdle,
}

pub(super) fn ops() -> impl Strategy<Value = Op> {
    let states = prop::sample::select(vec![State::BackOff, State::Running]);
    prop_oneof![
        8 => (0_u64..5).prop_map(Op::Admit),
        6 => (any::<prop::sample::Index>(), prop::bool::weighted(0.7))
            .prop_map(|(it, ends)| Op::Finish(it, ends)),
        2 => any::<prop::sample::Index>().prop_map(Op::Retry),
        3 => (any::<prop::sample::Index>(), states).prop_map(|(it, state)| Op::TimeOut(it, state)),
        2 => (1_u64..99).prop_map(Op::Advance),
        1 => (0_u64..5, 0_u32..9).prop_map(|(key, limit)| Op::SetLimit(key, limit)),
        1 => (1_usize..12).prop_map(Op::SetWindow),
        1 => Just(Op::ForgetIdle),
    ]
}

fn any_of(index: prop::sample::Index, of: &[usize]) -> Option<usize> {
    (!of.is_empty()).then(|| *index.get(of))
}
