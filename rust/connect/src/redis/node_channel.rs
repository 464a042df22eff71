// SPDX-License-Identifier: Apache-2.0
//! The number of a node as a channel, and back.

use sparkawait_core::Key;

/// Returns the channel of a node.
pub(super) fn channel_of(node: usize) -> Key {
    Key::new(node as u64 + 1)
}

/// Returns the node of a channel, or an invalid one if columns say where rows go.
pub(super) fn node_of(channel: Key) -> Option<usize> {
    usize::try_from(channel.as_u64()).ok()?.checked_sub(1)
}
