// SPDX-License-Identifier: Apache-2.0
//! A task that outlives the micro-batches whose rows it gets, and the state that a stream keeps of it.

use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::Tolerance;
use sparkawait_holder::endpoint::{self, Address, Answer, Bundle, Notice, StepError};
use sparkawait_holder::state::{self, Held};
use sparkawait_holder::{Begun, BundleId, Claim, Counts, NUMBERS, TaskId, ipc};
use sparkawait_macros::guarded;
use sparkawait_runtime::Patience;
use sparkawait_task::error::TaskError;
use sparkawait_task::task::{TaskDriver, TaskFeeder};
use sparkawait_task::task_codec::carry::WAY_OUT;

use crate::convert::to_duration;
use crate::error::{AsyncFunctionError, AsyncIOError, closed_error, internal_error, to_exception};
use crate::operator_arguments::{Operator, OperatorArguments};
use crate::port::Port;
use crate::task::{build, raised, with_branches};

/// How long is waited before it is looked for signals.
const TURN: Duration = Duration::from_millis(100);

/// The operators of a shard of a stream.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct DetachedTask {
    /// Until it is started.
    built: Mutex<Option<(TaskDriver, TaskFeeder)>>,
    task: OnceLock<Arc<sparkawait_holder::DetachedTask>>,
    /// By their positions in the chain; `None` for a native function.
    ports: Vec<Option<Py<Port>>>,
    /// How many failed rows each operator bears.
    bears: Vec<Option<Arc<Tolerance>>>,
    /// Tells where the task is, until that is in the state.
    notice: Mutex<Option<Notice>>,
    process_id: u32,
}

impl DetachedTask {
    fn task(&self) -> PyResult<&Arc<sparkawait_holder::DetachedTask>> {
        self.task.get().ok_or_else(|| closed_error("the task was not started"))
    }
}

/// Returns the error of an input that cannot be read.
fn unreadable(error: &arrow::error::ArrowError) -> PyErr {
    let message = format!("rows of the stream cannot be read: {error}");
    AsyncIOError::new_err((message, ErrorKind::InputInvalid.as_str()))
}

/// Returns the error of a step that is carried out again with other rows: the task is of no use to it.
fn other_rows() -> PyErr {
    PyConnectionError::new_err("the task has other rows of this micro-batch")
}

#[guarded]
#[pymethods]
impl DetachedTask {
    #[new]
    #[pyo3(signature = (*, operators, partition, saved))]
    fn new(
        py: Python<'_>,
        operators: Vec<OperatorArguments>,
        partition: u32,
        saved: Option<&Carried>,
    ) -> PyResult<Self> {
        let operators: Vec<Operator> =
            operators.into_iter().map(|it| it.read(py, partition)).collect::<PyResult<_>>()?;
        // Nothing binds a query in which no row is in flight to what it was before.
        let saved = match saved {
            Some(Carried { operators, rows, .. }) if *rows != (0, 0) => {
                let operators: Vec<&[u8]> = operators.iter().map(|it| it.as_bytes(py)).collect();
                state::read_operators(&operators).map_err(|error| to_exception(py, &error))?
            }
            _ => Vec::new(),
        };
        if !saved.is_empty() && saved.len() != operators.len() {
            let (before, now) = (saved.len(), operators.len());
            let kind = ErrorKind::SnapshotSchemaMismatch;
            let message = format!("they are of {before} calls, this query has {now}. {WAY_OUT}");
            return Err(to_exception(py, &TaskError::Saved { kind, message }));
        }
        let (driver, feeder, ports) =
            build(&operators, saved).map_err(|error| to_exception(py, &error))?;
        let ports = ports.into_iter().map(|port| port.map(|it| Py::new(py, it)).transpose());
        Ok(Self {
            built: Mutex::new(Some((driver, feeder))),
            task: OnceLock::new(),
            ports: ports.collect::<PyResult<_>>()?,
            bears: with_branches(operators).map(|it| it.config.operator.fail_after).collect(),
            notice: Mutex::new(None),
            process_id: process::id(),
        })
    }

