// SPDX-License-Identifier: Apache-2.0
//! All channels of a sender, which share one wire.

use std::collections::VecDeque;
use std::fmt;

use super::ChannelKey;
use super::sender_channel::{Message, SenderChannel};

/// How much may wait at a [`SenderQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderQueueConfig {
    /// Channels that may be open: their places are numbered by the receiver.
    pub max_channels: u32,
    /// Bytes that may wait in all, and the last message beyond.
    pub max_bytes: usize,
    /// Bytes that may wait in one channel before it calls itself unavailable.
    pub max_bytes_per_channel: usize,
}

/// Sends for many channels over one wire, one after the other.
///
/// Counterpart of Flink's `PartitionRequestQueue`. A channel stands in line
/// once, and only while it may send; after a message it goes to the end. One in
/// which nothing waits has room for a message however much waits in others, so
/// that those whose receivers are slow do not hold it.
#[derive(Debug)]
pub struct SenderQueue<T> {
    config: SenderQueueConfig,
    /// By number.
    places: Vec<Place<T>>,
    /// Channels that may send.
    line: VecDeque<ChannelKey>,
    /// Bytes that wait.
    bytes: usize,
}

/// Channels of one number, one after another.
#[derive(Debug)]
struct Place<T> {
    /// Generation of the last one; none before the first.
    generation: Option<u32>,
    open: Option<Open<T>>,
}

#[derive(Debug)]
struct Open<T> {
    channel: SenderChannel<T>,
    is_in_line: bool,
    /// Whether nothing follows what waits.
    is_ending: bool,
}

/// The receiver named a channel that it never requested: the two ends do not agree, and the wire is
/// of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChannel(pub ChannelKey);

impl fmt::Display for UnknownChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel `{}` was never requested", self.0)
    }
}

impl std::error::Error for UnknownChannel {}

