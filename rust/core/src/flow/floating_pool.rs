// SPDX-License-Identifier: Apache-2.0
//! The credits that channels share.

use super::ChannelId;
use super::listeners::{ListenerId, Listeners};

/// Lends credits to the channels that have more waiting than their own credits cover.
///
/// Counterpart of Flink's `LocalBufferPool`, with its overdraft, and of the
/// listeners of its `BufferManager`s. A credit that comes back goes to the
/// channel that has waited longest, one credit at a time: k credits over k
/// waiting channels are one for each.
///
/// ```text
///            lent <= size: available          size < lent <= size + overdraft: not available
///   [ a a b c . . . ]                       [ a a b c c d d | d ]
///             ^ free                                          ^ is paid back first
/// ```
///
/// Invariant: while a credit is free nobody waits. It holds after every method
/// but [`recycle`](Self::recycle), [`resize`](Self::resize) and
/// [`unregister`](Self::unregister), after which [`grant`](Self::grant) is
/// called until it returns `None`.
#[derive(Debug)]
pub struct FloatingPool {
    /// Credits that may be lent without an overdraft.
    size: u32,
    /// Credits that channels hold.
    lent: u32,
    /// Credits that may be lent beyond `size`.
    overdraft: u32,
    listeners: Listeners,
}

impl FloatingPool {
    /// Makes a pool of `size` credits, and up to `overdraft` beyond.
    pub const fn new(size: u32, overdraft: u32) -> Self {
        Self { size, lent: 0, overdraft, listeners: Listeners::new() }
    }

    /// Returns how many credits may be lent without an overdraft.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns how many credits are lent, overdrawn ones included.
    pub const fn lent(&self) -> u32 {
        self.lent
    }

    /// Returns how many credits could be lent now.
    pub const fn free(&self) -> u32 {
        self.size.saturating_sub(self.lent)
    }

    /// Returns how many credits are lent beyond the size.
    pub const fn overdrawn(&self) -> u32 {
        self.lent.saturating_sub(self.size)
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

    /// Returns whether nobody waits and nothing is overdrawn: a returned credit would stay here.
    #[inline]
    pub const fn is_uncontended(&self) -> bool {
        self.listeners.is_empty() && self.lent <= self.size
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

    /// Lends one credit even though all are lent, within the overdraft.
    ///
    /// For work that was let in while the pool was available and turns out to
    /// need more than one credit: finishing it is better than holding it.
    pub fn request_overdraft(&mut self) -> bool {
        let is_permitted = self.lent < self.size.saturating_add(self.overdraft);
        self.lent += u32::from(is_permitted);
        is_permitted
    }

    /// Takes one credit back; an overdraft is paid with it.
    #[inline]
    pub fn recycle(&mut self) {
        debug_assert!(self.lent > 0, "a credit came back that was not lent");
        self.lent = self.lent.saturating_sub(1);
    }

    /// Takes `credits` back; an overdraft is paid with them.
    pub fn recycle_many(&mut self, credits: u32) {
        debug_assert!(self.lent >= credits, "more credits came back than were lent");
        self.lent = self.lent.saturating_sub(credits);
    }

    /// Changes the size. A smaller one takes effect as credits come back.
    pub fn resize(&mut self, size: u32) {
        self.size = size;
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
        let mut pool = FloatingPool::new(3, 0);
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
    fn an_overdraft_needs_a_used_up_pool_is_bounded_and_is_paid_back_first() {
        let mut pool = FloatingPool::new(1, 2);
        assert!(pool.request() && !pool.request());
        assert!(pool.request_overdraft() && pool.request_overdraft());
        assert!(!pool.request_overdraft());
        pool.register(ChannelId(7));

        pool.recycle();
        assert_eq!((pool.overdrawn(), pool.grant()), (1, None));
        pool.recycle();
        assert_eq!((pool.overdrawn(), pool.grant()), (0, None));
        pool.recycle();

        assert_eq!(pool.grant(), Some(ChannelId(7)));
    }

    #[test]
    fn a_smaller_pool_is_unavailable_until_the_surplus_came_back() {
        let mut pool = FloatingPool::new(4, 0);
        pool.request_up_to(4);

        pool.resize(2);
        assert!(!pool.is_uncontended());
        pool.recycle_many(2);

        assert_eq!((pool.free(), pool.request()), (0, false));
        assert!(pool.is_uncontended());
    }

    #[test]
    fn a_larger_pool_serves_those_who_wait() {
        let mut pool = FloatingPool::new(0, 0);
        pool.register(ChannelId(0));
        pool.register(ChannelId(1));

        pool.resize(1);

        assert_eq!((pool.grant(), pool.grant()), (Some(ChannelId(0)), None));
        assert_eq!(pool.waiting(), 1);
    }

    #[test]
    fn the_largest_size_and_overdraft_do_not_overflow() {
        let mut pool = FloatingPool::new(u32::MAX, u32::MAX);

        assert_eq!(pool.request_up_to(u32::MAX), u32::MAX);
        assert!(!pool.request() && !pool.request_overdraft());
        pool.recycle_many(u32::MAX);

        assert_eq!(pool.free(), u32::MAX);
    }
}
