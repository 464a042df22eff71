// SPDX-License-Identifier: Apache-2.0
//! The operators of one Spark task, as Python drives them.

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparkawait_arrow::OnError;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::Tolerance;
use sparkawait_macros::guarded;
use sparkawait_runtime::{MetricsReader, OperatorMetrics, Turn};
use sparkawait_task::channel_share::ChannelShare;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Replies, TaskFunction};
use sparkawait_task::layer::MakeFunction;
use sparkawait_task::layer::cache::CacheMetrics;
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskDriver, TaskFeeder, TaskThread};

use crate::channels::set_channels;
use crate::convert::to_duration;
use crate::error::{OperatorStateError, PythonCause, closed_error, internal_error, to_exception};
use crate::guard::FromArrow;
use crate::operator_arguments::{Operator, OperatorArguments, to_fail_after};
use crate::policies::{ShownLimit, set_limits};
use crate::port::{Mouth, Port, PythonFunction};

/// How long a wait lasts at most, so that signals are looked for.
const WAIT: Duration = Duration::from_millis(100);

/// The error of a task that was closed.
const CLOSED: &str = "the task was closed; start another one";

/// The operators of one task over record batches.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Task {
    thread: TaskThread,
    feeder: TaskFeeder,
    metrics: MetricsReader,
    /// By their positions in the chain.
    operators: Vec<OperatorState>,
    output_schema: SchemaRef,
    /// Set by `close`, so that a wait on another thread is the last one.
    is_closing: AtomicBool,
    /// The process whose threads serve the task.
    process_id: u32,
}

/// Returns how many of the rows that have all ended have failed, where that is too many for `bears`.
#[guarded]
#[pyfunction]
pub(crate) fn too_many(
    bears: Option<(u64, u32, Option<u64>)>,
    failed: u64,
    ended: u64,
) -> Option<(u64, u64)> {
    let is_reached = bears.is_some_and(|it| to_fail_after(it).is_reached_at_end(failed, ended));
    is_reached.then_some((failed, ended))
}

