// SPDX-License-Identifier: Apache-2.0
//! All channels of a receiver, with the pool that they share.

use std::collections::VecDeque;

use super::channel_key::Use;
use super::floating_pool::FloatingPool;
use super::receiver_channel::{ChannelError, Notify, ReceiverChannel};
use super::{ChannelId, ChannelKey};
use crate::slab::{Generation, Slab};

/// Receives from many senders over one wire, and gives each its credit.
///
/// Counterpart of Flink's `SingleInputGate` with its `BufferPool`. What is to
/// be announced waits until the wire asks: one channel at a time, each with all
/// its credit in one sum.
#[derive(Debug)]
pub struct ReceiverGate {
    /// By place. A channel that was released stays as long as credits of it are in use.
    channels: Slab<ReceiverChannel, Use>,
    pool: FloatingPool,
    /// Channels with credit to announce, each once.
    to_announce: VecDeque<ChannelKey>,
}

impl ReceiverGate {
    /// Makes a gate without channels whose pool has `floating` credits.
    pub fn new(floating: u32) -> Self {
        let (channels, to_announce) = (Slab::new(), VecDeque::new());
        Self { channels, pool: FloatingPool::new(floating), to_announce }
    }

    /// Returns the pool.
    pub const fn pool(&self) -> &FloatingPool {
        &self.pool
    }

    /// Returns a channel that was not released, or has credits in use.
    pub fn channel(&self, channel: ChannelKey) -> Option<&ReceiverChannel> {
        self.channels.get(channel)
    }

    /// Returns what the next channel will be called. The place of one that is over is free when all that
    /// it has received is recycled.
    pub fn next_channel(&self) -> ChannelKey {
        self.channels.next_handle()
    }

    /// Adds a channel with `exclusive` credits of its own and at most `limit` in all. What waits at a
    /// sender is told by what it sends, so it needs one at least.
    pub fn open(&mut self, exclusive: u32, limit: u32) -> ChannelKey {
        let key = self.next_channel();
        self.channels.insert(ReceiverChannel::new(key, exclusive, limit));
        key
    }

    /// Takes a message that uses `cost` credits, none if it is an event; `backlog` is what waits
    /// behind it, in credits.
    ///
    /// # Errors
    ///
    /// [`ChannelError`], of this channel only unless it is [`ChannelError::Unknown`].
    pub fn receive(
        &mut self,
        channel: ChannelKey,
        sequence: u32,
        cost: u32,
        backlog: u32,
    ) -> Result<(), ChannelError> {
        let received = self.change(channel, |it, pool| it.receive(sequence, cost, backlog, pool));
        if received.is_err() {
            self.serve();
        }
        received
    }

