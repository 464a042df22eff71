// SPDX-License-Identifier: Apache-2.0
//! The credits that channels share.

use super::ChannelId;
use super::listeners::{ListenerId, Listeners};

/// Lends credits to the channels that have more waiting than their own credits cover.
///
/// Counterpart of Flink's `LocalBufferPool`, without its overdraft, and of the
/// listeners of its `BufferManager`s. A credit that comes back goes to the
/// channel that has waited longest, one credit at a time: k credits over k
/// waiting channels are one for each.
///
/// ```text
///   lent <= size                            made smaller: size < lent
///   [ a a b c . . . ]                       [ a a b c | c d d ]
///             ^ free                                    ^ come back first
/// ```
///
/// Invariant: while a credit is free nobody waits. It holds after every method
/// but [`recycle`](Self::recycle) and [`unregister`](Self::unregister), after
/// which [`grant`](Self::grant) is called until it returns `None`.
#[derive(Debug)]
pub struct FloatingPool {
    /// Credits that may be lent.
    size: u32,
    /// Credits that channels hold.
    lent: u32,
    listeners: Listeners,
}

impl FloatingPool {
    /// Makes a pool of `size` credits.
    pub const fn new(size: u32) -> Self {
        Self { size, lent: 0, listeners: Listeners::new() }
    }

    /// Returns how many credits may be lent.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns how many credits are lent.
    pub const fn lent(&self) -> u32 {
        self.lent
    }

    /// Returns how many credits could be lent now.
    pub const fn free(&self) -> u32 {
        self.size.saturating_sub(self.lent)
    }

    /// Returns how many channels wait.
    pub const fn waiting(&self) -> usize {
        self.listeners.len()
    }

    /// Returns whether channels wait.
    #[inline]
    pub const fn has_waiting(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Lends one credit; returns false when all are lent.
    #[inline]
    pub fn request(&mut self) -> bool {
        if self.lent >= self.size {
            return false;
        }
        self.lent += 1;
        true
    }

    /// Lends up to `wanted` credits and returns how many.
    pub fn request_up_to(&mut self, wanted: u32) -> u32 {
        let granted = wanted.min(self.free());
        self.lent += granted;
        granted
    }

    /// Takes one credit back.
    #[inline]
    pub fn recycle(&mut self) {
        debug_assert!(self.lent > 0, "a credit came back that was not lent");
        self.lent = self.lent.saturating_sub(1);
    }

    /// Takes `credits` back.
    pub fn recycle_many(&mut self, credits: u32) {
        debug_assert!(self.lent >= credits, "more credits came back than were lent");
        self.lent = self.lent.saturating_sub(credits);
    }

    /// Lends a free credit to the channel that has waited longest, which waits no longer.
    #[inline]
    pub fn grant(&mut self) -> Option<ChannelId> {
        if self.lent >= self.size || self.listeners.is_empty() {
            return None;
        }
        self.lent += 1;
        self.listeners.pop()
    }

    /// Puts `channel` in line. It must not stand there yet.
    pub fn register(&mut self, channel: ChannelId) -> ListenerId {
        self.listeners.push(channel)
    }

    /// Takes a channel out of line that waits no longer.
    pub fn unregister(&mut self, listener: ListenerId) {
        self.listeners.remove(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_credits_go_to_the_waiting_channels_one_each() {
        let mut pool = FloatingPool::new(3);
        assert_eq!(pool.request_up_to(10), 3);
        for channel in 0..3 {
            pool.register(ChannelId(channel));
        }

        pool.recycle_many(3);
        let served: Vec<_> = std::iter::from_fn(|| pool.grant()).collect();

        assert_eq!(served, [ChannelId(0), ChannelId(1), ChannelId(2)]);
        assert_eq!((pool.lent(), pool.waiting()), (3, 0));
    }

    #[test]
    fn the_largest_size_does_not_overflow() {
        let mut pool = FloatingPool::new(u32::MAX);

        assert_eq!(pool.request_up_to(u32::MAX), u32::MAX);
        assert!(!pool.request());
        pool.recycle_many(u32::MAX);

        assert_eq!(pool.free(), u32::MAX);
    }
}
