// SPDX-License-Identifier: Apache-2.0
//! The receiving end of a channel over a wire: it gives the credit.

use std::fmt;

use super::credit_account::CreditAccount;
use super::floating_pool::FloatingPool;
use super::{ChannelId, ChannelKey};

/// Gives credit to the sender at the other end of a wire.
///
/// Counterpart of Flink's `RemoteInputChannel`. What it knows of the backlog is
/// as old as the last message, so it keeps its exclusive credits free beyond
/// the backlog: `required = backlog + exclusive`.
///
/// ```text
///   receive(sequence, cost, backlog) --> [ free | in use ] --> recycle(cost)
///          ^                               | gained
///   sender | <---- announcement: take_unannounced
/// ```
///
/// A message takes as many credits as it costs. One that costs more than there are is taken all the
/// same, so that each can be sent at some time, and puts the channel in debt: nothing follows it until
/// the debt is paid by what ends. In all, `free - debt` is what the sender may still use, as soon as it
/// knows.
#[derive(Clone, Debug)]
pub struct ReceiverChannel {
    key: ChannelKey,
    account: CreditAccount,
    /// Credits in use that the channel does not hold. Nothing is free meanwhile.
    debt: u32,
    /// Credits that the sender was not told of.
    unannounced: u32,
    /// Whether the wire knows that there is something to announce.
    is_listed: bool,
    /// What waits at the sender, as far as is known.
    backlog: u32,
    /// The number of the next message.
    sequence: u32,
    state: Result<(), ChannelError>,
}

/// Why a channel takes no more messages. Other channels go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// The channel was released, or has ended: the message is old news.
    Released(ChannelKey),
    /// There never was a channel with this key: the two ends do not agree, and the wire is useless.
    Unknown(ChannelKey),
    /// The sender used a credit that it did not have.
    NoCredit(ChannelKey),
    /// A message was lost or came twice.
    SequenceGap {
        /// The channel.
        channel: ChannelKey,
        /// The number of the message that was to come.
        expected: u32,
        /// The number of the one that came.
        found: u32,
    },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released(channel) => write!(f, "channel `{channel}` was released"),
            Self::Unknown(channel) => write!(f, "channel `{channel}` was never opened"),
            Self::NoCredit(channel) => {
                write!(f, "channel `{channel}` has no credit available for what was sent")
            }
            Self::SequenceGap { channel, expected, found } => {
                write!(f, "channel `{channel}` got message `{found}` instead of `{expected}`")
            }
        }
    }
}

impl std::error::Error for ChannelError {}

impl ReceiverChannel {
    /// Makes a channel with `exclusive` credits that may hold `limit` in all.
    ///
    /// The sender learns of the exclusive ones when the channel is requested.
    pub fn new(key: ChannelKey, exclusive: u32, limit: u32) -> Self {
        let mut account = CreditAccount::new(exclusive, limit.max(exclusive));
        account.set_required(exclusive);
        Self {
            key,
            account,
            debt: 0,
            unannounced: 0,
            is_listed: false,
            backlog: 0,
            sequence: 0,
            state: Ok(()),
        }
    }

    /// Returns the credits that are held and not in use.
    pub const fn available(&self) -> u32 {
        self.account.free()
    }

    /// Returns the credits in use, those of the debt included.
    pub const fn in_use(&self) -> u32 {
        self.account.in_use().saturating_add(self.debt)
    }

    /// Returns the credits in use that the channel does not hold.
    pub const fn debt(&self) -> u32 {
        self.debt
    }

    /// Returns the credits that the pool lent.
    pub const fn floating(&self) -> u32 {
        self.account.floating()
    }

    /// Returns how many available credits the channel aims at.
    pub const fn required(&self) -> u32 {
        self.account.required()
    }

    /// Returns whether the channel stands in line at the pool.
    pub const fn is_waiting(&self) -> bool {
        self.account.is_waiting()
    }

    /// Returns the credits that [`take_unannounced`](Self::take_unannounced) would take.
    pub const fn unannounced(&self) -> u32 {
        self.unannounced
    }

    /// Takes a message that uses `cost` credits, none if it is an event, and tells what waits behind
    /// it, in credits.
    ///
    /// # Errors
    ///
    /// [`ChannelError`]: of this message or an earlier one. The channel gives back what it has then.
    pub fn receive(
        &mut self,
        sequence: u32,
        cost: u32,
        backlog: u32,
        pool: &mut FloatingPool,
    ) -> Result<Notify, ChannelError> {
        self.state?;
        let (channel, expected) = (self.key, self.sequence);
        if sequence != expected {
            let gap = ChannelError::SequenceGap { channel, expected, found: sequence };
            return self.fail(gap, pool);
        }
        self.sequence = expected.wrapping_add(1);
        if cost > 0 && self.account.free() == 0 {
            return self.fail(ChannelError::NoCredit(channel), pool);
        }
        self.debt = self.debt.saturating_add(cost);
        self.backlog = backlog;
        self.pay_debt();
        Ok(self.replenish(pool))
    }