/// Why a request of a receiver is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Its number is beyond what the sender agreed to.
    TooMany {
        /// The channel.
        channel: ChannelKey,
        /// Channels that may be open.
        most: u32,
    },
    /// There is, or was, a channel with this key: the two ends do not agree, and the wire is
    /// useless.
    Twice(ChannelKey),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { channel, most } => {
                write!(f, "channel `{channel}` is beyond the {most} that may be open")
            }
            Self::Twice(channel) => write!(f, "channel `{channel}` was requested twice"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What happened to something that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed<T> {
    /// It waits.
    Accepted,
    /// The bound is used up, by others and by the channel itself; push it again when something was sent.
    Refused(T),
    /// The receiver wants no more of the channel, or its end was pushed.
    Over(T),
}

impl<T> SenderQueue<T> {
    /// Makes a queue without channels.
    pub fn new(config: SenderQueueConfig) -> Self {
        let (places, line) = (Vec::new(), VecDeque::new());
        Self { config, places, line, bytes: 0 }
    }

    /// Returns whether you should push more to a channel: ask between two elements, not within one.
    /// Another channel that is full does not matter.
    pub fn is_available(&self, channel: ChannelKey) -> bool {
        let config = &self.config;
        self.open_one(channel).filter(|it| !it.is_ending).is_some_and(|Open { channel, .. }| {
            let has_room =
                self.bytes < config.max_bytes && channel.bytes() < config.max_bytes_per_channel;
            has_room || channel.waiting() == 0
        })
    }

    /// Returns a channel that was requested and is not over.
    pub fn channel(&self, channel: ChannelKey) -> Option<&SenderChannel<T>> {
        self.open_one(channel).map(|it| &it.channel)
    }

    fn open_one(&self, channel: ChannelKey) -> Option<&Open<T>> {
        let place = self.places.get(channel.index as usize)?;
        place.open.as_ref().filter(|_| place.generation == Some(channel.generation))
    }

    /// Returns the bytes that wait.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the channel that a receiver requests, with the credit that its request carries.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(&mut self, channel: ChannelKey, initial_credit: u32) -> Result<(), OpenError> {
        let index = channel.index as usize;
        if channel.index >= self.config.max_channels {
            return Err(OpenError::TooMany { channel, most: self.config.max_channels });
        }
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || Place { generation: None, open: None });
        }
        let place = &mut self.places[index];
        if place.open.is_some() || place.generation >= Some(channel.generation) {
            return Err(OpenError::Twice(channel));
        }
        place.generation = Some(channel.generation);
        let channel = SenderChannel::new(initial_credit);
        place.open = Some(Open { channel, is_in_line: false, is_ending: false });
        Ok(())
    }

    /// Lets something wait that costs credits, at least one.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn push(
        &mut self,
        channel: ChannelKey,
        payload: T,
        cost: u32,
        bytes: usize,
    ) -> Result<Pushed<T>, UnknownChannel> {
        let Some(open) = Self::find(&mut self.places, channel)?.filter(|it| !it.is_ending) else {
            return Ok(Pushed::Over(payload));
        };
        if self.bytes >= self.config.max_bytes && open.channel.waiting() > 0 {
            return Ok(Pushed::Refused(payload));
        }
        self.bytes += bytes;
        open.channel.push(payload, cost.max(1), bytes);
        self.enqueue(channel);
        Ok(Pushed::Accepted)
    }

    /// Lets the end of a channel follow what waits; it costs nothing. Nothing happens if the channel
    /// is over.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn end(&mut self, channel: ChannelKey, payload: T) -> Result<(), UnknownChannel> {
        if let Some(open) = Self::find(&mut self.places, channel)?.filter(|it| !it.is_ending) {
            open.is_ending = true;
            open.channel.push(payload, 0, 0);
            self.enqueue(channel);
        }
        Ok(())
    }

    /// Ends a channel without what waits: `payload` says why. Nothing happens if the channel is over.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn reset(&mut self, channel: ChannelKey, payload: T) -> Result<(), UnknownChannel> {
        if let Some(open) = Self::find(&mut self.places, channel)? {
            self.bytes -= open.channel.bytes();
            open.channel.clear();
            open.is_ending = true;
            open.channel.push(payload, 0, 0);
            self.enqueue(channel);
        }
        Ok(())
    }

    /// Takes credit that the receiver announced. A channel that is over needs none.
    ///
    /// # Errors
    ///
    /// [`UnknownChannel`].
    pub fn add_credit(&mut self, channel: ChannelKey, credit: u32) -> Result<(), UnknownChannel> {
        if let Some(open) = Self::find(&mut self.places, channel)? {
            open.channel.add_credit(credit);
            self.enqueue(channel);
        }
        Ok(())
    }

    /// Takes the next message, of the channel that waited longest. A channel is over
    /// with its last one.
    pub fn poll_message(&mut self) -> Option<(ChannelKey, Message<T>)> {
        while let Some(key) = self.line.pop_front() {
            let Ok(Some(open)) = Self::find(&mut self.places, key) else { continue };
            open.is_in_line = false;
            let before = open.channel.bytes();
            let Some(message) = open.channel.pop() else { continue };
            self.bytes -= before - open.channel.bytes();
            let is_over = open.is_ending && open.channel.waiting() == 0;
            if is_over {
                self.release(key);
            }
            self.enqueue(key);
            return Some((key, message));
        }
        None
    }

    /// Returns whether there is a message to be sent.
    pub fn has_message(&self) -> bool {
        !self.line.is_empty()
    }

    /// Forgets a channel and what waits in it, because the receiver wants no more. Idempotent.
    pub fn release(&mut self, channel: ChannelKey) {
        let place = self.places.get_mut(channel.index as usize);
        let place = place.filter(|it| it.generation == Some(channel.generation));
        let Some(open) = place.and_then(|it| it.open.take()) else { return };
        self.bytes -= open.channel.bytes();
        if open.is_in_line {
            // Nobody else is to pass by what is over, however often the receiver changes its mind.
            self.line.retain(|other| *other != channel);
        }
    }

    /// Puts a channel in line that may send and does not stand there.
    fn enqueue(&mut self, channel: ChannelKey) {
        let Ok(Some(open)) = Self::find(&mut self.places, channel) else { return };
        if open.channel.is_available() && !open.is_in_line {
            open.is_in_line = true;
            self.line.push_back(channel);
        }
    }

    /// Finds a channel; nothing if it is over.
    fn find(
        places: &mut [Place<T>],
        key: ChannelKey,
    ) -> Result<Option<&mut Open<T>>, UnknownChannel> {
        let place = places.get_mut(key.index as usize).ok_or(UnknownChannel(key))?;
        match place.generation {
            Some(generation) if generation == key.generation => Ok(place.open.as_mut()),
            Some(generation) if generation > key.generation => Ok(None),
            _ => Err(UnknownChannel(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: SenderQueueConfig =
        SenderQueueConfig { max_channels: 3, max_bytes: 1000, max_bytes_per_channel: 500 };

    fn key(index: u32) -> ChannelKey {
        ChannelKey { index, generation: 0 }
    }

    fn queue(config: SenderQueueConfig, initial_credit: u32) -> SenderQueue<char> {
        let mut queue = SenderQueue::new(config);
        for channel in 0..3 {
            queue.open(key(channel), initial_credit).unwrap();
        }
        queue
    }

    fn push(queue: &mut SenderQueue<char>, index: u32) -> Pushed<char> {
        queue.push(key(index), 'x', 1, 1).unwrap()
    }

    fn sent(queue: &mut SenderQueue<char>) -> Vec<u32> {
        std::iter::from_fn(|| queue.poll_message()).map(|(channel, _)| channel.index).collect()
    }

    #[test]
    fn channels_take_turns_and_stand_in_line_once() {
        let mut queue = queue(CONFIG, 2);
        for channel in [0, 0, 1, 1] {
            push(&mut queue, channel);
        }
        queue.end(key(2), 'e').unwrap();

        assert_eq!(sent(&mut queue), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_channel_without_credit_waits_for_it_out_of_line() {
        let mut queue = queue(CONFIG, 0);
        assert_eq!(push(&mut queue, 0), Pushed::Accepted);
        assert_eq!(sent(&mut queue), []);

        queue.add_credit(key(0), 1).unwrap();

        assert_eq!(sent(&mut queue), [0]);
    }

    #[test]
    fn a_full_channel_leaves_the_others_available() {
        let mut queue = queue(SenderQueueConfig { max_bytes_per_channel: 3, ..CONFIG }, 0);
        for _ in 0..3 {
            assert!(queue.is_available(key(0)));
            push(&mut queue, 0);
        }

        assert_eq!([0, 1].map(|it| queue.is_available(key(it))), [false, true]);
        queue.add_credit(key(0), 1).unwrap();
        sent(&mut queue);

        assert!(queue.is_available(key(0)));
    }

    #[test]
    fn a_channel_that_may_hold_nothing_holds_one_message() {
        let config = SenderQueueConfig { max_bytes_per_channel: 0, max_bytes: 0, ..CONFIG };
        let mut queue = queue(config, 0);

        for index in 0..3 {
            assert!(queue.is_available(key(index)));
            assert_eq!(push(&mut queue, index), Pushed::Accepted);
            assert!(!queue.is_available(key(index)));
        }
        queue.release(key(0));
        queue.release(key(0));

        assert_eq!(queue.bytes(), 2);
    }

    #[test]
    fn a_full_queue_takes_the_first_message_of_a_channel_and_no_other() {
        let mut queue = queue(SenderQueueConfig { max_bytes: 4, ..CONFIG }, 0);
        for channel in [0, 0, 1, 1] {
            push(&mut queue, channel);
        }
        assert!(!queue.is_available(key(0)));

        assert_eq!(push(&mut queue, 2), Pushed::Accepted);
        assert_eq!(push(&mut queue, 2), Pushed::Refused('x'));
        queue.release(key(0));

        assert!(queue.is_available(key(2)));
    }

    #[test]
    fn bytes_are_bounded_in_a_channel_and_in_all() {
        let mut queue = queue(CONFIG, 0);
        for (index, bytes) in [(0, 499), (0, 400), (1, 200)] {
            assert!(queue.is_available(key(index)));
            queue.push(key(index), 'x', 1, bytes).unwrap();
        }

        assert_eq!([0, 1, 2].map(|it| queue.is_available(key(it))), [false, false, true]);
        assert_eq!(push(&mut queue, 1), Pushed::Refused('x'));
        assert_eq!(push(&mut queue, 2), Pushed::Accepted);
        assert_eq!(push(&mut queue, 2), Pushed::Refused('x'));
        queue.add_credit(key(0), 1).unwrap();
        sent(&mut queue);

        assert_eq!(queue.bytes(), 601);
        assert_eq!([0, 1, 2].map(|it| queue.is_available(key(it))), [true; 3]);
    }

    #[test]
    fn a_receiver_cannot_make_the_sender_hold_any_number_of_places() {
        let mut queue = queue(CONFIG, 0);
        let far = key(u32::MAX);

        let error = queue.open(far, 1).unwrap_err();

        assert_eq!(error.to_string(), "channel `4294967295.0` is beyond the 3 that may be open");
        assert_eq!(queue.add_credit(far, 1), Err(UnknownChannel(far)));
        assert_eq!(queue.open(key(0), 1), Err(OpenError::Twice(key(0))));
    }

    #[test]
    fn old_credit_does_not_reach_the_next_channel_of_the_number() {
        let mut queue = queue(CONFIG, 0);
        queue.release(key(0));
        assert_eq!(queue.open(key(0), 1), Err(OpenError::Twice(key(0))));
        let next = ChannelKey { index: 0, generation: 1 };
        queue.open(next, 0).unwrap();

        queue.add_credit(key(0), 5).unwrap();
        queue.release(key(0));

        assert_eq!(queue.channel(next).map(SenderChannel::credit), Some(0));
        assert_eq!(queue.push(key(0), 'x', 1, 1), Ok(Pushed::Over('x')));
        let later = ChannelKey { index: 0, generation: 2 };
        assert_eq!(queue.add_credit(later, 1), Err(UnknownChannel(later)));
    }

    #[test]
    fn a_channel_is_over_with_its_end_and_all_before_it_is_sent() {
        let mut queue = queue(CONFIG, 1);
        push(&mut queue, 0);
        push(&mut queue, 0);
        queue.end(key(0), 'e').unwrap();
        assert_eq!(push(&mut queue, 0), Pushed::Over('x'));

        assert_eq!(sent(&mut queue), [0]);
        queue.add_credit(key(0), 1).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| queue.poll_message()).collect();

        let told = rest.iter().map(|(_, it)| (it.sequence, it.cost, it.payload));
        assert_eq!(told.collect::<Vec<_>>(), [(1, 1, 'x'), (2, 0, 'e')]);
        assert!(queue.channel(key(0)).is_none());
        assert_eq!(queue.add_credit(key(0), 1), Ok(()), "it was on its way");
    }

    #[test]
    fn a_reset_passes_by_what_waits_and_by_a_lack_of_credit() {
        let mut queue = queue(CONFIG, 0);
        push(&mut queue, 0);
        queue.end(key(0), 'e').unwrap();

        queue.reset(key(0), 'r').unwrap();

        let (_, message) = queue.poll_message().unwrap();
        assert_eq!((message.payload, message.sequence, queue.bytes()), ('r', 0, 0));
        assert!(queue.channel(key(0)).is_none() && !queue.has_message());
    }
}
