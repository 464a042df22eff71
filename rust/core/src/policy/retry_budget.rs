// SPDX-License-Identifier: Apache-2.0
//! How many retries the calls of a destination earn.

use std::time::Duration;

use crate::time::ProcessingTime;

/// What one retry costs, in the unit in which calls deposit.
const RETRY: u32 = 1_000_000;

/// Parts of the time for which deposits last.
const SLOTS: usize = 10;

/// How many retries there may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetConfig {
    /// Retries for each first attempt, 0 to 1000.
    pub ratio: f64,
    /// Retries in each second that need no calls to earn them.
    pub min_per_second: u32,
    /// How long a deposit lasts; more than no time.
    pub lasts: Duration,
}

impl RetryBudgetConfig {
    /// The share of a first attempt that a retry costs, and retries that are always there.
    pub const fn new(ratio: f64, min_per_second: u32) -> Self {
        Self { ratio, min_per_second, lasts: Duration::from_secs(10) }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
    fn deposit(&self) -> u64 {
        // A float that is not a number casts to 0.
        (self.ratio.clamp(0.0, 1000.0) * f64::from(RETRY)) as u64
    }

    fn slot_nanos(&self) -> u64 {
        let nanos = u64::try_from(self.lasts.as_nanos()).unwrap_or(u64::MAX);
        (nanos / SLOTS as u64).max(1)
    }
}

/// Retries that calls have earned and that were not made yet.
///
/// A destination that fails everything then sees `1 + ratio` times the calls of
/// one that does not, instead of as many times as a record may be tried; what is
/// refused waits in its back-off, and fails no record. A retry that is answered gives back what it
/// cost, as in the SDKs of AWS. Deposits last ten seconds,
/// in slots of a second, so that an hour of good calls buys no storm.
///
/// Differs from Finagle's `RetryBudget` in that its minimum is earned second by
/// second, with nothing at the start: many processes that start together have no
/// storm to spend.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    config: RetryBudgetConfig,
    /// What was deposited in each slot and not spent.
    slots: [u64; SLOTS],
    /// Number of the slot since the origin of time.
    slot: u64,
    /// Since when the minimum was not added.
    earned_at: ProcessingTime,
}

impl RetryBudget {
    /// Makes an empty budget.
    pub const fn new(config: RetryBudgetConfig, now: ProcessingTime) -> Self {
        Self { config, slots: [0; SLOTS], slot: 0, earned_at: now }
    }

    /// Deposits for a first attempt.
    pub fn on_first_attempt(&mut self, now: ProcessingTime) {
        self.roll(now);
        self.deposit(self.config.deposit());
    }

    /// Deposits for first attempts that ended since the origin of time while nobody counted. They
    /// are taken to have come evenly, so those of the last ten seconds earn something.
    pub fn on_earlier_attempts(&mut self, count: u64, now: ProcessingTime) {
        self.roll(now);
        let passed = u128::from(now.as_nanos().max(1));
        let recent = u128::from(count) * self.config.lasts.as_nanos().min(passed) / passed;
        let recent = u64::try_from(recent).unwrap_or(u64::MAX);
        self.deposit(recent.saturating_mul(self.config.deposit()));
    }

    /// Gives back what a retry cost that was answered: its destination is well, and what has waited
    /// comes as fast as it answers.
    pub fn on_answered_retry(&mut self, now: ProcessingTime) {
        self.roll(now);
        self.deposit(u64::from(RETRY));
    }

    /// Spends a retry; returns false, and spends nothing, if there is none.
    pub fn try_retry(&mut self, now: ProcessingTime) -> bool {
        self.roll(now);
        if self.balance() < u64::from(RETRY) {
            return false;
        }
        let mut owed = u64::from(RETRY);
        // The oldest is the slot behind the present one.
        for age in 1..=SLOTS {
            if let Some(slot) = self.slots.get_mut(place(self.slot + age as u64)) {
                let paid = owed.min(*slot);
                (*slot, owed) = (*slot - paid, owed - paid);
            }
        }
        true
    }

    /// Returns when a retry will be there if no call deposits; `NEVER` without a minimum.
    pub fn ready_at(&mut self, now: ProcessingTime) -> ProcessingTime {
        self.roll(now);
        let lacks = u64::from(RETRY).saturating_sub(self.balance());
        if lacks == 0 {
            return now;
        }
        if self.config.min_per_second == 0 {
            return ProcessingTime::NEVER;
        }
        let nanos = u128::from(lacks) * 1_000;
        let nanos = nanos.div_ceil(u128::from(self.config.min_per_second));
        self.earned_at.after_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(now)
    }

    fn balance(&self) -> u64 {
        self.slots.iter().fold(0, |sum, it| sum.saturating_add(*it))
    }

