// SPDX-License-Identifier: Apache-2.0
//! When things happen: drives the operator with a clock, a mailbox and tokio.
//!
//! | module | what lives there |
//! |---|---|
//! | [`driver`] | the mailbox loop of a task |
//! | [`mod@drive`] | the thread of the loop, from its first turn to the word about its end |
//! | [`driven_task`] | a task with its thread, and the hand-over of output to another one |
//! | [`operator_chain`], [`chained_operator`] | the operators that the loop drives, each the input of the next |
//! | [`batch_codec`], [`async_function`] | what the loop moves, and the function that it calls |
//! | `account` | each row that came in has left once, or is held |
//! | [`mail`] | what other threads tell the task |
//! | [`part`] | input that comes in parts, whose rows outlive them |
//! | [`feeder`] | the bounded hand-over of input from another thread |
//! | [`clock`], [`parker`] | the monotonic clock, and waiting for a wake-up |
//! | [`shared_page`], [`host_limit`], [`held_part`] | limits that the processes of a host share |
//! | [`private_folder`] | where these processes find one another |
//! | [`log`] | what the process has to say |
//! | [`metrics`] | what a task publishes |
//! | [`tokio_runtime`] | one tokio runtime per process |
//!
//! The crate is generic in what flows: it knows neither Arrow nor Python.

mod account;
pub mod async_function;
pub mod batch_codec;
mod byte_bounds;
mod capacity_growth;
pub mod chained_operator;
mod channel_recorder;
pub mod clock;
mod commit_gate;
pub mod drive;
pub mod driven_task;
pub mod driver;
mod driver_config;
pub mod fan_out;
pub mod feeder;
pub mod held_part;
pub mod host_limit;
pub mod log;
pub mod mail;
pub mod metrics;
pub mod operator_chain;
mod output_flusher;
mod output_size;
pub mod parker;
pub mod part;
pub mod private_folder;
pub mod shared_page;
pub mod tokio_runtime;
mod warnings;

pub use account::Settled;
pub use async_function::AsyncFunction;
pub use batch_codec::{BatchCodec, CarryCodec, Restored, RowsLeft};
pub use capacity_growth::GrowthConfig;
pub use chained_operator::ChainedOperator;
pub use channel_recorder::NamedChannels;
pub use commit_gate::{Commits, Urgency};
pub use drive::{drive, panic_message};
pub use driven_task::DrivenTask;
pub use driver::{Carry, Driver, Mailbox, Turn};
pub use driver_config::DriverConfig;
pub use fan_out::FanOut;
pub use feeder::Feeder;
pub use mail::ReplySender;
pub use metrics::{MetricsReader, OperatorMetrics};
pub use operator_chain::OperatorChain;
pub use output_flusher::BufferTimeout;
pub use part::Patience;