    /// Returns the connection of the operator at `position` of the chain.
    fn port(&self, py: Python<'_>, position: usize) -> PyResult<Py<Port>> {
        let port = self.ports.get(position).and_then(|it| it.as_ref()).map(|it| it.clone_ref(py));
        port.ok_or_else(|| closed_error("a native function has no port"))
    }

    /// Lets the task work, on a thread of its own; returns what it is called. The part that it goes
    /// on with has ended `gap` seconds ago.
    fn start<'py>(
        &self,
        py: Python<'py>,
        owner: String,
        gap: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let gap = to_duration("gap", gap)?;
        let built = self.built.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (driver, feeder) = built.ok_or_else(|| closed_error("the task was started before"))?;
        let task = sparkawait_holder::DetachedTask::start(driver, feeder, owner, gap).map_err(
            |error| {
                let message = format!("no thread could be started for a task: {error}");
                AsyncIOError::new_err((message, ErrorKind::ThreadNotStarted.as_str()))
            },
        )?;
        let id = PyBytes::new(py, &task.id().0);
        self.task.set(task).map_err(|_| internal_error("a task was started twice"))?;
        Ok(id)
    }

    /// Tells all processes of the host that a step has made the task, and where this one listens.
    fn post(&self, step: &str, address: String, token: [u8; 16]) -> PyResult<()> {
        let posted = Notice::post(step, self.task()?.id(), &Address { path: address, token })?;
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = Some(posted);
        Ok(())
    }

    /// Ends the task if it was not used for `hold` seconds, or longer if it is used so seldom; returns
    /// whether it is of no use.
    fn retire(&self, hold: f64) -> PyResult<bool> {
        let hold = to_duration("hold", hold)?;
        Ok(self.task.get().is_none_or(|task| task.retire(hold)))
    }

    /// Begins a part; `None`: it is somebody else's, false: the task is of no use, and was given up.
    fn begin(&self, owner: &str, part: u64) -> PyResult<Option<bool>> {
        Ok(match self.task()?.begin(owner, part) {
            Begun::Yes => Some(true),
            Begun::Stale => Some(false),
            Begun::Busy | Begun::Late => None,
        })
    }

    fn put(&self, py: Python<'_>, rows: &[u8]) -> PyResult<bool> {
        let task = self.task()?;
        let bundle = py.detach(|| BundleId::of(rows));
        match task.claim(bundle) {
            Claim::Known => return Ok(true),
            Claim::Other => return Err(other_rows()),
            Claim::New => {}
        }
        let batches = py.detach(|| ipc::read(rows)).map_err(|error| unreadable(&error))?;
        for (number, mut batch) in batches.into_iter().enumerate() {
            loop {
                match py.detach(|| task.put_within(batch, TURN)) {
                    Ok(true) => break,
                    Ok(false) => return Ok(false),
                    Err(returned) => batch = returned,
                }
                py.check_signals().inspect_err(|_| {
                    if number > 0 {
                        // Nobody could tell how much of a bundle is there.
                        task.abandon();
                    }
                })?;
            }
        }
        task.note(bundle);
        Ok(true)
    }

    #[pyo3(signature = (linger))]
    fn end_part(&self, py: Python<'_>, linger: Option<f64>) -> PyResult<PartEnd> {
        let linger = linger.map(|it| to_duration("linger", it)).transpose()?;
        let task = self.task()?;
        if !task.put_end(linger.map_or(Patience::Drain, Patience::Linger)) {
            return Err(other_rows());
        }
        loop {
            match py.detach(|| task.wait(TURN)) {
                Ok(Some(end)) => return Ok(PartEnd::new(py, &end)),
                Ok(None) => py.check_signals()?,
                Err(error) => return Err(to_exception(py, &error)),
            }
        }
    }

    /// Returns for each operator how many of the rows that had ended have failed, where that was too
    /// many.
    fn too_many(&self) -> Vec<Option<(u64, u64)>> {
        let verdicts = self.bears.iter().map(|bears| bears.as_ref()?.verdict());
        verdicts.map(|it| it.map(|it| (it.failed, it.ended))).collect()
    }

    /// Leaves a part to the step that begins it again.
    fn leave(&self) -> PyResult<()> {
        self.task()?.leave();
        Ok(())
    }

    fn put_failure(&self, error: Bound<'_, PyAny>) {
        if let Some(task) = self.task.get() {
            task.put_failure(raised(PyErr::from_value(error)));
        }
    }

    fn close(&self, py: Python<'_>) {
        if self.process_id != process::id() {
            return;
        }
        drop(self.notice.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(task) = self.task.get() {
            py.detach(|| task.close());
        }
        if let Some((mut driver, _)) =
            self.built.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            driver.close();
        }
    }
}

