// SPDX-License-Identifier: Apache-2.0
//! The records between two watermarks.

use crate::element::Watermark;
use crate::slab::NONE;

/// Records that may overtake one another, and the watermark behind them.
///
/// Counterpart of Flink's `UnorderedStreamElementQueue.Segment`; differs in that
/// the watermark closes the segment of the records before it, instead of having
/// a segment of its own, so no segment is ever empty in the middle.
#[derive(Debug)]
pub(super) struct Segment {
    /// Records not yet completed.
    pub(super) pending: usize,
    /// First slot of the completed records, in completion order, or [`NONE`].
    pub(super) first_completed: u32,
    /// Last slot of the completed records, valid if there is a first.
    pub(super) last_completed: u32,
    /// Closes the segment; `None` in the last segment, which takes new records.
    pub(super) watermark: Option<ClosingWatermark>,
}

/// A watermark with its place in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosingWatermark {
    pub(super) watermark: Watermark,
    pub(super) sequence: u64,
}

impl Segment {
    /// Makes an open segment without records.
    pub(super) const fn new() -> Self {
        Self { pending: 0, first_completed: NONE, last_completed: NONE, watermark: None }
    }

    /// Returns whether no record is held, pending or completed.
    pub(super) const fn has_no_records(&self) -> bool {
        self.pending == 0 && self.first_completed == NONE
    }
}
