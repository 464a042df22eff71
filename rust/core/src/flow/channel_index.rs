// SPDX-License-Identifier: Apache-2.0
//! Which channel has a key.

use super::ChannelId;
use super::channel::Channel;
use crate::element::Key;

/// Places for each channel, at least: mostly, its own one is the first that is looked at.
const SPARSENESS: usize = 4;

/// Fewest places.
const MIN_PLACES: usize = 16;

/// A place without a channel, which is the number of none.
const VACANT: ChannelId = ChannelId(u32::MAX);

/// The numbers of channels by their keys, in open addressing with linear probing.
///
/// The keys are where the channels are, in the cache line that a search needs next anyway. So a
/// search touches four bytes of a small table and that line; a `HashMap` of keys touches two lines
/// before. Nothing is removed from the index: channels are forgotten many at a time, and it is
/// built again then.
#[derive(Debug)]
pub(super) struct ChannelIndex {
    /// A power of two of places.
    places: Vec<ChannelId>,
    /// What is left of a product of 64 bits if it is shifted by this, is a place.
    shift: u32,
    len: usize,
}

impl ChannelIndex {
    pub(super) fn new() -> Self {
        let mut index = Self { places: Vec::new(), shift: 0, len: 0 };
        index.rebuild(&[]);
        index
    }

    /// Returns the number of channels.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns how many channels there may be before more memory is needed.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.places.len() / SPARSENESS
    }

    /// Finds the channel of `key` among `channels`.
    #[inline]
    pub(super) fn find(&self, key: Key, channels: &[Channel]) -> Option<ChannelId> {
        let mut place = self.first_place(key);
        loop {
            let id = *self.places.get(place)?;
            // `VACANT` is beyond all channels.
            if channels.get(id.0 as usize)?.key == key {
                return Some(id);
            }
            place = self.next_place(place);
        }
    }

    /// Adds the channel `id` of `channels`, whose key has none.
    pub(super) fn insert(&mut self, id: ChannelId, channels: &[Channel]) {
        if (self.len + 1) * SPARSENESS > self.places.len() {
            return self.rebuild(channels);
        }
        self.put(id, channels[id.0 as usize].key);
    }

    /// Holds those of `channels` that are not forgotten, and no others; gives memory back.
    pub(super) fn rebuild(&mut self, channels: &[Channel]) {
        let known = channels.iter().filter(|it| !it.is_forgotten()).count();
        let places = (known * SPARSENESS).next_power_of_two().max(MIN_PLACES);
        self.places = vec![VACANT; places];
        self.shift = u64::BITS - places.trailing_zeros();
        self.len = 0;
        for (id, channel) in (0..).map(ChannelId).zip(channels) {
            if !channel.is_forgotten() {
                self.put(id, channel.key);
            }
        }
    }

    fn put(&mut self, id: ChannelId, key: Key) {
        let mut place = self.first_place(key);
        while self.places[place] != VACANT {
            place = self.next_place(place);
        }
        self.places[place] = id;
        self.len += 1;
    }

    /// Keys may be small numbers: the multiplication spreads them.
    #[expect(clippy::cast_possible_truncation, reason = "the places of a vector are counted")]
    #[inline]
    const fn first_place(&self, key: Key) -> usize {
        (key.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline]
    const fn next_place(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::flow::channel::Rest;

    /// An index of channels with these keys, made one after the other.
    fn indexed(keys: impl IntoIterator<Item = Key>) -> (ChannelIndex, Vec<Channel>) {
        let (mut index, mut channels) = (ChannelIndex::new(), Vec::new());
        for key in keys {
            if index.find(key, &channels).is_none() {
                channels.push(Channel::new(key, 1));
                let id = ChannelId(u32::try_from(channels.len() - 1).unwrap());
                index.insert(id, &channels);
            }
        }
        (index, channels)
    }

    fn check(index: &ChannelIndex, channels: &[Channel]) {
        for (id, channel) in (0..).map(ChannelId).zip(channels) {
            let expected = (!channel.is_forgotten()).then_some(id);
            assert_eq!(index.find(channel.key, channels), expected);
        }
    }

    proptest! {
        #[test]
        fn every_channel_is_found_by_its_key_and_none_that_was_forgotten(
            keys in vec(prop_oneof![0..50_u64, any::<u64>()], 0..300),
            forgotten in any::<u64>(),
        ) {
            let (mut index, mut channels) = indexed(keys.into_iter().map(Key::new));
            prop_assert_eq!(index.len(), channels.len());
            check(&index, &channels);

            for (number, channel) in channels.iter_mut().enumerate() {
                let is_forgotten = forgotten >> (number % 64) & 1 == 1;
                channel.set_rest(if is_forgotten { Rest::Forgotten } else { Rest::Changed });
            }
            index.rebuild(&channels);

            let known = channels.iter().filter(|it| !it.is_forgotten()).count();
            prop_assert_eq!(index.len(), known);
            prop_assert!(index.capacity() <= (2 * known).max(MIN_PLACES));
            check(&index, &channels);
        }
    }

    #[test]
    fn channels_of_one_place_are_told_apart() {
        // Products of these differ in their lowest bits only.
        let inverse = 0xF1DE_83E1_9937_733D_u64;
        assert_eq!(inverse.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1);
        let keys = (1..=8).map(|it| Key::new(inverse.wrapping_mul(it)));

        let (index, channels) = indexed(keys);

        assert!(channels.iter().all(|it| index.first_place(it.key) == 0));
        check(&index, &channels);
        let absent = Key::new(inverse.wrapping_mul(9));
        assert_eq!(index.find(absent, &channels), None);
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        assert_eq!(ChannelIndex::new().find(Key::new(1), &[]), None);
    }
}