    /// Uses free credits for what the channel owes.
    fn pay_debt(&mut self) {
        while self.debt > 0 && self.account.take_free() {
            self.debt -= 1;
        }
        let wanted = self.backlog.saturating_add(self.account.exclusive());
        let is_open = self.state.is_ok();
        self.account.set_required(if is_open { wanted.saturating_add(self.debt) } else { 0 });
    }

    /// Takes no more messages; what is free goes to others.
    fn fail(
        &mut self,
        error: ChannelError,
        pool: &mut FloatingPool,
    ) -> Result<Notify, ChannelError> {
        self.state = Err(error);
        self.unannounced = 0;
        self.account.set_required(0);
        self.account.give_back_free(pool);
        Err(error)
    }

    /// Ends the use of `credits`.
    ///
    /// Call [`FloatingPool::grant`] until it serves nobody, and then
    /// [`replenish`](Self::replenish): channels that wait go first.
    pub fn recycle(&mut self, credits: u32, pool: &mut FloatingPool) -> Notify {
        let credits = credits.min(self.in_use());
        let paid = credits.min(self.debt);
        self.debt -= paid;
        // What was owed is wanted no more: a credit that is kept for it would be kept from the others.
        self.pay_debt();
        let gone = (paid..credits).filter(|_| self.account.recycle(pool)).count();
        self.gain(credits - u32::try_from(gone).unwrap_or(credits))
    }

    /// Asks the pool for what is missing, and gets in line for the rest.
    pub fn replenish(&mut self, pool: &mut FloatingPool) -> Notify {
        if self.state.is_err() {
            return Notify::No;
        }
        let granted = self.account.replenish(self.id(), pool);
        self.pay_debt();
        self.account.stop_waiting(pool);
        self.gain(granted)
    }

    /// Takes the credit that the pool granted, and gets in line again if that is not enough.
    pub fn accept_grant(&mut self, pool: &mut FloatingPool) -> Notify {
        let gained = u32::from(self.account.accept_grant(pool));
        self.pay_debt();
        self.account.wait_in_line(self.id(), pool);
        self.gain(gained)
    }

    /// Returns its name at the pool.
    const fn id(&self) -> ChannelId {
        ChannelId(self.key.index)
    }

    fn gain(&mut self, credits: u32) -> Notify {
        if self.state.is_err() {
            return Notify::No;
        }
        self.unannounced = self.unannounced.saturating_add(credits);
        if self.is_listed || !self.is_worth_telling() {
            return Notify::No;
        }
        self.is_listed = true;
        Notify::Yes
    }

    /// Returns whether the sender could go on with what it does not know of, and has to wait for it
    /// or would use half of what the channel holds: else a message would be sent for each credit.
    ///
    /// As h2 does with its window updates.
    const fn is_worth_telling(&self) -> bool {
        let (available, unannounced) = (self.account.free(), self.unannounced);
        let has_none = available <= unannounced;
        let is_much = unannounced >= self.account.held().div_ceil(2);
        unannounced > 0 && available > 0 && (has_none || is_much)
    }

    /// Takes all that the sender must know, in one sum; a failed channel tells nothing.
    pub fn take_unannounced(&mut self) -> u32 {
        self.is_listed = false;
        std::mem::take(&mut self.unannounced)
    }

    /// Gives all free credits back and takes no more messages; those in use come back when their use
    /// ends. Idempotent.
    pub fn release(&mut self, pool: &mut FloatingPool) {
        self.state = Err(ChannelError::Released(self.key));
        self.unannounced = 0;
        self.account.release(pool);
    }

    /// Returns what the channel failed with.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub const fn check(&self) -> Result<(), ChannelError> {
        self.state
    }
}

/// Whether to tell the wire that a channel has credit to announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the sender waits for it"]
pub enum Notify {
    /// The channel had nothing to announce before.
    Yes,
    /// There is nothing new, or the wire knows already.
    No,
}

#[expect(clippy::let_underscore_must_use, reason = "what is announced is not looked at")]
#[cfg(test)]
mod tests {
    use super::*;

