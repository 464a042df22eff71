// SPDX-License-Identifier: Apache-2.0
//! Frames out of bytes, and back.
//!
//! ```text
//!   0        4      5       8         12           16
//!   | length | kind | zeros | index   | generation | numbers of the kind | bytes |
//! ```
//!
//! All numbers are little-endian. The length is that of what follows the first
//! sixteen bytes. A payload is a slice of the bytes that came, and is not copied.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sparkawait_core::flow::ChannelKey;

use crate::frame::{Frame, Hello};

/// Bytes in front of what is particular to a kind.
const HEADER: usize = 16;

/// In front of the first frame of a connection: `spkawait` and nothing that changes with versions.
const MAGIC: &[u8; 8] = b"spkawait";

/// Bytes of a reason in words; the rest is cut off.
const MOST_REASON: usize = 1024;

/// Kinds as they are written. Never given to another frame.
mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const OPEN: u8 = 2;
    pub(super) const ADD_CREDIT: u8 = 3;
    pub(super) const CANCEL: u8 = 4;
    pub(super) const DATA: u8 = 5;
    pub(super) const END: u8 = 6;
    pub(super) const RESET: u8 = 7;
    pub(super) const GO_AWAY: u8 = 8;
}

/// What came is not a frame: the connection is useless from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are of something else.
    #[error("the other end does not speak the protocol of sparkawait")]
    NotOurs,
    /// A kind that this version does not know.
    #[error("a frame has the unknown kind {0}; both ends must have the same version")]
    UnknownKind(u8),
    /// More bytes than a frame may have.
    #[error("a frame has {length} bytes, more than {most}")]
    TooLong {
        /// What it says.
        length: usize,
        /// What is allowed.
        most: usize,
    },
    /// Fewer, or more, bytes than its kind has.
    #[error("a frame of kind {kind} has {length} bytes, which does not fit it")]
    Misfit {
        /// Its kind.
        kind: u8,
        /// What it says.
        length: usize,
    },
    /// A message that uses no credit would have no bound.
    #[error("a message uses no credit")]
    Free,
}

/// Reads and writes the frames of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    most: usize,
}

impl Codec {
    /// Makes a codec of frames with `most` bytes behind their header at most.
    pub const fn new(most: usize) -> Self {
        Self { most }
    }

    /// Takes the next frame out of `bytes`; `None` as long as it is not whole.
    ///
    /// Room for the rest of a frame that has begun is made in `bytes`, once, and never
    /// more than a frame may have.
    ///
    /// # Errors
    ///
    /// [`FrameError`]. Nothing that comes behind it can be read.
    pub fn decode(&self, bytes: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(mut header) = bytes.get(..HEADER) else { return Ok(None) };
        let length = usize::try_from(header.get_u32_le()).unwrap_or(usize::MAX);
        let kind = header.get_u8();
        header.advance(3);
        let channel = ChannelKey { index: header.get_u32_le(), generation: header.get_u32_le() };
        if !(kind::HELLO..=kind::GO_AWAY).contains(&kind) {
            return Err(FrameError::UnknownKind(kind));
        }
        if length > self.most {
            return Err(FrameError::TooLong { length, most: self.most });
        }
        if bytes.len() < HEADER + length {
            bytes.reserve(HEADER + length - bytes.len());
            return Ok(None);
        }
        bytes.advance(HEADER);
        let rest = bytes.split_to(length).freeze();
        read(kind, channel, rest).map(Some)
    }

    /// Writes a frame behind `bytes`, except its payload, which must follow it and is returned.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`]: the other end would not take it. Nothing was written.
    pub fn encode(&self, frame: Frame, bytes: &mut BytesMut) -> Result<Bytes, FrameError> {
        let start = bytes.len();
        bytes.put_bytes(0, HEADER);
        let channel = frame.channel();
        let (kind, payload) = write(frame, bytes);
        let length = bytes.len() - start - HEADER + payload.len();
        let told = u32::try_from(length).ok().filter(|_| length <= self.most);
        let Some(told) = told else {
            bytes.truncate(start);
            return Err(FrameError::TooLong { length, most: self.most });
        };
        let mut header = &mut bytes[start..start + HEADER];
        header.put_u32_le(told);
        header.put_u8(kind);
        header.put_bytes(0, 3);
        let ChannelKey { index, generation } =
            channel.unwrap_or(ChannelKey { index: 0, generation: 0 });
        header.put_u32_le(index);
        header.put_u32_le(generation);
        Ok(payload)
    }
}

