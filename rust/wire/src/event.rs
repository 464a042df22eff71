// SPDX-License-Identifier: Apache-2.0
//! What happens on a connection.

use std::fmt;

use bytes::Bytes;
use sparkawait_core::flow::ChannelKey;

/// Codes of [`Event::Reset`] and [`Event::GoneAway`] below this belong to this crate, the others to
/// its user.
pub const FIRST_CODE: u16 = 16;

/// The other end does not take so many channels, or is going away.
pub const REFUSED: u16 = 1;

/// What came on a channel, or on the whole connection, was not what it should be.
pub const BROKEN: u16 = 2;

/// What has happened.
#[derive(Clone, PartialEq, Eq)]
pub enum Event {
    /// The other end is who it should be.
    Greeted,
    /// The other end asks for what `subject` names; it is sent on the channel.
    Opened {
        /// The channel, to be sent on.
        channel: ChannelKey,
        /// What is asked for.
        subject: Bytes,
    },
    /// The other end wants no more of what is sent on a channel.
    Cancelled {
        /// The channel.
        channel: ChannelKey,
    },
    /// Something was received; recycle its credits when nobody needs it any more.
    Data {
        /// The channel, that it was received on.
        channel: ChannelKey,
        /// Its credits.
        cost: u32,
        /// What it is about.
        payload: Bytes,
    },
    /// Nothing more comes on a channel: all of it has come.
    Ended {
        /// The channel.
        channel: ChannelKey,
    },
    /// Nothing more comes on a channel.
    Reset {
        /// The channel.
        channel: ChannelKey,
        /// Why, as a stable number.
        code: u16,
        /// Why, in words.
        reason: Bytes,
    },
    /// The other end takes no new channels. With [`BROKEN`] it ends the connection at once.
    GoneAway {
        /// Why, as a stable number.
        code: u16,
        /// Why, in words.
        reason: Bytes,
    },
}

/// Shows channels and sizes only: payloads hold rows.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greeted => write!(f, "Greeted"),
            Self::Opened { channel, .. } => write!(f, "Opened({channel})"),
            Self::Cancelled { channel } => write!(f, "Cancelled({channel})"),
            Self::Data { channel, payload, .. } => {
                write!(f, "Data({channel}, {} bytes)", payload.len())
            }
            Self::Ended { channel } => write!(f, "Ended({channel})"),
            Self::Reset { channel, code, .. } => write!(f, "Reset({channel}, {code})"),
            Self::GoneAway { code, .. } => write!(f, "GoneAway({code})"),
        }
    }
}
