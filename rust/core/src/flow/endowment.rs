// SPDX-License-Identifier: Apache-2.0
//! Who has the exclusive credits of a table.

use std::collections::VecDeque;

use super::ChannelId;
use super::channel::Channel;
use super::channel_slab::ChannelSlab;
use super::floating_pool::FloatingPool;

/// The exclusive credits that no channel has, and the channels that may have some without need.
///
/// There may be more channels than credits for all of them. A channel gets its own
/// when it becomes active, and keeps them when it is idle, until an active one lacks some.
#[derive(Debug)]
pub(super) struct Endowment {
    /// Credits that no channel has.
    unassigned: u32,
    /// Channels that may be idle and hold some, each once; idle longest first.
    owners: VecDeque<ChannelId>,
}

impl Endowment {
    /// Starts with credits that no channel has.
    pub(super) const fn new(credits: u32) -> Self {
        Self { unassigned: credits, owners: VecDeque::new() }
    }

    /// Takes credits for a channel that becomes active: as many as there are, up to `wanted`.
    pub(super) fn take(
        &mut self,
        wanted: u32,
        channels: &mut ChannelSlab,
        pool: &mut FloatingPool,
    ) -> u32 {
        while self.unassigned < wanted
            && let Some(owner) = self.owners.pop_front()
        {
            let owner = &mut channels[owner];
            owner.listed.owner = false;
            owner.unsettle();
            if owner.is_idle() {
                self.release(owner, pool);
            }
        }
        let granted = wanted.min(self.unassigned);
        self.unassigned -= granted;
        granted
    }

    /// Takes all credits of an idle channel; those that float go back to the pool.
    pub(super) fn release(&mut self, channel: &mut Channel, pool: &mut FloatingPool) {
        self.unassigned += channel.account.release(pool);
    }

    /// Lists a channel that became idle, if it has exclusive credits.
    pub(super) fn note_idle(&mut self, id: ChannelId, channel: &mut Channel) {
        if channel.account.exclusive() > 0 && !channel.listed.owner {
            channel.listed.owner = true;
            self.owners.push_back(id);
        }
    }

    /// Strikes channels off that are known no longer, and gives memory back beyond
    /// that of `most` entries.
    pub(super) fn strike_off(&mut self, is_known: impl FnMut(&ChannelId) -> bool, most: usize) {
        self.owners.retain(is_known);
        self.owners.shrink_to(most);
    }

    #[cfg(test)]
    pub(super) const fn unassigned(&self) -> u32 {
        self.unassigned
    }

    /// Returns how often a channel is listed.
    #[cfg(test)]
    pub(super) fn listed(&self, id: ChannelId) -> usize {
        self.owners.iter().filter(|it| **it == id).count()
    }
}
