// SPDX-License-Identifier: Apache-2.0
//! Input that comes in parts, as that of a stream does: one for each micro-batch.

use std::time::Duration;

use sparkawait_core::time::ProcessingTime;

/// How long the rows of a part are waited for, once all of them were admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// So long at most; rows that are still in flight then stay so while the next part comes.
    Linger(Duration),
    /// Until none is in flight.
    Drain,
}

/// A part of the input whose last row is at the task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    patience: Patience,
    /// When it ends, once all of its rows were admitted.
    ends: Option<ProcessingTime>,
}

impl Part {
    pub(crate) const fn new(patience: Patience) -> Self {
        Self { patience, ends: None }
    }

    /// Returns whether it ends with its last row, however long that takes.
    pub(crate) fn drains(&self) -> bool {
        self.patience == Patience::Drain
    }

    /// Notes that all rows were admitted; returns when the part ends in any case.
    pub(crate) fn admitted(&mut self, now: ProcessingTime) -> ProcessingTime {
        match self.patience {
            Patience::Linger(linger) => *self.ends.get_or_insert(now + linger),
            Patience::Drain => ProcessingTime::NEVER,
        }
    }
}
