// SPDX-License-Identifier: Apache-2.0
//! What a task has completed, on its way to the thread of Python that writes its journal.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use sparkawait_macros::guarded;
use sparkawait_task::error::{Raised, TaskError};
use sparkawait_task::journal::{Journal, JournalConfig};

use crate::convert::to_duration;
use crate::error::PythonCause;

/// How long a wait lasts at most, so that signals are looked for.
const WAIT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, RecordBatch)>,
    committed: u64,
    failed: Option<Raised>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// The commits that wait, and how far they are.
#[derive(Debug, Default)]
struct Commits {
    state: Mutex<State>,
    changed: Condvar,
}

impl Commits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the task.
    fn end(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Journal for Commits {
    fn append(&self, number: u64, entries: RecordBatch) {
        self.lock().waiting.push_back((number, entries));
        self.changed.notify_all();
    }

    fn committed(&self) -> Result<u64, TaskError> {
        let state = self.lock();
        state.failed.clone().map_or(Ok(state.committed), |raised| Err(TaskError::External(raised)))
    }

    fn connect(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }
}

/// The way from a task to the thread that writes its journal.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct JournalPort(Arc<Commits>);

#[guarded]
#[pymethods]
impl JournalPort {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Waits for a commit; returns its number and its entries, or nothing once the port is closed and
    /// all were taken.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
        loop {
            let taken = py.detach(|| {
                let mut state = self.0.lock();
                if state.waiting.is_empty() && !state.is_closed {
                    let waited = self.0.changed.wait_timeout(state, WAIT);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                (state.waiting.pop_front(), state.is_closed)
            });
            match taken {
                (Some((number, entries)), _) => {
                    return Ok(Some((number, entries.to_pyarrow(py)?)));
                }
                (None, true) => return Ok(None),
                (None, false) => py.check_signals()?,
            }
        }
    }

    /// Says that a commit is done.
    fn committed(&self, number: u64) {
        self.0.end(|state| state.committed = number);
    }

    /// Says that a commit has failed, and its task with it.
    fn failed(&self, error: Bound<'_, PyAny>) {
        let raised: Raised = Arc::new(PythonCause(PyErr::from_value(error)));
        self.0.end(|state| {
            state.failed.get_or_insert(raised);
            state.waiting.clear();
        });
    }

    /// Says that no further commit comes: the task has ended.
    fn close(&self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// How Python gives a task its journal.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct JournalArguments {
    port: Py<JournalPort>,
    interval: f64,
    max_bytes: usize,
    keeps_input: bool,
}

impl JournalArguments {
    pub(crate) fn read(&self) -> PyResult<JournalConfig> {
        let Self { port, interval, max_bytes, keeps_input } = self;
        let journal: Arc<dyn Journal> = Arc::clone(&port.get().0) as Arc<dyn Journal>;
        let interval = to_duration("interval", *interval)?;
        let (max_bytes, keeps_input) = (*max_bytes, *keeps_input);
        Ok(JournalConfig { journal, interval, max_bytes, keeps_input })
    }
}
