// SPDX-License-Identifier: Apache-2.0
//! Frames over a stream between two processes of one user.

use std::fmt;
use std::io::{self, ErrorKind as IoKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sparkawait_wire::{ChannelKey, Codec, Frame, Hello, VERSION};

/// Bytes of a frame; what is longer travels in pieces.
const MOST_FRAME: usize = 64 << 20;

/// How long the other end may take for its part of the greeting.
pub(super) const GREETING: Duration = Duration::from_secs(2);

/// The only channel of a connection.
pub(super) const CHANNEL: ChannelKey = ChannelKey { index: 0, generation: 0 };

/// Tells whether the other end is a process of the same user.
#[cfg(target_os = "linux")]
fn is_ours(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::getuid())
}

/// The folder sees to it.
#[cfg(not(target_os = "linux"))]
fn is_ours(_stream: &UnixStream) -> bool {
    true
}
/// Frames over a stream.
pub(super) struct Connection {
    stream: UnixStream,
    codec: Codec,
    received: BytesMut,
    pub(super) sequence: u32,
    /// Messages that the other end wants.
    pub(super) credit: u32,
}

impl Connection {
    /// Says who is there, and hears who is at the other end.
    pub(super) fn greet(stream: UnixStream, token: [u8; 16]) -> io::Result<Self> {
        if !is_ours(&stream) {
            return Err(io::Error::new(IoKind::PermissionDenied, "another user's process"));
        }
        let codec = Codec::new(MOST_FRAME);
        let received = BytesMut::new();
        let mut connection = Self { stream, codec, received, sequence: 0, credit: 0 };
        let hello = Hello { version: VERSION, token };
        connection.send(Frame::Hello(hello))?;
        match connection.receive(GREETING)? {
            Some(Frame::Hello(other)) if other == hello => Ok(connection),
            _ => Err(io::Error::new(IoKind::InvalidData, "not the process that is wanted")),
        }
    }

    pub(super) fn send(&mut self, frame: Frame) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        let payload = self.codec.encode(frame, &mut bytes).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)?;
        self.stream.write_all(&payload)
    }

    /// Returns the next frame, if it is there within `timeout`.
    pub(super) fn receive(&mut self, timeout: Duration) -> io::Result<Option<Frame>> {
        self.stream.set_read_timeout(Some(timeout))?;
        loop {
            if let Some(frame) = self.codec.decode(&mut self.received).map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            let start = self.received.len();
            let room = (self.received.capacity() - start).clamp(64 << 10, 1 << 20);
            self.received.resize(start + room, 0);
            let read = self.stream.read(&mut self.received[start..]);
            self.received.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(IoKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) if error.kind() == IoKind::Interrupted => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message, for which there is a credit.
    pub(super) fn send_data(&mut self, about: u8, parts: &[&[u8]]) -> io::Result<()> {
        let mut payload = Vec::with_capacity(1 + parts.iter().map(|it| it.len()).sum::<usize>());
        payload.push(about);
        for part in parts {
            payload.extend(*part);
        }
        let (sequence, payload) = (self.sequence, Bytes::from(payload));
        self.sequence = sequence.wrapping_add(1);
        self.credit = self.credit.saturating_sub(1);
        self.send(Frame::Data { channel: CHANNEL, sequence, cost: 1, backlog: 0, payload })
    }

    pub(super) fn add_credit(&mut self) -> io::Result<()> {
        self.send(Frame::AddCredit { channel: CHANNEL, credit: 1 })
    }

    pub(super) fn reset(&mut self, code: u16, reason: String) -> io::Result<()> {
        self.send(Frame::Reset { channel: CHANNEL, code, reason: Bytes::from(reason) })
    }
}

/// Says that the other end does not keep to the protocol.
pub(super) fn unexpected(frame: &Frame) -> io::Error {
    io::Error::new(IoKind::InvalidData, format!("{frame:?} was not expected"))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
