// SPDX-License-Identifier: Apache-2.0
//! The channels that are known.

use std::ops::{Index, IndexMut};

use super::ChannelId;
use super::channel::{Channel, Rest};
use super::channel_index::ChannelIndex;
use crate::element::Key;

/// Channels by number and by key.
///
/// A number stays with its channel until that is forgotten; the place is used again. It is no
/// [`Slab`](crate::slab::Slab), whose link would take a cache line beside each channel: channels are
/// forgotten many at a time, and the vacant places listed then.
#[derive(Debug)]
pub(super) struct ChannelSlab {
    channels: Vec<Channel>,
    by_key: ChannelIndex,
    /// Places of forgotten channels.
    vacant: Vec<ChannelId>,
    /// The channel found last; the next record is often of the same.
    last: (Option<Key>, ChannelId),
}

impl ChannelSlab {
    pub(super) fn new() -> Self {
        Self {
            channels: Vec::new(),
            by_key: ChannelIndex::new(),
            vacant: Vec::new(),
            last: (None, ChannelId(u32::MAX)),
        }
    }

    /// Returns the number of channels that are known.
    pub(super) const fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of places, those of forgotten channels included.
    pub(super) const fn places(&self) -> usize {
        self.channels.len()
    }

    /// Returns how many channels there may be before the index needs more memory.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.by_key.capacity()
    }

    /// Returns the channels that are known.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter().filter(|it| !it.is_forgotten())
    }

    /// Returns what is at a place, if there is one.
    #[inline]
    pub(super) fn get(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(id.0 as usize)
    }

    /// Finds the channel of a key.
    #[inline]
    pub(super) fn find(&mut self, key: Key) -> Option<ChannelId> {
        if self.last.0 == Some(key) {
            return Some(self.last.1);
        }
        let id = self.by_key.find(key, &self.channels)?;
        self.last = (Some(key), id);
        Some(id)
    }

    /// Makes a place for a channel whose key has none.
    pub(super) fn insert(&mut self, channel: Channel) -> ChannelId {
        let key = channel.key;
        let id = if let Some(id) = self.vacant.pop() {
            self[id] = channel;
            id
        } else {
            // A channel takes more than one byte: memory ends before 2^32 of them.
            let id = ChannelId(u32::try_from(self.channels.len()).unwrap_or(u32::MAX));
            self.channels.push(channel);
            id
        };
        self.by_key.insert(id, &self.channels);
        self.last = (Some(key), id);
        id
    }

    /// Forgets all channels without records that `part` lets go, and gives memory back beyond
    /// that for twice as many as are left and `spare`.
    pub(super) fn forget_idle(
        &mut self,
        spare: usize,
        mut part: impl FnMut(ChannelId, &mut Channel) -> bool,
    ) {
        for (id, channel) in (0..).map(ChannelId).zip(&mut self.channels) {
            if channel.is_idle() && !channel.is_forgotten() && part(id, channel) {
                channel.set_rest(Rest::Forgotten);
            }
        }
        while self.channels.last().is_some_and(Channel::is_forgotten) {
            self.channels.pop();
        }
        let ids = (0..).map(ChannelId).zip(&self.channels);
        self.vacant = ids.filter(|(_, it)| it.is_forgotten()).map(|(id, _)| id).collect();
        self.by_key.rebuild(&self.channels);
        self.last.0 = None;
        self.channels.shrink_to(2 * self.len() + spare);
    }

    /// Returns whether the channel that had this number when it was listed is still known.
    pub(super) fn is_known(&self, id: ChannelId) -> bool {
        self.get(id).is_some_and(|it| !it.is_forgotten())
    }
}

impl Index<ChannelId> for ChannelSlab {
    type Output = Channel;

    #[inline]
    fn index(&self, id: ChannelId) -> &Channel {
        &self.channels[id.0 as usize]
    }
}

impl IndexMut<ChannelId> for ChannelSlab {
    #[inline]
    fn index_mut(&mut self, id: ChannelId) -> &mut Channel {
        &mut self.channels[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(key: u64) -> Channel {
        Channel::new(Key::new(key), 1)
    }

    #[test]
    fn a_channel_is_found_by_its_key_until_it_is_forgotten() {
        let mut slab = ChannelSlab::new();
        let ids: Vec<ChannelId> = (1..=3).map(|key| slab.insert(channel(key))).collect();
        slab[ids[1]].resting = 1;

        let mut parted = Vec::new();
        slab.forget_idle(0, |_, it| {
            parted.push(it.key.as_u64());
            true
        });

        assert_eq!(parted, [1, 3]);
        assert_eq!(
            (1..=3).map(|key| slab.find(Key::new(key))).collect::<Vec<_>>(),
            [None, Some(ids[1]), None]
        );
        assert_eq!(
            ids.iter().map(|id| slab.is_known(*id)).collect::<Vec<_>>(),
            [false, true, false]
        );
        assert_eq!((slab.len(), slab.places()), (1, 2), "the place behind it is given back");
    }

    #[test]
    fn the_place_of_a_forgotten_channel_is_used_again() {
        let mut slab = ChannelSlab::new();
        let first = slab.insert(channel(1));
        let second = slab.insert(channel(2));
        slab[second].resting = 1;
        slab.forget_idle(0, |_, _| true);

        let third = slab.insert(channel(3));

        assert_eq!(third, first);
        assert_eq!(slab.find(Key::new(3)), Some(third));
        assert_eq!(slab.find(Key::new(2)), Some(second));
        assert_eq!(slab.iter().count(), 2);
    }
}
