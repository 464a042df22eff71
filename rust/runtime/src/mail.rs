// SPDX-License-Identifier: Apache-2.0
//! What other threads tell a task.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use sparkawait_core::mailbox::{Inbox, Mail};
use sparkawait_core::operator::AttemptId;

use crate::batch_codec::BatchCodec;
use crate::part::Patience;

/// Returns the priority of the mail of the operator at `position` of its chain: an operator that
/// waits for room lets those behind it go first. What is for the task as a whole has the least.
pub(crate) fn priority_of(position: usize) -> i32 {
    i32::try_from(position).unwrap_or(i32::MAX)
}

/// A letter to the task thread. Bursts travel as one.
pub(crate) enum TaskMail<X: BatchCodec> {
    /// A batch of input.
    Input(X::Input),
    /// No batch will follow.
    EndOfInput,
    /// No batch will follow until the part of the input that this ends is worked off.
    EndOfPart(Patience),
    /// The outcomes of a burst of calls of the operator at this position of the chain.
    Replies(usize, X::Reply),
    /// Calls of the operator at this position began at this moment, which waited before.
    Started(usize, Vec<AttemptId>, Instant),
    /// How many calls the operator at this position may have in flight from now on.
    Permitted(usize, NonZeroUsize),
    /// Input or function failed as a whole.
    Failed(X::Error),
}

impl<X: BatchCodec> TaskMail<X> {
    /// Names the mail where it is refused.
    const fn description(&self) -> &'static str {
        match self {
            Self::Input(_) => "take a batch of input",
            Self::EndOfInput => "end the input",
            Self::EndOfPart(_) => "end a part of the input",
            Self::Replies(..) => "complete a burst of calls",
            Self::Started(..) => "begin a burst of calls",
            Self::Permitted(..) => "bound the calls in flight",
            Self::Failed(_) => "fail the task",
        }
    }
}

impl<X: BatchCodec> fmt::Debug for TaskMail<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description())
    }
}

/// The shared end of a task's mailbox.
pub(crate) struct TaskInbox<X: BatchCodec> {
    inbox: Arc<Inbox<TaskMail<X>>>,
}

impl<X: BatchCodec> TaskInbox<X> {
    pub(crate) fn new(inbox: Arc<Inbox<TaskMail<X>>>) -> Self {
        Self { inbox }
    }

    /// Sends `mail`; returns false if the task has ended.
    pub(crate) fn put(&self, mail: TaskMail<X>) -> bool {
        let description = mail.description();
        let position = match &mail {
            TaskMail::Replies(position, _)
            | TaskMail::Started(position, ..)
            | TaskMail::Permitted(position, _) => *position,
            TaskMail::Input(_)
            | TaskMail::EndOfInput
            | TaskMail::EndOfPart(_)
            | TaskMail::Failed(_) => 0,
        };
        self.inbox.put(Mail::new(mail, priority_of(position), description)).is_ok()
    }
}

impl<X: BatchCodec> Clone for TaskInbox<X> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox) }
    }
}

/// Sends the outcomes of calls to the task, from any thread.
///
/// Counterpart of Flink's `ResultFuture`, for a burst of calls at a time. An
/// outcome that arrives after the task has ended is dropped silently.
pub struct ReplySender<X: BatchCodec> {
    inbox: TaskInbox<X>,
    /// Of the operator in its chain.
    position: usize,
}

impl<X: BatchCodec> ReplySender<X> {
    pub(crate) fn new(inbox: TaskInbox<X>, position: usize) -> Self {
        Self { inbox, position }
    }

    /// Sends the outcomes of some calls; returns false if the task has ended.
    pub fn send(&self, reply: X::Reply) -> bool {
        self.inbox.put(TaskMail::Replies(self.position, reply))
    }

    /// Says that calls begin, which waited before; returns false if the task has ended: then it will
    /// not count them, and they are not to be made.
    ///
    /// For operators whose calls begin when that is said, see `Begins` in their settings.
    pub fn started(&self, attempts: Vec<AttemptId>) -> bool {
        self.inbox.put(TaskMail::Started(self.position, attempts, Instant::now()))
    }

    /// Lets the operator have so many calls in flight from now on, beside its own bounds; returns
    /// false if the task has ended.
    pub fn permit(&self, calls: NonZeroUsize) -> bool {
        self.inbox.put(TaskMail::Permitted(self.position, calls))
    }

    /// Fails the task, because the function cannot go on at all.
    pub fn fail(&self, error: X::Error) -> bool {
        self.inbox.put(TaskMail::Failed(error))
    }
}

impl<X: BatchCodec> Clone for ReplySender<X> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), position: self.position }
    }
}

sparkawait_core::opaque_debug!([X: BatchCodec] ReplySender<X>);