/// What Python asks of one operator.
struct OperatorState {
    /// `None` for a native function.
    port: Option<Py<Port>>,
    cache_metrics: Option<Arc<CacheMetrics>>,
    on_error: OnError,
    /// How many failed rows it bears.
    bears: Option<Arc<Tolerance>>,
    limits: Vec<ShownLimit>,
}

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

    /// Waits until there is a batch, `patience` has passed, or the end.
    fn take(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<Option<RecordBatch>> {
        let started = Instant::now();
        loop {
            if self.is_closing.load(Ordering::Acquire) {
                return Err(closed_error(CLOSED));
            }
            match py.detach(|| self.thread.take(WAIT)) {
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

impl Operator {
    /// Makes its function: a native one, or a port for one of Python.
    fn start(&self, replies: Replies, port: &mut Option<Port>) -> Result<TaskFunction, TaskError> {
        if let Some(native) = &self.native {
            let (rows, share) = (&self.config.rows, ChannelShare::of_calls(&self.config.operator));
            let (input, results) = (SchemaRef::clone(&rows.input), SchemaRef::clone(&rows.results));
            return native.get().start(replies, input, results, share).map_err(raised);
        }
        let mouth =
            Mouth::new().map_err(|error| raised(internal_error(&format!("no pipe: {error}"))))?;
        let mouth = Arc::new(mouth);
        *port = Some(Port::new(Arc::clone(&mouth), replies, Arc::clone(&self.columns)));
        Ok(Box::new(PythonFunction(mouth)))
    }
}

/// Hands an exception over, to be raised as it is.
pub(crate) fn raised(error: PyErr) -> TaskError {
    TaskError::External(Arc::new(PythonCause(error)))
}

/// Builds a task of operators; each gets what the one before it puts out. Returns the ports of all
/// of them, and of their branches.
///
/// With what another one `saved`, an entry for each operator, or nothing.
pub(crate) fn build(
    operators: &[Operator],
    saved: Vec<SavedOperator>,
) -> Result<(TaskDriver, TaskFeeder, Vec<Option<Port>>), TaskError> {
    let mut saved = Some(VecDeque::from(saved));
    let (mut ports, mut builder) = (Vec::new(), None::<TaskBuilder>);
    for operator in operators {
        let config = operator.config.clone();
        if !operator.branches.is_empty() {
            let mut of_branches: Vec<Option<Port>> =
                operator.branches.iter().map(|_| None).collect();
            let branches = operator.branches.iter().zip(&mut of_branches).map(|(branch, port)| {
                let start: MakeFunction<'_> = Box::new(move |replies| branch.start(replies, port));
                (branch.config.clone(), start)
            });
            builder = Some(TaskBuilder::fan_out(builder, config, branches.collect())?);
            ports.push(None);
            ports.append(&mut of_branches);
            continue;
        }
        let mut port = None;
        let start = |replies| operator.start(replies, &mut port);
        builder = Some(match builder {
            None => TaskBuilder::restored(saved.take().unwrap_or_default(), config, start)?,
            Some(builder) => builder.then(config, start)?,
        });
        ports.push(port);
    }
    let none = || TaskError::Internal("a task without operators cannot be built".to_owned());
    let (driver, feeder) = builder.ok_or_else(none)?.build();
    Ok((driver, feeder, ports))
}

/// Returns the operators and, behind each one, its branches: as their positions are.
pub(crate) fn with_branches(operators: Vec<Operator>) -> impl Iterator<Item = Operator> {
    operators.into_iter().flat_map(|mut operator| {
        let branches = std::mem::take(&mut operator.branches);
        std::iter::once(operator).chain(branches)
    })
}

#[guarded]
#[pymethods]
impl Task {
    #[new]
    #[pyo3(signature = (*, operators, partition))]
    fn new(py: Python<'_>, operators: Vec<OperatorArguments>, partition: u32) -> PyResult<Self> {
        let operators: Vec<Operator> =
            operators.into_iter().map(|it| it.read(py, partition)).collect::<PyResult<_>>()?;
        let (driver, feeder, ports) =
            build(&operators, Vec::new()).map_err(|error| to_exception(py, &error))?;
        let output_schema = operators.last().map(|it| SchemaRef::clone(&it.output_schema));
        let states = with_branches(operators).zip(ports).map(|(operator, port)| {
            let port = port.map(|port| Py::new(py, port)).transpose()?;
            let Operator { config, cache_metrics, on_error, limits, .. } = operator;
            let bears = config.operator.fail_after;
            Ok(OperatorState { port, cache_metrics, on_error, bears, limits })
        });
        Ok(Self {
            metrics: driver.metrics_reader(),
            operators: states.collect::<PyResult<_>>()?,
            thread: TaskThread::new(driver),
            feeder,
            output_schema: output_schema.unwrap_or_else(|| Arc::new(Schema::empty())),
            is_closing: AtomicBool::new(false),
            process_id: process::id(),
        })
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.thread.is_open()
    }

    /// Drives the task until it has ended or was closed: for a thread that does nothing else.
    fn drive(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        py.detach(|| self.thread.drive());
        Ok(())
    }

    /// Returns the connection of the operator at `position` of the chain.
    fn port(&self, py: Python<'_>, position: usize) -> PyResult<Py<Port>> {
        let operator = self.operators.get(position);
        let port = operator.and_then(|it| it.port.as_ref()).map(|port| port.clone_ref(py));
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
        let batch = self.take(py, patience)?;
        batch.map(|batch| batch.to_pyarrow(py)).transpose()
    }

    fn close(&self, py: Python<'_>) {
        self.is_closing.store(true, Ordering::Release);
        if self.process_id != process::id() {
            // Nothing runs here: the threads stayed in the parent.
            return;
        }
        py.detach(|| self.thread.close());
    }

    /// Compares the rows of the batches that came and left with what the task has settled, once it has
    /// ended by itself; returns how many rows the last operator has left out as its options say.
    fn settle(&self, came: u64, left: u64) -> PyResult<u64> {
        let settled = self.thread.settled().ok_or_else(|| closed_error(CLOSED))?;
        let mismatch = settled.mismatch(came, left);
        mismatch.map_or(Ok(settled.left_out), |it| Err(internal_error(&it)))
    }

    /// Refuses so many more of the rows that have `left` the operator at `position`; returns whether too
    /// many of its rows have failed.
    fn refuse(&self, position: usize, rows: u64, left: u64) -> bool {
        let bears = self.operators.get(position).and_then(|it| it.bears.as_ref());
        bears.is_some_and(|it| it.note_refused(rows, left).is_some())
    }

    /// Returns for each operator how many of the rows that had ended have failed, where that was too
    /// many; `at_end`: now that all have ended, else while it ran.
    fn too_many(&self, at_end: bool) -> Vec<Option<(u64, u64)>> {
        let judged = self.metrics.read().into_iter().zip(&self.operators).map(|(metrics, it)| {
            let bears = it.bears.as_ref()?;
            let counts = metrics.operator;
            if at_end { bears.at_end(counts.failures, counts.emitted) } else { bears.verdict() }
        });
        judged.map(|it| it.map(|it| (it.failed, it.ended))).collect()
    }

    /// Returns what a call of each operator of the chain brings in bytes, by the last ones; nothing
    /// before the first turn.
    #[getter]
    fn result_bytes(&self) -> Vec<Option<usize>> {
        self.metrics.read().into_iter().map(|metrics| metrics.result_bytes).collect()
    }

    /// Returns what each operator of the chain has done; nothing before the first turn.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let metrics = self.metrics.read().into_iter().zip(&self.operators);
        metrics.map(|(metrics, operator)| operator.metrics(py, &metrics)).collect()
    }
}

impl OperatorState {
    fn metrics<'py>(
        &self,
        py: Python<'py>,
        metrics: &OperatorMetrics,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let operator = metrics.operator;
        // Failed records leave too, unless their failure failed the task.
        let left_failed = if self.on_error == OnError::Fail { 0 } else { operator.failures };
        let emitted = operator.emitted.saturating_sub(metrics.dropped + left_failed);
        dict.set_item("admitted", operator.admitted)?;
        dict.set_item("emitted", emitted)?;
        dict.set_item("dropped", metrics.dropped)?;
        dict.set_item("failed", operator.failures)?;
        if !metrics.failures.is_empty() {
            let failures = PyDict::new(py);
            for (cause, count) in metrics.failures.iter() {
                failures.set_item(cause, count)?;
            }
            dict.set_item("failures", failures)?;
        }
        dict.set_item("in_flight", operator.in_flight)?;
        dict.set_item("queue_size", operator.queue_size)?;
        dict.set_item("oldest_age", operator.oldest_age.as_secs_f64())?;
        dict.set_item("attempts", operator.attempts)?;
        dict.set_item("retries", operator.retries)?;
        dict.set_item("hedged", operator.hedged)?;
        dict.set_item("hedges_won", operator.hedges_won)?;
        dict.set_item("timeouts", operator.timeouts)?;
        dict.set_item("cancelled", operator.cancelled)?;
        if let Some(cache) = &self.cache_metrics {
            dict.set_item("cache_hits", cache.hits())?;
            dict.set_item("cache_misses", cache.misses())?;
            dict.set_item("cache_loads", cache.loads())?;
            dict.set_item("cache_evictions", cache.evictions())?;
        }
        if let Some(channels) = &metrics.channels {
            set_channels(&dict, channels)?;
        }
        if let Some(limits) = &metrics.limits {
            set_limits(&dict, limits, &self.limits)?;
        }
        let latency = metrics.call_latency.iter().map(|(took, count)| (took.as_secs_f64(), *count));
        dict.set_item("call_latency", latency.collect::<Vec<_>>())?;
        Ok(dict)
    }
}
