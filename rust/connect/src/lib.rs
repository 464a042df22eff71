// SPDX-License-Identifier: Apache-2.0
//! Native async functions, and the servers that tests call.
//!
//! | module | what lives there |
//! |---|---|
//! | [`function`] | the calls that a native function gets, the replies that it gives |
//! | [`native`] | what a native function is told when a task starts it |
//! | [`concurrency`] | how many calls a native function can have on their way |
//! | [`destinations`] | channels that a function finds by itself |
//! | [`template`] | texts with columns in braces, as keys and addresses are |
//! | [`lookup`] | found rows, a miss or a failure for each call |
//! | `column` | a column that grows, and can be cut back |
//! | [`text`], [`json`], [`json_path`] | result columns out of what a service returned |
//! | [`zone`] | time zones as Spark names them |
//! | [`cache`] | results that are kept, in front of any function |
//! | [`http`] | calls to HTTP services |
//! | [`supervision`], `owed` | tokio tasks that may panic, and the calls that wait for them |
//! | [`shared`] | what all tasks of a process share |
//! | [`exchange`] | rows of record batches as elements of the operator |
//! | [`task`] | the operator of one task over record batches |
//! | [`postgres`] | lookups in PostgreSQL |
//! | [`redis`] | lookups in Redis |
//! | [`simulated`] | a function that only takes time |
//! | [`lookup_server`] | an HTTP server with faults, for tests, demos and benches |
//! | [`latency`] | latency distributions of both |

pub mod cache;
pub mod channel_share;
mod column;
pub mod concurrency;
pub mod destinations;
pub mod error;
pub mod exchange;
pub mod function;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod json;
pub mod json_path;
pub mod latency;
pub mod lookup;
pub mod lookup_server;
pub mod native;
mod owed;
pub mod postgres;
pub mod redis;
mod reply_budget;
pub mod shared;
pub mod simulated;
pub mod supervision;
pub mod task;
pub mod template;
pub mod text;
mod tls;
mod worker;
pub mod zone;
