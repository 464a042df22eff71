// SPDX-License-Identifier: Apache-2.0
//! A real HTTP server on the loopback interface that answers as model services do.
//!
//! | request | answer |
//! |---|---|
//! | `POST ../chat/completions` | that of `OpenAI`, with `response_format` |
//! | `POST ../messages` | that of Anthropic, with `output_config.format` |
//! | `POST ../embeddings` | a vector for each text |
//! | `GET /-/stats` | the counters, see [`Stats`] |
//!
//! What is asked is priced in tokens, counted by who started the server, and held to limits of
//! requests and tokens in a minute and of calls at a time. A share of the calls meets a
//! [`Fault`], or those whose prompt says so: `[[cut]]`, or `[[cut once]]` for the first call alone.
//! Each answer has a hash of its prompt, the first text of the user.

mod answer;
mod asked;
mod config;
mod dialect;
mod fault;
mod limits;
mod schemas;
mod service;
mod stats;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

pub use self::asked::hash_of;
pub use self::config::{Model, ModelServerConfig, ModelServerError};
pub use self::fault::Fault;
pub use self::stats::Stats;

use self::limits::Limits;
use self::service::Service;
use crate::latency::LatencySampler;
use crate::listener::ServerThread;

/// A running server, stopped when dropped, by the process that started it.
pub struct ModelServer {
    service: Arc<Service>,
    thread: ServerThread,
}

impl fmt::Debug for ModelServer {
    /// Without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl ModelServer {
    /// Starts a server; it accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// Returns [`ModelServerError`] when a setting makes no sense, or when the port is taken.
    pub fn start(
        config: ModelServerConfig,
        model: impl Model + 'static,
    ) -> Result<Self, ModelServerError> {
        let port = config.port;
        let latency = LatencySampler::new(config.latency.clone(), config.seed)?;
        check(&config.faults)?;
        let limits = Limits::new(&config, Instant::now())?;
        let service = Arc::new(Service::new(config, latency, limits, Box::new(model)));
        let thread = ServerThread::spawn(port, Arc::clone(&service))
            .map_err(|source| ModelServerError::Io { port, source })?;
        Ok(Self { service, thread })
    }

    /// Returns where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.thread.address()
    }

    /// Returns the id of the process that started the server.
    pub fn process(&self) -> u32 {
        self.thread.process()
    }

    /// Reads the counters. They stay readable after the server was stopped.
    pub fn stats(&self) -> Stats {
        self.service.stats()
    }

    /// Returns how many answers each prompt has got, by its hash.
    pub fn answered(&self) -> HashMap<u64, u64> {
        self.service.answered()
    }

    /// Has other shares of the calls meet faults from now on.
    ///
    /// # Errors
    ///
    /// Returns [`ModelServerError::Faults`] if they add up to more than 1.
    pub fn set_faults(&self, faults: Vec<(Fault, f64)>) -> Result<(), ModelServerError> {
        check(&faults)?;
        self.service.set_faults(faults);
        Ok(())
    }

    /// Closes the port and every connection, and waits until that is done.
    pub fn stop(&self) {
        self.thread.stop();
    }
}

fn check(faults: &[(Fault, f64)]) -> Result<(), ModelServerError> {
    if fault::are_shares(faults) { Ok(()) } else { Err(ModelServerError::Faults) }
}
