// SPDX-License-Identifier: Apache-2.0
//! The operator of one Spark task, as Python drives it.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sparkawait_task::channel_share::ChannelShare;
use sparkawait_task::error::TaskError;
use sparkawait_task::exchange::RowConfig;
use sparkawait_task::layer::Layer;
use sparkawait_task::layer::cache::{CacheConfig, CacheMetrics, CacheSettings};
use sparkawait_task::task::{TaskConfig, TaskDriver, TaskFeeder, build};

use crate::guard::FromArrow;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparkawait_arrow::{OnError, output_schema};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{Config, EndOfInput, FailurePolicy};
use sparkawait_macros::guarded;
use sparkawait_runtime::{BufferTimeout, DriverConfig, MetricsReader, Turn};

use crate::channels::{ChannelArguments, set_channels, to_channels};
use crate::convert::{
    BufferTimeoutArgument, RetryArguments, WatermarkArguments, to_capacity, to_duration, to_mode,
    to_on_error, to_output, to_retry, to_timeout, to_warm_up, to_watermark,
};
use crate::error::{OperatorStateError, PythonCause, closed_error, internal_error, to_exception};
use crate::native::Native;
use crate::port::{Mouth, Port};
use crate::python_function::PythonFunction;
use crate::row::Columns;

/// The operator of one task over record batches.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Task {
    driver: Mutex<TaskDriver>,
    feeder: TaskFeeder,
    port: Option<Py<Port>>,
    metrics: MetricsReader,
    cache_metrics: Option<Arc<CacheMetrics>>,
    on_error: OnError,
    output_schema: SchemaRef,
    /// Set by `close`, so that a turn on another thread is the last one.
    is_closing: AtomicBool,
    /// The process whose threads serve the task.
    process_id: u32,
}

/// Name, most rows, most bytes, seconds after write and after access, whether misses are kept, and
/// the key columns of a cache.
type CacheArguments =
    (String, Option<u64>, Option<u64>, Option<f64>, Option<f64>, bool, Vec<String>);

impl Task {
    fn check_process(&self) -> PyResult<()> {
        let here = process::id();
        if self.process_id == here {
            return Ok(());
        }
        let message = format!(
            "operator was opened in process {}, this is process {here}; open it inside the worker function",
            self.process_id
        );
        Err(OperatorStateError::new_err((message, ErrorKind::ForkedProcess.as_str())))
    }

