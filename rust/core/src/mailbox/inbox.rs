// SPDX-License-Identifier: Apache-2.0
//! Where mail is put: the only state of this crate that threads share.
//!
//! Any thread may call what is public here; the rest is for the mailbox thread.
//! No user code runs under the lock, and the waker is called after its release.

use std::mem;
use std::task::Waker;

use super::mail::{Mail, MailboxClosed};
use super::side::Side;
use crate::sync::{self, AtomicBool, Mutex, Ordering};

/// Where any thread puts mail for the mailbox thread.
///
/// Counterpart of the `put` half of Flink's `TaskMailboxImpl`. A mail costs one
/// lock, which is free in the absence of contention, and no allocation once the
/// queue has grown. The waker is called at most once for each time that the
/// mailbox thread arms it, so a burst of mail is one wake-up.
///
/// ```text
///                     mailbox thread found nothing to run
///            +---------+ --------------------------------> +-------+
///            | running |                                   | armed |
///            +---------+ <-------------------------------- +-------+
///                     put: calls the waker
///                     mailbox thread looks again (deadline): does not
/// ```
///
/// A wake-up must be remembered until the next wait if the mailbox thread has
/// not begun to wait yet, as `std::thread::unpark` does.
pub struct Inbox<M> {
    /// What the mailbox thread has not taken.
    shared: Mutex<Side<M>>,
    /// Whether mail waits. Written under the lock; a reader without it may be late, but a thread that
    /// arms the waker looks under the lock.
    has_mail: AtomicBool,
    /// Called after an armed thread was given something.
    waker: Waker,
}

impl<M> Inbox<M> {
    pub(super) fn new(waker: Waker) -> Self {
        Self { shared: Mutex::new(Side::new()), has_mail: AtomicBool::new(false), waker }
    }

    /// Puts `mail` behind all other mail, and wakes the mailbox thread if it is armed.
    ///
    /// # Errors
    ///
    /// [`MailboxClosed`] gives `mail` back unless the mailbox is open.
    pub fn put(&self, mail: Mail<M>) -> Result<(), MailboxClosed<M>> {
        let was_armed = self.with_lock(|shared| {
            if !shared.is_open {
                return Err(MailboxClosed(mail));
            }
            shared.mails.push_back(mail);
            Ok(mem::take(&mut shared.is_armed))
        })?;
        if was_armed {
            self.waker.wake_by_ref();
        }
        Ok(())
    }

    /// Returns the number of mails that the mailbox thread has not taken or moved to its batch.
    pub fn len(&self) -> usize {
        sync::lock(&self.shared).mails.len()
    }

    /// Returns whether [`len`](Self::len) is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether mail may wait.
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Runs `change` under the lock, which publishes what it did to those who look without.
    pub(super) fn with_lock<R>(&self, change: impl FnOnce(&mut Side<M>) -> R) -> R {
        let mut shared = sync::lock(&self.shared);
        let answer = change(&mut shared);
        self.has_mail.store(!shared.mails.is_empty(), Ordering::Relaxed);
        answer
    }
}

crate::opaque_debug!([M] Inbox<M>, has_mail: has_mail());

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::counting_waker::CountingWaker;
    use super::super::{MailboxProcessor, Step};
    use super::*;

    /// A processor that has nothing to do, and the count of its wake-ups.
    fn parked() -> (MailboxProcessor<u32>, Arc<CountingWaker>) {
        let waker = Arc::new(CountingWaker::default());
        let mut processor = MailboxProcessor::new(Arc::clone(&waker).into());
        processor.suspend_default_action();
        assert_eq!(processor.next_step(), Step::Park);
        (processor, waker)
    }

    fn mail(payload: u32) -> Mail<u32> {
        Mail::new(payload, 0, "test")
    }

    #[test]
    fn burst_of_mail_wakes_a_parked_thread_once() {
        let (processor, waker) = parked();

        for payload in 0..100 {
            processor.inbox().put(mail(payload)).unwrap();
        }

        assert_eq!(waker.count(), 1);
    }

    #[test]
    fn mail_for_a_running_thread_wakes_nobody() {
        let (mut processor, waker) = parked();
        processor.inbox().put(mail(0)).unwrap();
        assert_eq!(processor.next_step(), Step::RunMail(mail(0)));

        processor.inbox().put(mail(1)).unwrap();
        processor.inbox().put(mail(2)).unwrap();

        assert_eq!(waker.count(), 1);
    }

    #[test]
    fn thread_that_was_woken_by_its_deadline_is_not_woken_again() {
        let (mut processor, waker) = parked();
        processor.resume_default_action();
        assert_eq!(processor.next_step(), Step::DefaultAction);
        assert_eq!(processor.next_step(), Step::DefaultAction);

        processor.inbox().put(mail(0)).unwrap();

        assert_eq!(waker.count(), 0);
    }

    #[test]
    fn put_after_close_gives_the_mail_back_and_wakes_nobody() {
        let (mut processor, waker) = parked();
        processor.mailbox_mut().close();

        let refused = processor.inbox().put(mail(7)).unwrap_err();

        assert_eq!(refused.0, mail(7));
        assert_eq!(waker.count(), 0);
    }

    #[test]
    fn dropped_mailbox_refuses_mail() {
        let (processor, _) = parked();
        let inbox = Arc::clone(processor.inbox());

        drop(processor);

        assert!(inbox.put(mail(7)).is_err());
        assert_eq!(inbox.len(), 0);
    }
}
