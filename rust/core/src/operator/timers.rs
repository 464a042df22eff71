// SPDX-License-Identifier: Apache-2.0
//! The deadlines of an operator by name.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::action::AttemptId;
use crate::key_hasher::KeyHasher;
use crate::queue::EntryId;
use crate::time::ProcessingTime;
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
    /// The time until which the policies of a channel hold it; its list is the channels' own.
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
    /// Where those stand in it whose time would be over, but for limits that keep their channel shut.
    shut: HashMap<EntryId, ProcessingTime, BuildHasherDefault<KeyHasher>>,
    pub(super) attempts: DeadlineList<AttemptId>,
    pub(super) back_offs: DelayedRetries<AttemptId>,
    pub(super) hedges: DeadlineList<AttemptId>,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            records: DeadlineList::new(),
            shut: HashMap::default(),
            attempts: DeadlineList::new(),
            back_offs: DelayedRetries::new(),
            hedges: DeadlineList::new(),
        }
    }

    /// Looks at a record `at` a time to come: its own is over then, if its channel stays shut as long as
    /// is known. `held` records are there.
    pub(super) fn look_later(
        &mut self,
        id: EntryId,
        at: ProcessingTime,
        held: usize,
        now: ProcessingTime,
    ) {
        self.records.push(at, id);
        if self.shut.len() > held {
            // Those whose time has come were looked at, or have left.
            self.shut.retain(|_, at| *at > now);
        }
        self.shut.insert(id, at);
    }

    /// Looks at a record when its time is over, which begins to be called: not later.
    #[inline]
    pub(super) fn look_in_time(&mut self, id: EntryId, due: ProcessingTime) {
        if !self.shut.is_empty() && self.shut.remove(&id).is_some_and(|at| due < at) {
            self.records.push(due, id);
        }
    }
}
