// SPDX-License-Identifier: Apache-2.0
//! Functions and servers that stand in for a service: in tests, demos and benches, and for users.
//!
//! ```text
//!   sparkawait._core
//!        |
//!     testing         this crate
//!        |
//!      task
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`simulated`] | a function that only takes time |
//! | [`lookup_server`] | an HTTP server with faults |
//! | [`model_server`] | an HTTP server that answers as models do, with their limits |
//! | [`latency`] | latency distributions of all |
//! | `listener`, `token_bucket`, `counters` | the thread of a server, how many requests pass, what is counted |

mod counters;
pub mod latency;
mod listener;
pub mod lookup_server;
pub mod model_server;
pub mod simulated;
mod token_bucket;
