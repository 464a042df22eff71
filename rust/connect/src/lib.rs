// SPDX-License-Identifier: Apache-2.0
//! Native async functions, and the servers that tests call.
//!
//! | module | what lives there |
//! |---|---|
//! | [`function`] | the calls that a native function gets, the replies that it gives |
//! | [`exchange`] | rows of record batches as elements of the operator |
//! | [`task`] | the operator of one task over record batches |
//! | [`simulated`] | a function that only takes time |
//! | [`lookup_server`] | an HTTP server with faults, for tests, demos and benches |
//! | [`latency`] | latency distributions of both |

pub mod error;
pub mod exchange;
pub mod function;
pub mod latency;
pub mod lookup_server;
pub mod simulated;
pub mod task;
