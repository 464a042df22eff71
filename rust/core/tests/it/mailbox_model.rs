// SPDX-License-Identifier: Apache-2.0
//! The mailbox and its loop against a naive model: one list of mails, for any sequence of operations.

use std::task::Waker;

use proptest::prelude::*;
use sparkawait_core::mailbox::{
    Counters, MIN_PRIORITY, Mail, MailboxProcessor, MailboxState, Step, Suspension,
};

/// Where the model thinks that a mail is. Mail is taken from the smallest place first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Urgent,
    Batch,
    Queue,
}

/// One call.
#[derive(Clone, Copy, Debug)]
enum Op {
    Put { priority: i32, is_deferrable: bool, is_urgent: bool },
    CreateBatch,
    TryTakeFromBatch,
    TryTake { priority: i32, ignoring_deferrable: bool },
    Yield { priority: i32 },
    Drain,
    Quiesce,
    Close,
    NextStep,
    SuspendDefaultAction,
    Resume { back: usize, from_another_thread: bool },
    SuspendLoop,
    AllActionsCompleted,
}

fn ops() -> impl Strategy<Value = Op> {
    let priority = MIN_PRIORITY..3;
    prop_oneof![
        12 => (priority.clone(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(priority, is_deferrable, is_urgent)| Op::Put { priority, is_deferrable, is_urgent }
        ),
        2 => Just(Op::CreateBatch),
        3 => Just(Op::TryTakeFromBatch),
        3 => (priority.clone(), any::<bool>()).prop_map(|(priority, ignoring_deferrable)| {
            Op::TryTake { priority, ignoring_deferrable }
        }),
        3 => priority.prop_map(|priority| Op::Yield { priority }),
        12 => Just(Op::NextStep),
        4 => Just(Op::SuspendDefaultAction),
        4 => (0_usize..3, any::<bool>())
            .prop_map(|(back, from_another_thread)| Op::Resume { back, from_another_thread }),
        1 => Just(Op::SuspendLoop),
    ]
}

/// Calls that a task makes once, near its end.
fn last_ops() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Drain), Just(Op::Quiesce), Just(Op::Close), Just(Op::AllActionsCompleted)]
}

fn sequences() -> impl Strategy<Value = Vec<Op>> {
    let part = || prop::collection::vec(ops(), 0..60);
    let last = prop::collection::vec(prop_oneof![1 => last_ops(), 4 => ops()], 0..20);
    (part(), last).prop_map(|(mut sequence, last)| {
        sequence.extend(last);
        sequence
    })
}

/// The rules, in the plainest form.
struct Model {
    state: MailboxState,
    mails: Vec<(Place, Mail<usize>)>,
    suspended: Option<usize>,
    loop_suspended: bool,
    all_actions_completed: bool,
    is_in_round: bool,
    counters: Counters,
}

impl Model {
    fn new() -> Self {
        Self {
            state: MailboxState::Open,
            mails: Vec::new(),
            suspended: None,
            loop_suspended: false,
            all_actions_completed: false,
            is_in_round: false,
            counters: Counters::default(),
        }
    }

    fn is_open(&self) -> bool {
        self.state == MailboxState::Open
    }

    fn put(&mut self, place: Place, mail: Mail<usize>) {
        if self.is_open() {
            self.mails.push((place, mail));
        }
    }

    fn create_batch(&mut self) {
        for (place, _) in &mut self.mails {
            if *place == Place::Queue {
                *place = Place::Batch;
            }
        }
    }

    fn take(&mut self, accepts: impl Fn(Place, &Mail<usize>) -> bool) -> Option<Mail<usize>> {
        let accepted =
            self.mails.iter().enumerate().filter(|(_, (place, mail))| accepts(*place, mail));
        let (index, _) = accepted.min_by_key(|(index, (place, _))| (*place, *index))?;
        Some(self.mails.remove(index).1)
    }

    fn try_take(&mut self, priority: i32, ignoring_deferrable: bool) -> Option<Mail<usize>> {
        self.take(|_, mail| {
            let is_deferred = mail.is_deferrable && !ignoring_deferrable;
            (if is_deferred { MIN_PRIORITY } else { mail.priority }) >= priority
        })
    }

    fn drain(&mut self) -> Vec<Mail<usize>> {
        std::iter::from_fn(|| self.take(|_, _| true)).collect()
    }

    fn out_of_mail(&self) -> Step<usize> {
        if self.is_open() { Step::Park } else { Step::Finished }
    }

