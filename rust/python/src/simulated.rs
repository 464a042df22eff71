// SPDX-License-Identifier: Apache-2.0
//! `simulated` of Python's `sparkawait.testing`, as a task is told of it.

use pyo3::prelude::*;
use sparkawait_connect::function::{Replies, TaskFunction};
use sparkawait_connect::simulated::{Simulated as Function, SimulatedConfig};
use sparkawait_core::ErrorKind;

use crate::error::{configuration_error, internal_error};
use crate::lookup_server::{LatencyArguments, to_latency};

/// What a simulated function does.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Simulated {
    config: SimulatedConfig,
}

impl Simulated {
    /// Starts the function on this process's tokio runtime.
    pub(crate) fn start(&self, replies: Replies) -> PyResult<TaskFunction> {
        let runtime = sparkawait_runtime::tokio_runtime::handle()
            .map_err(|error| internal_error(&format!("tokio cannot start: {error}")))?;
        Function::start(self.config.clone(), replies, &runtime)
            .map(|function| -> TaskFunction { Box::new(function) })
            .map_err(|error| configuration_error(&error.to_string(), ErrorKind::OptionInvalid))
    }
}

#[pymethods]
impl Simulated {
    #[new]
    #[pyo3(signature = (*, latency, error_rate, seed))]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 converts into owned values")]
    fn new(latency: LatencyArguments, error_rate: f64, seed: u64) -> PyResult<Self> {
        if !(0.0..=1.0).contains(&error_rate) {
            let message = format!("`error_rate` must be from 0 to 1, got {error_rate}");
            return Err(configuration_error(&message, ErrorKind::OptionInvalid));
        }
        Ok(Self { config: SimulatedConfig { latency: to_latency(&latency)?, error_rate, seed } })
    }
}