    /// Takes turns until there is a batch, `patience` has passed, or the end.
    fn run(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<Option<RecordBatch>> {
        let started = Instant::now();
        loop {
            let turn = py.detach(|| {
                let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
                if self.is_closing.load(Ordering::Acquire) {
                    driver.close();
                    return Err(closed_error("the task was closed; start another one"));
                }
                Ok(driver.take_turn())
            })?;
            match turn {
                Ok(Turn::Output(batch)) => return Ok(Some(batch)),
                Ok(Turn::Finished) => return Ok(None),
                Ok(Turn::Paused) => {
                    py.check_signals()?;
                    if patience.is_some_and(|patience| started.elapsed() >= patience) {
                        return Ok(Some(RecordBatch::new_empty(SchemaRef::clone(
                            &self.output_schema,
                        ))));
                    }
                }
                Err(error) => return Err(to_exception(py, &error)),
            }
        }
    }
}

/// Builds a task around a native function, or around a port for one of Python.
fn start(
    py: Python<'_>,
    config: TaskConfig,
    native: Option<&Py<Native>>,
    columns: Columns,
) -> PyResult<(TaskDriver, TaskFeeder, Option<Port>)> {
    let (rows, mut port) = (&config.rows, None);
    let (input, results) = (SchemaRef::clone(&rows.input), SchemaRef::clone(&rows.results));
    let share = ChannelShare::of_calls(&config.operator);
    let built = build(config, |replies| {
        if let Some(native) = native {
            return native.get().start(replies, input, results, share).map_err(raised);
        }
        let mouth =
            Mouth::new().map_err(|error| raised(internal_error(&format!("no pipe: {error}"))))?;
        let mouth = Arc::new(mouth);
        port = Some(Port::new(Arc::clone(&mouth), replies, columns));
        Ok(Box::new(PythonFunction { mouth }))
    });
    let (driver, feeder) = built.map_err(|error| to_exception(py, &error))?;
    Ok((driver, feeder, port))
}

/// Hands an exception over, to be raised as it is.
fn raised(error: PyErr) -> TaskError {
    TaskError::External(Arc::new(PythonCause(error)))
}

/// Converts how output batches are cut.
fn to_driver(
    max_rows_per_batch: i64,
    max_bytes_per_batch: i64,
    buffer_timeout: Option<BufferTimeoutArgument>,
    target_latency: Option<f64>,
    warm_up: Option<(i64, i64)>,
) -> PyResult<DriverConfig> {
    let max_rows_per_batch = to_capacity("max_rows_per_batch", max_rows_per_batch)?.get();
    let max_bytes_per_batch = to_capacity("max_bytes_per_batch", max_bytes_per_batch)?.get();
    let buffer_timeout =
        buffer_timeout.map_or(Ok(BufferTimeout::Never), BufferTimeoutArgument::read)?;
    let target_latency = to_timeout("target_latency", target_latency)?;
    let warm_up = warm_up.map(to_warm_up).transpose()?;
    Ok(DriverConfig {
        max_rows_per_batch,
        max_bytes_per_batch,
        buffer_timeout,
        target_latency,
        warm_up,
    })
}

/// Converts the settings of a cache.
fn to_cache(arguments: CacheArguments) -> PyResult<CacheSettings> {
    let (id, max_rows, max_bytes, after_write, after_access, cache_missing, key) = arguments;
    let to_expiry =
        |name, seconds: Option<f64>| seconds.map(|it| to_duration(name, it)).transpose();
    let config = CacheConfig {
        max_rows,
        max_bytes,
        expire_after_write: to_expiry("expire_after_write", after_write)?,
        expire_after_access: to_expiry("expire_after_access", after_access)?,
        cache_missing,
    };
    Ok(CacheSettings { id, config, key, metrics: Arc::default() })
}

#[guarded]
#[pymethods]
impl Task {
    #[new]
    #[pyo3(signature = (
        *, mode, input_schema, result_schema, capacity, max_concurrency, timeout, attempt_timeout,
        retry, key, on_error, error_column, output, has_timeout_handler, watermark, buffer_timeout,
        max_rows_per_batch, max_bytes_per_batch, partition, function_name, seed, native, cache, channels,
        target_latency, warm_up,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only options of Python")]
    fn new(
        py: Python<'_>,
        mode: &str,
        input_schema: FromArrow<Schema>,
        result_schema: FromArrow<Schema>,
        capacity: i64,
        max_concurrency: i64,
        timeout: Option<f64>,
        attempt_timeout: Option<f64>,
        retry: Option<RetryArguments>,
        key: Option<Vec<String>>,
        on_error: &str,
        error_column: String,
        output: &str,
        has_timeout_handler: bool,
        watermark: Option<WatermarkArguments>,
        buffer_timeout: Option<BufferTimeoutArgument>,
        max_rows_per_batch: i64,
        max_bytes_per_batch: i64,
        partition: u32,
        function_name: String,
        seed: u64,
        native: Option<Py<Native>>,
        cache: Option<CacheArguments>,
        channels: Option<ChannelArguments>,
        target_latency: Option<f64>,
        warm_up: Option<(i64, i64)>,
    ) -> PyResult<Self> {
        let on_error = to_on_error(on_error)?;
        let mut operator = Config::new(to_mode(mode)?, to_capacity("capacity", capacity)?);
        operator.max_concurrency = to_capacity("max_concurrency", max_concurrency)?;
        operator.timeout = to_timeout("timeout", timeout)?;
        operator.attempt_timeout = to_timeout("attempt_timeout", attempt_timeout)?;
        operator.retry = to_retry(retry)?;
        operator.asks_on_timeout = has_timeout_handler;
        operator.seed = seed;
        // A partition ends because it is finite, not because a job is drained.
        operator.at_end_of_input = EndOfInput::KeepRetrying;
        if on_error != OnError::Fail {
            operator.on_failure = FailurePolicy::Emit;
        }
        let input = Arc::new(input_schema.0);
        let mut channel = None;
        if let Some(arguments) = channels {
            let native = native.as_ref().map(Py::get);
            let (settings, config) = to_channels(py, arguments, native, &input)?;
            (operator.channels, channel) = (Some(config), Some(settings));
        }
        let (rows, bytes) = (max_rows_per_batch, max_bytes_per_batch);
        let driver = to_driver(rows, bytes, buffer_timeout, target_latency, warm_up)?;
        let columns = Columns::new(py, &input)?;
        let rows = RowConfig {
            input,
            results: Arc::new(result_schema.0),
            output: to_output(output)?,
            on_error,
            error_column,
            key,
            channel,
            watermark: to_watermark(watermark)?,
            function: function_name,
            partition,
            timeout: operator.timeout.unwrap_or(Duration::ZERO),
            attempt_timeout: operator.attempt_timeout.unwrap_or(Duration::ZERO),
        };
        let column = &rows.error_column;
        let emitted = output_schema(&rows.input, &rows.results, rows.output, on_error, column)
            .map_err(|error| to_exception(py, &TaskError::Arrow(error)))?;
        let cache = cache.map(to_cache).transpose()?;
        let cache_metrics = cache.as_ref().map(|cache| Arc::clone(&cache.metrics));
        let concurrency = native.as_ref().map(|native| native.get().concurrency_of_function());
        let concurrency = concurrency.transpose()?.unwrap_or_default();
        let layers = cache.map(|it| Arc::new(it) as Arc<dyn Layer>).into_iter().collect();
        let config = TaskConfig { operator, driver, rows, layers, concurrency };
        let (driver, feeder, port) = start(py, config, native.as_ref(), columns)?;
        Ok(Self {
            metrics: driver.metrics_reader(),
            cache_metrics,
            driver: Mutex::new(driver),
            feeder,
            port: port.map(|port| Py::new(py, port)).transpose()?,
            on_error,
            output_schema: Arc::new(emitted),
            is_closing: AtomicBool::new(false),
            process_id: process::id(),
        })
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        py.detach(|| self.driver.lock().unwrap_or_else(PoisonError::into_inner).is_open())
    }

