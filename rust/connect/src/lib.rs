// SPDX-License-Identifier: Apache-2.0
//! Native async functions: lookups in services and databases.
//!
//! ```text
//!   sparkawait._core
//!        |
//!     connect         this crate: http, redis, postgres
//!        |
//!      task
//! ```
//!
//! | client | what it does |
//! |---|---|
//! | `http` | calls to HTTP services |
//! | `postgres` | lookups in PostgreSQL |
//! | `redis` | lookups in Redis |
//!
//! Each is a feature of that name; a build without one has neither its code nor its libraries.
//!
//! | what they share | what it is |
//! |---|---|
//! | [`connectors`] | the table of them, by name |
//! | [`template`] | texts with columns in braces, as keys and addresses are |
//! | [`lookup`] | found rows, a miss or a failure for each call |
//! | `column` | a column that grows, and can be cut back |
//! | [`exchange`] | the seam of a connector: it connects and asks, all else is there |
//! | [`failure`] | why a call failed, and what may be done about it |
//! | `dial` | TCP connections to a host of several addresses |
//! | [`limit_server`], [`job_limits`] | the limits of a job: who grants them, and who asks |
//! | `lines` | rows that wait for a request of many rows, channel by channel |
//! | `making` | what callers share and wait for beside connections, made by a task of its own |
//! | [`limit_headers`] | what a response says of the limits of its service |
//! | [`text`], [`json`], [`json_path`] | result columns out of what a service returned |
//! | [`zone`] | time zones as Spark names them |
//! | `pool` | the connections to one server: made, kept, given to calls, and closed in time |
//! | `owed_calls` | calls that somebody has undertaken to answer |
//! | `reply_budget` | what the replies that a task is reading come to together |
//! | `requests` | requests of many rows each, over a bounded number of connections |
//! | `settings` | what tells the settings of one connection from those of another, and times |
//! | `tls` | certificates, and whom to trust |

#![cfg_attr(
    not(all(feature = "http", feature = "postgres", feature = "redis")),
    allow(
        dead_code,
        unused_imports,
        reason = "what clients share is whole, whichever of them there are"
    )
)]

mod column;
pub mod connectors;
#[cfg(feature = "tls")]
mod dial;
#[cfg(feature = "tls")]
pub mod exchange;
pub mod failure;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "redis")]
pub mod job_limits;
pub mod json;
pub mod json_path;
pub mod limit_headers;
#[cfg(feature = "redis")]
pub mod limit_server;
#[cfg(feature = "tls")]
mod lines;
pub mod lookup;
#[cfg(feature = "tls")]
mod making;
#[cfg(feature = "redis")]
mod owed_calls;
#[cfg(feature = "tls")]
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "tls")]
mod reply_budget;
#[cfg(feature = "tls")]
mod requests;
#[cfg(feature = "tls")]
mod settings;
pub mod template;
pub mod text;
#[cfg(feature = "tls")]
mod tls;
pub mod zone;
