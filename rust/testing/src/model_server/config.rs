// SPDX-License-Identifier: Apache-2.0
//! How a server starts, and what it is told.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::fault::Fault;
use crate::latency::{InvalidLatency, Latency};

/// What the server does not know by itself.
pub trait Model: Send + Sync {
    /// Counts the tokens of a text.
    fn tokens(&self, text: &str) -> u64;

    /// Answers a request, whose JSON it gets: the text of the answer. `None`: any answer will do.
    fn answer(&self, request: &str) -> Option<String>;
}

/// How a [`ModelServer`] starts.
#[derive(Clone, Debug)]
pub struct ModelServerConfig {
    /// How long it is until an answer begins.
    pub latency: Latency,
    /// How long each of its tokens takes.
    pub per_token: Duration,
    /// Requests in a minute.
    pub rpm: Option<f64>,
    /// Tokens in a minute, of input and output.
    pub tpm: Option<f64>,
    /// Calls at a time.
    pub max_concurrency: Option<usize>,
    /// How much of what comes in a minute may be used at once, in time.
    pub burst: Duration,
    /// Shares of the calls that meet faults.
    pub faults: Vec<(Fault, f64)>,
    /// Who may call; anybody if there is none.
    pub api_key: Option<String>,
    /// How many tokens answers have that nobody has written.
    pub output_tokens: RangeInclusive<u64>,
    /// Tokens that are thought before an answer.
    pub reasoning_tokens: u64,
    /// Elements of a vector.
    pub dimensions: usize,
    /// Tokens that one text of embeddings may have.
    pub max_text_tokens: u64,
    /// Tokens that the texts of a request for embeddings may have.
    pub max_request_tokens: u64,
    /// The port to listen on; 0 picks a free one.
    pub port: u16,
    /// Makes delays and faults repeatable, in the order of the requests.
    pub seed: u64,
}

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelServerError {
    /// The latency makes no sense.
    #[error(transparent)]
    Latency(#[from] InvalidLatency),
    /// More calls would fail than there are, or a share is below 0.
    #[error("the shares of `faults` must be from 0 to 1, and add up to at most 1")]
    Faults,
    /// A limit lets nothing through.
    #[error("`{0}` must be positive and finite")]
    Limit(&'static str),
    /// The port is taken, or the thread could not be started.
    #[error("model server cannot listen on port {port}")]
    Io {
        /// The port asked for, 0 for any.
        port: u16,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}
