// SPDX-License-Identifier: Apache-2.0
//! Descriptions of native functions, as a task is told of them, and what reads their secrets again.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use sparkawait_connect::connectors::{self, CONNECTORS};
use sparkawait_core::ErrorKind;
use sparkawait_macros::guarded;
use sparkawait_task::channel_finder::ChannelFinder;
use sparkawait_task::channel_share::ChannelShare;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::StartError;
use sparkawait_task::function::{Replies, TaskFunction};
use sparkawait_task::native::{NativeFunction, Start};
use sparkawait_task::secret::{Source, Sources};
use sparkawait_testing::simulated::SimulatedConfig;
use tokio::runtime::Handle;

use crate::error::{AsyncIOError, configuration_error};
use crate::guard::FromArrow;
use crate::interruptible::{wait_for, wait_for_blocking};
use crate::lookup_server::{LatencyArguments, to_latency};

/// What a native function does.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Native {
    function: Arc<dyn NativeFunction>,
}

impl Native {
    /// Starts the function on this process's tokio runtime.
    pub(crate) fn start(
        &self,
        replies: Replies,
        input: SchemaRef,
        results: SchemaRef,
        channel_share: Option<ChannelShare>,
    ) -> PyResult<TaskFunction> {
        let runtime = runtime()?;
        let start = Start { replies, runtime, input, results, channel_share };
        self.function.start(start).map_err(|error| start_error(&error))
    }

    /// Returns how many calls the function can have on their way.
    pub(crate) fn concurrency_of_function(&self) -> PyResult<Concurrency> {
        self.function.concurrency().map_err(|error| start_error(&error))
    }

    /// Returns what finds the channels of rows, which may take a call to a server.
    pub(crate) fn channel_finder(
        &self,
        py: Python<'_>,
        input: &SchemaRef,
    ) -> PyResult<Option<Arc<dyn ChannelFinder>>> {
        let runtime = runtime()?;
        let (function, input) = (Arc::clone(&self.function), SchemaRef::clone(input));
        let handle = runtime.clone();
        let find = move || function.channel_finder(&input, &handle);
        wait_for_blocking(py, &runtime, find)?.map_err(|error| start_error(&error))
    }
}

/// Returns this process's tokio runtime.
pub(crate) fn runtime() -> PyResult<Handle> {
    sparkawait_runtime::tokio_runtime::handle().map_err(|error| {
        let message = format!(
            "no thread could be started for the calls of native functions: {error}; if \
             spark.executor.pyspark.memory is set, raise it"
        );
        AsyncIOError::new_err((message, ErrorKind::ThreadNotStarted.as_str()))
    })
}

#[guarded]
#[pymethods]
impl Native {
    /// Checks what can be known on the driver, of tasks with these columns.
    fn check(&self, columns: FromArrow<Schema>, results: FromArrow<Schema>) -> PyResult<()> {
        self.function
            .check(&Arc::new(columns.0), &Arc::new(results.0))
            .map_err(|error| start_error(&error))
    }

    /// Returns how many calls it can have on their way; `None` if nothing bounds them.
    fn concurrency(&self) -> PyResult<Option<usize>> {
        let concurrency = self.concurrency_of_function()?;
        Ok(concurrency.calls())
    }

    #[staticmethod]
    #[pyo3(signature = (*, latency, error_rate, seed, timestamps))]
    fn simulated(
        latency: LatencyArguments,
        error_rate: f64,
        seed: u64,
        timestamps: bool,
    ) -> PyResult<Self> {
        if !(0.0..=1.0).contains(&error_rate) {
            let message = format!("`error_rate` must be from 0 to 1, got {error_rate}");
            return Err(configuration_error(&message, ErrorKind::OptionInvalid));
        }
        let latency = to_latency(&latency)?;
        let config = SimulatedConfig { latency, error_rate, seed, timestamps };
        Ok(Self { function: Arc::new(config) })
    }

    #[staticmethod]
    fn of(connector: &str, description: &str, sources: PythonSources) -> PyResult<Self> {
        let sources = sources_of(sources);
        let function = read(connectors::read(CONNECTORS, connector, description, sources))?;
        Ok(Self { function })
    }
}

/// Returns the exception for a description that is wrong.
pub(crate) fn start_error(error: &StartError) -> PyErr {
    configuration_error(&error.message, error.kind)
}

/// Reads what describes a function.
fn read<T>(read: Result<T, StartError>) -> PyResult<T> {
    read.map_err(|error| start_error(&error))
}

/// Returns the columns that `text`, given for `option`, names in braces.
#[guarded]
#[pyfunction]
pub(crate) fn template_columns(text: &str, option: &str) -> PyResult<Vec<String>> {
    let template = read(sparkawait_connect::template::Template::parse(text, option))?;
    Ok(template.columns().map(str::to_owned).collect())
}

/// Returns the columns in host and port of the address `url`, and whether a column stands for it all.
#[guarded]
#[pyfunction]
pub(crate) fn host_columns(url: &str) -> PyResult<(Vec<String>, bool)> {
    read(connectors::host_columns(url))
}

/// Asks a server which columns the statement of a lookup returns.
#[guarded]
#[pyfunction]
pub(crate) fn describe_postgres(py: Python<'_>, description: &str) -> PyResult<Py<PyAny>> {
    let described = wait_for(py, &runtime()?, connectors::describe_postgres(description))?;
    Ok(read(described)?.to_pyarrow(py)?.unbind())
}

/// By the names of the secrets: a function, and whether it costs no more than to read a file.
type PythonSources = HashMap<String, (Py<PyAny>, bool)>;

/// A function in Python that reads a secret.
struct PythonSource {
    function: Py<PyAny>,
    is_cheap: bool,
}

/// Returns the functions as sources of secrets.
fn sources_of(given: PythonSources) -> Sources {
    let source = |(name, (function, is_cheap))| {
        (name, Arc::new(PythonSource { function, is_cheap }) as Arc<dyn Source>)
    };
    given.into_iter().map(source).collect()
}

impl Source for PythonSource {
    fn read(&self) -> Result<String, String> {
        let read = Python::try_attach(|py| {
            let text = self.function.call0(py).and_then(|it| it.extract(py));
            // An error's text could quote the secret.
            text.map_err(|error| format!("it raised a `{}`", error.get_type(py)))
        });
        read.unwrap_or_else(|| Err("the interpreter ends".to_owned()))
    }

    fn is_cheap(&self) -> bool {
        self.is_cheap
    }
}