/// A task of another process, for one micro-batch.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct RemoteTask {
    task: Mutex<endpoint::RemoteTask>,
}

impl RemoteTask {
    /// Does something with the task that may wait for a short time, until it is done.
    fn until<T: Send>(
        &self,
        py: Python<'_>,
        mut attempt: impl FnMut(&mut endpoint::RemoteTask) -> Result<Option<T>, StepError> + Send,
    ) -> PyResult<T> {
        loop {
            let tried = py
                .detach(|| attempt(&mut self.task.lock().unwrap_or_else(PoisonError::into_inner)));
            match tried {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => py.check_signals()?,
                Err(StepError::Lost(error)) => {
                    return Err(PyConnectionError::new_err(error.to_string()));
                }
                Err(StepError::Failed { kind, message }) => {
                    return Err(AsyncFunctionError::new_err((message, kind.as_str())));
                }
            }
        }
    }
}

#[guarded]
#[pymethods]
impl RemoteTask {
    /// Begins a part; `None` if the task is not there.
    #[staticmethod]
    fn begin(
        py: Python<'_>,
        address: String,
        token: [u8; 16],
        task: [u8; 16],
        owner: &str,
        part: u64,
    ) -> Option<Self> {
        let address = Address { path: address, token };
        let task =
            py.detach(|| endpoint::RemoteTask::begin(&address, TaskId(task), owner, part))?;
        Some(Self { task: Mutex::new(task) })
    }

    /// Hands rows over; raises `ConnectionError` if the process of the task is gone.
    fn put(&self, py: Python<'_>, rows: &[u8]) -> PyResult<bool> {
        let bundle = py.detach(|| Bundle::new(rows));
        self.until(py, |task| Ok(task.put(&bundle)?.then_some(true)))
    }

    #[pyo3(signature = (linger))]
    fn end_part(&self, py: Python<'_>, linger: Option<f64>) -> PyResult<PartEnd> {
        let linger = linger.map(|it| to_duration("linger", it)).transpose()?;
        let patience = linger.map_or(Patience::Drain, Patience::Linger);
        self.until(py, |task| Ok(task.put_end(patience)?.then_some(())))?;
        let mut answer = Answer::default();
        self.until(py, |task| Ok(task.wait(&mut answer)?.then_some(())))?;
        Ok(PartEnd::new(py, &answer.finish()))
    }
}

/// Listens for steps of other processes; returns where, and what they have to say.
#[guarded]
#[pyfunction]
pub(crate) fn listen_for_steps(py: Python<'_>) -> PyResult<(String, Bound<'_, PyBytes>)> {
    let Address { path, token } = endpoint::listen()?;
    Ok((path, PyBytes::new(py, &token)))
}

/// Returns the task that a step has made in an earlier attempt: where, what that process wants to be
/// told, and which one.
#[guarded]
#[pyfunction]
pub(crate) fn find_posted<'py>(
    py: Python<'py>,
    step: &str,
) -> Option<(String, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (task, Address { path, token }) = Notice::find(step)?;
    Some((path, PyBytes::new(py, &token), PyBytes::new(py, &task.0)))
}

