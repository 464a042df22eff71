// SPDX-License-Identifier: Apache-2.0
//! What the replies that a task is reading come to together, in bytes.
//!
//! A reply that is read piece by piece takes a share of the budget for each of them, and keeps it
//! until it has become a result. Once the budget is spent the others wait, so that their servers do;
//! one at a time reads on beyond it, to its end, so that they cannot all wait for one another.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The budget of a task.
const BUDGET_BYTES: usize = 64 << 20;

/// What the budget is counted in: a reply so asks for a share a few times only.
const UNIT_BYTES: usize = 256 << 10;

/// The bytes that the replies of a task may take while they are read.
#[derive(Debug)]
pub(crate) struct ReplyBudget {
    /// Free units.
    units: Arc<Semaphore>,
    /// Held by the reply that goes beyond the budget.
    beyond: Arc<Semaphore>,
}

/// What one reply has of the budget; given back when it is dropped.
#[derive(Debug)]
pub struct ReplyShare {
    budget: Arc<ReplyBudget>,
    units: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

impl ReplyBudget {
    /// Makes the budget of one task.
    pub(crate) fn of_task() -> Arc<Self> {
        Self::of_bytes(BUDGET_BYTES)
    }

    fn of_bytes(bytes: usize) -> Arc<Self> {
        let units = Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Arc::new(Self { units, beyond: Arc::new(Semaphore::new(1)) })
    }

    /// Makes a budget of so many times [`UNIT_BYTES`].
    #[cfg(test)]
    pub(crate) fn of_units(units: usize) -> Arc<Self> {
        Self::of_bytes(units * UNIT_BYTES)
    }

    /// Makes the share of a reply that nothing was read from yet.
    pub(crate) fn share(self: &Arc<Self>) -> ReplyShare {
        ReplyShare { budget: Arc::clone(self), units: None, beyond: None }
    }
}

impl ReplyShare {
    /// Waits until the reply may have `bytes` bytes.
    ///
    /// # Cancel safety
    ///
    /// What the reply has is kept; its place in the line is lost.
    pub async fn grow_to(&mut self, bytes: usize) {
        if self.beyond.is_some() {
            return;
        }
        let has = self.units.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(bytes.div_ceil(UNIT_BYTES).saturating_sub(has));
        let missing = missing.unwrap_or(u32::MAX);
        if missing == 0 {
            return;
        }
        let units = Arc::clone(&self.budget.units).acquire_many_owned(missing);
        let beyond = Arc::clone(&self.budget.beyond).acquire_owned();
        // Neither is ever closed.
        tokio::select! {
            biased;
            Ok(units) = units => match &mut self.units {
                Some(has) => has.merge(units),
                None => self.units = Some(units),
            },
            Ok(beyond) = beyond => self.beyond = Some(beyond),
            else => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn replies_beyond_the_budget_wait_but_for_one() {
        let budget = ReplyBudget::of_bytes(2 * UNIT_BYTES);
        let mut shares = [0; 4].map(|_| budget.share());
        let grows = |share: &mut ReplyShare, bytes| share.grow_to(bytes).now_or_never().is_some();

        assert!(grows(&mut shares[0], 1) && grows(&mut shares[1], 1));
        assert!(grows(&mut shares[2], 1), "the first beyond it");
        assert!(grows(&mut shares[2], 100 * UNIT_BYTES), "to its end");
        assert!(!grows(&mut shares[3], 1));
        assert!(grows(&mut shares[0], UNIT_BYTES), "it has that");
        assert!(!grows(&mut shares[0], UNIT_BYTES + 1));

        let [_, second, third, mut fourth] = shares;
        drop(third);
        assert!(grows(&mut fourth, 100 * UNIT_BYTES), "it is the one beyond now");
        drop(second);
        assert_eq!(budget.units.available_permits(), 1);
    }

    #[test]
    fn shares_come_back_with_their_replies() {
        let budget = ReplyBudget::of_bytes(4 * UNIT_BYTES);
        for _ in 0..100 {
            let mut share = budget.share();
            assert!(share.grow_to(UNIT_BYTES).now_or_never().is_some());
            assert!(share.grow_to(3 * UNIT_BYTES).now_or_never().is_some());
        }
        assert_eq!(budget.units.available_permits(), 4);
    }
}
