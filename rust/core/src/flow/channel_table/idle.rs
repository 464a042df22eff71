// SPDX-License-Identifier: Apache-2.0
//! Channels without records in a [`ChannelTable`].

use super::{ChannelTable, REMEMBERED};
use crate::flow::ChannelId;
use crate::flow::channel::Rest;

impl ChannelTable {
    /// Takes what a channel needs no longer, if it has no records.
    #[inline]
    pub(super) fn retire(&mut self, id: ChannelId) {
        let channel = &self.channels[id];
        if !channel.is_idle() {
            return;
        }
        self.idle_until_search -= 1;
        if channel.rest() != Rest::Settled || self.is_scarce || self.idle_until_search == 0 {
            self.retire_slowly(id);
        }
    }

    #[inline(never)]
    fn retire_slowly(&mut self, id: ChannelId) {
        let channel = &mut self.channels[id];
        self.nodes.clear(&mut channel.retries);
        self.nodes.clear(&mut channel.first_calls);
        channel.chosen = None;
        if channel.account.exclusive() > channel.account.limit() {
            self.endowment.release(channel, &mut self.pool);
        }
        if self.is_scarce {
            channel.account.give_back_spare(&mut self.pool);
        }
        self.endowment.note_idle(id, channel);
        let has_all = channel.account.exclusive() == self.config.exclusive;
        channel.set_rest(if has_all { Rest::Settled } else { Rest::Parked });
        self.serve();
        if self.idle_until_search == 0 {
            self.search_idle();
        }
    }

    /// Forgets idle channels if there are many. Costs a few steps for each channel that came or
    /// became idle since the last time.
    #[inline(never)]
    pub(super) fn search_idle(&mut self) {
        let active = self.channels.iter().filter(|it| !it.is_idle()).count();
        if self.channels.len() > 2 * active + REMEMBERED / 2 {
            self.forget_idle();
        }
        self.known_until_search = self.channels.len().max(REMEMBERED / 2) * 2;
        self.idle_until_search = self.known_until_search;
    }

    /// Forgets all channels without records, and gives their memory back.
    pub(super) fn forget_idle(&mut self) {
        let policies = self.policies.as_deref();
        self.channels.forget_idle(REMEMBERED, |id, channel| {
            if policies.is_some_and(|it| !it.may_forget(id)) {
                return false;
            }
            (channel.listed.borrower, channel.listed.owner) = (false, false);
            self.forgotten.add(&channel.totals());
            self.endowment.release(channel, &mut self.pool);
            true
        });
        let most = 2 * self.channels.len() + REMEMBERED;
        let is_known = |id: &ChannelId| self.channels.is_known(*id);
        self.ready.retain(is_known);
        self.refusing.retain(is_known);
        self.borrowers.retain(is_known);
        self.borrowers.shrink_to(most);
        self.endowment.strike_off(is_known, most);
        if let Some(policies) = &mut self.policies {
            policies.truncate(self.channels.places());
        }
        self.serve();
    }
}
