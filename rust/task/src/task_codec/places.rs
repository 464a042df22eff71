// SPDX-License-Identifier: Apache-2.0
//! Where the rows of a batch wait: what they have in common with others.

use std::sync::Arc;

use sparkawait_arrow::Keys;
use sparkawait_core::element::Key;
use sparkawait_core::policy::{Costs, Price};

/// The keys, the channels and the prices of the rows of a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Empty without any.
    pub(super) keys: Keys,
    /// Empty without any.
    pub(super) channels: Keys,
    /// Empty if all cost the usual.
    pub(super) costs: Arc<[Costs]>,
}

impl Places {
    /// Returns the key of a row.
    #[inline]
    pub(super) fn key(&self, row: u32) -> Option<Key> {
        self.keys.get(row as usize).copied().flatten()
    }

    /// Returns the channel of a row, and its price.
    #[inline]
    pub(super) fn place(&self, row: u32) -> (Option<Key>, Price) {
        let costs = self.costs.get(row as usize);
        let price = costs.map_or(Price::Usual, |it| Price::Of(*it));
        (self.channels.get(row as usize).copied().flatten(), price)
    }
}
