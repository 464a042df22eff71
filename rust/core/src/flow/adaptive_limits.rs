// SPDX-License-Identifier: Apache-2.0
//! The adaptive limits of all channels of a table.

use super::ChannelId;
use super::adaptive_limit::{AdaptiveLimit, AdaptiveLimitConfig, EndedCall};

/// A limit for each channel that is open, by its number.
#[derive(Debug)]
pub(super) struct AdaptiveLimits {
    config: AdaptiveLimitConfig,
    limits: Vec<AdaptiveLimit>,
}

impl AdaptiveLimits {
    /// Makes limits of at most `max`, for channels that are opened later.
    pub(super) fn new(config: AdaptiveLimitConfig, max: u32) -> Self {
        Self { config: config.sound(max), limits: Vec::new() }
    }

    /// Starts the limit of a new channel, whose number is the next one or was in use before.
    pub(super) fn open(&mut self, id: ChannelId) -> u32 {
        let limit = AdaptiveLimit::new(&self.config);
        match self.limits.get_mut(id.0 as usize) {
            Some(known) => *known = limit,
            None => self.limits.push(limit),
        }
        limit.limit()
    }

    /// Learns from a call; returns the channel's limit if it changed.
    pub(super) fn observe(&mut self, id: ChannelId, call: EndedCall) -> Option<u32> {
        let limit = self.limits.get_mut(id.0 as usize)?;
        limit.observe(&self.config, call).then_some(limit.limit())
    }

    /// Forgets the limits of all but the first `channels` channels, and gives their memory back.
    pub(super) fn truncate(&mut self, channels: usize) {
        self.limits.truncate(channels);
        self.limits.shrink_to(2 * channels);
    }
}
