// SPDX-License-Identifier: Apache-2.0
//! Channels that wait for a floating credit, first come first served.

use std::num::NonZeroU32;

use super::ChannelId;
use super::lines::{Line, Lines};

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

/// A FIFO from whose middle a channel can step out at once.
#[derive(Debug)]
pub(super) struct Listeners {
    nodes: Lines<ChannelId>,
    line: Line,
    len: usize,
}

impl Listeners {
    pub(super) const fn new() -> Self {
        Self { nodes: Lines::new(), line: Line::EMPTY, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Puts `channel` at the end of the line.
    pub(super) fn push(&mut self, channel: ChannelId) -> ListenerId {
        self.len += 1;
        ListenerId::of(self.nodes.push(&mut self.line, channel))
    }

    /// Takes the first channel out of the line.
    pub(super) fn pop(&mut self) -> Option<ChannelId> {
        let first = self.nodes.pop(&mut self.line)?;
        self.len -= 1;
        Some(first)
    }

    /// Takes a channel out of the line, wherever it stands.
    pub(super) fn remove(&mut self, listener: ListenerId) {
        let gone = self.nodes.remove(&mut self.line, listener.index());
        self.len -= usize::from(gone.is_some());
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
        }
    }
}