/// Writes the numbers of a frame; returns its kind and payload.
fn write(frame: Frame, bytes: &mut BytesMut) -> (u8, Bytes) {
    match frame {
        Frame::Hello(Hello { version, token }) => {
            bytes.put_slice(MAGIC);
            bytes.put_u16_le(version);
            bytes.put_slice(&token);
            (kind::HELLO, Bytes::new())
        }
        Frame::Open { credit, subject, .. } => {
            bytes.put_u32_le(credit);
            (kind::OPEN, subject)
        }
        Frame::AddCredit { credit, .. } => {
            bytes.put_u32_le(credit);
            (kind::ADD_CREDIT, Bytes::new())
        }
        Frame::Cancel { .. } => (kind::CANCEL, Bytes::new()),
        Frame::Data { sequence, cost, backlog, payload, .. } => {
            bytes.put_u32_le(sequence);
            bytes.put_u32_le(cost);
            bytes.put_u32_le(backlog);
            (kind::DATA, payload)
        }
        Frame::End { sequence, .. } => {
            bytes.put_u32_le(sequence);
            (kind::END, Bytes::new())
        }
        Frame::Reset { code, reason, .. } => {
            bytes.put_u16_le(code);
            (kind::RESET, short(reason))
        }
        Frame::GoAway { code, reason } => {
            bytes.put_u16_le(code);
            (kind::GO_AWAY, short(reason))
        }
    }
}

fn short(mut reason: Bytes) -> Bytes {
    reason.truncate(MOST_REASON);
    reason
}

