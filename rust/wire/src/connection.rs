// SPDX-License-Identifier: Apache-2.0
//! Many channels on one transport, sans-IO: bytes in, bytes and events out.
//!
//! ```text
//!   bytes --> handle_read --> | gate  (receives)   | --> poll_event --> Data, Ended, Reset
//!                             |                    |                    Opened, Cancelled
//!   bytes <-- poll_write  <-- | queue (sends)      | <-- open, recycle, cancel
//!                             | control (in front) | <-- push, end, reset, go_away
//! ```
//!
//! Each end numbers the channels that it receives on; the kind of a frame says whose number it has.
//! Whatever one channel does, the others go on: [`ConnectionError`] is of what concerns all of them.
//! To be used from one thread at a time.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sparkawait_core::flow::{
    ChannelError, ChannelKey, Message, OpenError, Pushed, ReceiverGate, SenderQueue,
    SenderQueueConfig, UnknownChannel,
};

use crate::codec::Codec;
use crate::connection_config::ConnectionConfig;
use crate::connection_error::{ConnectionError, Refused};
use crate::event::{BROKEN, Event, REFUSED};
use crate::frame::{Frame, Hello, VERSION};

/// Bytes that a credit stands for. Part of the protocol: both ends count alike.
pub const CREDIT_BYTES: usize = 64 << 10;

/// Bytes of a frame of an end that has not said who it is, behind its header.
const MOST_UNGREETED: usize = 64 << 10;

/// Payloads from here on are not copied behind their header.
const MOST_COPIED: usize = 4 << 10;

/// Returns the credits that a payload of so many bytes uses.
pub fn cost_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(CREDIT_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// What to send on a channel.
#[derive(Debug)]
enum Outgoing {
    Data(Bytes),
    End,
    Reset { code: u16, reason: Bytes },
}

/// Whether this end closes the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// It opens nothing any more.
    GoingAway,
    /// The other end has broken the protocol: it is told so, and nothing more.
    Broken,
}

/// One end of a connection.
pub struct Connection {
    config: ConnectionConfig,
    codec: Codec,
    hello: Hello,
    /// Whether the other end has said who it is.
    is_greeted: bool,
    gate: ReceiverGate,
    /// Channels that are received on and have not ended.
    receiving: u32,
    queue: SenderQueue<Outgoing>,
    /// What goes in front of messages.
    control: VecDeque<Frame>,
    has_said_hello: bool,
    events: VecDeque<Event>,
    closing: Closing,
    is_peer_going_away: bool,
}

impl Connection {
    /// Makes an end of a connection whose other end knows `token`, too.
    pub fn new(config: ConnectionConfig, token: [u8; 16]) -> Self {
        let queue = SenderQueueConfig {
            max_channels: config.max_channels,
            max_bytes: config.max_bytes,
            max_bytes_per_channel: config.max_bytes_per_channel,
        };
        Self {
            config,
            codec: Codec::new(config.max_frame),
            hello: Hello { version: VERSION, token },
            is_greeted: false,
            gate: ReceiverGate::new(config.floating),
            receiving: 0,
            queue: SenderQueue::new(queue),
            control: VecDeque::new(),
            has_said_hello: false,
            events: VecDeque::new(),
            closing: Closing::No,
            is_peer_going_away: false,
        }
    }

    /// Returns whether the other end has said who it is.
    pub const fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Returns the channels that are received on and have not ended.
    pub const fn receiving(&self) -> u32 {
        self.receiving
    }

    /// Returns the credits: what is received and for which channel.
    pub const fn gate(&self) -> &ReceiverGate {
        &self.gate
    }

    /// Asks the other end for what `subject` names.
    ///
    /// # Errors
    ///
    /// [`Refused`].
    pub fn open(&mut self, subject: Bytes) -> Result<ChannelKey, Refused> {
        if self.is_peer_going_away {
            return Err(Refused::GoingAway);
        }
        // The other end counts places, and so those of channels that are over here but not recycled.
        if self.gate.next_channel().index >= self.config.max_channels {
            return Err(Refused::TooMany(self.config.max_channels));
        }
        self.receiving += 1;
        let channel = self.gate.open(self.config.exclusive, self.config.limit);
        self.control.push_back(Frame::Open { channel, credit: self.config.exclusive, subject });
        Ok(channel)
    }

    /// Ends the use of what was received.
    pub fn recycle(&mut self, channel: ChannelKey, cost: u32) {
        self.gate.recycle(channel, cost);
    }

    /// Wants no more of a channel. Recycle what was received all the same. Idempotent.
    pub fn cancel(&mut self, channel: ChannelKey) {
        if self.is_receiving(channel) {
            self.forget(channel);
            self.control.push_back(Frame::Cancel { channel });
        }
    }

    /// Returns whether more should be sent on a channel now.
    pub fn is_available(&self, channel: ChannelKey) -> bool {
        self.queue.is_available(channel)
    }

