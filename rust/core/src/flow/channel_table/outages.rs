// SPDX-License-Identifier: Apache-2.0
//! Destinations of a [`ChannelTable`] that are not there, and what fails instead of waiting for them.

use std::time::Duration;

use super::ChannelTable;
use crate::flow::ChannelId;
use crate::flow::outage::WaitBound;
use crate::policy::{CallSign, Spent};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// Why a record that waits for a credit is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// Its destination has dropped its calls: for so long at least whatever comes fails.
    Refused(Duration),
    /// It has waited too long for a destination that is not there.
    Unavailable {
        /// Whether that is paused; it is silent otherwise.
        is_paused: bool,
    },
    /// A budget has less left than its call costs, and nothing comes back.
    Spent(Spent),
}

impl ChannelTable {
    /// Sets for how long records wait for a destination that is not there.
    pub(crate) const fn bound_waits(&mut self, bound: Option<WaitBound>) {
        self.wait_bound = bound;
    }

    /// Takes over since when the destination of all records is silent, where there were no channels.
    pub(crate) fn inherit_silence(&mut self, silent_since: ProcessingTime, now: ProcessingTime) {
        let id = ChannelId(0);
        self.channels[id].outage.inherit(silent_since);
        self.watch_outage(id, now);
    }

    /// Notes what a call that ends says of whether its destination is there.
    #[inline]
    pub(crate) fn note_answer(&mut self, id: ChannelId, sign: CallSign, now: ProcessingTime) {
        let channel = &mut self.channels[id];
        // Where nothing waits nobody wants to know.
        if channel.resting > 0 {
            let is_last = channel.account.in_use() == 1;
            channel.outage.note_end(sign, is_last, now);
        }
    }

    /// Returns whether a record has waited too long for a destination that is not there.
    pub(super) fn has_waited_too_long(
        &self,
        id: ChannelId,
        since: ProcessingTime,
        now: ProcessingTime,
    ) -> bool {
        let channel = &self.channels[id];
        let is_asked = channel.account.in_use() > 0;
        self.wait_bound.is_some_and(|bound| channel.outage.is_over(since, bound, is_asked, now))
    }

    /// Sees to it that a channel in which records wait is looked at in time.
    ///
    /// One timer for each channel. It comes too early if an answer has come since, and is then set
    /// again. So an answer costs nothing.
    pub(super) fn watch_outage(&mut self, id: ChannelId, now: ProcessingTime) {
        self.watch_wait(id, self.channels[id].starved_since, now);
    }

    /// Does so for a record that has waited since `since`.
    pub(super) fn watch_wait(&mut self, id: ChannelId, since: ProcessingTime, now: ProcessingTime) {
        let Some(bound) = self.wait_bound else { return };
        let channel = &mut self.channels[id];
        if channel.waiting == 0 {
            return;
        }
        let is_asked = channel.account.in_use() > 0;
        let at = channel.outage.next_look(since, bound, is_asked);
        let looks_at = channel.outage.looks_at;
        // Where it is late already the records in front came later, and that time is known.
        if at < looks_at && (at > now || looks_at == ProcessingTime::NEVER) {
            channel.outage.looks_at = at;
            self.looks.push(at, id);
        }
    }

    /// Looks at a channel soon whose records may have waited too long.
    pub(super) fn look_at(&mut self, id: ChannelId) {
        if !self.refusing.contains(&id) {
            self.refusing.push(id);
        }
    }

    /// Returns when to look at channels next.
    pub(super) fn next_look(&mut self) -> Option<ProcessingTime> {
        let channels = &mut self.channels;
        self.looks.next_at(|id, at| {
            let is_its = channels.get(id).is_some_and(|it| it.outage.looks_at == at);
            let is_wanted = is_its && channels[id].waiting > 0;
            if is_its && !is_wanted {
                // The next one that waits sets another one.
                channels[id].outage.looks_at = ProcessingTime::NEVER;
            }
            is_wanted
        })
    }

