// SPDX-License-Identifier: Apache-2.0
//! Where mail is taken.

use std::task::Waker;

use super::inbox::Inbox;
use super::mail::Mail;
use super::side::Side;
use crate::sync::Arc;

/// The mailbox thread's side of a mailbox.
///
/// Counterpart of Flink's `TaskMailboxImpl`. Mail is taken in the order of its
/// arrival. A priority filters: the first mail of at least that priority is
/// taken, the others keep their places. Moving the queue into a batch keeps a
/// mail that sends itself again from starving everything else.
///
/// ```text
///   put --> [ queue ] --create_batch--> [ batch ] --> taken in this order
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

    /// Returns whether mail is put and taken.
    pub fn is_open(&self) -> bool {
        self.batch.is_open
    }

    /// Returns the number of mails that wait.
    pub fn len(&self) -> usize {
        self.batch.mails.len() + self.inbox.len()
    }

    /// Returns whether no mail waits.
    pub fn is_empty(&self) -> bool {
        !self.has_mail()
    }

    /// Returns whether a mail waits, of whatever priority.
    pub fn has_mail(&self) -> bool {
        !self.batch.mails.is_empty() || !self.inbox.is_empty()
    }

    /// Moves everything that is queued into the batch; returns whether that holds a mail now.
    pub fn create_batch(&mut self) -> bool {
        // An armed inbox is disarmed, or else mail that comes while the thread runs would wake it.
        if self.batch.is_armed || self.inbox.has_mail() {
            self.receive(Side::append);
        }
        !self.batch.mails.is_empty()
    }

    /// As [`create_batch`](Self::create_batch), but arms the waker when it returns `false`.
    pub(super) fn create_batch_or_arm(&mut self) -> bool {
        self.receive(|batch, inbox| {
            batch.append(inbox);
            batch.is_armed = batch.mails.is_empty();
            !batch.is_armed
        })
    }

    /// Takes the next mail of the batch.
    pub fn try_take_from_batch(&mut self) -> Option<Mail<M>> {
        self.batch.mails.pop_front()
    }

    /// Takes the first mail of at least `priority`.
    pub fn try_take(&mut self, priority: i32) -> Option<Mail<M>> {
        self.batch.remove_first(priority).or_else(|| {
            let may_have = self.inbox.has_mail();
            may_have.then(|| self.receive(|_, inbox| inbox.remove_first(priority)))?
        })
    }

    /// Refuses further mail and returns what was queued, for the caller to drop or cancel: the batch,
    /// then the queue.
    pub fn close(&mut self) -> Vec<Mail<M>> {
        self.batch.is_open = false;
        self.receive(|batch, inbox| {
            inbox.is_open = false;
            batch.append(inbox);
        });
        self.batch.mails.drain(..).collect()
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
