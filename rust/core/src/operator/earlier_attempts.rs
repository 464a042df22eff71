// SPDX-License-Identifier: Apache-2.0
//! What the earlier attempts of records came to that are called again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::action::AttemptId;
use crate::key_hasher::KeyHasher;
use crate::queue::EntryId;

/// What the earlier attempts of a record came to.
#[derive(Clone, Copy, Debug)]
struct Earlier<F> {
    /// Of the last one that failed.
    failure: Option<F>,
    /// Those that were followed by a call of a part, see [`Retry::InPart`](super::Retry::InPart).
    divided: u32,
}

/// What the earlier attempts of each record came to that is pending and was called before. It stands
/// beside the queue, so that records that are called once pay nothing.
#[derive(Debug)]
pub(super) struct EarlierAttempts<F> {
    of: HashMap<EntryId, Earlier<F>, BuildHasherDefault<KeyHasher>>,
}

impl<F> EarlierAttempts<F> {
    pub(super) fn new() -> Self {
        Self { of: HashMap::default() }
    }

    fn of(&mut self, id: EntryId) -> &mut Earlier<F> {
        self.of.entry(id).or_insert(Earlier { failure: None, divided: 0 })
    }

    /// Notes that an attempt has failed.
    pub(super) fn note_failure(&mut self, id: EntryId, failure: F) {
        self.of(id).failure = Some(failure);
    }

    /// Notes that an attempt is followed by a call of a part.
    pub(super) fn note_divided(&mut self, id: EntryId) {
        self.of(id).divided += 1;
    }

    /// Takes over what is known of a record that is restored.
    pub(super) fn restore(&mut self, id: EntryId, failure: Option<F>, divided: u32) {
        if failure.is_some() || divided > 0 {
            self.of.insert(id, Earlier { failure, divided });
        }
    }

    /// Returns the failure of the last attempt that failed.
    pub(super) fn failure(&self, id: EntryId) -> Option<&F> {
        self.of.get(&id)?.failure.as_ref()
    }

    /// Returns how many attempts were followed by a call of a part.
    pub(super) fn divided(&self, id: EntryId) -> u32 {
        self.of.get(&id).map_or(0, |it| it.divided)
    }

    /// Returns the number of the try, from 1, that an attempt is of. A call and the calls of its parts
    /// are one try: only the next one is a retry.
    pub(super) fn try_of(&self, attempt: AttemptId) -> u32 {
        match attempt.attempt {
            1 => 1,
            number => number.saturating_sub(self.divided(attempt.entry)),
        }
    }

    /// Forgets a record; returns the failure of its last attempt that failed.
    pub(super) fn forget(&mut self, id: EntryId) -> Option<F> {
        self.of.remove(&id)?.failure
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
