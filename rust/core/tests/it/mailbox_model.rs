// SPDX-License-Identifier: Apache-2.0
//! The mailbox and its loop against a naive model: one list of mails, for any sequence of operations.

use std::task::Waker;

use proptest::prelude::*;
use sparkawait_core::mailbox::{Mail, MailboxProcessor, Step};

/// Where the model thinks that a mail is. Mail is taken from the smallest place first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Batch,
    Queue,
}

/// One call.
#[derive(Clone, Copy, Debug)]
enum Op {
    Put { priority: i32 },
    CreateBatch,
    TryTakeFromBatch,
    TryTake { priority: i32 },
    Close,
    NextStep,
    SuspendDefaultAction,
    ResumeDefaultAction,
}

fn ops() -> impl Strategy<Value = Op> {
    let priority = -1..3;
    prop_oneof![
        12 => priority.clone().prop_map(|priority| Op::Put { priority }),
        2 => Just(Op::CreateBatch),
        3 => Just(Op::TryTakeFromBatch),
        3 => priority.prop_map(|priority| Op::TryTake { priority }),
        12 => Just(Op::NextStep),
        4 => Just(Op::SuspendDefaultAction),
        4 => Just(Op::ResumeDefaultAction),
    ]
}

fn sequences() -> impl Strategy<Value = Vec<Op>> {
    let part = || prop::collection::vec(ops(), 0..60);
    let last = prop::collection::vec(prop_oneof![1 => Just(Op::Close), 4 => ops()], 0..20);
    (part(), last).prop_map(|(mut sequence, last)| {
        sequence.extend(last);
        sequence
    })
}

/// The rules, in the plainest form.
struct Model {
    is_open: bool,
    mails: Vec<(Place, Mail<usize>)>,
    is_suspended: bool,
    is_in_round: bool,
}

impl Model {
    fn create_batch(&mut self) {
        self.mails.iter_mut().for_each(|it| it.0 = Place::Batch);
    }

    fn take(&mut self, accepts: impl Fn(Place, &Mail<usize>) -> bool) -> Option<Mail<usize>> {
        let index = self.mails.iter().position(|(place, mail)| accepts(*place, mail))?;
        Some(self.mails.remove(index).1)
    }

    fn next_step(&mut self) -> Step<usize> {
        let mut mail = self.take(|place, _| place == Place::Batch);
        let default_action = self.is_open && !self.is_suspended;
        if mail.is_none() && (!self.is_in_round || !default_action) {
            self.create_batch();
            self.is_in_round = true;
            mail = self.take(|_, _| true);
        }
        if let Some(mail) = mail {
            return Step::RunMail(mail);
        }
        if default_action {
            self.is_in_round = false;
            return Step::DefaultAction;
        }
        if self.is_open { Step::Park } else { Step::Finished }
    }
}

/// The real one and the model, side by side.
struct Pair {
    real: MailboxProcessor<usize>,
    model: Model,
}

impl Pair {
    fn run(&mut self, number: usize, op: Op) {
        let Self { real, model } = self;
        match op {
            Op::Put { priority } => {
                let mail = Mail::new(number, priority, "test");
                assert_eq!(real.inbox().put(mail).is_ok(), model.is_open);
                if model.is_open {
                    model.mails.push((Place::Queue, mail));
                }
            }
            Op::CreateBatch => {
                real.mailbox_mut().create_batch();
                model.create_batch();
            }
            Op::TryTakeFromBatch => assert_eq!(
                real.mailbox_mut().try_take_from_batch(),
                model.take(|place, _| place == Place::Batch)
            ),
            Op::TryTake { priority } => assert_eq!(
                real.mailbox_mut().try_take(priority),
                model.take(|_, mail| mail.priority >= priority)
            ),
            Op::Close => {
                model.is_open = false;
                let left: Vec<_> = model.mails.drain(..).map(|it| it.1).collect();
                assert_eq!(real.mailbox_mut().close(), left);
            }
            Op::NextStep => assert_eq!(real.next_step(), model.next_step()),
            Op::SuspendDefaultAction => {
                real.suspend_default_action();
                model.is_suspended = true;
            }
            Op::ResumeDefaultAction => {
                real.resume_default_action();
                model.is_suspended = false;
            }
        }
        assert_eq!(real.mailbox().len(), model.mails.len());
        assert_eq!(real.mailbox().has_mail(), !model.mails.is_empty());
        assert_eq!(real.mailbox().is_open(), model.is_open);
        assert_eq!(real.is_default_action_suspended(), model.is_suspended);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_sequence_of_operations_agrees_with_the_model(sequence in sequences()) {
        let model =
            Model { is_open: true, mails: Vec::new(), is_suspended: false, is_in_round: false };
        let mut pair = Pair { real: MailboxProcessor::new(Waker::noop().clone()), model };
        for (number, &op) in sequence.iter().enumerate() {
            pair.run(number, op);
        }
    }
}
