// SPDX-License-Identifier: Apache-2.0
//! The deadlines of an operator by name.

use super::action::AttemptId;
use crate::queue::EntryId;
use crate::timer::{DeadlineList, DelayedRetries};

/// A kind of deadline, in the order in which those of one moment take effect.
///
/// Of the shape of quinn's `connection::Timer`. There a table holds the one deadline of each kind;
/// here a kind has one for each record, in a list that knows its earliest, and the table is of
/// these lists. A further kind is a line here and one in each `match` over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The end of a record's timeout.
    Record,
    /// The end of an attempt's timeout.
    Attempt,
    /// The end of a back-off.
    BackOff,
    /// The time from which an attempt counts as slow.
    Hedge,
    /// The time until which the policies of a channel hold it, or from which its records have waited
    /// too long; its lists are the channels' own.
    Channel,
}

impl Timer {
    pub(super) const ALL: [Self; 5] =
        [Self::Record, Self::Attempt, Self::BackOff, Self::Hedge, Self::Channel];
}

/// The deadlines that are armed, and some whose records are no longer concerned.
#[derive(Debug)]
pub(super) struct Timers {
    pub(super) records: DeadlineList<EntryId>,
    pub(super) attempts: DeadlineList<AttemptId>,
    pub(super) back_offs: DelayedRetries<AttemptId>,
    pub(super) hedges: DeadlineList<AttemptId>,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            records: DeadlineList::new(),
            attempts: DeadlineList::new(),
            back_offs: DelayedRetries::new(),
            hedges: DeadlineList::new(),
        }
    }
}
