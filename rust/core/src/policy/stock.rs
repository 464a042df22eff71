// SPDX-License-Identifier: Apache-2.0
//! Permits that no time brings: a budget, or calls at a time.

use std::num::NonZeroU64;

use super::ledger::{Answer, Spent};
use crate::time::ProcessingTime;

/// Permits that are there from the beginning.
///
/// Its state is two numbers, what was spent and what calls in flight hold, because a call that ends may
/// give permits back: a budget those that it was charged too much, calls at a time all.
///
/// ```text
///   spent        in flight       left
///   |-----------|---------------|-------------------|
///   0                                            permits
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    permits: u64,
    spent: u64,
    in_flight: u64,
    /// Whether all of a call's permits come back at its end.
    comes_back: bool,
}

impl Stock {
    /// Makes a budget of so many permits in all.
    pub const fn budget(permits: NonZeroU64) -> Self {
        Self { permits: permits.get(), spent: 0, in_flight: 0, comes_back: false }
    }

    /// Makes permits that calls hold while they are in flight.
    pub const fn at_a_time(permits: NonZeroU64) -> Self {
        Self { comes_back: true, ..Self::budget(permits) }
    }

    /// Returns what is left; nothing if calls have cost more than there was.
    pub const fn left(&self) -> u64 {
        self.permits.saturating_sub(self.spent).saturating_sub(self.in_flight)
    }

    /// Returns what a call takes: of permits that come back no more than there are.
    fn taken(&self, cost: u64) -> u64 {
        if self.comes_back { cost.min(self.permits) } else { cost }
    }

    /// Says whether a call that costs as much may start now, and takes nothing.
    pub fn look(&self, cost: u64, now: ProcessingTime) -> Answer {
        if self.taken(cost) <= self.left() {
            Answer::Ticket(now)
        } else if self.in_flight > 0 {
            Answer::OnSettle
        } else {
            Answer::Never(Spent { limit: 0, total: self.permits, left: self.left(), cost })
        }
    }

    /// Does so, and takes what it costs if it may.
    pub fn ask(&mut self, cost: u64, now: ProcessingTime) -> Answer {
        let answer = self.look(cost, now);
        if matches!(answer, Answer::Ticket(_)) {
            self.take(cost);
        }
        answer
    }

    /// Takes what a call costs that starts.
    pub fn take(&mut self, cost: u64) {
        self.in_flight = self.in_flight.saturating_add(self.taken(cost));
    }

    /// Settles a call that was charged `charged` and cost `actual`.
    pub fn settle(&mut self, charged: u64, actual: u64) {
        self.in_flight = self.in_flight.saturating_sub(self.taken(charged));
        if !self.comes_back {
            self.spent = self.spent.saturating_add(actual);
        }
    }

    /// Sets right what a call in flight was charged.
    pub fn recharge(&mut self, charged: u64, anew: u64) {
        self.in_flight = self.in_flight.saturating_sub(self.taken(charged));
        self.take(anew);
    }

    /// Returns how many calls may start now that cost as much.
    pub fn calls(&self, cost: u64) -> u64 {
        self.left().checked_div(self.taken(cost)).unwrap_or(u64::MAX)
    }

    /// Returns whether nothing of it was taken.
    pub const fn is_full(&self) -> bool {
        self.spent == 0 && self.in_flight == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ProcessingTime = ProcessingTime::ZERO;

    fn permits(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    #[test]
    fn a_budget_never_lets_a_call_start_only_when_nothing_of_it_is_in_flight() {
        let mut budget = Stock::budget(permits(13));
        assert_eq!(budget.ask(7, NOW), Answer::Ticket(NOW));
        assert_eq!(budget.ask(5, NOW), Answer::Ticket(NOW));
        assert_eq!((budget.ask(3, NOW), budget.left()), (Answer::OnSettle, 1));
        // It was not sent, so its permits are there again.
        budget.settle(5, 0);
        assert_eq!((budget.ask(3, NOW), budget.left()), (Answer::Ticket(NOW), 3));
        budget.settle(3, 3);
        budget.settle(7, 11);
        assert_eq!((budget.left(), budget.calls(1)), (0, 0));
        let spent = Spent { limit: 0, total: 13, left: 0, cost: 1 };
        assert_eq!(budget.ask(1, NOW), Answer::Never(spent));
        assert_eq!(budget.ask(0, NOW), Answer::Ticket(NOW));
    }

    #[test]
    fn what_a_cheap_call_leaves_a_dear_one_may_still_not_take() {
        let mut budget = Stock::budget(permits(7));
        budget.take(5);
        budget.settle(5, 4);
        let spent = Spent { limit: 0, total: 7, left: 3, cost: 5 };
        assert_eq!(budget.ask(5, NOW), Answer::Never(spent));
        assert_eq!((budget.ask(3, NOW), budget.calls(1)), (Answer::Ticket(NOW), 0));
    }

    #[test]
    fn calls_at_a_time_come_back_whole_whatever_they_cost() {
        let mut calls = Stock::at_a_time(permits(3));
        assert_eq!(calls.ask(2, NOW), Answer::Ticket(NOW));
        assert_eq!((calls.ask(2, NOW), calls.calls(1)), (Answer::OnSettle, 1));
        calls.settle(2, 200);
        // One that needs more than there are has all, alone.
        assert_eq!(calls.ask(7, NOW), Answer::Ticket(NOW));
        assert_eq!(calls.ask(1, NOW), Answer::OnSettle);
        calls.settle(7, 0);
        assert!(calls.is_full());
    }

    #[test]
    fn a_request_that_another_call_pays_for_leaves_what_is_in_flight_right() {
        let mut budget = Stock::budget(permits(10));
        budget.take(4);
        budget.recharge(4, 9);
        assert_eq!((budget.left(), budget.is_full()), (1, false));
        budget.recharge(9, 0);
        budget.settle(0, 0);
        assert!(budget.is_full());
    }
}
