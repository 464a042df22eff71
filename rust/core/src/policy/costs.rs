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

/// What a record costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Price {
    /// As much as any.
    #[default]
    Usual,
    /// So much.
    Of(Costs),
}
