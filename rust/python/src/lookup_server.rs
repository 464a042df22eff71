// SPDX-License-Identifier: Apache-2.0
//! `LookupServer` of Python's `sparkawait.testing`.
//!
//! Any thread may call it; waiting is done without the GIL.

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use sparkawait_core::ErrorKind;
use sparkawait_macros::guarded;
use sparkawait_testing::latency::Latency;
use sparkawait_testing::lookup_server::{
    Bytes, Faults, LookupServer as Server, LookupServerConfig, LookupServerError,
};

use crate::error::{OperatorStateError, configuration_error};

/// The parts of a `Latency` of Python; times are in seconds.
#[derive(FromPyObject)]
pub(crate) struct LatencyArguments {
    kind: String,
    first: f64,
    /// Unused where the kind has one parameter only.
    second: f64,
    stragglers: f64,
    straggler_factor: f64,
}

/// Shares of the requests that fail so, and the rate limit.
#[derive(FromPyObject)]
struct FaultArguments {
    error_rate: f64,
    stall_rate: f64,
    reset_rate: f64,
    rate_limit: Option<f64>,
}

/// A running server, stopped when collected.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct LookupServer {
    server: Server,
}

#[guarded]
#[pymethods]
impl LookupServer {
    #[new]
    #[pyo3(signature = (*, latency, faults, port, seed))]
    fn new(
        py: Python<'_>,
        latency: LatencyArguments,
        faults: FaultArguments,
        port: u16,
        seed: u64,
    ) -> PyResult<Self> {
        let latency = to_latency(&latency)?;
        let config = LookupServerConfig { latency, faults: to_faults(faults), port, seed };
        let server = py.detach(|| Server::start(config)).map_err(to_exception)?;
        Ok(Self { server })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.server.address().port()
    }

    fn add_table(
        &self,
        py: Python<'_>,
        name: String,
        entries: Vec<(String, PyBackedBytes)>,
    ) -> PyResult<()> {
        let server = self.owned()?;
        let copy =
            |(key, value): &(String, PyBackedBytes)| (key.clone(), Bytes::copy_from_slice(value));
        py.detach(|| server.add_table(name, entries.iter().map(copy)));
        Ok(())
    }

    fn stats(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        Ok(self.owned()?.stats().fields().collect())
    }

    fn set_latency(&self, latency: LatencyArguments) -> PyResult<()> {
        self.owned()?.set_latency(to_latency(&latency)?).map_err(to_exception)
    }

    fn set_faults(&self, faults: FaultArguments) -> PyResult<()> {
        self.owned()?.set_faults(to_faults(faults)).map_err(to_exception)
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.server.stop());
    }
}

impl LookupServer {
    /// Refuses to act in a forked child, which has a copy of the handle but not
    /// the server.
    fn owned(&self) -> PyResult<&Server> {
        let (owner, this) = (self.server.process(), std::process::id());
        if owner == this {
            return Ok(&self.server);
        }
        let message = format!(
            "lookup server was started in process {owner}, this is process {this}; \
             send requests to its url instead"
        );
        Err(OperatorStateError::new_err((message, ErrorKind::ForkedProcess.as_str())))
    }
}

/// Translates a latency of Python's `sparkawait.testing.services`.
pub(crate) fn to_latency(arguments: &LatencyArguments) -> PyResult<Latency> {
    let LatencyArguments { kind, first, second, stragglers, straggler_factor } = arguments;
    let usual = match kind.as_str() {
        "constant" => Latency::Constant(to_duration(*first)?),
        "uniform" => Latency::Uniform { min: to_duration(*first)?, max: to_duration(*second)? },
        "log_normal" => Latency::LogNormal { median: to_duration(*first)?, sigma: *second },
        _ => return Err(invalid(&format!("`{kind}` is not a latency distribution"))),
    };
    Ok(if *stragglers == 0.0 {
        usual
    } else {
        usual.with_stragglers(*stragglers, *straggler_factor)
    })
}

fn to_duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        invalid(&format!("a latency must be finite and not negative, got {seconds} s"))
    })
}

fn to_faults(arguments: FaultArguments) -> Faults {
    let FaultArguments { error_rate, stall_rate, reset_rate, rate_limit } = arguments;
    Faults { error_rate, stall_rate, reset_rate, rate_limit }
}

fn to_exception(error: LookupServerError) -> PyErr {
    match &error {
        LookupServerError::Io { source, .. } => {
            PyOSError::new_err((source.raw_os_error(), format!("{error}: {source}")))
        }
        _ => invalid(&error.to_string()),
    }
}

fn invalid(message: &str) -> PyErr {
    configuration_error(message, ErrorKind::OptionInvalid)
}
