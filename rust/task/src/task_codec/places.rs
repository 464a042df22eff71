// SPDX-License-Identifier: Apache-2.0
//! Where the rows of a batch wait: what they have in common with others.

use std::sync::Arc;

use sparkawait_arrow::{Keys, RowRef};
use sparkawait_core::element::StreamRecord;
use sparkawait_core::policy::{Costs, Price};
use sparkawait_runtime::batch_codec::InputRecord;

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
    /// Returns a row with what is known of it.
    #[inline]
    pub(super) fn put(&self, row: RowRef) -> InputRecord<RowRef> {
        let place = row.row as usize;
        InputRecord {
            record: StreamRecord::new(row, None),
            key: self.keys.get(place).copied().flatten(),
            channel: self.channels.get(place).copied().flatten(),
            price: self.costs.get(place).map_or(Price::Usual, |it| Price::Of(*it)),
        }
    }
}
