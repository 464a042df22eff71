// SPDX-License-Identifier: Apache-2.0
//! Channels that wait for a floating credit, first come first served.

use std::num::NonZeroU32;

use super::ChannelId;

/// The end of a list of nodes.
const NONE: u32 = u32::MAX;

/// The place of a channel in line. Means nothing once the channel was served or gave up.
///
/// An index of a node counted from 1, so that no place takes no memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(NonZeroU32);

impl ListenerId {
    const fn of(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    const fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// One place in line, or a vacant node.
#[derive(Clone, Copy, Debug)]
struct Node {
    channel: ChannelId,
    /// The place before; unused while vacant.
    previous: u32,
    /// The place behind, or the next vacant node.
    next: u32,
}

/// A FIFO from whose middle a channel can step out at once.
///
/// A linked list in one vector: it grows with the channels that wait at the
/// same time, and a place costs no allocation once the vector is large enough.
#[derive(Debug)]
pub(super) struct Listeners {
    nodes: Vec<Node>,
    first: u32,
    last: u32,
    vacant: u32,
    len: usize,
}

impl Listeners {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), first: NONE, last: NONE, vacant: NONE, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Puts `channel` at the end of the line.
    pub(super) fn push(&mut self, channel: ChannelId) -> ListenerId {
        let node = Node { channel, previous: self.last, next: NONE };
        let index = self.vacant;
        let index = if let Some(vacant) = self.nodes.get_mut(index as usize) {
            self.vacant = vacant.next;
            *vacant = node;
            index
        } else {
            // A node takes twelve bytes: memory ends before 2^32 nodes do.
            let index = u32::try_from(self.nodes.len()).unwrap_or(NONE);
            self.nodes.push(node);
            index
        };
        match self.nodes.get_mut(self.last as usize) {
            Some(last) => last.next = index,
            None => self.first = index,
        }
        self.last = index;
        self.len += 1;
        ListenerId::of(index)
    }

    /// Takes the first channel out of the line.
    pub(super) fn pop(&mut self) -> Option<ChannelId> {
        let first = self.nodes.get(self.first as usize)?.channel;
        self.remove(ListenerId::of(self.first));
        Some(first)
    }

    /// Takes a channel out of the line, wherever it stands.
    pub(super) fn remove(&mut self, listener: ListenerId) {
        let index = listener.index();
        let Some(node) = self.nodes.get_mut(index as usize) else { return };
        let Node { previous, next, .. } = *node;
        node.next = self.vacant;
        self.vacant = index;
        match self.nodes.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(behind) => behind.previous = previous,
            None => self.last = previous,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_line(listeners: &mut Listeners) -> Vec<u32> {
        std::iter::from_fn(|| listeners.pop()).map(|channel| channel.0).collect()
    }

    #[test]
    fn channels_are_served_in_the_order_of_their_coming() {
        let mut listeners = Listeners::new();
        for channel in 0..3 {
            listeners.push(ChannelId(channel));
        }

        assert_eq!(in_line(&mut listeners), [0, 1, 2]);
        assert!(listeners.is_empty());
    }

    #[test]
    fn a_channel_steps_out_from_any_place() {
        for (index, gone) in (0..3).enumerate() {
            let mut listeners = Listeners::new();
            let places: Vec<_> = (0..3).map(|it| listeners.push(ChannelId(it))).collect();

            listeners.remove(places[index]);
            listeners.push(ChannelId(9));

            let rest = (0..3).filter(|it| *it != gone).chain([9]).collect::<Vec<_>>();
            assert_eq!(listeners.len(), 3);
            assert_eq!(in_line(&mut listeners), rest);
            assert_eq!(listeners.nodes.len(), 3, "the vacant node is used again");
        }
    }
}
