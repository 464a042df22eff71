// SPDX-License-Identifier: Apache-2.0
//! All channels of a sender, which share one wire.

use std::collections::VecDeque;
use std::fmt;

use super::ChannelId;
use super::floating_pool::FloatingPool;
use super::sender_channel::{Message, SenderChannel};

/// How much may wait at a [`SenderQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderQueueConfig {
    /// What may wait in all.
    pub max_backlog: u32,
    /// What may wait in one channel before the queue calls itself unavailable.
    pub max_backlog_per_channel: u32,
    /// What is accepted beyond `max_backlog`, to finish what was begun.
    pub overdraft: u32,
}

/// Sends for many channels over one wire, taking turns.
///
/// Counterpart of Flink's `PartitionRequestQueue`. A channel stands in line
/// once, and only while it may send; after a message it goes to the end.
#[derive(Debug)]
pub struct SenderQueue {
    config: SenderQueueConfig,
    /// By number; `None` if not requested, or released.
    channels: Vec<Option<Place>>,
    /// Channels that may send.
    line: VecDeque<ChannelId>,
    /// A credit for everything that may wait.
    places: FloatingPool,
    /// Channels whose backlog has reached its bound.
    full_channels: usize,
}

#[derive(Debug)]
struct Place {
    channel: SenderChannel,
    is_in_line: bool,
}

/// The receiver named a channel that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChannel(pub ChannelId);

impl fmt::Display for UnknownChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel `{}` was not requested, or was released", self.0)
    }
}

impl std::error::Error for UnknownChannel {}

/// What became of something that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Accepted,
    /// It waits, and the receiver can only learn of it by this announcement.
    Announce {
        /// What waits in the channel.
        backlog: u32,
    },
    /// Bound and overdraft are used up; push it again when something was sent.
    Refused,
}

impl SenderQueue {
    /// Makes a queue without channels.
    pub fn new(config: SenderQueueConfig) -> Self {
        let places = FloatingPool::new(config.max_backlog, config.overdraft);
        let (channels, line) = (Vec::new(), VecDeque::new());
        Self { config, channels, line, places, full_channels: 0 }
    }

    /// Returns whether more should be pushed: looked at between two elements, not within one.
    pub const fn is_available(&self) -> bool {
        self.full_channels == 0 && self.places.free() > 0
    }

    /// Returns a channel that was requested.
    pub fn channel(&self, channel: ChannelId) -> Option<&SenderChannel> {
        Some(&self.channels.get(channel.0 as usize)?.as_ref()?.channel)
    }

    /// Adds the channel that a receiver requests, with the credit that its request carries.
    pub fn open(&mut self, channel: ChannelId, initial_credit: u32) {
        self.release(channel);
        let index = channel.0 as usize;
        if self.channels.len() <= index {
            self.channels.resize_with(index + 1, || None);
        }
        let place = Place { channel: SenderChannel::new(initial_credit), is_in_line: false };
        self.channels[index] = Some(place);
    }

