// SPDX-License-Identifier: Apache-2.0
//! What two worker processes say to one another, as frames; sans-IO.
//!
//! ```text
//!     transport      bytes, from a socket: not here
//!         |
//!       codec        frames out of bytes, and back
//!         |
//!       frame        what there is to say
//!         |
//!   core::flow       who may say how much
//! ```
//!
//! It is the credit-based network stack of Flink, whose messages are these:
//!
//! | frame | message of Flink | who sends it |
//! |---|---|---|
//! | [`Frame::Hello`] | the magic number in front of each | both, first of all |
//! | [`Frame::Open`] | `PartitionRequest` | the receiver |
//! | [`Frame::AddCredit`] | `AddCredit` | the receiver |
//! | [`Frame::Resume`] | `ResumeConsumption` | the receiver |
//! | [`Frame::BatchSize`] | `NewBufferSize` | the receiver |
//! | [`Frame::Cancel`] | `CancelPartitionRequest` | the receiver |
//! | [`Frame::Data`] | `BufferResponse` | the sender |
//! | [`Frame::Backlog`] | `BacklogAnnouncement` | the sender |
//! | [`Frame::End`] | `EndOfPartitionEvent` in a `BufferResponse` | the sender |
//! | [`Frame::Reset`] | `ErrorResponse` | the sender |
//! | [`Frame::GoAway`] | `CloseRequest` | both |

pub mod codec;
pub mod frame;

pub use codec::{Codec, FrameError};
pub use frame::{Channel, Frame, Hello, VERSION};
