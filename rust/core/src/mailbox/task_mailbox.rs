// SPDX-License-Identifier: Apache-2.0
//! Where mail is taken.

use std::task::Waker;

use super::control::Control;
use super::inbox::Inbox;
use super::mail::Mail;
use super::side::{MailboxState, Side};
use crate::sync::Arc;

/// The mailbox thread's side of a mailbox.
///
/// Counterpart of Flink's `TaskMailboxImpl`. Mail is taken in the order of its
/// arrival. A priority filters: the first mail of at least that priority is
/// taken, the others keep their places. Moving the queue into a batch keeps a
/// mail that sends itself again from starving everything else.
///
/// ```text
///   put_first --> [ urgent ]--+                          quiesce()         close(), drop
///                             +--> taken in this order   OPEN --> QUIESCED --> CLOSED
///   create_batch  [ batch  ]--+                           |                      ^
///        ^                    |                           +----------------------+
///   put --------> [ queue  ]--+
/// ```
///
/// Differs in that there is nothing to take from a closed mailbox, where Flink throws.
#[derive(Debug)]
pub struct TaskMailbox<M> {
    inbox: Arc<Inbox<M>>,
    /// Only touched by the mailbox thread.
    batch: Side<M>,
}

impl<M> TaskMailbox<M> {
    /// Opens a mailbox.
    ///
    /// `waker` is called when something is put after a call found nothing and armed it.
    pub fn new(waker: Waker) -> Self {
        Self { inbox: Arc::new(Inbox::new(waker)), batch: Side::new() }
    }

    /// Returns where other threads put their mail.
    pub fn inbox(&self) -> &Arc<Inbox<M>> {
        &self.inbox
    }

    /// Returns what the mailbox accepts.
    pub fn state(&self) -> MailboxState {
        self.batch.state
    }

    /// Returns the number of mails that wait.
    pub fn len(&self) -> usize {
        self.batch.len() + self.inbox.len()
    }

    /// Returns whether no mail waits.
    pub fn is_empty(&self) -> bool {
        !self.has_mail()
    }

    /// Returns whether a mail waits, of whatever priority.
    pub fn has_mail(&self) -> bool {
        !self.batch.is_empty() || !self.inbox.is_empty()
    }

    /// Moves everything that is queued into the batch; returns whether that holds a mail now.
    pub fn create_batch(&mut self) -> bool {
        // An armed inbox is disarmed, or else mail that comes while the thread runs would wake it.
        if self.batch.is_armed || self.may_receive() {
            self.receive(Side::append_all);
        }
        !self.batch.is_empty()
    }

    /// Takes the next mail of the batch; urgent mail comes first, even if it is not in the batch.
    pub fn try_take_from_batch(&mut self) -> Option<Mail<M>> {
        self.receive_urgent();
        self.pop_received()
    }

    /// Takes the first mail of at least `priority`; deferrable mail counts as
    /// [`MIN_PRIORITY`](super::MIN_PRIORITY).
    pub fn try_take(&mut self, priority: i32) -> Option<Mail<M>> {
        self.try_take_if(|mail| mail.priority_in_yield() >= priority)
    }

    /// Takes the first mail of at least `priority`, deferrable or not.
    ///
    /// For the end of input, where nobody returns to the main loop (FLINK-39481).
    pub fn try_take_ignoring_deferrable(&mut self, priority: i32) -> Option<Mail<M>> {
        self.try_take_if(|mail| mail.priority >= priority)
    }

    /// As [`try_take`](Self::try_take), but arms the waker when it returns `None`.
    ///
    /// Counterpart of Flink's blocking `take`. *Any* mail then calls the waker,
    /// also one of a lower priority: take again, and wait again.
    pub fn take_or_arm(&mut self, priority: i32) -> Option<Mail<M>> {
        self.try_take(priority).or_else(|| {
            self.receive(|batch, inbox| {
                let accepts = |mail: &Mail<M>| mail.priority_in_yield() >= priority;
                batch.append_urgent(inbox);
                let mail = batch.remove_first(accepts).or_else(|| inbox.remove_first(accepts));
                batch.is_armed = mail.is_none();
                mail
            })
        })
    }

    /// Refuses further mail; what is queued can still be taken.
    pub fn quiesce(&mut self) {
        self.advance(MailboxState::Quiesced);
    }

    /// Refuses further mail and returns what was queued, for the caller to drop or cancel.
    pub fn close(&mut self) -> Vec<Mail<M>> {
        self.advance(MailboxState::Closed);
        self.drain()
    }

    /// Takes everything: urgent mail, the batch, then the queue.
    pub fn drain(&mut self) -> Vec<Mail<M>> {
        self.receive(Side::append_all);
        self.batch.urgent.drain(..).chain(self.batch.mails.drain(..)).collect()
    }

    /// Fetches urgent mail and signals, so that they overtake the batch.
    pub(super) fn receive_urgent(&mut self) {
        if self.inbox.has_urgent() {
            self.receive(Side::append_urgent);
        }
    }

    /// Takes the next mail that was received, urgent or of the batch.
    pub(super) fn pop_received(&mut self) -> Option<Mail<M>> {
        self.batch.pop()
    }

    /// As [`create_batch`](Self::create_batch), but arms the waker when it returns `false`.
    ///
    /// Returns whether there is something to do: a mail, or a signal to the loop.
    pub(super) fn create_batch_or_arm(&mut self) -> bool {
        self.receive(|batch, inbox| {
            let has_signal = !inbox.control.is_none();
            batch.append_all(inbox);
            batch.is_armed = batch.is_empty() && !has_signal;
            !batch.is_armed
        })
    }

    /// Signals that were received.
    pub(super) fn control(&self) -> Control {
        self.batch.control
    }

    /// Signals that were received, for the processor to act on.
    pub(super) fn control_mut(&mut self) -> &mut Control {
        &mut self.batch.control
    }

    fn may_receive(&self) -> bool {
        self.inbox.has_mail() || self.inbox.has_urgent()
    }

    fn try_take_if(&mut self, accepts: impl Fn(&Mail<M>) -> bool) -> Option<Mail<M>> {
        self.receive_urgent();
        self.batch.remove_first(&accepts).or_else(|| {
            self.may_receive().then(|| self.receive(|_, inbox| inbox.remove_first(accepts)))?
        })
    }

    /// Moves on to `state`, on both sides; never back.
    fn advance(&mut self, state: MailboxState) {
        self.batch.state = self.batch.state.max(state);
        self.receive(|batch, inbox| inbox.state = batch.state);
    }

    /// Runs `take(batch, inbox)` under the lock; the inbox is armed after it if `take` armed the batch.
    fn receive<R>(&mut self, take: impl FnOnce(&mut Side<M>, &mut Side<M>) -> R) -> R {
        let batch = &mut self.batch;
        self.inbox.with_lock(|inbox| {
            batch.is_armed = false;
            let answer = take(batch, inbox);
            inbox.is_armed = batch.is_armed;
            answer
        })
    }
}

/// Refuses further mail, so that its sender gets it back instead of losing it.
impl<M> Drop for TaskMailbox<M> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

#[cfg(test)]
mod tests;
