// SPDX-License-Identifier: Apache-2.0
//! What two processes call a channel.

use std::fmt;

use crate::slab::Generation;

/// Names a channel of a connection at both of its ends.
///
/// The receiver numbers its channels. The place of one that has ended is used again, with the next
/// generation, so that what is still on its way is known to be of the channel before. Counterpart of
/// Flink's `InputChannelID`, of the shape of h2's `Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelKey {
    /// Its place.
    pub index: u32,
    /// How many channels had the place before.
    pub generation: u32,
}

impl fmt::Display for ChannelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// How many channels a place had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use(pub(super) u32);

impl Generation for Use {
    type Handle = ChannelKey;
    const FIRST: Self = Self(0);

    fn handle(self, index: u32) -> ChannelKey {
        ChannelKey { index, generation: self.0 }
    }

    fn index_of(handle: ChannelKey) -> u32 {
        handle.index
    }

    fn is_of(self, handle: ChannelKey) -> bool {
        self.0 == handle.generation
    }

    fn following(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
