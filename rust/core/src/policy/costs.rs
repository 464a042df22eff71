// SPDX-License-Identifier: Apache-2.0
//! What a call costs each of its limits.

/// The most limits in time that the calls of an operator may have.
pub const MAX_LIMITS: usize = 6;

/// What a call costs each limit in time that there is, in whatever that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs([u64; MAX_LIMITS]);

impl Costs {
    /// Costs nothing.
    pub const NONE: Self = Self([0; MAX_LIMITS]);

    /// Returns what it costs the limit with this number, from 0.
    #[inline]
    pub fn of(&self, limit: usize) -> u64 {
        self.0.get(limit).copied().unwrap_or_default()
    }

    /// Returns the same, and `more`.
    #[must_use]
    pub(crate) fn and(self, more: &Self) -> Self {
        (0..MAX_LIMITS).fold(self, |costs, limit| {
            costs.with(limit, costs.of(limit).saturating_add(more.of(limit)))
        })
    }

    /// Returns what it costs those limits that `others` cost nothing.
    #[must_use]
    pub(crate) fn without(self, others: &Self) -> Self {
        let free = (0..MAX_LIMITS).filter(|limit| others.of(*limit) > 0);
        free.fold(self, |costs, limit| costs.with(limit, 0))
    }

    /// Returns the same with another cost for one limit.
    #[must_use]
    pub fn with(mut self, limit: usize, cost: u64) -> Self {
        if let Some(known) = self.0.get_mut(limit) {
            *known = cost;
        }
        self
    }
}

/// What calls have cost of late, for a limit that reserves as much for the next ones.
///
/// One in twenty costs more, which is taken when it is settled.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsualCost {
    /// The last ones, in a ring.
    known: Vec<u64>,
    next: usize,
    /// What is reserved, once enough are known.
    reserved: Option<u64>,
}

impl UsualCost {
    const KEPT: usize = 256;
    const ENOUGH: usize = 30;
    /// It is looked for after so many further ones.
    const STEP: usize = 16;

    /// Takes what a call has cost.
    pub(crate) fn note(&mut self, cost: u64) {
        match self.known.get_mut(self.next) {
            Some(oldest) => *oldest = cost,
            None => self.known.push(cost),
        }
        self.next = (self.next + 1) % Self::KEPT;
        let is_due = self.reserved.is_none() || self.next.is_multiple_of(Self::STEP);
        if is_due && self.known.len() >= Self::ENOUGH {
            let mut sorted = self.known.clone();
            let place = (sorted.len() * 95).div_ceil(100) - 1;
            self.reserved = Some(*sorted.select_nth_unstable(place).1);
        }
    }

    /// Returns what to reserve for a call, if enough are known.
    pub(crate) const fn reserved(&self) -> Option<u64> {
        self.reserved
    }
}

/// What a record costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Price {
    /// As much as any.
    #[default]
    Usual,
    /// So much.
    Of(Costs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_the_95th_percentile_of_the_last_256_once_30_are_known() {
        let mut usual = UsualCost::default();
        (1..=29).for_each(|cost| usual.note(cost));
        assert_eq!(usual.reserved(), None);
        usual.note(1_000_003);
        assert_eq!(usual.reserved(), Some(29));
        // A quarter of the next ones costs 331, and each sixteenth looks for it.
        (0..300).for_each(|it| usual.note(if it % 4 == 0 { 331 } else { 7 }));
        assert_eq!(usual.reserved(), Some(331));
        // What is older than 256 calls is forgotten.
        (0..256 + UsualCost::STEP).for_each(|_| usual.note(13));
        assert_eq!((usual.reserved(), usual.known.len()), (Some(13), 256));
    }
}
