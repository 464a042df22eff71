// SPDX-License-Identifier: Apache-2.0
//! What there is to say.

use std::fmt;

use bytes::Bytes;
use sparkawait_core::flow::ChannelKey;

/// The version of the frames. Ends of different versions do not talk to each other.
pub const VERSION: u16 = 1;

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The version that the other end must have, too.
    pub version: u16,
    /// Something random that both ends were told elsewhere.
    pub token: [u8; 16],
}

// Without the token, which is a secret.
sparkawait_core::opaque_debug!(Hello, version: version);

/// One message.
#[derive(Clone, PartialEq, Eq)]
pub enum Frame {
    /// The first of each end.
    Hello(Hello),
    /// Asks for what `subject` names, on a channel of its own.
    Open {
        /// The channel.
        channel: ChannelKey,
        /// Credits that the sender has at once.
        credit: u32,
        /// What is asked for; the ends know how to read it.
        subject: Bytes,
    },
    /// Gives further credits.
    AddCredit {
        /// The channel.
        channel: ChannelKey,
        /// So many more.
        credit: u32,
    },
    /// Wants no more of a channel.
    Cancel {
        /// The channel.
        channel: ChannelKey,
    },
    /// A message, which uses credit.
    Data {
        /// The channel.
        channel: ChannelKey,
        /// Its place among the messages of the channel; starts again at zero after `u32::MAX`.
        sequence: u32,
        /// The credit that it uses, at least one.
        cost: u32,
        /// The credits that all that waits behind it would use.
        backlog: u32,
        /// What it is about.
        payload: Bytes,
    },
    /// The last message of a channel; uses no credit.
    End {
        /// The channel.
        channel: ChannelKey,
        /// Its place among the messages.
        sequence: u32,
    },
    /// A channel ends without its last message.
    Reset {
        /// The channel.
        channel: ChannelKey,
        /// Why, as a stable number.
        code: u16,
        /// Why, in words.
        reason: Bytes,
    },
    /// Nothing new will be opened; what is open goes on, except after a breach of the protocol.
    GoAway {
        /// Why, as a stable number.
        code: u16,
        /// Why, in words.
        reason: Bytes,
    },
}

impl Frame {
    /// Returns the channel that it is about, if it is about one.
    pub const fn channel(&self) -> Option<ChannelKey> {
        match self {
            Self::Hello(_) | Self::GoAway { .. } => None,
            Self::Open { channel, .. }
            | Self::AddCredit { channel, .. }
            | Self::Cancel { channel }
            | Self::Data { channel, .. }
            | Self::End { channel, .. }
            | Self::Reset { channel, .. } => Some(*channel),
        }
    }
}

/// Shows what kind it is, its channel and its numbers: payloads hold rows.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(hello) => hello.fmt(f),
            Self::Open { channel, credit, subject } => {
                write!(f, "Open({channel}, credit {credit}, {} bytes)", subject.len())
            }
            Self::AddCredit { channel, credit } => write!(f, "AddCredit({channel}, {credit})"),
            Self::Cancel { channel } => write!(f, "Cancel({channel})"),
            Self::Data { channel, sequence, cost, backlog, payload } => write!(
                f,
                "Data({channel}, #{sequence}, cost {cost}, backlog {backlog}, {} bytes)",
                payload.len()
            ),
            Self::End { channel, sequence } => write!(f, "End({channel}, #{sequence})"),
            Self::Reset { channel, code, .. } => write!(f, "Reset({channel}, {code})"),
            Self::GoAway { code, .. } => write!(f, "GoAway({code})"),
        }
    }
}
