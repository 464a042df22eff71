// SPDX-License-Identifier: Apache-2.0
//! The server of a job's limits, which the driver starts.

use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sparkawait_connect::limit_server::LimitServer as Server;
use sparkawait_macros::guarded;

use crate::native::runtime;

/// A running server, stopped when collected.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct LimitServer {
    server: Server,
}

#[guarded]
#[pymethods]
impl LimitServer {
    /// Listens at a port of `host`, any free one for 0; or at a socket of this machine, whose path that is
    /// then.
    #[new]
    #[pyo3(signature = (host, port, secret))]
    fn new(host: &str, port: Option<u16>, secret: &str) -> PyResult<Self> {
        let runtime = runtime()?;
        let server = match port {
            Some(port) => Server::start(&runtime, host, port, secret),
            None => Server::start_at(&runtime, host, secret),
        };
        let server = server.map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Self { server })
    }

    /// Returns what workers have published, oldest first.
    fn take_published(&self) -> Vec<String> {
        self.server.take_published()
    }

    /// Waits until something is published, for so many seconds at most; returns whether it is.
    fn wait_published(&self, py: Python<'_>, seconds: f64) -> bool {
        let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| self.server.wait_published(patience))
    }

    #[getter]
    fn port(&self) -> Option<u16> {
        self.server.port()
    }
}