    fn deposit(&mut self, amount: u64) {
        if let Some(slot) = self.slots.get_mut(place(self.slot)) {
            *slot = slot.saturating_add(amount);
        }
    }

    /// Forgets what is too old, and adds the minimum of the time that has passed.
    fn roll(&mut self, now: ProcessingTime) {
        let slot = now.as_nanos() / self.config.slot_nanos();
        for age in 1..=slot.saturating_sub(self.slot).min(SLOTS as u64) {
            if let Some(old) = self.slots.get_mut(place(self.slot + age)) {
                *old = 0;
            }
        }
        self.slot = self.slot.max(slot);
        // A thousandth of a microsecond's share is a unit; what is less is earned later.
        let per_second = u128::from(self.config.min_per_second);
        let nanos = u128::from(now.nanos_since(self.earned_at));
        let units = nanos * per_second / 1_000;
        if units > 0 {
            let most = u128::from(self.config.slot_nanos()) * SLOTS as u128 * per_second / 1_000;
            self.deposit(u64::try_from(units.min(most)).unwrap_or(u64::MAX));
            let used = u64::try_from((units * 1_000).div_ceil(per_second)).unwrap_or(u64::MAX);
            self.earned_at = self.earned_at.after_nanos(used);
        }
    }
}

fn place(slot: u64) -> usize {
    usize::try_from(slot % SLOTS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_millis(millis)
    }

    fn retries(budget: &mut RetryBudget, now: ProcessingTime) -> usize {
        (0..1000).take_while(|_| budget.try_retry(now)).count()
    }

    #[test]
    fn five_calls_earn_a_retry_at_a_fifth() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(0.2, 0), at(0));
        (0..14).for_each(|_| budget.on_first_attempt(at(1)));
        assert_eq!(retries(&mut budget, at(2)), 2);
        assert_eq!(budget.ready_at(at(2)), ProcessingTime::NEVER);
        budget.on_first_attempt(at(3));
        assert_eq!(budget.ready_at(at(3)), at(3));
    }

    #[test]
    fn of_earlier_calls_those_of_ten_seconds_count() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(0.2, 0), at(0));
        budget.on_earlier_attempts(23, at(7_000));
        assert_eq!(retries(&mut budget, at(7_000)), 4);
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(0.2, 0), at(0));
        budget.on_earlier_attempts(1_000, at(200_000));
        assert_eq!(retries(&mut budget, at(200_000)), 10);
    }

    #[test]
    fn an_answered_retry_gives_back_what_it_cost() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(1.0, 0), at(0));
        budget.on_first_attempt(at(1));
        for millis in 2..50 {
            assert_eq!(retries(&mut budget, at(millis)), 1);
            budget.on_answered_retry(at(millis));
        }
    }

    #[test]
    fn deposits_last_ten_seconds() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(1.0, 0), at(0));
        (0..5).for_each(|_| budget.on_first_attempt(at(500)));
        assert!(budget.try_retry(at(9_999)));
        assert_eq!(retries(&mut budget, at(10_000)), 0);
    }

    #[test]
    fn the_oldest_deposit_is_spent_first() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(1.0, 0), at(0));
        budget.on_first_attempt(at(500));
        budget.on_first_attempt(at(5_500));
        assert!(budget.try_retry(at(6_000)));
        assert_eq!(retries(&mut budget, at(14_000)), 1);
    }

    #[test]
    fn the_minimum_comes_by_time() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(0.2, 2), at(100));
        assert_eq!(budget.ready_at(at(100)), at(600));
        assert_eq!(retries(&mut budget, at(599)), 0);
        assert_eq!(retries(&mut budget, at(600)), 1);
        assert_eq!(retries(&mut budget, at(1_100)), 1);
        // Not more than those of ten seconds, however long nobody asked.
        assert!(retries(&mut budget, at(1_000_000)) <= 20);
    }

    #[test]
    fn retries_are_bounded_by_calls_and_time_whatever_happens() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(0.2, 1), at(0));
        let (mut first, mut second) = (0_u32, 0_u32);
        for millis in 0..60_000_u32 {
            let now = at(u64::from(millis));
            if millis % 7 == 0 {
                first += 1;
                budget.on_first_attempt(now);
            }
            second += u32::from(budget.try_retry(now));
            assert!(
                f64::from(second) <= 0.2 * f64::from(first) + f64::from(millis) / 1000.0 + 1e-6
            );
        }
        assert!(f64::from(second) >= (0.2 * f64::from(first) + 60.0) * 0.99);
    }

    #[test]
    fn a_ratio_that_is_no_number_earns_nothing() {
        let mut budget = RetryBudget::new(RetryBudgetConfig::new(f64::NAN, 0), at(0));
        (0..100).for_each(|_| budget.on_first_attempt(at(0)));
        assert!(!budget.try_retry(at(0)));
    }
}
