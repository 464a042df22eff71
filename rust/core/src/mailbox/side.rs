// SPDX-License-Identifier: Apache-2.0
//! What each side of a mailbox holds.

use std::collections::VecDeque;
use std::mem;

use super::mail::Mail;

/// One side of a mailbox: the inbox has one behind its lock, the mailbox thread another.
#[derive(Debug)]
pub(super) struct Side<M> {
    /// Whether mail is put and taken. Ended by the mailbox thread, on both sides at once.
    pub(super) is_open: bool,
    /// Whether the mailbox thread waits, or is about to. A put clears it in the inbox only.
    pub(super) is_armed: bool,
    /// Oldest first; on the mailbox thread, the batch.
    pub(super) mails: VecDeque<Mail<M>>,
}

impl<M> Side<M> {
    pub(super) fn new() -> Self {
        Self { is_open: true, is_armed: false, mails: VecDeque::new() }
    }

    /// Removes the first mail of at least `priority`; the others keep their order.
    pub(super) fn remove_first(&mut self, priority: i32) -> Option<Mail<M>> {
        let index = self.mails.iter().position(|mail| mail.priority >= priority)?;
        self.mails.remove(index)
    }

    /// Moves everything in `later` behind what is here.
    ///
    /// Swaps when it can: that is O(1), and both sides keep a buffer that has grown to its size.
    pub(super) fn append(&mut self, later: &mut Self) {
        if self.mails.is_empty() {
            mem::swap(&mut self.mails, &mut later.mails);
        } else {
            self.mails.append(&mut later.mails);
        }
    }
}