/// What a part of the input came to.
#[pyclass(frozen, get_all, module = "sparkawait._core")]
pub(crate) struct PartEnd {
    outputs: Vec<Py<PyBytes>>,
    output_rows: u64,
    operators: Vec<Py<PyBytes>>,
    carried: u64,
    held: u64,
    input: u64,
    oldest: f64,
    /// What each operator did: the numbers of `COUNTS` in that order, and the permits of its limits.
    counts: Vec<[i64; NUMBERS]>,
}

impl PartEnd {
    fn new(py: Python<'_>, end: &sparkawait_holder::PartEnd) -> Self {
        Self {
            outputs: all_bytes(py, &end.outputs),
            output_rows: end.output_rows,
            operators: all_bytes(py, &end.operators),
            carried: end.carried,
            held: end.held,
            input: end.input,
            oldest: end.oldest.as_secs_f64(),
            counts: end.counts.iter().map(Counts::numbers).collect(),
        }
    }
}

fn all_bytes(py: Python<'_>, all: &[Vec<u8>]) -> Vec<Py<PyBytes>> {
    all.iter().map(|it| PyBytes::new(py, it).unbind()).collect()
}

/// The state that a stream keeps of a shard.
#[pyclass(frozen, get_all, module = "sparkawait._core")]
pub(crate) struct Carried {
    written_at: i64,
    shard: i32,
    shards: u32,
    by: String,
    task: Py<PyBytes>,
    part: u64,
    redone: u64,
    token: Py<PyBytes>,
    address: String,
    schema: Py<PyBytes>,
    completed: Vec<Py<PyBytes>>,
    completed_rows: u64,
    /// What its operators hold.
    operators: Vec<Py<PyBytes>>,
    /// Rows in flight, and rows that wait for others.
    rows: (u64, u64),
    /// Rows in flight that were called.
    called: u64,
    /// Rows of the input that the first operator holds.
    input: u64,
}

#[guarded]
#[pymethods]
impl Carried {
    #[staticmethod]
    fn decode(py: Python<'_>, payload: &[u8]) -> PyResult<Self> {
        let decoded = py.detach(|| {
            let carried = sparkawait_holder::Carried::decode(payload)?;
            let held = Held::by(&state::read_operators(&carried.operators)?);
            Ok((carried, held))
        });
        let (carried, held) = decoded.map_err(|error: TaskError| to_exception(py, &error))?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        Ok(Self {
            written_at: carried.written_at,
            shard: carried.shard,
            shards: carried.shards,
            by: carried.by,
            task: bytes(&carried.task.0),
            part: carried.part,
            redone: carried.redone,
            token: bytes(&carried.token),
            schema: bytes(&carried.schema),
            completed: all_bytes(py, &carried.completed),
            completed_rows: carried.completed_rows,
            operators: all_bytes(py, &carried.operators),
            address: carried.address,
            rows: (held.pending, held.completed),
            called: held.called,
            input: held.input,
        })
    }
}

/// Writes the state that a stream keeps of a shard.
#[guarded]
#[pyfunction]
#[pyo3(signature = (*, written_at, shard, shards, by, task, part, redone, token, address, schema, completed, completed_rows, operators))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn encode_carried<'py>(
    py: Python<'py>,
    written_at: i64,
    shard: i32,
    shards: u32,
    by: String,
    task: [u8; 16],
    part: u64,
    redone: u64,
    token: [u8; 16],
    address: String,
    schema: &[u8],
    completed: Vec<PyBackedBytes>,
    completed_rows: u64,
    operators: Vec<PyBackedBytes>,
) -> Bound<'py, PyBytes> {
    let carried = sparkawait_holder::Carried {
        written_at,
        shard,
        shards,
        by,
        task: TaskId(task),
        part,
        redone,
        token,
        address,
        schema: schema.to_vec(),
        completed_rows,
        completed: completed.iter().map(|it| it.to_vec()).collect(),
        operators: operators.iter().map(|it| it.to_vec()).collect(),
    };
    PyBytes::new(py, &py.detach(|| carried.encode()))
}
