// SPDX-License-Identifier: Apache-2.0
//! The receiving end of a channel over a wire: it gives the credit.

use std::fmt;

use super::ChannelId;
use super::credit_account::CreditAccount;
use super::floating_pool::FloatingPool;

/// Gives credit to the sender at the other end of a wire.
///
/// Counterpart of Flink's `RemoteInputChannel`. What it knows of the backlog is
/// as old as the last message, so it keeps its exclusive credits free beyond
/// the backlog: `required = backlog + exclusive`.
///
/// ```text
///   receive(sequence, backlog) --> [ free | in use ] --> recycle
///          ^                          | gained
///   sender | <---- announcement: take_unannounced
/// ```
#[derive(Clone, Debug)]
pub struct ReceiverChannel {
    id: ChannelId,
    account: CreditAccount,
    /// Credits that the sender was not told of.
    unannounced: u32,
    /// The number of the next message.
    sequence: u32,
    /// Whether the sender waits for [`resume`](Self::resume).
    is_blocked: bool,
    state: Result<(), ChannelError>,
}

/// Why a channel takes no more messages. Other channels go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// The channel was released.
    Released(ChannelId),
    /// The sender used a credit that it did not have.
    NoCredit(ChannelId),
    /// A message was lost or came twice.
    SequenceGap {
        /// The channel.
        channel: ChannelId,
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
    pub fn new(id: ChannelId, exclusive: u32, limit: u32) -> Self {
        let mut account = CreditAccount::new(exclusive, limit.max(exclusive));
        account.set_required(exclusive);
        Self { id, account, unannounced: 0, sequence: 0, is_blocked: false, state: Ok(()) }
    }

    /// Returns the credits that the sender begins with.
    pub const fn initial_credit(&self) -> u32 {
        self.account.exclusive()
    }

    /// Returns the credits that are held and not in use.
    pub const fn available(&self) -> u32 {
        self.account.free()
    }

    /// Returns the credits in use.
    pub const fn in_use(&self) -> u32 {
        self.account.in_use()
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

    /// Takes a message that uses a credit and tells what waits behind it.
    ///
    /// # Errors
    ///
    /// [`ChannelError`]: of this message or an earlier one.
    pub fn receive(
        &mut self,
        sequence: u32,
        backlog: u32,
        pool: &mut FloatingPool,
    ) -> Result<Notify, ChannelError> {
        self.check_sequence(sequence)?;
        if !self.account.take_free() {
            self.state = Err(ChannelError::NoCredit(self.id));
            self.state?;
        }
        self.set_backlog(backlog, pool)
    }

    /// Takes a message that uses no credit: an event, or one without content.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_free(&mut self, sequence: u32) -> Result<(), ChannelError> {
        self.check_sequence(sequence)
    }

    fn check_sequence(&mut self, found: u32) -> Result<(), ChannelError> {
        self.state?;
        let expected = self.sequence;
        if found != expected {
            self.state = Err(ChannelError::SequenceGap { channel: self.id, expected, found });
        }
        self.sequence = expected.wrapping_add(1);
        self.state
    }

    /// Learns what waits at the sender.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn set_backlog(
        &mut self,
        backlog: u32,
        pool: &mut FloatingPool,
    ) -> Result<Notify, ChannelError> {
        self.state?;
        self.account.set_required(backlog.saturating_add(self.account.exclusive()));
        Ok(self.replenish(pool))
    }

    /// Ends the use of a credit.
    ///
    /// [`FloatingPool::grant`] follows until nobody is served, and then
    /// [`replenish`](Self::replenish): whoever waits goes first.
    pub fn recycle(&mut self, pool: &mut FloatingPool) -> Notify {
        if self.account.in_use() == 0 {
            // It was released while the credit was in use.
            return Notify::No;
        }
        let is_kept = !self.account.recycle(pool);
        self.gain(u32::from(is_kept))
    }

    /// Asks the pool for what is missing, and gets in line for the rest.
    pub fn replenish(&mut self, pool: &mut FloatingPool) -> Notify {
        if self.state.is_err() || (self.is_blocked && self.account.exclusive() == 0) {
            return Notify::No;
        }
        let granted = self.account.replenish(self.id, pool);
        self.account.stop_waiting(pool);
        self.gain(granted)
    }

    /// Takes the credit that the pool granted.
    pub fn accept_grant(&mut self, pool: &mut FloatingPool) -> Notify {
        let gained = u32::from(self.account.accept_grant(pool));
        let more = self.account.replenish(self.id, pool);
        self.gain(gained + more)
    }

    fn gain(&mut self, credits: u32) -> Notify {
        let is_first = self.unannounced == 0 && credits > 0;
        self.unannounced = self.unannounced.saturating_add(credits);
        if is_first { Notify::Yes } else { Notify::No }
    }

    /// Takes all that the sender has to be told, in one sum; a failed channel tells nothing.
    pub fn take_unannounced(&mut self) -> u32 {
        let credits = std::mem::take(&mut self.unannounced);
        if self.state.is_ok() { credits } else { 0 }
    }

    /// Notes that the sender sends nothing until it is resumed.
    ///
    /// A channel without exclusive credits gives its floating ones back: their
    /// sender forgets its credit, too.
    pub fn block(&mut self, pool: &mut FloatingPool) {
        self.is_blocked = true;
        if self.account.exclusive() == 0 {
            self.account.give_back_free(pool);
            self.unannounced = 0;
        }
    }

    /// Lets the sender go on.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Released`], or what the channel failed with.
    pub fn resume(&mut self, pool: &mut FloatingPool) -> Result<Notify, ChannelError> {
        self.state?;
        self.is_blocked = false;
        Ok(self.replenish(pool))
    }

    /// Gives all credits back and takes no more messages. Idempotent.
    pub fn release(&mut self, pool: &mut FloatingPool) {
        self.account.release(pool);
        self.unannounced = 0;
        self.state = Err(ChannelError::Released(self.id));
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

/// Whether the wire is to be told that a channel has credit to announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the sender waits for it"]
pub enum Notify {
    /// The channel had nothing to announce before.
    Yes,
    /// There is nothing new, or the wire knows already.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(exclusive: u32) -> ReceiverChannel {
        ReceiverChannel::new(ChannelId(3), exclusive, 10)
    }

    #[test]
    fn credit_accumulates_and_the_wire_is_told_once() {
        let mut pool = FloatingPool::new(8, 0);
        let mut channel = channel(2);

        assert_eq!(channel.receive(0, 1, &mut pool), Ok(Notify::Yes));
        assert_eq!(channel.receive(1, 2, &mut pool), Ok(Notify::No));

        // Each time until backlog + 2 credits were available; the messages used two.
        assert_eq!(channel.take_unannounced(), 4);
        assert_eq!((channel.available(), channel.required()), (4, 4));
        assert_eq!(channel.take_unannounced(), 0);
    }

    #[test]
    fn data_without_credit_fails_the_channel_and_no_other() {
        let mut pool = FloatingPool::new(0, 0);
        let (mut bad, mut good) = (channel(0), channel(1));

        let error = bad.receive(0, 0, &mut pool).unwrap_err();

        assert_eq!(error.to_string(), "channel `3` has no credit available for what was sent");
        assert_eq!(bad.check(), Err(error));
        assert_eq!(good.receive(0, 0, &mut pool), Ok(Notify::No));
    }

    #[test]
    fn a_gap_in_the_sequence_is_told_by_every_later_call() {
        let mut pool = FloatingPool::new(0, 0);
        let mut channel = channel(2);
        channel.receive_free(0).unwrap();

        let gap = channel.receive(2, 0, &mut pool).unwrap_err();

        assert_eq!(gap.to_string(), "channel `3` got message `2` instead of `1`");
        assert_eq!(channel.set_backlog(1, &mut pool), Err(gap));
        assert_eq!(channel.resume(&mut pool), Err(gap));
    }

    #[test]
    fn blocking_a_channel_without_credit_of_its_own_gives_its_floating_credit_back() {
        let mut pool = FloatingPool::new(4, 0);
        let (mut needy, mut rich) = (channel(0), channel(1));
        for channel in [&mut needy, &mut rich] {
            let _ = channel.set_backlog(2, &mut pool);
            channel.block(&mut pool);
        }

        assert_eq!((needy.available(), needy.unannounced()), (0, 0));
        assert_eq!((rich.available(), rich.unannounced()), (3, 2));
        let _ = needy.set_backlog(3, &mut pool);
        assert_eq!(needy.available(), 0, "it is still blocked");
        assert_eq!(needy.resume(&mut pool), Ok(Notify::Yes));
        assert_eq!(needy.take_unannounced(), 2, "no old credit is sent");
    }

    #[test]
    fn a_released_channel_refuses_to_resume_and_announces_nothing() {
        let mut pool = FloatingPool::new(4, 0);
        let mut channel = channel(1);
        let _ = channel.set_backlog(2, &mut pool);

        channel.release(&mut pool);

        assert_eq!(channel.resume(&mut pool).unwrap_err().to_string(), "channel `3` was released");
        assert_eq!((channel.take_unannounced(), pool.lent()), (0, 0));
        assert_eq!(channel.recycle(&mut pool), Notify::No);
    }
}
