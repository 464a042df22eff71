// SPDX-License-Identifier: Apache-2.0
//! One task over record batches: the operator, and the seam of the function that it calls.
//!
//! ```text
//!   sparkawait._core
//!    |       |      \
//!    |    connect  testing     functions: HTTP, Redis, PostgreSQL; simulated ones
//!    |       |      /
//!    +---> task <--+           this crate: rows in, calls and replies, rows out
//!           / \
//!       arrow  runtime         columns; when it happens
//!           \ /
//!           core               what happens next
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`task`] | the operator of one task over record batches |
//! | [`row_config`] | what the rows of a task look like |
//! | [`task_codec`] | rows of record batches as elements of the operator |
//! | [`saved`] | what an operator holds, as batches that can be kept elsewhere |
//! | [`function`] | the calls that a function gets, the replies that it gives |
//! | [`native`] | what a native function is told when a task starts it |
//! | [`concurrency`] | how many calls a native function can have on their way |
//! | [`channel_finder`] | channels that a function finds by itself |
//! | [`channel_share`] | what one channel may have of what a function spreads over channels |
//! | [`fan_out`] | several functions for each row, side by side |
//! | [`journal`] | where what rows came to is kept from one run to the next |
//! | [`layer`] | what stands between the operator and the function: the cache |
//! | [`worker`] | the tokio task that the calls of a native function live in |
//! | [`supervision`] | tokio tasks that may panic |
//! | [`secret`] | texts that may change while tasks run, such as passwords |
//! | [`shared`] | what all tasks of a process share |
//! | [`row_prices`] | what rows cost of limits in time |
//! | [`text_check`] | texts that are not UTF-8, in rows that a native function reads |
//! | [`cause`] | how far a call has come that failed |
//! | [`error`] | why a call failed, and why a task failed |

mod call_share;
pub mod cause;
pub mod channel_finder;
pub mod channel_share;
pub mod concurrency;
pub mod error;
pub mod fan_out;
pub mod function;
pub mod journal;
pub mod layer;
pub mod native;
mod row_check;
pub mod row_config;
pub mod row_prices;
pub mod saved;
pub mod secret;
pub mod shared;
pub mod supervision;
pub mod task;
pub mod task_codec;
pub mod text_check;
pub mod worker;