    /// Lets something wait that costs a credit.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn push(&mut self, channel: ChannelId) -> Result<Pushed, UnknownChannel> {
        let place = Self::place(&mut self.channels, channel)?;
        if !self.places.request() && !self.places.request_overdraft() {
            return Ok(Pushed::Refused);
        }
        place.channel.push();
        let backlog = place.channel.backlog();
        self.full_channels += usize::from(backlog == self.config.max_backlog_per_channel);
        let is_news = place.channel.needs_announcement();
        self.enqueue(channel);
        Ok(if is_news { Pushed::Announce { backlog } } else { Pushed::Accepted })
    }

    /// Lets something wait that costs no credit and goes first.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn push_event(&mut self, channel: ChannelId) -> Result<(), UnknownChannel> {
        Self::place(&mut self.channels, channel)?.channel.push_event();
        self.enqueue(channel);
        Ok(())
    }

    /// Takes credit that the receiver announced.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`]: the two ends do not agree, and the wire is of no use.
    pub fn add_credit(&mut self, channel: ChannelId, credit: u32) -> Result<(), UnknownChannel> {
        Self::place(&mut self.channels, channel)?.channel.add_credit(credit);
        self.enqueue(channel);
        Ok(())
    }

    /// Takes the batch size that the receiver wants. A channel that is gone needs none.
    pub fn set_batch_size(&mut self, channel: ChannelId, rows: u32) {
        if let Ok(place) = Self::place(&mut self.channels, channel) {
            place.channel.set_batch_size(rows);
        }
    }

    /// Sends nothing of a channel until it is resumed.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn block(&mut self, channel: ChannelId) -> Result<(), UnknownChannel> {
        Self::place(&mut self.channels, channel)?.channel.block();
        Ok(())
    }

    /// Goes on; returns the backlog that the receiver has to be told.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn resume(&mut self, channel: ChannelId) -> Result<Option<u32>, UnknownChannel> {
        let place = Self::place(&mut self.channels, channel)?;
        place.channel.resume();
        let news = place.channel.needs_announcement().then(|| place.channel.backlog());
        self.enqueue(channel);
        Ok(news)
    }

    /// Takes the next message, of the channel that waited longest for its turn.
    pub fn poll_message(&mut self) -> Option<(ChannelId, Message)> {
        while let Some(id) = self.line.pop_front() {
            let Ok(place) = Self::place(&mut self.channels, id) else { continue };
            place.is_in_line = false;
            let Some(message) = place.channel.pop() else { continue };
            if !message.is_event {
                self.places.recycle();
                let was_full = message.backlog + 1 == self.config.max_backlog_per_channel;
                self.full_channels -= usize::from(was_full);
            }
            self.enqueue(id);
            return Some((id, message));
        }
        None
    }

    /// Forgets a channel and what waits in it. Idempotent.
    pub fn release(&mut self, channel: ChannelId) {
        let released = self.channels.get_mut(channel.0 as usize).and_then(Option::take);
        let Some(place) = released else { return };
        let backlog = place.channel.backlog();
        self.places.recycle_many(backlog);
        let was_full = backlog >= self.config.max_backlog_per_channel.max(1);
        self.full_channels -= usize::from(was_full);
        if place.is_in_line {
            // Its number may be given to another channel, which is to stand in line once.
            self.line.retain(|other| *other != channel);
        }
    }

    /// Puts a channel in line that may send and does not stand there.
    fn enqueue(&mut self, channel: ChannelId) {
        let Ok(place) = Self::place(&mut self.channels, channel) else { return };
        if place.channel.is_available() && !place.is_in_line {
            place.is_in_line = true;
            self.line.push_back(channel);
        }
    }

    fn place(channels: &mut [Option<Place>], id: ChannelId) -> Result<&mut Place, UnknownChannel> {
        channels.get_mut(id.0 as usize).and_then(Option::as_mut).ok_or(UnknownChannel(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: SenderQueueConfig =
        SenderQueueConfig { max_backlog: 4, max_backlog_per_channel: 3, overdraft: 1 };

    fn queue(initial_credit: u32) -> SenderQueue {
        let mut queue = SenderQueue::new(CONFIG);
        for channel in 0..3 {
            queue.open(ChannelId(channel), initial_credit);
        }
        queue
    }

    fn sent(queue: &mut SenderQueue) -> Vec<u32> {
        std::iter::from_fn(|| queue.poll_message()).map(|(channel, _)| channel.0).collect()
    }

    #[test]
    fn channels_take_turns_and_stand_in_line_once() {
        let mut queue = queue(2);
        for channel in [0, 0, 1, 1] {
            queue.push(ChannelId(channel)).unwrap();
        }
        queue.push_event(ChannelId(2)).unwrap();

        assert_eq!(sent(&mut queue), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_channel_without_credit_waits_for_it_out_of_line() {
        let mut queue = queue(0);
        assert_eq!(queue.push(ChannelId(0)), Ok(Pushed::Announce { backlog: 1 }));
        assert_eq!(sent(&mut queue), []);

        queue.add_credit(ChannelId(0), 1).unwrap();

        assert_eq!(sent(&mut queue), [0]);
    }

    #[test]
    fn a_full_channel_makes_the_queue_unavailable_but_pushes_still_succeed() {
        let mut queue = queue(0);
        for _ in 0..3 {
            assert!(queue.is_available());
            queue.push(ChannelId(0)).unwrap();
        }

        assert!(!queue.is_available());
        assert_eq!(queue.push(ChannelId(1)), Ok(Pushed::Announce { backlog: 1 }));
        queue.add_credit(ChannelId(0), 1).unwrap();
        sent(&mut queue);

        assert!(queue.is_available());
    }

    #[test]
    fn the_total_has_an_overdraft_and_then_refuses() {
        let mut queue = queue(0);
        for channel in [0, 0, 1, 1] {
            queue.push(ChannelId(channel)).unwrap();
        }
        assert!(!queue.is_available());

        assert_eq!(queue.push(ChannelId(2)), Ok(Pushed::Announce { backlog: 1 }));
        assert_eq!(queue.push(ChannelId(2)), Ok(Pushed::Refused));
        queue.release(ChannelId(0));

        assert!(queue.is_available());
    }

    #[test]
    fn credit_for_an_unknown_channel_is_an_error_and_a_batch_size_is_not() {
        let mut queue = queue(0);
        queue.set_batch_size(ChannelId(9), 100);

        let error = queue.add_credit(ChannelId(9), 1).unwrap_err();

        assert_eq!(error.to_string(), "channel `9` was not requested, or was released");
    }
}
