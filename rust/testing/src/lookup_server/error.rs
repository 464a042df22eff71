// SPDX-License-Identifier: Apache-2.0
//! Why a server does not start, or does not change.

use std::io;

use crate::latency::InvalidLatency;

/// A server could not be started, or refused a setting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupServerError {
    /// The latency makes no sense.
    #[error(transparent)]
    Latency(#[from] InvalidLatency),
    /// A rate is not between 0 and 1.
    #[error("`{name}` must be between 0 and 1, got {rate}")]
    Rate {
        /// Which rate.
        name: &'static str,
        /// The rate given.
        rate: f64,
    },
    /// More requests would fail than there are.
    #[error("the rates of errors, stalls and resets must add up to at most 1, got {0}")]
    RatesSum(f64),
    /// The limit would let nothing through, or everything.
    #[error("`rate_limit` must be positive and finite, got {0}")]
    RateLimit(f64),
    /// The port is taken, or the thread could not be started.
    #[error("lookup server cannot listen on port {port}")]
    Io {
        /// The port asked for, 0 for any.
        port: u16,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}