    /// Ends the use of `credits`. Those who wait for some are served.
    pub fn recycle(&mut self, channel: ChannelKey, credits: u32) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "nothing is in use of a channel that is not here"
        )]
        let _ = self.change(channel, |it, pool| Ok(it.recycle(credits, pool)));
        self.serve();
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a channel that is not here has nothing to give back"
        )]
        let _ = self.change(channel, |it, pool| Ok(it.replenish(pool)));
        self.forget_released(channel);
    }

    /// Gives all credits of a channel back, those in use when that ends. Idempotent.
    pub fn release(&mut self, channel: ChannelKey) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a channel that is not here has nothing to give back"
        )]
        let _ = self.change(channel, |it, pool| {
            it.release(pool);
            Ok(Notify::No)
        });
        self.serve();
        self.forget_released(channel);
    }

    /// Takes the credit that one channel has to announce. The wire asks while it can be written.
    pub fn poll_announcement(&mut self) -> Option<(ChannelKey, u32)> {
        while let Some(key) = self.to_announce.pop_front() {
            let channel = self.channels.get_mut(key);
            let credits = channel.map_or(0, ReceiverChannel::take_unannounced);
            if credits > 0 {
                return Some((key, credits));
            }
        }
        None
    }

    /// Returns whether a channel has credit to announce.
    pub fn has_announcement(&self) -> bool {
        !self.to_announce.is_empty()
    }

    /// Hands free credits to those who wait.
    fn serve(&mut self) {
        while let Some(ChannelId(index)) = self.pool.grant() {
            let key = self.channels.generation(index).map(|it| it.handle(index));
            let mut serve = |key| self.change(key, |it, pool| Ok(it.accept_grant(pool))).is_ok();
            if !key.is_some_and(&mut serve) {
                debug_assert!(false, "{index} waits although it was released");
            }
        }
    }

    /// Lets another channel have the place of one that was released and has no credit in use.
    fn forget_released(&mut self, key: ChannelKey) {
        let channel = self.channels.get(key);
        let is_over = |it: &ReceiverChannel| {
            matches!(it.check(), Err(ChannelError::Released(_))) && it.in_use() == 0
        };
        if channel.is_some_and(is_over) {
            self.channels.remove(key.index);
        }
    }

    fn change(
        &mut self,
        key: ChannelKey,
        change: impl FnOnce(&mut ReceiverChannel, &mut FloatingPool) -> Result<Notify, ChannelError>,
    ) -> Result<(), ChannelError> {
        let next = self.channels.generation(key.index);
        let Some(channel) = self.channels.get_mut(key) else {
            let was_here = next.is_some_and(|next| Use(key.generation) < next);
            return Err(if was_here {
                ChannelError::Released(key)
            } else {
                ChannelError::Unknown(key)
            });
        };
        if change(channel, &mut self.pool)? == Notify::Yes {
            self.to_announce.push_back(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(gate: &mut ReceiverGate) -> Vec<(ChannelKey, u32)> {
        std::iter::from_fn(|| gate.poll_announcement()).collect()
    }

    #[test]
    fn freed_credits_are_spread_over_the_channels_that_wait() {
        let mut gate = ReceiverGate::new(3);
        let busy = gate.open(0, 10);
        let waiting: Vec<_> = (0..3).map(|_| gate.open(0, 10)).collect();
        gate.receive(busy, 0, 0, 3).unwrap();
        for sequence in 1..4 {
            gate.receive(busy, sequence, 1, 0).unwrap();
        }
        for &channel in &waiting {
            gate.receive(channel, 0, 0, 3).unwrap();
        }
        while gate.poll_announcement().is_some() {}

        gate.recycle(busy, 3);

        let expected = waiting.into_iter().map(|it| (it, 1)).collect::<Vec<_>>();
        assert_eq!(announced(&mut gate), expected);
    }

    #[test]
    fn a_released_channel_announces_nothing_and_serves_the_others() {
        let mut gate = ReceiverGate::new(2);
        let (gone, left) = (gate.open(1, 10), gate.open(0, 10));
        gate.receive(gone, 0, 0, 5).unwrap();
        gate.receive(left, 0, 0, 5).unwrap();

        gate.release(gone);
        gate.release(gone);

        assert_eq!(announced(&mut gate), [(left, 2)]);
        assert_eq!(gate.receive(gone, 1, 0, 1), Err(ChannelError::Released(gone)));
    }

    #[test]
    fn a_channel_that_failed_holds_up_no_other() {
        let mut gate = ReceiverGate::new(3);
        let (bad, other) = (gate.open(0, 10), gate.open(0, 10));
        gate.receive(bad, 0, 0, 5).unwrap();
        gate.receive(bad, 1, 1, 4).unwrap();
        gate.receive(other, 0, 0, 5).unwrap();
        announced(&mut gate);

        assert!(gate.receive(bad, 7, 1, 4).is_err());

        assert_eq!(announced(&mut gate), [(other, 2)], "what was free");
        gate.recycle(bad, 1);
        assert_eq!(gate.channel(other).map(ReceiverChannel::available), Some(3), "what was in use");
        assert_eq!(gate.pool().waiting(), 1, "it has left the line, `other` wants two more");
    }

    #[test]
    fn credits_in_use_come_back_when_their_use_ends() {
        let mut gate = ReceiverGate::new(2);
        let (gone, other) = (gate.open(0, 10), gate.open(0, 10));
        gate.receive(gone, 0, 0, 2).unwrap();
        gate.receive(gone, 1, 1, 1).unwrap();
        gate.receive(gone, 2, 1, 0).unwrap();
        gate.receive(other, 0, 0, 2).unwrap();
        announced(&mut gate);

        gate.release(gone);
        assert_eq!((announced(&mut gate), gate.pool().lent()), (vec![], 2));
        gate.recycle(gone, 1);
        assert_eq!(announced(&mut gate), [(other, 1)]);
        gate.recycle(gone, 1);
        gate.recycle(gone, 1);

        assert_eq!((announced(&mut gate), gate.pool().lent()), (vec![(other, 1)], 2));
        assert_eq!(gate.channel(gone).map(ReceiverChannel::in_use), None);
    }

    #[test]
    fn old_news_of_a_channel_does_not_reach_the_next_one_at_its_place() {
        let mut gate = ReceiverGate::new(2);
        let old = gate.open(1, 10);
        gate.release(old);

        let new = gate.open(1, 10);

        assert_eq!(new, ChannelKey { index: old.index, generation: old.generation + 1 });
        assert_eq!(gate.receive(old, 5, 1, 3), Err(ChannelError::Released(old)));
        assert_eq!(gate.receive(new, 0, 1, 3), Ok(()));
    }

    #[test]
    fn a_channel_that_never_was_is_told_from_one_that_is_gone() {
        let mut gate = ReceiverGate::new(0);
        let here = gate.open(1, 1);

        for wrong in [ChannelKey { index: 9, ..here }, ChannelKey { generation: 1, ..here }] {
            assert_eq!(gate.receive(wrong, 0, 0, 1), Err(ChannelError::Unknown(wrong)));
        }
    }
}
