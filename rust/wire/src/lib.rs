// SPDX-License-Identifier: Apache-2.0
//! What two worker processes say to each other, as frames; sans-IO.
//!
//! ```text
//!     transport      bytes, from a socket: not here
//!         |
//!     connection     many channels on one transport; greeting, ends
//!      |      |
//!    codec  core::flow   frames out of bytes, and back; who may say how much
//!      |
//!    frame           what there is to say
//! ```
//!
//! It is the credit-based network stack of Flink, whose messages are these:
//!
//! | frame | message of Flink | who sends it |
//! |---|---|---|
//! | [`Frame::Hello`] | the magic number in front of each | both, first of all |
//! | [`Frame::Open`] | `PartitionRequest` | the receiver |
//! | [`Frame::AddCredit`] | `AddCredit` | the receiver |
//! | [`Frame::Cancel`] | `CancelPartitionRequest` | the receiver |
//! | [`Frame::Data`] | `BufferResponse` | the sender |
//! | [`Frame::End`] | `EndOfPartitionEvent` in a `BufferResponse` | the sender |
//! | [`Frame::Reset`] | `ErrorResponse` | the sender |
//! | [`Frame::GoAway`] | `CloseRequest` | both |

pub mod codec;
pub mod connection;
mod connection_config;
mod connection_error;
pub mod event;
pub mod frame;

pub use codec::{Codec, FrameError};
pub use connection::{Connection, cost_of};
pub use connection_config::ConnectionConfig;
pub use connection_error::{ConnectionError, Refused};
pub use event::Event;
pub use frame::{Frame, Hello, VERSION};
pub use sparkawait_core::flow::ChannelKey;
