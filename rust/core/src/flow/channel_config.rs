// SPDX-License-Identifier: Apache-2.0
//! How the permits of an operator are spread over its channels.

use crate::policy::PolicyConfig;

/// Credits and bounds of the channels of an operator.
///
/// The permits of the operator that do not float are exclusive ones: each
/// active channel gets `exclusive` of them, as long as there are any. The
/// channels beyond live on floating credits alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelConfig {
    /// Credits that a channel has to itself while it is active.
    pub exclusive: u32,
    /// Credits that are lent to channels with something waiting.
    pub floating: u32,
    /// Calls in flight of one channel.
    pub max_per_channel: u32,
    /// Records that may wait for a credit without a slot of the capacity.
    pub max_backlog: usize,
    /// Those of them that may be of one channel; the records beyond take slots of the capacity.
    pub max_backlog_per_channel: u32,
    /// What bounds the calls of each channel beside its credits.
    pub policy: PolicyConfig,
    /// Whether all records are of one channel. They are admitted as without channels then: when
    /// they can be called, so also when the policy lets them.
    pub is_single: bool,
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
            policy: PolicyConfig::NONE,
            is_single: false,
        }
    }

    /// Makes settings of one channel for all records, whose calls `policy` bounds.
    pub const fn single(policy: PolicyConfig) -> Self {
        Self { policy, is_single: true, ..Self::floating(u32::MAX, usize::MAX) }
    }

    /// Returns settings that let every channel make progress.
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