    fn next_step(&mut self) -> Step<usize> {
        if self.all_actions_completed || std::mem::take(&mut self.loop_suspended) {
            return Step::Finished;
        }
        let mut mail = self.take(|place, _| place != Place::Queue);
        let default_action = self.is_open() && self.suspended.is_none();
        if mail.is_none() && (!self.is_in_round || !default_action) {
            self.create_batch();
            self.is_in_round = true;
            mail = self.take(|_, _| true);
        }
        if let Some(mail) = mail {
            self.counters.mails += 1;
            return Step::RunMail(mail);
        }
        if default_action {
            self.is_in_round = false;
            self.counters.default_actions += 1;
            return Step::DefaultAction;
        }
        self.out_of_mail()
    }
}

/// The real one and the model, side by side.
struct Pair {
    real: MailboxProcessor<usize>,
    model: Model,
    suspensions: Vec<Suspension>,
}

impl Pair {
    fn put(&mut self, payload: usize, priority: i32, is_deferrable: bool, is_urgent: bool) {
        let mail = Mail { is_deferrable, ..Mail::new(payload, priority, "test") };
        let inbox = self.real.inbox();
        let put = if is_urgent { inbox.put_first(mail) } else { inbox.put(mail) };
        assert_eq!(put.is_ok(), self.model.is_open());
        self.model.put(if is_urgent { Place::Urgent } else { Place::Queue }, mail);
    }

    fn resume(&mut self, back: usize, from_another_thread: bool) {
        let Some(index) = self.suspensions.len().checked_sub(back + 1) else { return };
        if from_another_thread {
            self.real.inbox().resume(self.suspensions[index]);
        } else {
            self.real.resume(self.suspensions[index]);
        }
        let is_heard = self.model.is_open() || !from_another_thread;
        if is_heard && self.model.suspended == Some(index) {
            self.model.suspended = None;
        }
    }

    fn suspend_default_action(&mut self) {
        let suspended = self.real.suspend_default_action();
        assert_eq!(suspended.is_ok(), self.model.suspended.is_none());
        if let Ok(suspension) = suspended {
            self.model.suspended = Some(self.suspensions.len());
            self.suspensions.push(suspension);
        }
    }

    fn take(&mut self, op: Op) {
        let Self { real, model, .. } = self;
        match op {
            Op::TryTakeFromBatch => assert_eq!(
                real.mailbox_mut().try_take_from_batch(),
                model.take(|place, _| place != Place::Queue)
            ),
            Op::TryTake { priority, ignoring_deferrable: false } => {
                assert_eq!(real.mailbox_mut().try_take(priority), model.try_take(priority, false));
            }
            Op::TryTake { priority, ignoring_deferrable: true } => assert_eq!(
                real.mailbox_mut().try_take_ignoring_deferrable(priority),
                model.try_take(priority, true)
            ),
            Op::Yield { priority } => {
                let mail = model.try_take(priority, false);
                let expected = mail.map_or_else(|| model.out_of_mail(), Step::RunMail);
                assert_eq!(real.yield_to_mailbox(priority), expected);
            }
            Op::Drain => assert_eq!(real.mailbox_mut().drain(), model.drain()),
            _ => assert_eq!(real.next_step(), model.next_step()),
        }
    }

    fn run(&mut self, number: usize, op: Op) {
        let is_open = self.model.is_open();
        match op {
            Op::Put { priority, is_deferrable, is_urgent } => {
                self.put(number, priority, is_deferrable, is_urgent);
            }
            Op::CreateBatch => {
                self.real.mailbox_mut().create_batch();
                self.model.create_batch();
            }
            Op::Quiesce => {
                self.real.mailbox_mut().quiesce();
                self.model.state = self.model.state.max(MailboxState::Quiesced);
            }
            Op::Close => {
                self.model.state = MailboxState::Closed;
                assert_eq!(self.real.mailbox_mut().close(), self.model.drain());
            }
            Op::SuspendDefaultAction => self.suspend_default_action(),
            Op::Resume { back, from_another_thread } => self.resume(back, from_another_thread),
            Op::SuspendLoop => {
                self.real.inbox().suspend();
                self.model.loop_suspended |= is_open;
            }
            Op::AllActionsCompleted => {
                self.real.inbox().all_actions_completed();
                self.model.all_actions_completed |= is_open;
            }
            take => self.take(take),
        }
        assert_eq!(self.real.mailbox().len(), self.model.mails.len());
        assert_eq!(self.real.mailbox().has_mail(), !self.model.mails.is_empty());
        assert_eq!(self.real.mailbox().state(), self.model.state);
        assert_eq!(self.real.counters(), self.model.counters);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_sequence_of_operations_agrees_with_the_model(sequence in sequences()) {
        let real = MailboxProcessor::new(Waker::noop().clone());
        let mut pair = Pair { real, model: Model::new(), suspensions: Vec::new() };
        for (number, &op) in sequence.iter().enumerate() {
            pair.run(number, op);
        }
    }
}