    /// Lists the channels whose time has come.
    pub(super) fn list_due(&mut self, now: ProcessingTime) {
        while let Some((at, id)) = self.looks.pop_due_at(now) {
            if self.channels.get(id).is_some_and(|it| it.outage.looks_at == at) {
                self.channels[id].outage.looks_at = ProcessingTime::NEVER;
                self.look_at(id);
            }
        }
    }

    /// Returns whether [`next_unserved`](Self::next_unserved) may return a record.
    #[inline]
    pub(crate) const fn has_unserved(&self) -> bool {
        !self.refusing.is_empty()
    }

    /// Removes the next record that waits for a credit and is to fail instead; it rests still.
    ///
    /// `since` tells since when a record waits.
    pub(crate) fn next_unserved(
        &mut self,
        now: ProcessingTime,
        mut since: impl FnMut(EntryId) -> ProcessingTime,
    ) -> Option<(EntryId, Unserved)> {
        while let Some(id) = self.refusing.last().copied() {
            // Its time may be over.
            self.consult(id, now);
            let unserved = self.take_refused(id).or_else(|| self.take_over(id, now, &mut since));
            let unserved = unserved.or_else(|| self.take_spent(id, now));
            if let Some(unserved) = unserved {
                let channel = &mut self.channels[id];
                channel.shorten(now, &mut self.pool);
                if channel.account.free() > channel.account.required() {
                    channel.account.give_back_free(&mut self.pool);
                    self.serve();
                }
                return Some(unserved);
            }
            self.refusing.pop();
            self.look_again(id, &mut since);
            // It may have been held, and go on by now.
            self.ask(id);
        }
        None
    }

    fn take_refused(&mut self, id: ChannelId) -> Option<(EntryId, Unserved)> {
        let rest = self.policies.as_ref()?.refuses_for(id)?;
        let foremost = self.channels[id].take_foremost(&mut self.nodes);
        foremost.map(|it| (it, Unserved::Refused(rest)))
    }

    /// Takes the record that would be called next, if its call will never start.
    fn take_spent(&mut self, id: ChannelId, now: ProcessingTime) -> Option<(EntryId, Unserved)> {
        let foremost = self.channels[id].foremost(&self.nodes)?;
        let costs = self.costs(id, Some(foremost), now);
        let policies = self.policies.as_mut()?;
        policies.spent(id, &costs)?;
        policies.ask_again(id, &costs, now);
        let Some(spent) = policies.spent(id, &costs) else {
            // It goes on, or waits for a time by now, which it was not held until.
            self.consult(id, now);
            return None;
        };
        // Others may wait behind it for what they all share.
        policies.end_wait_for_calls(now);
        let entry = self.channels[id].take_foremost(&mut self.nodes)?;
        Some((entry, Unserved::Spent(spent)))
    }

    fn take_over(
        &mut self,
        id: ChannelId,
        now: ProcessingTime,
        since: &mut impl FnMut(EntryId) -> ProcessingTime,
    ) -> Option<(EntryId, Unserved)> {
        let mut fronts = self.channels[id].fronts(&self.nodes);
        let entry = fronts.find(|entry| self.has_waited_too_long(id, since(*entry), now))?;
        let channel = &mut self.channels[id];
        channel.take_front(&mut self.nodes, entry);
        let is_paused = channel.outage.paused_since != ProcessingTime::NEVER;
        Some((entry, Unserved::Unavailable { is_paused }))
    }

    /// Looks at a channel again when the first one of those that wait has waited too long, if nothing
    /// changes until then.
    fn look_again(&mut self, id: ChannelId, since: &mut impl FnMut(EntryId) -> ProcessingTime) {
        let Some(bound) = self.wait_bound else { return };
        let channel = &mut self.channels[id];
        let is_asked = channel.account.in_use() > 0;
        let fronts = channel.fronts(&self.nodes);
        let looks = fronts.map(|it| channel.outage.next_look(since(it), bound, is_asked));
        let at = looks.min().unwrap_or(ProcessingTime::NEVER);
        if at < channel.outage.looks_at {
            channel.outage.looks_at = at;
            self.looks.push(at, id);
        }
    }
}
