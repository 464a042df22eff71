// SPDX-License-Identifier: Apache-2.0
//! `ModelServer` of Python's `sparkawait.testing`.
//!
//! Any thread may call it; waiting is done without the GIL, which the thread of the server asks for
//! where tokens are counted and answers made in Python.

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sparkawait_core::ErrorKind;
use sparkawait_macros::guarded;
use sparkawait_testing::model_server::{
    Fault, Model, ModelServer as Server, ModelServerConfig, ModelServerError, hash_of,
};

use crate::error::{OperatorStateError, configuration_error};
use crate::lookup_server::{LatencyArguments, to_latency};

/// What a server is told, by name.
#[derive(FromPyObject)]
struct Settings {
    latency: LatencyArguments,
    per_token: f64,
    rpm: Option<f64>,
    tpm: Option<f64>,
    max_concurrency: Option<usize>,
    burst: f64,
    faults: Vec<(String, f64)>,
    api_key: Option<String>,
    output_tokens: (u64, u64),
    reasoning_tokens: u64,
    dimensions: usize,
    max_text_tokens: u64,
    max_request_tokens: u64,
    port: u16,
    seed: u64,
}

/// Counts tokens and answers in Python.
struct PythonModel {
    tokens: Option<Py<PyAny>>,
    answer: Option<Py<PyAny>>,
}

impl Model for PythonModel {
    fn tokens(&self, text: &str) -> u64 {
        let counted = self.tokens.as_ref().and_then(|count| {
            Python::attach(|py| count.bind(py).call1((text,))?.extract().map_err(|it| tell(py, it)))
                .ok()
        });
        // Without a tokenizer four bytes are a token.
        counted.unwrap_or_else(|| text.len().div_ceil(4) as u64)
    }

    fn answer(&self, request: &str) -> Option<String> {
        let answer = self.answer.as_ref()?;
        Python::attach(|py| {
            answer.bind(py).call1((request,))?.extract().map_err(|it: PyErr| tell(py, it))
        })
        .ok()?
    }
}

/// Shows what a function of the user has raised, which nobody takes.
fn tell(py: Python<'_>, error: PyErr) -> PyErr {
    error.print(py);
    error
}

/// A running server, stopped when collected.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct ModelServer {
    server: Server,
}

#[guarded]
#[pymethods]
impl ModelServer {
    #[new]
    #[pyo3(signature = (settings, tokens, answer))]
    fn new(
        py: Python<'_>,
        settings: Settings,
        tokens: Option<Py<PyAny>>,
        answer: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let config = to_config(settings)?;
        let model = PythonModel { tokens, answer };
        let server = py.detach(|| Server::start(config, model)).map_err(to_exception)?;
        Ok(Self { server })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.server.address().port()
    }

    fn stats(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        Ok(self.owned()?.stats().fields().collect())
    }

    fn answered(&self) -> PyResult<HashMap<String, u64>> {
        let answered = self.owned()?.answered();
        Ok(answered.into_iter().map(|(hash, count)| (format!("{hash:016x}"), count)).collect())
    }

    fn set_faults(&self, faults: Vec<(String, f64)>) -> PyResult<()> {
        self.owned()?.set_faults(to_faults(faults)?).map_err(to_exception)
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.server.stop());
    }

    #[staticmethod]
    fn hash_of(prompt: &str) -> String {
        format!("{:016x}", hash_of(prompt))
    }
}

impl ModelServer {
    /// Refuses to act in a forked child, which has a copy of the handle but not
    /// the server.
    fn owned(&self) -> PyResult<&Server> {
        let (owner, this) = (self.server.process(), std::process::id());
        if owner == this {
            return Ok(&self.server);
        }
        let message = format!(
            "model server was started in process {owner}, this is process {this}; \
             send requests to its url instead"
        );
        Err(OperatorStateError::new_err((message, ErrorKind::ForkedProcess.as_str())))
    }
}

fn to_config(settings: Settings) -> PyResult<ModelServerConfig> {
    let Settings { latency, per_token, burst, faults, output_tokens, .. } = settings;
    let seconds = |value: f64| {
        Duration::try_from_secs_f64(value)
            .map_err(|_| invalid(&format!("a time must be finite and not negative, got {value} s")))
    };
    Ok(ModelServerConfig {
        latency: to_latency(&latency)?,
        per_token: seconds(per_token)?,
        rpm: settings.rpm,
        tpm: settings.tpm,
        max_concurrency: settings.max_concurrency,
        burst: seconds(burst)?,
        faults: to_faults(faults)?,
        api_key: settings.api_key,
        output_tokens: output_tokens.0..=output_tokens.1,
        reasoning_tokens: settings.reasoning_tokens,
        dimensions: settings.dimensions,
        max_text_tokens: settings.max_text_tokens,
        max_request_tokens: settings.max_request_tokens,
        port: settings.port,
        seed: settings.seed,
    })
}

fn to_faults(faults: Vec<(String, f64)>) -> PyResult<Vec<(Fault, f64)>> {
    let fault = |(name, share): (String, f64)| {
        Fault::from_name(&name).map(|it| (it, share)).ok_or_else(|| {
            invalid(&format!(
                "`{name}` is not a fault; there are 429, 498, 500, 503, 529, cut, silent, invalid, \
                 refusal, filtered, stall and reset"
            ))
        })
    };
    faults.into_iter().map(fault).collect()
}

fn to_exception(error: ModelServerError) -> PyErr {
    match &error {
        ModelServerError::Io { source, .. } => {
            PyOSError::new_err((source.raw_os_error(), format!("{error}: {source}")))
        }
        _ => invalid(&error.to_string()),
    }
}

fn invalid(message: &str) -> PyErr {
    configuration_error(message, ErrorKind::OptionInvalid)
}
