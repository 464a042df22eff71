// SPDX-License-Identifier: Apache-2.0
//! What the earlier attempts of records came to that are called again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::action::AttemptId;
use crate::key_hasher::KeyHasher;
use crate::queue::EntryId;

/// The attempts of a record that were followed by a call of a part, see
/// [`Retry::InPart`](super::Retry::InPart).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// How many there were.
    pub count: u32,
    /// The number of the last one; 0 if there was none.
    pub last: u32,
}

/// What a call is to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// The first one.
    First,
    /// One of a part, after one of more records.
    Part,
    /// Another try.
    Retry,
    /// One beside another one.
    Hedge,
}

/// What the earlier attempts of a record came to.
#[derive(Clone, Copy, Debug)]
struct Earlier<F> {
    /// Of the last one that failed.
    failure: Option<F>,
    divided: Divided,
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
        self.of.entry(id).or_insert(Earlier { failure: None, divided: Divided::default() })
    }

    /// Notes that an attempt has failed.
    pub(super) fn note_failure(&mut self, id: EntryId, failure: F) {
        self.of(id).failure = Some(failure);
    }

    /// Notes that an attempt is followed by a call of a part.
    pub(super) fn note_divided(&mut self, attempt: AttemptId) {
        let divided = &mut self.of(attempt.entry).divided;
        *divided = Divided { count: divided.count + 1, last: attempt.attempt };
    }

    /// Takes over what is known of a record that is restored.
    pub(super) fn restore(&mut self, id: EntryId, failure: Option<F>, divided: Divided) {
        if failure.is_some() || divided.count > 0 {
            self.of.insert(id, Earlier { failure, divided });
        }
    }

    /// Returns the failure of the last attempt that failed.
    pub(super) fn failure(&self, id: EntryId) -> Option<&F> {
        self.of.get(&id)?.failure.as_ref()
    }

    /// Returns which attempts were followed by a call of a part.
    pub(super) fn divided(&self, id: EntryId) -> Divided {
        self.of.get(&id).map_or(Divided::default(), |it| it.divided)
    }

    /// Returns the number of the try, from 1, that an attempt is of. A call and the calls of its parts
    /// are one try: only the next one is a retry.
    pub(super) fn try_of(&self, attempt: AttemptId) -> u32 {
        match attempt.attempt {
            1 => 1,
            number => number.saturating_sub(self.divided(attempt.entry).count),
        }
    }

    /// Returns what a call is to its record.
    #[inline]
    pub(super) fn kind_of(&self, attempt: AttemptId) -> CallKind {
        match attempt.attempt {
            _ if attempt.is_hedge() => CallKind::Hedge,
            1 => CallKind::First,
            number if self.divided(attempt.entry).last + 1 == number => CallKind::Part,
            _ => CallKind::Retry,
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
