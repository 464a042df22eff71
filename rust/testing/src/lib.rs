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
//! | [`latency`] | latency distributions of both |

pub mod latency;
pub mod lookup_server;
pub mod simulated;
