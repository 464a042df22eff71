// SPDX-License-Identifier: Apache-2.0
//! The credits of one channel.

use super::ChannelId;
use super::floating_pool::FloatingPool;
use super::listeners::ListenerId;

/// What one channel holds: its own credits and those that the pool lent it.
///
/// Counterpart of Flink's `BufferManager`. A credit is a permit and not a piece
/// of memory, so it does not matter which one comes back: a lent one does, as
/// long as the channel holds any, because others may need it.
///
/// ```text
///   exclusive + floating == held == free + in_use  the channel asks for floating credits
///                                                  while free < required and held < limit
/// ```
///
/// A channel that waits for nothing may also keep a credit that its call gave
/// back, see [`end_use`](Self::end_use), and is then to be asked for it with
/// [`give_back_spare`](Self::give_back_spare) when others need it. Taking and
/// keeping such credits changes one number, so that it costs nearly nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditAccount {
    /// Credits of its own.
    exclusive: u32,
    /// Credits held, its own and lent ones.
    held: u32,
    /// Credits in use: calls in flight.
    in_use: u32,
    /// Credits up to which their use may begin and end without a look at anything else.
    ceiling: u32,
    /// Most credits that may be held, and used.
    limit: u32,
    /// Credits that shall be free, for what waits.
    required: u32,
    /// Its place in the pool's line.
    listener: Option<ListenerId>,
    /// Whether nothing is to begin without a look at the channel.
    is_parked: bool,
    /// Whether no use is to begin or end without a question to the channel's policies.
    is_watched: bool,
}

impl CreditAccount {
    pub(crate) fn new(exclusive: u32, limit: u32) -> Self {
        let (held, ceiling) = (exclusive, exclusive.min(limit));
        let (in_use, required, listener) = (0, 0, None);
        let (is_parked, is_watched) = (false, false);
        Self { exclusive, held, in_use, ceiling, limit, required, listener, is_parked, is_watched }
    }

    #[inline]
    pub(crate) const fn exclusive(&self) -> u32 {
        self.exclusive
    }

    pub(crate) const fn floating(&self) -> u32 {
        self.held - self.exclusive
    }

    pub(crate) const fn free(&self) -> u32 {
        self.held - self.in_use
    }

