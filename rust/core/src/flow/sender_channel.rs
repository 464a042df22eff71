// SPDX-License-Identifier: Apache-2.0
//! The sending end of a channel over a wire: it spends the credit.

/// Counts what waits for a destination, and the credit to send it.
///
/// Counterpart of Flink's `CreditBasedSequenceNumberingViewReader`.
#[derive(Clone, Copy, Debug)]
pub struct SenderChannel {
    /// What the receiver gave when the channel was requested.
    initial_credit: u32,
    credit: u32,
    /// What waits and costs a credit.
    backlog: u32,
    /// What waits and costs none; it goes first.
    events: u32,
    sequence: u32,
    /// The largest batch that the receiver wants.
    batch_size: u32,
    is_blocked: bool,
}

/// What the sender has to put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Counts the messages of the channel, from 0, and wraps.
    pub sequence: u32,
    /// Whether it costs no credit.
    pub is_event: bool,
    /// What waits behind it.
    pub backlog: u32,
}

impl SenderChannel {
    /// Makes a channel that may send as many messages as the receiver's request says.
    pub const fn new(initial_credit: u32) -> Self {
        let (backlog, events, sequence) = (0, 0, 0);
        let (credit, batch_size, is_blocked) = (initial_credit, u32::MAX, false);
        Self { initial_credit, credit, backlog, events, sequence, batch_size, is_blocked }
    }

    /// Returns the messages that may be sent.
    pub const fn credit(&self) -> u32 {
        self.credit
    }

    /// Returns what waits and costs a credit.
    pub const fn backlog(&self) -> u32 {
        self.backlog
    }

    /// Returns the largest batch that the receiver wants.
    pub const fn batch_size(&self) -> u32 {
        self.batch_size
    }

    /// Returns whether something may be sent: an event, or data with credit.
    pub const fn is_available(&self) -> bool {
        !self.is_blocked && (self.events > 0 || (self.credit > 0 && self.backlog > 0))
    }

    /// Returns whether the receiver can only learn of the backlog from an announcement.
    ///
    /// Any other channel has sent, or can send, a message that carries it.
    pub const fn needs_announcement(&self) -> bool {
        self.initial_credit == 0 && self.credit == 0 && self.backlog > 0
    }

    /// Adds something that costs a credit.
    pub fn push(&mut self) {
        self.backlog = self.backlog.saturating_add(1);
    }

    /// Adds something that costs no credit and goes first.
    pub fn push_event(&mut self) {
        self.events = self.events.saturating_add(1);
    }

    /// Takes the next message; `None` while nothing may be sent.
    pub fn pop(&mut self) -> Option<Message> {
        if !self.is_available() {
            return None;
        }
        let is_event = self.events > 0;
        if is_event {
            self.events -= 1;
        } else {
            self.credit -= 1;
            self.backlog -= 1;
        }
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        Some(Message { sequence, is_event, backlog: self.backlog })
    }

    /// Takes credit that the receiver announced. Saturates: a wrap would stop the channel.
    pub fn add_credit(&mut self, credit: u32) {
        self.credit = self.credit.saturating_add(credit);
    }

    /// Takes the batch size that the receiver wants from now on; what waits keeps its own.
    pub fn set_batch_size(&mut self, rows: u32) {
        self.batch_size = rows;
    }

    /// Sends nothing until it is resumed.
    pub fn block(&mut self) {
        self.is_blocked = true;
    }

    /// Goes on; without initial credit the old credit is void, as the receiver gave it away.
    pub fn resume(&mut self) {
        self.is_blocked = false;
        if self.initial_credit == 0 {
            self.credit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_needs_credit_and_events_do_not() {
        let mut channel = SenderChannel::new(1);
        channel.push();
        channel.push();
        channel.push_event();

        let sent: Vec<_> = std::iter::from_fn(|| channel.pop()).collect();

        assert_eq!(sent.iter().map(|it| it.is_event).collect::<Vec<_>>(), [true, false]);
        assert_eq!(sent.iter().map(|it| it.sequence).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((sent[1].backlog, channel.credit(), channel.is_available()), (1, 0, false));
    }

    #[test]
    fn the_backlog_is_announced_with_neither_initial_nor_current_credit() {
        for (initial, added, expected) in [(0, 0, true), (0, 1, false), (1, 0, false)] {
            let mut channel = SenderChannel::new(initial);
            channel.push();
            channel.add_credit(added);

            assert_eq!(channel.needs_announcement(), expected, "{initial} + {added}");
        }
    }

    #[test]
    fn credit_saturates() {
        let mut channel = SenderChannel::new(u32::MAX);
        channel.add_credit(u32::MAX);

        assert_eq!(channel.credit(), u32::MAX);
    }

    #[test]
    fn resuming_voids_old_credit_without_initial_credit_only() {
        for (initial, left) in [(0, 0), (2, 5)] {
            let mut channel = SenderChannel::new(initial);
            channel.add_credit(5 - initial);
            channel.push();
            channel.block();
            assert_eq!(channel.pop(), None);

            channel.resume();

            assert_eq!(channel.credit(), left);
        }
    }
}