/// Reads what is particular to a kind.
fn read(kind: u8, channel: ChannelKey, mut rest: Bytes) -> Result<Frame, FrameError> {
    let length = rest.len();
    let misfit = FrameError::Misfit { kind, length };
    let numbers = match kind {
        kind::CANCEL => 0,
        kind::RESET | kind::GO_AWAY => 2,
        kind::DATA => 12,
        kind::HELLO => MAGIC.len() + 2 + 16,
        _ => 4,
    };
    let has_payload = matches!(kind, kind::OPEN | kind::DATA | kind::RESET | kind::GO_AWAY);
    if length < numbers || (length > numbers && !has_payload) {
        return Err(if kind == kind::HELLO { FrameError::NotOurs } else { misfit });
    }
    let mut head = rest.split_to(numbers);
    Ok(match kind {
        kind::HELLO => {
            if head.split_to(MAGIC.len()) != MAGIC[..] {
                return Err(FrameError::NotOurs);
            }
            let version = head.get_u16_le();
            let mut token = [0; 16];
            head.copy_to_slice(&mut token);
            Frame::Hello(Hello { version, token })
        }
        kind::OPEN => Frame::Open { channel, credit: head.get_u32_le(), subject: rest },
        kind::ADD_CREDIT => Frame::AddCredit { channel, credit: head.get_u32_le() },
        kind::CANCEL => Frame::Cancel { channel },
        kind::DATA => {
            let (sequence, cost) = (head.get_u32_le(), head.get_u32_le());
            if cost == 0 {
                return Err(FrameError::Free);
            }
            let backlog = head.get_u32_le();
            Frame::Data { channel, sequence, cost, backlog, payload: rest }
        }
        kind::END => Frame::End { channel, sequence: head.get_u32_le() },
        kind::RESET => Frame::Reset { channel, code: head.get_u16_le(), reason: short(rest) },
        kind::GO_AWAY => Frame::GoAway { code: head.get_u16_le(), reason: short(rest) },
        unknown => return Err(FrameError::UnknownKind(unknown)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::VERSION;

    const CODEC: Codec = Codec::new(1 << 20);

    fn encoded(frame: &Frame) -> BytesMut {
        let mut bytes = BytesMut::new();
        let payload = CODEC.encode(frame.clone(), &mut bytes).unwrap();
        bytes.put(payload);
        bytes
    }

    fn hello() -> Frame {
        Frame::Hello(Hello { version: VERSION, token: [7; 16] })
    }

    fn channels() -> impl Strategy<Value = ChannelKey> {
        any::<(u32, u32)>().prop_map(|(index, generation)| ChannelKey { index, generation })
    }

    fn texts() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let numbers = (any::<u32>(), 1..u32::MAX, any::<u32>(), any::<u16>());
        (0..8_u8, channels(), numbers, texts()).prop_map(|(kind, channel, numbers, text)| {
            let (first, cost, second, code) = numbers;
            match kind {
                0 => hello(),
                1 => Frame::Open { channel, credit: first, subject: text },
                2 => Frame::AddCredit { channel, credit: first },
                3 => Frame::Cancel { channel },
                4 => Frame::Data { channel, sequence: first, cost, backlog: second, payload: text },
                5 => Frame::End { channel, sequence: first },
                6 => Frame::Reset { channel, code, reason: text },
                _ => Frame::GoAway { code, reason: text },
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_however_it_is_cut(
            sent in prop::collection::vec(frames(), 1..8),
            cuts in prop::collection::vec(1..40_usize, 1..40),
        ) {
            let mut wire = BytesMut::new();
            for frame in &sent {
                wire.unsplit(encoded(frame));
            }
            let (mut came, mut received) = (BytesMut::new(), Vec::new());
            let mut cuts = cuts.into_iter().cycle();
            while !wire.is_empty() {
                let cut = cuts.next().unwrap_or(1).min(wire.len());
                came.unsplit(wire.split_to(cut));
                while let Some(frame) = CODEC.decode(&mut came).unwrap() {
                    received.push(frame);
                }
            }
            prop_assert_eq!(received, sent);
            prop_assert!(came.is_empty());
        }

        #[test]
        fn anything_is_a_frame_an_error_or_not_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..64), kind in 0..14_u8, length in 0..48_u8,
        ) {
            let mut came = BytesMut::from(&bytes[..]);
            if came.len() > 4 {
                came[..5].copy_from_slice(&[length, 0, 0, 0, kind]);
            }
            let before = came.clone();
            match CODEC.decode(&mut came) {
                Ok(Some(frame)) => {
                    // What was read is what would be written, except the bytes that say nothing.
                    let mut again = encoded(&frame);
                    again[5..8].copy_from_slice(&before[5..8]);
                    if frame.channel().is_none() {
                        again[8..16].copy_from_slice(&before[8..16]);
                    }
                    prop_assert_eq!(&again[..], &before[..again.len()]);
                    prop_assert_eq!(came.len(), before.len() - again.len());
                }
                Ok(None) => prop_assert_eq!(came, before),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn the_first_frame_has_the_same_bytes_in_every_version() {
        let mut expected = vec![26, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        expected.extend(b"spkawait\x01\x00");
        expected.extend([7; 16]);
        assert_eq!(encoded(&hello()), expected);
    }

    #[test]
    fn whoever_speaks_something_else_is_told_apart() {
        let mut http = BytesMut::from(&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..]);
        assert_eq!(CODEC.decode(&mut http), Err(FrameError::UnknownKind(b'/')));
        let mut other = encoded(&hello());
        other[HEADER] = b'x';
        assert_eq!(CODEC.decode(&mut other), Err(FrameError::NotOurs));
    }

    #[test]
    fn a_length_makes_no_more_room_than_a_frame_may_have() {
        let mut bytes = encoded(&Frame::Cancel { channel: ChannelKey { index: 1, generation: 2 } });
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let most = 1 << 20;
        let length = u32::MAX as usize;
        assert_eq!(CODEC.decode(&mut bytes), Err(FrameError::TooLong { length, most }));
        assert!(bytes.capacity() < 1000);
    }

    #[test]
    fn what_the_other_end_would_not_take_is_not_written() {
        let payload = Bytes::from(vec![0; (1 << 20) + 1]);
        let channel = ChannelKey { index: 0, generation: 0 };
        let mut bytes = BytesMut::from(&b"before"[..]);
        let frame = Frame::Data { channel, sequence: 0, cost: 1, backlog: 0, payload };
        assert!(matches!(CODEC.encode(frame, &mut bytes), Err(FrameError::TooLong { .. })));
        assert_eq!(bytes, &b"before"[..]);
    }

    #[test]
    fn a_message_uses_credit() {
        let channel = ChannelKey { index: 0, generation: 0 };
        let payload = Bytes::new();
        let free = Frame::Data { channel, sequence: 0, cost: 0, backlog: 0, payload };
        assert_eq!(CODEC.decode(&mut encoded(&free)), Err(FrameError::Free));
    }

    #[test]
    fn payloads_are_not_copied() {
        let channel = ChannelKey { index: 0, generation: 0 };
        let payload = Bytes::from(vec![5; 1000]);
        let mut came = encoded(&Frame::Data { channel, sequence: 0, cost: 1, backlog: 0, payload });
        let at = came[HEADER + 12..].as_ptr();
        let Ok(Some(Frame::Data { payload, .. })) = CODEC.decode(&mut came) else {
            panic!("it was whole");
        };
        assert_eq!(payload.as_ptr(), at);
    }

    #[test]
    fn neither_tokens_nor_rows_are_shown() {
        let shown = format!("{:?}", hello());
        assert_eq!(shown, "Hello { version: 1, .. }");
        let channel = ChannelKey { index: 3, generation: 4 };
        let payload = Bytes::from_static(b"secret");
        let data = Frame::Data { channel, sequence: 9, cost: 1, backlog: 2, payload };
        assert_eq!(format!("{data:?}"), "Data(3.4, #9, cost 1, backlog 2, 6 bytes)");
    }
}
