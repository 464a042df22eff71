// SPDX-License-Identifier: Apache-2.0
//! The mailbox loop.

use std::task::Waker;

use super::inbox::Inbox;
use super::mail::Mail;
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

/// Decides what the mailbox thread runs next: mail, or the default action.
///
/// Counterpart of Flink's `MailboxProcessor`; differs in returning each step
/// instead of running it. The default action (it processes input) runs once a
/// round, after the mails that were there when the round began; mail that comes
/// later waits for the next round, so neither starves the other.
///
/// ```text
///          +---------------- DefaultAction <------+
///          v                                      | available
///   [ create batch ] --> [ run the batch ] ----> (?)
///                              ^                  | suspended
///                              | something came   v
///                              +--------- [ batch or arm ] --> Park, ask again
///
///   close():  no default action; Finished
/// ```
///
/// Only this thread suspends the default action and resumes it, so nobody has to tell the loop: the
/// signals of Flink's loop, which other threads send as urgent mail, have no counterpart.
#[derive(Debug)]
pub struct MailboxProcessor<M> {
    mailbox: TaskMailbox<M>,
    /// Whether this round's batch was created.
    is_in_round: bool,
    /// Whether the default action waits.
    is_suspended: bool,
}

impl<M> MailboxProcessor<M> {
    /// Makes the loop of a new mailbox; `waker` ends a [`Step::Park`].
    pub fn new(waker: Waker) -> Self {
        Self { mailbox: TaskMailbox::new(waker), is_in_round: false, is_suspended: false }
    }

    /// Returns where other threads put their mail.
    pub fn inbox(&self) -> &Arc<Inbox<M>> {
        self.mailbox.inbox()
    }

    /// Returns the mailbox.
    pub fn mailbox(&self) -> &TaskMailbox<M> {
        &self.mailbox
    }

    /// Returns the mailbox, to close it, or to take mail without waiting.
    pub fn mailbox_mut(&mut self) -> &mut TaskMailbox<M> {
        &mut self.mailbox
    }

    /// Decides what to do next.
    pub fn next_step(&mut self) -> Step<M> {
        loop {
            if let Some(mail) = self.mailbox.try_take_from_batch() {
                return Step::RunMail(mail);
            }
            if !self.is_in_round {
                self.is_in_round = true;
                self.mailbox.create_batch();
            } else if self.mailbox.is_open() && !self.is_suspended {
                self.is_in_round = false;
                return Step::DefaultAction;
            } else if !self.mailbox.create_batch_or_arm() {
                // Nothing is left to run: waits, unless nothing can come.
                return if self.mailbox.is_open() { Step::Park } else { Step::Finished };
            }
        }
    }

    /// Keeps the loop from running the default action until that is resumed.
    pub const fn suspend_default_action(&mut self) {
        self.is_suspended = true;
    }

    /// Resumes the default action.
    pub const fn resume_default_action(&mut self) {
        self.is_suspended = false;
    }

    /// Returns whether the default action is suspended.
    pub const fn is_default_action_suspended(&self) -> bool {
        self.is_suspended
    }
}

#[cfg(test)]
mod tests;