    fn channel(exclusive: u32) -> ReceiverChannel {
        ReceiverChannel::new(ChannelKey { index: 3, generation: 1 }, exclusive, 10)
    }

    #[test]
    fn credit_accumulates_and_the_wire_is_told_once() {
        let mut pool = FloatingPool::new(8);
        let mut channel = channel(2);

        assert_eq!(channel.receive(0, 1, 1, &mut pool), Ok(Notify::Yes));
        assert_eq!(channel.receive(1, 1, 2, &mut pool), Ok(Notify::No));

        // Each time until backlog + 2 credits were available; the messages used two.
        assert_eq!(channel.take_unannounced(), 4);
        assert_eq!((channel.available(), channel.required()), (4, 4));
        assert_eq!(channel.take_unannounced(), 0);
    }

    #[test]
    fn little_credit_is_told_once_the_sender_has_none() {
        let mut pool = FloatingPool::new(0);
        let mut channel = channel(8);
        for sequence in 0..3 {
            assert_eq!(channel.receive(sequence, 1, 9, &mut pool), Ok(Notify::No));
        }

        assert_eq!(channel.recycle(3, &mut pool), Notify::No, "five are there");
        for sequence in 3..7 {
            assert_eq!(channel.receive(sequence, 1, 9, &mut pool), Ok(Notify::No));
        }
        assert_eq!(channel.receive(7, 1, 9, &mut pool), Ok(Notify::Yes));

        assert_eq!(channel.take_unannounced(), 3);
        assert_eq!(channel.recycle(4, &mut pool), Notify::Yes, "half of all");
    }

    #[test]
    fn a_message_that_costs_more_than_there_is_puts_the_channel_in_debt() {
        let mut pool = FloatingPool::new(0);
        let mut channel = channel(2);

        assert_eq!(channel.receive(0, 5, 1, &mut pool), Ok(Notify::No));
        assert_eq!((channel.in_use(), channel.debt(), channel.available()), (5, 3, 0));
        assert_eq!(channel.recycle(3, &mut pool), Notify::No, "the sender could not go on");
        assert_eq!(channel.recycle(1, &mut pool), Notify::Yes);
        assert_eq!(channel.recycle(1, &mut pool), Notify::No);

        assert_eq!((channel.take_unannounced(), channel.available()), (5, 2));
    }

    #[test]
    fn what_a_debt_was_paid_with_goes_to_the_others() {
        let mut pool = FloatingPool::new(3);
        let mut channel = ReceiverChannel::new(ChannelKey { index: 3, generation: 1 }, 0, 3);
        let _ = channel.receive(0, 0, 7, &mut pool).unwrap();
        let _ = channel.receive(1, 7, 0, &mut pool).unwrap();
        assert_eq!((channel.debt(), pool.lent()), (4, 3));

        let _ = channel.recycle(7, &mut pool);

        assert_eq!((channel.available(), pool.lent()), (0, 0));
    }

    #[test]
    fn data_without_credit_fails_the_channel_and_no_other() {
        let mut pool = FloatingPool::new(0);
        let (mut bad, mut good) = (channel(0), channel(1));

        let error = bad.receive(0, 1, 0, &mut pool).unwrap_err();

        assert_eq!(error.to_string(), "channel `3.1` has no credit available for what was sent");
        assert_eq!(bad.check(), Err(error));
        assert_eq!(good.receive(0, 1, 0, &mut pool), Ok(Notify::No));
    }

    #[test]
    fn a_gap_in_the_sequence_is_told_by_every_later_call() {
        let mut pool = FloatingPool::new(0);
        let mut channel = channel(2);
        let _ = channel.receive(0, 0, 0, &mut pool).unwrap();

        let gap = channel.receive(2, 1, 0, &mut pool).unwrap_err();

        assert_eq!(gap.to_string(), "channel `3.1` got message `2` instead of `1`");
        assert_eq!(channel.receive(1, 1, 0, &mut pool), Err(gap));
    }

    #[test]
    fn a_released_channel_takes_nothing_and_announces_nothing() {
        let mut pool = FloatingPool::new(4);
        let mut channel = channel(1);
        let _ = channel.receive(0, 0, 2, &mut pool).unwrap();

        channel.release(&mut pool);

        let error = channel.receive(1, 0, 2, &mut pool).unwrap_err();
        assert_eq!(error.to_string(), "channel `3.1` was released");
        assert_eq!((channel.take_unannounced(), pool.lent()), (0, 0));
        assert_eq!(channel.recycle(1, &mut pool), Notify::No);
    }
}
