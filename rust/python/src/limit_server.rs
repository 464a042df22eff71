// SPDX-License-Identifier: Apache-2.0
//! The server of a job's limits, which the driver starts.

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

    #[getter]
    fn port(&self) -> Option<u16> {
        self.server.port()
    }
}
