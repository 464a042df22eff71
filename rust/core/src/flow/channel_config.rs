// SPDX-License-Identifier: Apache-2.0
//! How the permits of an operator are spread over its channels.

use super::adaptive_limit::AdaptiveLimitConfig;

/// Credits and bounds of the channels of an operator.
///
/// The permits of the operator that do not float are exclusive ones: each
/// active channel gets `exclusive` of them, as long as there are any. The
/// channels beyond live on floating credits alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// Credits that a channel has to itself while it is active.
    pub exclusive: u32,
    /// Credits that are lent to whoever has something waiting.
    pub floating: u32,
    /// Calls in flight of one channel.
    pub max_per_channel: u32,
    /// Records that may wait for a credit without a slot of the capacity.
    pub max_backlog: usize,
    /// Those of them that may be of one channel; the records beyond take slots of the capacity.
    pub max_backlog_per_channel: u32,
    /// How the calls of one channel follow what its destination bears, up to `max_per_channel`;
    /// `None`: they are always as many.
    pub adaptive: Option<AdaptiveLimitConfig>,
}

impl ChannelConfig {
    /// Makes settings where every permit floats and a channel may take all of them.
    pub const fn floating(max_concurrency: u32, max_backlog: usize) -> Self {
        Self {
            exclusive: 0,
            floating: max_concurrency,
            max_per_channel: max_concurrency,
            max_backlog,
            max_backlog_per_channel: u32::MAX,
            adaptive: None,
        }
    }

    /// Returns settings under which every channel can make progress.
    ///
    /// `max_concurrency` is at least 1.
    ///
    /// At least one credit floats, since a channel that comes when all
    /// exclusive credits are taken would wait for ever.
    pub(super) fn sound(self, max_concurrency: u32) -> Self {
        Self {
            floating: self.floating.clamp(1, max_concurrency),
            max_per_channel: self.max_per_channel.clamp(1, max_concurrency),
            max_backlog: self.max_backlog.max(1),
            ..self
        }
    }
}
