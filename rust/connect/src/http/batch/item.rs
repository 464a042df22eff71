// SPDX-License-Identifier: Apache-2.0
//! What a request says for one row.

use bytes::Bytes;
use sparkawait_core::operator::AttemptId;

/// What happens to a text that is too long for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlong {
    /// Its row fails.
    Fails,
    /// It is halved until it fits.
    IsHalved,
}

/// The item of one row.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) attempt: AttemptId,
    /// What the request says for the row.
    pub(super) text: Bytes,
    /// What the item of the reply names the row by; empty if it does not.
    pub(super) id: Bytes,
    /// What the row adds to the idempotency key of its request.
    pub(super) key: Bytes,
    /// How often its text was halved, because it was too long for the service.
    pub(super) halvings: u32,
}

/// A text is halved so often at most: no service refuses what is left of any.
pub(super) const MOST_HALVINGS: u32 = 31;

impl Item {
    /// Makes the item of a row whose request is there.
    pub(super) fn of_sent(attempt: AttemptId) -> Self {
        Self { attempt, text: Bytes::new(), id: Bytes::new(), key: Bytes::new(), halvings: 0 }
    }
}

/// Returns the beginning of a text, which is JSON: half of it, or half of that.
pub(super) fn halved(text: &Bytes, halvings: u32) -> Bytes {
    let Ok(whole) = serde_json::from_slice::<String>(text) else { return text.clone() };
    let most = whole.len() >> halvings.min(MOST_HALVINGS);
    let end = (0..=most).rev().find(|it| whole.is_char_boundary(*it)).unwrap_or(0);
    serde_json::to_vec(&whole[..end]).map_or_else(|_| text.clone(), Bytes::from)
}

/// Returns whether a service says that a text is too long.
pub(super) fn says_too_long(message: &str) -> bool {
    let message = message.to_lowercase();
    ["token", "too long", "length"].iter().any(|it| message.contains(it))
}
