// SPDX-License-Identifier: Apache-2.0
//! Commands that are sent together, and who awaits the replies.

use super::resp::{Garbage, Reply};
use super::scanner::Scanner;
use crate::failure::Failure;

/// Commands, and what happens to the replies.
pub(super) struct Job {
    /// The packed commands.
    pub(super) bytes: Vec<u8>,
    /// Awaits a reply to each.
    pub(super) answers: Box<dyn Awaiting>,
}

/// Replies that were taken.
pub(super) struct Taken {
    /// The bytes that they were in, and those known to be a part of one.
    pub(super) bytes: usize,
    /// Whether the last one is among them.
    pub(super) is_done: bool,
}

/// Why commands have no reply.
pub(super) struct Loss<'a> {
    pub(super) failure: &'a Failure,
    /// How many were sent, over whichever connection.
    pub(super) sent: usize,
    /// What it is for the others: nobody has carried them out.
    pub(super) unsent: &'a Failure,
}

impl<'a> Loss<'a> {
    /// Says that no command was sent.
    pub(super) fn unsent(failure: &'a Failure) -> Self {
        Self { failure, sent: 0, unsent: failure }
    }
}

/// Somebody who awaits replies to the commands of a job.
///
/// A link knows no more of its jobs. It asks once for all replies that came together, so that a
/// reply costs no call through a pointer.
pub(super) trait Awaiting: Send {
    /// Takes the next reply, of so many bytes; returns whether it was the last one.
    fn take(&mut self, reply: Reply<'_>, bytes: usize) -> bool;

    /// Says that all replies were taken.
    fn finish(self: Box<Self>);

    /// Says that no further reply comes.
    fn fail(self: Box<Self>, loss: &Loss<'_>);

    /// The same after a panic, whatever state this is in.
    fn abandon(self: Box<Self>, failure: &Failure);

    /// Whether anybody waits for an answer; `None`: nobody ever did.
    fn is_wanted(&self) -> Option<bool> {
        None
    }

    /// Whether those without a reply do no harm when they are sent again.
    fn may_be_repeated(&self) -> bool {
        false
    }

    /// Says that those without a reply are sent again; returns how many have one.
    fn go_on(&mut self) -> usize {
        0
    }

    /// Whether a reply said that the server is not the primary any more.
    fn leaves(&self) -> bool {
        false
    }

    /// Takes the replies that are complete in `unread`, up to the last one of the job.
    ///
    /// # Errors
    ///
    /// The bytes are not a reply.
    fn take_all(&mut self, scanner: &mut Scanner, unread: &[u8]) -> Result<Taken, Garbage> {
        let mut bytes = 0;
        loop {
            let (reply, length) = scanner.next(&unread[bytes..])?;
            bytes += length;
            let Some(reply) = reply else { return Ok(Taken { bytes, is_done: false }) };
            if self.take(reply, length) {
                return Ok(Taken { bytes, is_done: true });
            }
        }
    }
}
