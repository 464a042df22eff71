// SPDX-License-Identifier: Apache-2.0
//! A real HTTP server on the loopback interface that serves tables by key.
//!
//! It stands in for the external service in tests, demos and benches: how long
//! it takes to answer is drawn from a [`Latency`], and it fails on purpose as
//! [`Faults`] say, both with a seed and both changeable while it runs.
//!
//! | request | response |
//! |---|---|
//! | `GET /<table>/<key>` | 200 and the value, or 404; the key is percent-decoded and may contain slashes |
//! | `POST /<table>`, a JSON array of keys | 200 and a JSON array of values, null for each unknown key; 404 for an unknown table |
//! | `GET /-/stats` | the counters, see [`Stats`]; never late, never faulty, not counted |
//!
//! The handle may be used from any thread. The server runs on one thread of its
//! own, which ends with the handle.

mod error;
mod faults;
mod query;
mod service;
mod stats;
mod tables;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

pub use bytes::Bytes;

pub use self::error::LookupServerError;
pub use self::faults::Faults;
pub use self::stats::Stats;

use self::faults::FaultInjector;
use self::service::{Service, Settings};
use crate::latency::{Latency, LatencySampler};
use crate::listener::ServerThread;

/// How a [`LookupServer`] starts.
#[derive(Clone, Debug, Default)]
pub struct LookupServerConfig {
    /// How long answers take. Rejections by the rate limit take no time.
    pub latency: Latency,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// The port to listen on; 0 picks a free one.
    pub port: u16,
    /// Makes delays and faults repeatable: they depend on the seed and on the
    /// order in which requests arrive.
    pub seed: u64,
}

/// A running server, stopped when dropped.
///
/// It belongs to the process that started it. In a forked child the handle does
/// nothing when dropped, and the server is reached by its address as from any
/// other process.
///
/// # Examples
///
/// ```
/// use sparkawait_testing::lookup_server::{Bytes, LookupServer, LookupServerConfig};
///
/// let server = LookupServer::start(LookupServerConfig::default())?;
/// server.add_table("airports", [("JFK".to_owned(), Bytes::from_static(b"{\"tz\": -5}"))]);
/// let url = format!("http://{}/airports/JFK", server.address());
/// # assert!(url.starts_with("http://127.0.0.1:"));
/// # Ok::<(), sparkawait_testing::lookup_server::LookupServerError>(())
/// ```
#[derive(Debug)]
pub struct LookupServer {
    service: Arc<Service>,
    thread: ServerThread,
}

impl LookupServer {
    /// Starts a server without tables; it accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// Returns [`LookupServerError`] when a setting makes no sense, or when the
    /// port is taken.
    pub fn start(config: LookupServerConfig) -> Result<Self, LookupServerError> {
        let LookupServerConfig { latency, faults, port, seed } = config;
        let settings = Settings {
            latency: LatencySampler::new(latency, seed)?,
            // Another stream of random numbers than the latency's.
            faults: FaultInjector::new(faults, !seed, Instant::now())?,
        };
        let service = Arc::new(Service::new(settings));
        let thread = ServerThread::spawn(port, Arc::clone(&service))
            .map_err(|source| LookupServerError::Io { port, source })?;
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

    /// Adds a table of JSON values by key, in place of one with the same name.
    pub fn add_table(
        &self,
        name: impl Into<String>,
        entries: impl IntoIterator<Item = (String, Bytes)>,
    ) {
        self.service.tables.add(name.into(), entries.into_iter().collect());
    }

    /// Reads the counters. They stay readable after the server was stopped.
    pub fn stats(&self) -> Stats {
        self.service.counters.read()
    }

    /// Draws delays from `latency` from now on; requests in flight keep theirs.
    ///
    /// # Errors
    ///
    /// Returns [`LookupServerError::Latency`] when a parameter is out of range.
    pub fn set_latency(&self, latency: Latency) -> Result<(), LookupServerError> {
        Ok(self.service.settings().latency.set(latency)?)
    }

    /// Injects `faults` from now on; requests in flight keep their fate. The rate
    /// limit starts afresh if it changes.
    ///
    /// # Errors
    ///
    /// Returns [`LookupServerError`] when a rate is out of range.
    pub fn set_faults(&self, faults: Faults) -> Result<(), LookupServerError> {
        self.service.settings().faults.set(faults, Instant::now())
    }

    /// Closes the port and every connection, and waits until that is done.
    ///
    /// Further calls do nothing. A call in another process than the one that started the server
    /// does nothing, too.
    pub fn stop(&self) {
        self.thread.stop();
    }
}
