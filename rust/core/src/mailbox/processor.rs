// SPDX-License-Identifier: Apache-2.0
//! The mailbox loop.

use std::fmt;
use std::mem;
use std::task::Waker;

use super::control::{Control, Suspension};
use super::inbox::Inbox;
use super::mail::Mail;
use super::side::MailboxState;
use super::task_mailbox::TaskMailbox;
use crate::sync::Arc;

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step<M> {
    /// Run this mail, then ask again. A failure ends the task; the rest is dropped by `close`.
    RunMail(Mail<M>),
    /// Run the default action once, then ask again.
    DefaultAction,
    /// Nothing can run and the waker is armed: wait for it or for a deadline, then ask again.
    Park,
    /// Leave the loop.
    Finished,
}

/// What the loop has run so far; the quotient is the mails per loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Mails run by the loop; mails run by a yield are not counted, as in Flink.
    pub mails: u64,
    /// Rounds that came to the default action.
    pub default_actions: u64,
}

/// The default action is suspended already; it takes a resume to suspend it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadySuspended(
    /// The suspension that is in force.
    pub Suspension,
);

impl fmt::Display for AlreadySuspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("default action is already suspended; resume it before suspending it again")
    }
}

impl std::error::Error for AlreadySuspended {}

/// Decides what the mailbox thread runs next: mail, or the default action.
///
/// Counterpart of Flink's `MailboxProcessor`; differs in returning each step
/// instead of running it. The default action (it processes input) runs once a
/// round, after the mails that were there when the round began; mail that comes
/// later waits for the next round, so neither starves the other.
///
/// ```text
///          +------------------------ DefaultAction <-------+
///          v                                               | available
///   [ create batch ] --> [ run urgent mail, the batch ] --(?)
///                              ^                           | suspended
///                              |   something came          v
///                              +------------------ [ batch or arm ] --> Park, ask again
///
///   suspend():                Finished before the next mail; asking again goes on
///   all_actions_completed():  Finished before the next mail, and ever after
///   quiesce(), close():       no default action; Finished when out of mail
/// ```
#[derive(Debug)]
pub struct MailboxProcessor<M> {
    mailbox: TaskMailbox<M>,
    /// Whether this round's batch was created.
    is_in_round: bool,
    /// Number of the latest suspension, 0 for none yet; in force until it is resumed.
    suspensions: u64,
    counters: Counters,
}

impl<M> MailboxProcessor<M> {
    /// Makes the loop of a new mailbox; `waker` ends a [`Step::Park`].
    pub fn new(waker: Waker) -> Self {
        Self {
            mailbox: TaskMailbox::new(waker),
            is_in_round: false,
            suspensions: 0,
            counters: Counters::default(),
        }
    }

    /// Returns where other threads put their mail and their signals.
    pub fn inbox(&self) -> &Arc<Inbox<M>> {
        self.mailbox.inbox()
    }

    /// Returns the mailbox.
    pub fn mailbox(&self) -> &TaskMailbox<M> {
        &self.mailbox
    }

    /// Returns the mailbox, to quiesce, drain or close it, or to take mail without waiting.
    pub fn mailbox_mut(&mut self) -> &mut TaskMailbox<M> {
        &mut self.mailbox
    }

    /// Returns what the loop has run so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Decides what to do next.
    pub fn next_step(&mut self) -> Step<M> {
        loop {
            // Received once a turn and checked at once: a signal that is received behind the
            // check, with nothing to run, would be waited for although it is here.
            self.mailbox.receive_urgent();
            if self.must_leave() {
                return Step::Finished;
            }
            if let Some(mail) = self.mailbox.pop_received() {
                self.counters.mails += 1;
                return Step::RunMail(mail);
            }
            if !self.is_in_round {
                self.is_in_round = true;
                self.mailbox.create_batch();
            } else if self.is_open() && self.is_default_action_available() {
                self.is_in_round = false;
                self.counters.default_actions += 1;
                return Step::DefaultAction;
            } else if !self.mailbox.create_batch_or_arm() {
                return self.out_of_mail();
            }
        }
    }

    /// Decides what to do while an operator waits for room: run one mail of at least `priority`.
    ///
    /// Counterpart of Flink's `MailboxExecutor.yield`, called in a loop until the
    /// operator has room. Never returns [`Step::DefaultAction`]; deferrable mail
    /// and signals to the loop are left to the loop.
    pub fn yield_to_mailbox(&mut self, priority: i32) -> Step<M> {
        match self.mailbox.take_or_arm(priority) {
            Some(mail) => Step::RunMail(mail),
            None => self.out_of_mail(),
        }
    }

    /// Keeps the loop from running the default action until the suspension is resumed.
    ///
    /// # Errors
    ///
    /// [`AlreadySuspended`] if an earlier suspension was not resumed.
    pub fn suspend_default_action(&mut self) -> Result<Suspension, AlreadySuspended> {
        self.mailbox.receive_urgent();
        if !self.is_default_action_available() {
            return Err(AlreadySuspended(Suspension(self.suspensions)));
        }
        self.suspensions += 1;
        Ok(Suspension(self.suspensions))
    }

    /// Resumes the default action; ignored if that was done before. Other threads: [`Inbox::resume`].
    pub fn resume(&mut self, suspension: Suspension) {
        self.mailbox.control_mut().merge(Control::resume(suspension));
    }

    /// Returns whether the default action is not suspended, as far as signals were received.
    pub fn is_default_action_available(&self) -> bool {
        self.mailbox.control().resumed >= self.suspensions
    }

    /// Returns whether the task waits for something to do: suspended, no mail or signal, but open to it.
    pub fn is_idle(&self) -> bool {
        !self.is_default_action_available()
            && self.is_open()
            && self.mailbox.is_empty()
            && !self.inbox().has_urgent()
    }

    /// Whether a signal ends the loop here; a suspended loop is left once.
    fn must_leave(&mut self) -> bool {
        let control = self.mailbox.control_mut();
        control.all_actions_completed || mem::take(&mut control.suspend)
    }

    /// Nothing is left to run: waits, unless nothing can come.
    fn out_of_mail(&self) -> Step<M> {
        if self.is_open() { Step::Park } else { Step::Finished }
    }

    fn is_open(&self) -> bool {
        self.mailbox.state() == MailboxState::Open
    }
}

#[cfg(test)]
mod tests;