    #[inline]
    pub(crate) const fn in_use(&self) -> u32 {
        self.in_use
    }

    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        self.listener.is_some()
    }

    /// Returns how many credits the channel holds.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Returns how many free credits the channel aims at.
    #[inline]
    pub(crate) const fn required(&self) -> u32 {
        self.required
    }

    const fn is_short(&self) -> bool {
        self.free() < self.required && self.held < self.limit
    }

    /// Computes the ceiling after any change: the least of these caps.
    ///
    /// One number instead of five questions: each record asks for it twice, and each of its causes
    /// changes rarely. It is computed here and nowhere else.
    fn settle(&mut self) {
        let none_if = |it: bool| if it { 0 } else { u32::MAX };
        let of_those_that_wait = none_if(self.required > 0);
        let of_a_parked_channel = none_if(self.is_parked);
        let of_policies = none_if(self.is_watched);
        let caps = of_those_that_wait.min(of_a_parked_channel).min(of_policies);
        self.ceiling = self.held.min(self.limit).min(caps);
    }

    /// Uses a credit that is held, if nothing waits for one; false says nothing.
    #[inline]
    pub(crate) fn use_spare(&mut self) -> bool {
        if self.in_use >= self.ceiling {
            return false;
        }
        self.in_use += 1;
        true
    }

    /// Ends the use of a credit that the channel keeps; false if it is not to keep it.
    ///
    /// It keeps any if nothing waits and it holds no more than its limit.
    #[inline]
    pub(crate) fn end_use(&mut self) -> bool {
        let in_use = self.in_use.wrapping_sub(1);
        if in_use >= self.ceiling {
            return false;
        }
        self.in_use = in_use;
        true
    }

    /// Sets whether a use may begin without a look at the channel, which [`use_spare`](Self::use_spare)
    /// then refuses.
    pub(crate) fn park(&mut self, is_parked: bool) {
        self.is_parked = is_parked;
        self.settle();
    }

    /// Sets whether each use must ask the channel's policies before.
    pub(crate) fn watch(&mut self, is_watched: bool) {
        self.is_watched = is_watched;
        self.settle();
    }

    /// Uses a credit that is held.
    #[inline]
    pub(crate) fn take_free(&mut self) -> bool {
        let is_free = self.in_use < self.held.min(self.limit);
        self.in_use += u32::from(is_free);
        is_free
    }

    /// Uses a credit that is held, or one that the pool lends on the spot.
    pub(crate) fn take(&mut self, pool: &mut FloatingPool) -> bool {
        if self.take_free() {
            return true;
        }
        if self.in_use >= self.limit || !pool.request() {
            return false;
        }
        self.held += 1;
        self.in_use += 1;
        self.settle();
        true
    }

    /// Ends the use of a credit; returns whether it went to the pool.
    ///
    /// A floating one goes there if others wait for it, if the channel has
    /// enough, or holds more than its limit. [`FloatingPool::grant`] follows.
    pub(crate) fn recycle(&mut self, pool: &mut FloatingPool) -> bool {
        debug_assert!(self.in_use > 0, "a credit came back that was not in use");
        self.in_use = self.in_use.saturating_sub(1);
        let keeps = self.floating() == 0 || (self.is_short() && !pool.has_waiting());
        if keeps {
            return false;
        }
        self.held -= 1;
        self.settle();
        pool.recycle();
        true
    }

    /// Learns how many credits shall be free. Fewer than before gives nothing back at once.
    pub(crate) fn set_required(&mut self, required: u32) {
        self.required = required;
        self.settle();
    }

    /// Returns how many credits the channel is short of.
    pub(crate) const fn wanted(&self) -> u32 {
        let (lacks, may_hold) =
            (self.required.saturating_sub(self.free()), self.limit.saturating_sub(self.held));
        if lacks < may_hold { lacks } else { may_hold }
    }

    /// Asks the pool for what the channel is short of, and gets in line for the rest.
    ///
    /// Returns how many credits came.
    pub(crate) fn replenish(&mut self, channel: ChannelId, pool: &mut FloatingPool) -> u32 {
        if self.listener.is_some() || !self.is_short() {
            return 0;
        }
        let wanted = self.wanted();
        let granted = pool.request_up_to(wanted);
        self.held += granted;
        self.settle();
        if granted < wanted {
            self.listener = Some(pool.register(channel));
        }
        granted
    }

    /// Gets in line for what the channel is short of.
    pub(crate) fn wait_in_line(&mut self, channel: ChannelId, pool: &mut FloatingPool) {
        if self.listener.is_none() && self.is_short() {
            self.listener = Some(pool.register(channel));
        }
    }

    /// Takes the credit that the pool granted to the channel as the first in line.
    ///
    /// Returns false if it has no use for it any more; the pool has it back then.
    pub(crate) fn accept_grant(&mut self, pool: &mut FloatingPool) -> bool {
        self.listener = None;
        if !self.is_short() {
            pool.recycle();
            return false;
        }
        self.held += 1;
        self.settle();
        true
    }

    /// Steps out of line if nothing is needed.
    pub(crate) fn stop_waiting(&mut self, pool: &mut FloatingPool) {
        if !self.is_short() {
            self.leave_line(pool);
        }
    }

    fn leave_line(&mut self, pool: &mut FloatingPool) {
        if let Some(listener) = self.listener.take() {
            pool.unregister(listener);
        }
    }

    /// Changes the limit; floating credits beyond it go back now, or when their use ends.
    pub(crate) fn set_limit(&mut self, limit: u32, pool: &mut FloatingPool) {
        self.limit = limit;
        let surplus = self.held.saturating_sub(limit);
        self.give_back(surplus, pool);
        self.settle();
        self.stop_waiting(pool);
    }

    /// Gives the free floating credits back. Used by a channel that is not to get any data.
    pub(crate) fn give_back_free(&mut self, pool: &mut FloatingPool) -> u32 {
        self.leave_line(pool);
        self.give_back(u32::MAX, pool)
    }

    /// Gives the floating credits back that nothing here waits for.
    pub(crate) fn give_back_spare(&mut self, pool: &mut FloatingPool) -> u32 {
        self.give_back(self.free().saturating_sub(self.required), pool)
    }

    fn give_back(&mut self, at_most: u32, pool: &mut FloatingPool) -> u32 {
        let credits = at_most.min(self.floating()).min(self.free());
        self.held -= credits;
        self.settle();
        pool.recycle_many(credits);
        credits
    }

    /// Gives all free credits back and asks for none; returns those of its own among them.
    ///
    /// Credits in use come back when their use ends.
    pub(crate) fn release(&mut self, pool: &mut FloatingPool) -> u32 {
        self.required = 0;
        self.give_back_free(pool);
        let exclusive = self.exclusive.min(self.free());
        self.exclusive -= exclusive;
        self.held -= exclusive;
        self.settle();
        exclusive
    }

    /// Gives the channel `exclusive` further credits of its own.
    pub(crate) fn endow(&mut self, exclusive: u32) {
        self.exclusive += exclusive;
        self.held += exclusive;
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ChannelId = ChannelId(0);
    const OTHER: ChannelId = ChannelId(1);

    #[test]
    fn a_backlog_is_covered_by_floating_credits_up_to_the_limit() {
        let mut pool = FloatingPool::new(8);
        let mut account = CreditAccount::new(2, 6);

        account.set_required(5);
        assert_eq!(account.replenish(ID, &mut pool), 3);
        account.set_required(u32::MAX);
        assert_eq!(account.replenish(ID, &mut pool), 1);

        assert_eq!((account.held(), pool.free()), (6, 4));
        assert!(!account.is_waiting(), "more would not be accepted");
    }

    #[test]
    fn an_empty_pool_is_asked_once_and_then_listened_to() {
        let mut pool = FloatingPool::new(0);
        let mut account = CreditAccount::new(1, 9);
        account.set_required(6);

        account.replenish(ID, &mut pool);
        account.replenish(ID, &mut pool);

        assert_eq!(pool.waiting(), 1);
    }

    #[test]
    fn a_smaller_backlog_gives_nothing_back_at_once_but_one_credit_a_use() {
        let mut pool = FloatingPool::new(4);
        let mut account = CreditAccount::new(1, 9);
        account.set_required(5);
        account.replenish(ID, &mut pool);
        assert!(account.take_free());

        account.set_required(1);
        assert_eq!((account.free(), pool.lent()), (4, 4));

        assert!(account.recycle(&mut pool));
        assert_eq!((account.free(), pool.lent()), (4, 3));
    }

    #[test]
    fn a_floating_credit_goes_to_who_waits_and_the_channel_gets_in_line_again() {
        let mut pool = FloatingPool::new(1);
        let (mut account, mut other) = (CreditAccount::new(0, 9), CreditAccount::new(0, 9));
        account.set_required(2);
        account.replenish(ID, &mut pool);
        assert!(account.take_free());
        other.set_required(1);
        other.replenish(OTHER, &mut pool);

        assert!(account.recycle(&mut pool));
        assert_eq!(pool.grant(), Some(ID), "it was the first in line");
        assert!(account.accept_grant(&mut pool));
        account.set_required(1);
        assert!(account.take_free());
        account.replenish(ID, &mut pool);
        account.recycle(&mut pool);

        assert_eq!(pool.grant(), Some(OTHER));
    }

    #[test]
    fn a_lower_limit_takes_free_credits_now_and_used_ones_as_they_end() {
        let mut pool = FloatingPool::new(8);
        let mut account = CreditAccount::new(0, 8);
        account.set_required(8);
        account.replenish(ID, &mut pool);
        for _ in 0..4 {
            assert!(account.take_free());
        }

        account.set_limit(2, &mut pool);
        assert_eq!((account.free(), account.held(), pool.free()), (0, 4, 4));
        assert!(!account.take(&mut pool));
        account.recycle(&mut pool);
        account.recycle(&mut pool);

        assert_eq!((account.held(), pool.free()), (2, 6));
    }

    #[test]
    fn a_released_channel_holds_what_is_in_use_until_that_ends() {
        let mut pool = FloatingPool::new(3);
        let mut account = CreditAccount::new(2, 9);
        account.set_required(11);
        account.replenish(ID, &mut pool);
        for _ in 0..4 {
            assert!(account.take_free());
        }

        assert_eq!(account.release(&mut pool), 0);

        assert_eq!((account.held(), pool.lent(), pool.waiting()), (4, 2, 0));
        assert!(account.recycle(&mut pool) && account.recycle(&mut pool));
        assert_eq!((account.release(&mut pool), account.held(), pool.lent()), (0, 2, 0));
        assert!(!account.recycle(&mut pool) && !account.recycle(&mut pool), "they are its own");
        assert_eq!((account.release(&mut pool), account.held(), pool.lent()), (2, 0, 0));
    }
}