    /// Returns whether a channel can be sent on: it was opened, and nothing has ended it.
    pub fn is_sending(&self, channel: ChannelKey) -> bool {
        self.queue.channel(channel).is_some()
    }

    /// Sends something on a channel as soon as the other end wants it.
    ///
    /// # Errors
    ///
    /// The payload, if the channel is over, or more waits than may.
    pub fn push(&mut self, channel: ChannelKey, payload: Bytes) -> Result<(), Bytes> {
        let (cost, bytes) = (cost_of(payload.len()), payload.len());
        let payload = match self.queue.push(channel, Outgoing::Data(payload), cost, bytes) {
            Ok(Pushed::Accepted) => return Ok(()),
            Ok(Pushed::Refused(payload) | Pushed::Over(payload)) => payload,
            Err(UnknownChannel(_)) => return Err(Bytes::new()),
        };
        match payload {
            Outgoing::Data(payload) => Err(payload),
            Outgoing::End | Outgoing::Reset { .. } => Err(Bytes::new()),
        }
    }

    /// Ends a channel behind what waits. Nothing happens if it is over.
    pub fn end(&mut self, channel: ChannelKey) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a channel that never was has nothing to end"
        )]
        let _ = self.queue.end(channel, Outgoing::End);
    }

    /// Ends a channel at once, and says why. Nothing happens if it is over.
    pub fn reset(&mut self, channel: ChannelKey, code: u16, reason: Bytes) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a channel that never was has nothing to end"
        )]
        let _ = self.queue.reset(channel, Outgoing::Reset { code, reason });
    }

    /// Takes no new channels from now on; those that are open go on.
    pub fn go_away(&mut self, code: u16, reason: Bytes) {
        if self.closing == Closing::No {
            self.closing = Closing::GoingAway;
            self.control.push_back(Frame::GoAway { code, reason });
        }
    }

    /// Takes what has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes what has come; the rest of a frame that is not whole stays in `bytes`.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`]. The connection is of no use any more; what is still to be written tells the
    /// other end why, if it has said who it is.
    pub fn handle_read(&mut self, bytes: &mut BytesMut) -> Result<(), ConnectionError> {
        let read = self.read(bytes);
        if let Err(error) = &read {
            self.closing = Closing::Broken;
            self.control.clear();
            let reason = Bytes::from(error.to_string());
            self.control.push_back(Frame::GoAway { code: BROKEN, reason });
        }
        read
    }

    fn read(&mut self, bytes: &mut BytesMut) -> Result<(), ConnectionError> {
        loop {
            // Room is made for a frame that has begun, and nobody has said a secret yet.
            let most = if self.is_greeted() { self.config.max_frame } else { MOST_UNGREETED };
            let codec = Codec::new(most.min(self.config.max_frame));
            let Some(frame) = codec.decode(bytes)? else { return Ok(()) };
            if self.is_greeted() {
                self.handle(frame)?;
            } else {
                self.greet(&frame)?;
            }
            if self.control.len() > 4 * self.config.max_channels as usize {
                return Err(ConnectionError::NotRead(self.control.len()));
            }
        }
    }

    fn greet(&mut self, frame: &Frame) -> Result<(), ConnectionError> {
        let Frame::Hello(theirs) = frame else { return Err(ConnectionError::NotGreeted) };
        if theirs.version != VERSION {
            return Err(ConnectionError::OtherVersion { theirs: theirs.version });
        }
        if theirs.token != self.hello.token {
            return Err(ConnectionError::NotGreeted);
        }
        self.is_greeted = true;
        self.events.push_back(Event::Greeted);
        Ok(())
    }

    fn handle(&mut self, frame: Frame) -> Result<(), ConnectionError> {
        match frame {
            Frame::Hello(_) => return Err(unexpected(&frame)),
            Frame::Open { channel, credit, subject } => {
                return self.handle_open(channel, credit, subject);
            }
            Frame::AddCredit { channel, credit } => {
                return self.queue.add_credit(channel, credit).map_err(unknown);
            }
            Frame::Cancel { channel } => {
                if self.is_sending(channel) {
                    self.queue.release(channel);
                    self.events.push_back(Event::Cancelled { channel });
                }
            }
            Frame::Data { channel, sequence, cost, backlog, payload } => {
                if cost != cost_of(payload.len()) {
                    self.fail(channel, "a message does not cost what it should");
                    return Ok(());
                }
                let received = self.gate.receive(channel, sequence, cost, backlog);
                if self.check(channel, received)? {
                    self.events.push_back(Event::Data { channel, cost, payload });
                }
            }
            Frame::End { channel, sequence } => {
                let received = self.gate.receive(channel, sequence, 0, 0);
                if self.check(channel, received)? {
                    self.forget(channel);
                    self.events.push_back(Event::Ended { channel });
                }
            }
            Frame::Reset { channel, code, reason } => {
                if self.is_receiving(channel) {
                    self.forget(channel);
                    self.events.push_back(Event::Reset { channel, code, reason });
                }
            }
            Frame::GoAway { code, reason } => {
                self.is_peer_going_away = true;
                self.events.push_back(Event::GoneAway { code, reason });
            }
        }
        Ok(())
    }

    fn handle_open(
        &mut self,
        channel: ChannelKey,
        credit: u32,
        subject: Bytes,
    ) -> Result<(), ConnectionError> {
        match self.queue.open(channel, credit) {
            Ok(()) if self.closing != Closing::No => {
                self.reset(channel, REFUSED, Bytes::from_static(b"going away"));
            }
            Ok(()) => self.events.push_back(Event::Opened { channel, subject }),
            Err(error @ OpenError::TooMany { .. }) => {
                let reason = Bytes::from(error.to_string());
                self.control.push_back(Frame::Reset { channel, code: REFUSED, reason });
            }
            Err(error @ OpenError::Twice(_)) => {
                return Err(ConnectionError::Unexpected(error.to_string()));
            }
        }
        Ok(())
    }

    /// Returns whether what came on a channel is of use.
    fn check(
        &mut self,
        channel: ChannelKey,
        received: Result<(), ChannelError>,
    ) -> Result<bool, ConnectionError> {
        match received {
            Ok(()) => Ok(true),
            Err(ChannelError::Released(_)) => Ok(false),
            Err(error @ ChannelError::Unknown(_)) => {
                Err(ConnectionError::Unexpected(error.to_string()))
            }
            Err(error) => {
                self.fail(channel, &error.to_string());
                Ok(false)
            }
        }
    }

    /// Gives a channel up that the other end has broken; the others go on.
    fn fail(&mut self, channel: ChannelKey, reason: &str) {
        // It has failed, but was not released.
        if self.gate.channel(channel).is_some_and(|it| !is_released(it.check())) {
            self.forget(channel);
            self.control.push_back(Frame::Cancel { channel });
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            self.events.push_back(Event::Reset { channel, code: BROKEN, reason });
        }
    }

    fn is_receiving(&self, channel: ChannelKey) -> bool {
        self.gate.channel(channel).is_some_and(|it| it.check().is_ok())
    }

    /// Lets go of a channel that is received on.
    fn forget(&mut self, channel: ChannelKey) {
        self.gate.release(channel);
        self.receiving = self.receiving.saturating_sub(1);
    }

    /// Returns whether there is something to be written.
    pub fn has_output(&self) -> bool {
        let has_more = !self.control.is_empty()
            || (self.closing != Closing::Broken
                && (self.gate.has_announcement() || self.queue.has_message()));
        !self.has_said_hello || (self.is_greeted() && has_more)
    }

    /// Takes what to write, in order: about `at_most` bytes, and the last message beyond.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Frame`]: something to send is longer than a frame may be.
    pub fn poll_write(
        &mut self,
        at_most: usize,
        chunks: &mut Vec<Bytes>,
    ) -> Result<(), ConnectionError> {
        let (mut head, mut written) = (BytesMut::new(), 0);
        while written < at_most
            && let Some(frame) = self.next_frame()
        {
            let before = head.len();
            let payload = self.codec.encode(frame, &mut head)?;
            written += head.len() - before + payload.len();
            if payload.len() < MOST_COPIED {
                head.extend_from_slice(&payload);
            } else {
                chunks.push(head.split().freeze());
                chunks.push(payload);
            }
        }
        if !head.is_empty() {
            chunks.push(head.freeze());
        }
        Ok(())
    }

    /// Takes what goes next. Nothing goes to an end that has not named itself.
    fn next_frame(&mut self) -> Option<Frame> {
        if !self.has_said_hello {
            self.has_said_hello = true;
            return Some(Frame::Hello(self.hello));
        }
        if !self.is_greeted() {
            return None;
        }
        if let Some(frame) = self.control.pop_front() {
            return Some(frame);
        }
        if self.closing == Closing::Broken {
            return None;
        }
        if let Some((channel, credit)) = self.gate.poll_announcement() {
            return Some(Frame::AddCredit { channel, credit });
        }
        let (channel, message) = self.queue.poll_message()?;
        let Message { sequence, cost, backlog, payload } = message;
        Some(match payload {
            Outgoing::Data(payload) => Frame::Data { channel, sequence, cost, backlog, payload },
            Outgoing::End => Frame::End { channel, sequence },
            Outgoing::Reset { code, reason } => Frame::Reset { channel, code, reason },
        })
    }
}

// Shows nothing of the token, which is a secret, nor of payloads, which hold rows.
sparkawait_core::opaque_debug!(Connection, is_greeted: is_greeted(), receiving: receiving);

const fn is_released(state: Result<(), ChannelError>) -> bool {
    matches!(state, Err(ChannelError::Released(_)))
}

fn unexpected(frame: &Frame) -> ConnectionError {
    ConnectionError::Unexpected(format!("{frame:?}"))
}

fn unknown(error: UnknownChannel) -> ConnectionError {
    ConnectionError::Unexpected(error.to_string())
}