    #[getter]
    fn port(&self, py: Python<'_>) -> PyResult<Py<Port>> {
        let port = self.port.as_ref().map(|port| port.clone_ref(py));
        port.ok_or_else(|| closed_error("a native function has no port"))
    }

    fn put(&self, py: Python<'_>, batch: FromArrow<RecordBatch>) -> PyResult<bool> {
        self.check_process()?;
        let batch = batch.0;
        Ok(py.detach(|| self.feeder.put(batch)))
    }

    fn put_end(&self) {
        self.feeder.put_end();
    }

    fn put_failure(&self, error: Bound<'_, PyAny>) {
        self.feeder.put_failure(raised(PyErr::from_value(error)));
    }

    #[pyo3(signature = (patience = None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        patience: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.check_process()?;
        let patience = patience.map(|it| to_duration("patience", it)).transpose()?;
        let batch = self.run(py, patience)?;
        batch.map(|batch| batch.to_pyarrow(py)).transpose()
    }

    fn close(&self, py: Python<'_>) {
        self.is_closing.store(true, Ordering::Release);
        if self.process_id != process::id() {
            // Nothing runs here: the threads stayed in the parent.
            return;
        }
        py.detach(|| {
            self.driver.lock().unwrap_or_else(PoisonError::into_inner).close();
        });
    }

    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let Some(task) = self.metrics.read().into_iter().next() else { return Ok(dict) };
        let operator = task.operator;
        // Failed records leave too, unless their failure failed the task.
        let left_failed = if self.on_error == OnError::Fail { 0 } else { operator.failures };
        let emitted = operator.emitted.saturating_sub(task.dropped + left_failed);
        dict.set_item("admitted", operator.admitted)?;
        dict.set_item("emitted", emitted)?;
        dict.set_item("dropped", task.dropped)?;
        dict.set_item("failed", operator.failures)?;
        dict.set_item("in_flight", operator.in_flight)?;
        dict.set_item("queue_size", operator.queue_size)?;
        dict.set_item("oldest_age", operator.oldest_age.as_secs_f64())?;
        dict.set_item("attempts", operator.attempts)?;
        dict.set_item("retries", operator.retries)?;
        dict.set_item("timeouts", operator.timeouts)?;
        dict.set_item("cancelled", operator.cancelled)?;
        if let Some(cache) = &self.cache_metrics {
            dict.set_item("cache_hits", cache.hits())?;
            dict.set_item("cache_misses", cache.misses())?;
            dict.set_item("cache_loads", cache.loads())?;
            dict.set_item("cache_evictions", cache.evictions())?;
        }
        if let Some(channels) = &task.channels {
            set_channels(&dict, channels)?;
        }
        let latency = task.call_latency.iter().map(|(took, count)| (took.as_secs_f64(), *count));
        dict.set_item("call_latency", latency.collect::<Vec<_>>())?;
        Ok(dict)
    }
}
