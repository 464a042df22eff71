// SPDX-License-Identifier: Apache-2.0
//! What came on a channel of a connection.

use std::collections::VecDeque;

use bytes::Bytes;
use sparkawait_wire::ChannelKey;

/// What came on a channel and nobody has taken.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) messages: VecDeque<(u32, Bytes)>,
    pub(super) end: Option<Received>,
    /// A channel that the other end wants something on, because of this one.
    pub(super) wanted: Option<ChannelKey>,
}

/// What came on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A message; recycle its credits.
    Message(u32, Bytes),
    /// Nothing more comes.
    Ended,
    /// Nothing more comes, because the other end says so.
    Reset(u16, Bytes),
    /// The other end wants something on this channel.
    Wanted(ChannelKey),
    /// Nothing came in time.
    Nothing,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.end.is_none() && self.wanted.is_none()
    }

    /// Takes the next of it.
    pub(super) fn take(&mut self) -> Received {
        if let Some(channel) = self.wanted.take() {
            return Received::Wanted(channel);
        }
        if let Some((cost, payload)) = self.messages.pop_front() {
            return Received::Message(cost, payload);
        }
        self.end.clone().unwrap_or(Received::Nothing)
    }
}
