// SPDX-License-Identifier: Apache-2.0
//! What each side of a mailbox holds.

use std::collections::VecDeque;
use std::mem;

use super::control::Control;
use super::mail::Mail;

/// What a mailbox accepts. The mailbox thread changes it, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MailboxState {
    /// Mail is put and taken.
    Open,
    /// Mail is taken; a put is refused.
    Quiesced,
    /// The mail that was left has been handed back; a put is refused.
    Closed,
}

/// One side of a mailbox: the inbox has one behind its lock, the mailbox thread another.
#[derive(Debug)]
pub(super) struct Side<M> {
    /// Changed by the mailbox thread, on both sides at once.
    pub(super) state: MailboxState,
    /// Whether the mailbox thread waits, or is about to. A put clears it in the inbox only.
    pub(super) is_armed: bool,
    /// Signals that were not acted on.
    pub(super) control: Control,
    /// Mail that comes before all other mail; oldest first.
    pub(super) urgent: VecDeque<Mail<M>>,
    /// Oldest first; on the mailbox thread, the batch.
    pub(super) mails: VecDeque<Mail<M>>,
}

impl<M> Side<M> {
    pub(super) fn new() -> Self {
        Self {
            state: MailboxState::Open,
            is_armed: false,
            control: Control::default(),
            urgent: VecDeque::new(),
            mails: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.mails.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.mails.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<Mail<M>> {
        self.urgent.pop_front().or_else(|| self.mails.pop_front())
    }

    /// Removes the first mail that `accepts`; the others keep their order.
    pub(super) fn remove_first(&mut self, accepts: impl Fn(&Mail<M>) -> bool) -> Option<Mail<M>> {
        remove_first(&mut self.urgent, &accepts).or_else(|| remove_first(&mut self.mails, &accepts))
    }

    /// Moves the signals and urgent mails of `later` behind those that are here.
    pub(super) fn append_urgent(&mut self, later: &mut Self) {
        self.control.merge(mem::take(&mut later.control));
        append(&mut self.urgent, &mut later.urgent);
    }

    /// Moves everything in `later` behind what is here.
    pub(super) fn append_all(&mut self, later: &mut Self) {
        self.append_urgent(later);
        append(&mut self.mails, &mut later.mails);
    }
}

fn remove_first<M>(
    mails: &mut VecDeque<Mail<M>>,
    accepts: impl Fn(&Mail<M>) -> bool,
) -> Option<Mail<M>> {
    let index = mails.iter().position(accepts)?;
    mails.remove(index)
}

/// Swaps when it can: that is O(1), and both sides keep a buffer that has grown to its size.
fn append<M>(mails: &mut VecDeque<Mail<M>>, later: &mut VecDeque<Mail<M>>) {
    if mails.is_empty() {
        mem::swap(mails, later);
    } else {
        mails.append(later);
    }
}
