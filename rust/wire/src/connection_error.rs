// SPDX-License-Identifier: Apache-2.0
//! Why a connection, or a channel of it, cannot be used.

use crate::codec::FrameError;
use crate::frame::VERSION;

/// Why a connection is of no use any more, with all of its channels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// What came is not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other end has another version.
    #[error("the other end speaks version {theirs}, this one {VERSION}")]
    OtherVersion {
        /// Its version.
        theirs: u16,
    },
    /// The other end does not know the token, or said something before it.
    #[error("the other end is not the process that is wanted")]
    NotGreeted,
    /// The other end does not keep to the protocol.
    #[error("{0} was not expected; both ends must have the same version")]
    Unexpected(String),
    /// The other end asks and does not read what it is told.
    #[error("{0} answers wait to be read by the other end")]
    NotRead(usize),
}

/// Nothing can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The other end is going away.
    #[error("the other end is going away")]
    GoingAway,
    /// As many channels are open as may be.
    #[error("{0} channels are open, as many as may be")]
    TooMany(u32),
}
