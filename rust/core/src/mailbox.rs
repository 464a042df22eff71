// SPDX-License-Identifier: Apache-2.0
//! The mailbox of a task: how other threads hand work to the one that runs it.
//!
//! | type | what it is | which thread |
//! |---|---|---|
//! | [`Mail`] | a piece of work, with its priority | any |
//! | [`Inbox`] | where mail is put | any, behind an `Arc` |
//! | [`TaskMailbox`] | where mail is taken: the batch, then the inbox | the mailbox thread |
//! | [`MailboxProcessor`] | the loop: which mail runs next, when the default action does | the mailbox thread |
//! | [`Outlet`] | where output is taken, while the loop goes on | the mailbox thread, and its consumer's |
//!
//! Nothing here blocks. A call that finds nothing to run *arms the waker* in the
//! critical section in which it looked, and says so ([`Step::Park`]); the driver
//! then waits, for a deadline of its own too if it likes.
//!
//! "The mailbox thread" is the holder of `&mut`, which the compiler checks where Flink compares
//! threads. Flink's `runExclusively` has no counterpart: each thing it is used for is one call
//! here.
//!
//! A mailbox has no bound of its own. What is sent through it has: a reply
//! belongs to an element that holds a slot of the operator's queue, and a batch
//! of input to the feeder's read-ahead.

mod inbox;
mod mail;
mod outlet;
mod processor;
mod side;
mod task_mailbox;

pub use inbox::Inbox;
pub use mail::{Mail, MailboxClosed};
pub use outlet::{Demand, Outlet, Taken};
pub use processor::{MailboxProcessor, Step};
pub use task_mailbox::TaskMailbox;

/// A waker that counts its calls.
#[cfg(test)]
mod counting_waker {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    pub(super) struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl CountingWaker {
        pub(super) fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }
}
