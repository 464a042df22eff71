// SPDX-License-Identifier: Apache-2.0
//! The sending end of a channel over a wire: it spends the credit.

use std::collections::VecDeque;

/// Holds what waits for a destination, and the credit to send it.
///
/// Counterpart of Flink's `CreditBasedSequenceNumberingViewReader`. As long as there is any credit a
/// message may be sent, whatever it costs; one that costs more leaves a debt, which is paid by the
/// credit that comes next.
pub struct SenderChannel<T> {
    /// Below zero while the channel is in debt.
    credit: i64,
    /// What waits, oldest first.
    waiting: VecDeque<Waiting<T>>,
    /// What it costs in all.
    backlog: u32,
    /// Its bytes.
    bytes: usize,
    sequence: u32,
}

/// Something to be sent.
struct Waiting<T> {
    cost: u32,
    bytes: usize,
    payload: T,
}

/// What the sender has to put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<T> {
    /// Counts the messages of the channel, from 0, and wraps.
    pub sequence: u32,
    /// The credits that it uses; none if it is an event.
    pub cost: u32,
    /// What waits behind it, in credits.
    pub backlog: u32,
    /// What it is about.
    pub payload: T,
}

impl<T> SenderChannel<T> {
    /// Makes a channel that may send as many messages as the receiver's request says.
    pub const fn new(initial_credit: u32) -> Self {
        Self {
            credit: initial_credit as i64,
            waiting: VecDeque::new(),
            backlog: 0,
            bytes: 0,
            sequence: 0,
        }
    }

    /// Returns the credit; below zero while the channel is in debt.
    pub const fn credit(&self) -> i64 {
        self.credit
    }

    /// Returns what all that waits would cost.
    pub const fn backlog(&self) -> u32 {
        self.backlog
    }

    /// Returns how many messages wait, events included.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the bytes that wait.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether something may be sent: an event, or data with credit.
    pub fn is_available(&self) -> bool {
        let may_go = |it: &Waiting<T>| it.cost == 0 || self.credit > 0;
        self.waiting.front().is_some_and(may_go)
    }

    /// Adds something that costs credits, or an event, which costs none.
    pub fn push(&mut self, payload: T, cost: u32, bytes: usize) {
        self.backlog = self.backlog.saturating_add(cost);
        self.bytes += bytes;
        self.waiting.push_back(Waiting { cost, bytes, payload });
    }

    /// Takes the next message; `None` while nothing may be sent.
    pub fn pop(&mut self) -> Option<Message<T>> {
        if !self.is_available() {
            return None;
        }
        let Waiting { cost, bytes, payload } = self.waiting.pop_front()?;
        self.credit -= i64::from(cost);
        self.backlog = self.backlog.saturating_sub(cost);
        self.bytes -= bytes;
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        Some(Message { sequence, cost, backlog: self.backlog, payload })
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
        (self.backlog, self.bytes) = (0, 0);
    }

    /// Takes credit that the receiver announced. Saturates: a wrap would stop the channel.
    pub fn add_credit(&mut self, credit: u32) {
        self.credit = (self.credit + i64::from(credit)).min(i64::from(u32::MAX));
    }
}

// Shows numbers only: payloads hold rows.
crate::opaque_debug!(
    [T] SenderChannel<T>, credit: credit, waiting: waiting.len(), sequence: sequence
);

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(initial_credit: u32) -> SenderChannel<char> {
        SenderChannel::new(initial_credit)
    }

    #[test]
    fn data_needs_credit_and_events_do_not_but_they_keep_their_place() {
        let mut channel = channel(1);
        for (payload, cost) in [('a', 1), ('b', 0), ('c', 1), ('d', 0)] {
            channel.push(payload, cost, 10);
        }

        let sent: Vec<_> = std::iter::from_fn(|| channel.pop()).collect();

        assert_eq!(sent.iter().map(|it| it.payload).collect::<Vec<_>>(), ['a', 'b']);
        assert_eq!(
            sent.iter().map(|it| (it.sequence, it.cost)).collect::<Vec<_>>(),
            [(0, 1), (1, 0)]
        );
        assert_eq!((sent[1].backlog, channel.credit(), channel.bytes()), (1, 0, 20));
    }

    #[test]
    fn a_message_may_cost_more_than_there_is_and_the_rest_is_owed() {
        let mut channel = channel(2);
        channel.push('a', 5, 0);
        channel.push('b', 1, 0);

        assert_eq!(channel.pop().map(|it| (it.payload, it.cost, it.backlog)), Some(('a', 5, 1)));
        channel.add_credit(3);
        assert_eq!((channel.credit(), channel.pop()), (0, None));
        channel.add_credit(1);

        assert_eq!(channel.pop().map(|it| it.payload), Some('b'));
    }

    #[test]
    fn credit_saturates() {
        let mut channel = channel(u32::MAX);
        channel.add_credit(u32::MAX);

        assert_eq!(channel.credit(), i64::from(u32::MAX));
    }
}
