// SPDX-License-Identifier: Apache-2.0
//! What happens next in an asynchronous operator: deterministic, sans-IO.
//!
//! This crate decides in which order elements leave, which call starts, which
//! attempt is repeated and what a deadline does. It reads no clock, starts no
//! thread and performs no I/O: time is an argument, effects are returned
//! values. The same [`AsyncWaitOperator`] is driven by tokio in production and
//! by a manual clock in tests.
//!
//! | module | what lives there | counterpart in Flink |
//! |---|---|---|
//! | [`operator`] | [`AsyncWaitOperator`]: admission, completion, retry, timeout, snapshot | `AsyncWaitOperator` |
//! | [`queue`] | ordered, unordered and key-ordered queues of stream elements | `StreamElementQueue` |
//! | [`mailbox`] | the task's mailbox and its processor | `TaskMailbox`, `MailboxProcessor` |
//! | [`flow`] | credits, floating pool, channels, debloating | credit-based flow control |
//! | [`policy`] | limits in time, pauses, budgets | `RateLimitingStrategy`, and beyond |
//! | [`retry`] | fixed-delay and exponential back-off | `AsyncRetryStrategies` |
//! | [`slab`] | values at places that are used again | - |
//! | [`timer`] | deadlines and delayed retries | processing-time timers |
//!
//! Everything is `&mut self` but `mailbox::Inbox`, the only type that
//! threads share.

pub mod element;
pub mod error;
pub mod flow;
mod key_hasher;
pub mod mailbox;
mod opaque_debug;
pub mod operator;
pub mod policy;
pub mod queue;
pub mod retry;
pub mod slab;
mod sync;
pub mod time;
pub mod timer;

pub use element::{Key, StreamElement, StreamRecord, Timestamp, Watermark};
pub use error::ErrorKind;
pub use operator::AsyncWaitOperator;
pub use time::ProcessingTime;
