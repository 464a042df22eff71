// SPDX-License-Identifier: Apache-2.0
//! What replies have said of the limits of their services, until their calls have ended.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::key_hasher::KeyHasher;
use crate::policy::{Counted, LimitLeft};
use crate::queue::EntryId;

/// What a reply says of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToldLimit {
    pub(super) left: LimitLeft,
    /// Whether it tells nothing of the destinations of other channels.
    pub(super) is_of_channel: bool,
}

/// What replies have said of the limits of their services: a call is settled before it is known what
/// is left for others.
#[derive(Debug, Default)]
pub(super) struct ToldLimits {
    /// By what they count.
    by_entry: HashMap<EntryId, [Option<ToldLimit>; 2], BuildHasherDefault<KeyHasher>>,
}

impl ToldLimits {
    /// Notes what the reply to the present call of a record says; the last word counts.
    pub(super) fn note(&mut self, entry: EntryId, told: ToldLimit) {
        let [requests, tokens] = self.by_entry.entry(entry).or_default();
        let place = match told.left.counted {
            Counted::Requests => requests,
            Counted::Tokens => tokens,
        };
        *place = Some(told);
    }

    /// Forgets what was noted of a record.
    #[inline]
    pub(super) fn forget(&mut self, entry: EntryId) {
        if !self.by_entry.is_empty() {
            self.by_entry.remove(&entry);
        }
    }

    /// Removes what was noted of a record.
    #[inline]
    pub(super) fn take(&mut self, entry: EntryId) -> impl Iterator<Item = ToldLimit> + use<> {
        let known = !self.by_entry.is_empty();
        let told = if known { self.by_entry.remove(&entry) } else { None };
        told.into_iter().flatten().flatten()
    }
}
