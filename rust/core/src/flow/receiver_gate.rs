// SPDX-License-Identifier: Apache-2.0
//! All channels of a receiver, with the pool that they share.

use std::collections::VecDeque;

use super::ChannelId;
use super::floating_pool::FloatingPool;
use super::receiver_channel::{ChannelError, Notify, ReceiverChannel};
use crate::slab::Slab;

/// Receives from many senders over one wire, and gives each its credit.
///
/// Counterpart of Flink's `SingleInputGate` with its `BufferPool`. What is to
/// be announced waits until the wire asks: one channel at a time, each with all
/// its credit in one sum.
#[derive(Debug)]
pub struct ReceiverGate {
    /// By number.
    channels: Slab<ReceiverChannel>,
    pool: FloatingPool,
    /// Channels with credit to announce, each once.
    to_announce: VecDeque<ChannelId>,
}

impl ReceiverGate {
    /// Makes a gate without channels whose pool has `floating` credits.
    pub fn new(floating: u32) -> Self {
        let (channels, to_announce) = (Slab::new(), VecDeque::new());
        Self { channels, pool: FloatingPool::new(floating, 0), to_announce }
    }

    /// Returns the pool.
    pub const fn pool(&self) -> &FloatingPool {
        &self.pool
    }

    /// Returns a channel that was not released.
    pub fn channel(&self, channel: ChannelId) -> Option<&ReceiverChannel> {
        self.channels.get(channel.0)
    }

    /// Adds a channel with `exclusive` credits of its own and at most `limit` in all.
    pub fn open(&mut self, exclusive: u32, limit: u32) -> ChannelId {
        let id = ChannelId(self.channels.next_handle());
        self.channels.insert(ReceiverChannel::new(id, exclusive, limit));
        id
    }

    /// Takes a message that uses a credit.
    ///
    /// # Errors
    ///
    /// [`ChannelError`], of this channel only.
    pub fn receive(
        &mut self,
        channel: ChannelId,
        sequence: u32,
        backlog: u32,
    ) -> Result<(), ChannelError> {
        self.change(channel, |it, pool| it.receive(sequence, backlog, pool))
    }

    /// Takes a message that uses no credit.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_free(&mut self, channel: ChannelId, sequence: u32) -> Result<(), ChannelError> {
        self.change(channel, |it, _| it.receive_free(sequence).map(|()| Notify::No))
    }

    /// Takes the announcement of a backlog.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn set_backlog(&mut self, channel: ChannelId, backlog: u32) -> Result<(), ChannelError> {
        self.change(channel, |it, pool| it.set_backlog(backlog, pool))
    }

    /// Lets a blocked sender go on.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn resume(&mut self, channel: ChannelId) -> Result<(), ChannelError> {
        self.change(channel, ReceiverChannel::resume)
    }

    /// Notes that a sender waits to be resumed.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn block(&mut self, channel: ChannelId) -> Result<(), ChannelError> {
        self.change(channel, |it, pool| {
            it.block(pool);
            Ok(Notify::No)
        })?;
        self.serve();
        Ok(())
    }

    /// Ends the use of a credit. Those who wait for one are served.
    pub fn recycle(&mut self, channel: ChannelId) {
        // Without the channel the credit went back when it was released.
        let _ = self.change(channel, |it, pool| Ok(it.recycle(pool)));
        self.serve();
        let _ = self.change(channel, |it, pool| Ok(it.replenish(pool)));
    }

    /// Gives all credits of a channel back. Idempotent.
    pub fn release(&mut self, channel: ChannelId) {
        let Some((mut released, _)) = self.channels.remove(channel.0) else { return };
        released.release(&mut self.pool);
        self.serve();
    }

    /// Changes the number of floating credits.
    pub fn resize(&mut self, floating: u32) {
        self.pool.resize(floating);
        self.serve();
    }

    /// Takes the credit that one channel has to announce. The wire asks while it can be written.
    pub fn poll_announcement(&mut self) -> Option<(ChannelId, u32)> {
        while let Some(id) = self.to_announce.pop_front() {
            let channel = self.channels.get_mut(id.0);
            let credits = channel.map_or(0, ReceiverChannel::take_unannounced);
            if credits > 0 {
                return Some((id, credits));
            }
        }
        None
    }

    /// Hands free credits to those who wait.
    fn serve(&mut self) {
        while let Some(id) = self.pool.grant() {
            let served = self.change(id, |it, pool| Ok(it.accept_grant(pool)));
            debug_assert!(served.is_ok(), "{id:?} waits although it was released");
        }
    }

    fn change(
        &mut self,
        id: ChannelId,
        change: impl FnOnce(&mut ReceiverChannel, &mut FloatingPool) -> Result<Notify, ChannelError>,
    ) -> Result<(), ChannelError> {
        let channel = self.channels.get_mut(id.0);
        let channel = channel.ok_or(ChannelError::Released(id))?;
        if change(channel, &mut self.pool)? == Notify::Yes {
            self.to_announce.push_back(id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_credits_are_spread_over_the_channels_that_wait() {
        let mut gate = ReceiverGate::new(3);
        let busy = gate.open(0, 10);
        let waiting: Vec<_> = (0..3).map(|_| gate.open(0, 10)).collect();
        gate.set_backlog(busy, 3).unwrap();
        for sequence in 0..3 {
            gate.receive(busy, sequence, 0).unwrap();
        }
        for &channel in &waiting {
            gate.set_backlog(channel, 3).unwrap();
        }
        while gate.poll_announcement().is_some() {}

        for _ in 0..3 {
            gate.recycle(busy);
        }

        let announced: Vec<_> = std::iter::from_fn(|| gate.poll_announcement()).collect();
        assert_eq!(announced, waiting.into_iter().map(|it| (it, 1)).collect::<Vec<_>>());
    }

    #[test]
    fn a_released_channel_announces_nothing_and_serves_the_others() {
        let mut gate = ReceiverGate::new(2);
        let (gone, left) = (gate.open(1, 10), gate.open(0, 10));
        gate.set_backlog(gone, 5).unwrap();
        gate.set_backlog(left, 5).unwrap();

        gate.release(gone);
        gate.release(gone);

        assert_eq!(gate.poll_announcement(), Some((left, 2)));
        assert_eq!(gate.poll_announcement(), None);
        assert_eq!(gate.set_backlog(gone, 1), Err(ChannelError::Released(gone)));
    }
}
