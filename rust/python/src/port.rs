// SPDX-License-Identifier: Apache-2.0
//! The connection of a task to the event loop thread.

use std::collections::{HashMap, HashSet};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sparkawait_task::error::TaskError;
use sparkawait_task::function::{
    Call, Calls, FailedCall, Replies, ReplyGroup, ResultGroup, SettledCall, ToldLimit,
};

use crate::guard::FromArrow;
use arrow::array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyList;
use sparkawait_arrow::InputBatch;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Begins, Recall, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_macros::guarded;
use sparkawait_runtime::AsyncFunction;

use crate::error::{PythonCause, call_failure};
use crate::guard;
use crate::limit_headers;
use crate::result_columns::ResultColumns;
use crate::row::{BatchView, Columns, Row};
use crate::row_group::{RowGroup, by_channel, number_of};

/// What waits for the event loop thread.
#[derive(Debug, Default)]
struct Waiting {
    calls: Vec<Calls>,
    /// Calls that came with cancellations: they begin a turn of the loop later, when those have learnt
    /// it. Some may have waited for their end.
    next: Vec<Calls>,
    timeouts: Vec<Calls>,
    cancelled: Vec<AttemptId>,
    /// Whether the task has ended.
    is_closed: bool,
    /// Whether a byte is in the pipe, and so the loop will look.
    is_signalled: bool,
}

impl Waiting {
    /// Leaves them out of the calls that wait; those that the loop has already are cancelled there.
    ///
    /// Groups of calls stay, be they empty: their batches may be Python's, and are not to be dropped
    /// under a lock.
    fn cancel(&mut self, mut attempts: Vec<AttemptId>) {
        if !self.calls.is_empty() || !self.next.is_empty() {
            let mut wanted: HashSet<AttemptId> = attempts.iter().copied().collect();
            for group in self.next.iter_mut().chain(&mut self.calls) {
                group.calls.retain(|call| !wanted.remove(&call.attempt));
            }
            attempts.retain(|attempt| wanted.contains(attempt));
        }
        self.cancelled.extend(attempts);
    }

    /// Takes one call back; returns false if it does not wait here.
    fn take_back(&mut self, attempt: AttemptId) -> bool {
        // Mostly the youngest is looked for.
        self.next.iter_mut().chain(&mut self.calls).rev().any(|group| {
            let place = group.calls.iter().rposition(|it| it.attempt == attempt);
            place.map(|it| group.calls.remove(it)).is_some()
        })
    }

    /// Takes what the loop is to see in this turn.
    fn take(&mut self) -> Self {
        let left = Self { is_closed: self.is_closed, ..Self::default() };
        let mut taken = std::mem::replace(self, left);
        if taken.cancelled.is_empty() {
            taken.next.append(&mut taken.calls);
        } else {
            self.next = std::mem::take(&mut taken.calls);
            // The loop looks again as long as the byte is in the pipe.
            self.is_signalled = !self.next.is_empty();
        }
        taken.calls = std::mem::take(&mut taken.next);
        taken
    }
}

/// The side of a port that the task thread uses, without the GIL.
///
/// A byte in a pipe wakes the event loop: a thread that holds the GIL may keep
/// it for milliseconds, and the task thread must not wait for that.
#[derive(Debug)]
pub(crate) struct Mouth {
    waiting: Mutex<Waiting>,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Mouth {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { waiting: Mutex::default(), reader, writer })
    }

    /// Changes what waits, and wakes the loop unless it will look anyway.
    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut waiting);
        let was_signalled = std::mem::replace(&mut waiting.is_signalled, true);
        drop(waiting);
        if !was_signalled {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "the pipe holds one byte at most; both ends live as long as the port"
            )]
            let _ = (&self.writer).write_all(&[1]);
        }
        changed
    }

    /// Takes all that waits.
    fn take(&self) -> Waiting {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = waiting.take();
        let looks_again = waiting.is_signalled;
        drop(waiting);
        if taken.is_signalled && !looks_again {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "a pipe that is empty has nothing to be taken"
            )]
            let _ = (&self.reader).read(&mut [0]);
        }
        taken
    }
}

/// A function that the event loop thread calls: hands bursts of calls to its port.
pub(crate) struct PythonFunction(pub(crate) Arc<Mouth>);

impl Recall for Mouth {
    fn take_back(&self, call: AttemptId) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.take_back(call)
    }
}

impl AsyncFunction<Calls> for PythonFunction {
    fn invoke(&mut self, calls: Calls) {
        self.0.change(|waiting| waiting.calls.push(calls));
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.0.change(|waiting| waiting.timeouts.push(calls));
    }

    /// Takes calls back that wait here, and has the others cancelled.
    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        self.0.change(|waiting| waiting.cancel(attempts));
    }

    fn recall(&self) -> Option<Arc<dyn Recall>> {
        Some(Arc::clone(&self.0) as Arc<dyn Recall>)
    }

    fn close(&mut self) {
        let waited = self.0.change(|waiting| {
            let is_signalled = waiting.is_signalled;
            let closed = Waiting { is_closed: true, is_signalled, ..Waiting::default() };
            std::mem::replace(waiting, closed)
        });
        // Without the lock, for which the loop may wait with the GIL: a batch that is Python's takes that.
        drop(waited);
    }
}

/// Calls, the numbers of attempts that are no longer wanted, and rows that timed out.
type Taken = (Vec<Py<Row>>, Vec<u64>, Vec<Py<Row>>);

/// The same with groups of calls by their channels instead of single ones.
type TakenGroups = (Vec<(Option<u64>, RowGroup)>, Vec<u64>, Vec<Py<Row>>);

/// The side of a port that the event loop thread uses.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Port {
    mouth: Arc<Mouth>,
    replies: Replies,
    columns: Arc<Columns>,
    /// The batch of the latest calls, with what was converted of it.
    latest: Mutex<Option<Arc<BatchView>>>,
}

impl Port {
    pub(crate) fn new(mouth: Arc<Mouth>, replies: Replies, columns: Arc<Columns>) -> Self {
        Self { mouth, replies, columns, latest: Mutex::new(None) }
    }

    /// Returns the view of a batch; that of the latest batch keeps its conversions.
    fn view(&self, py: Python<'_>, batch: &Arc<InputBatch>) -> Arc<BatchView> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = latest.as_ref().filter(|view| Arc::ptr_eq(&view.input, batch)) {
            return Arc::clone(view);
        }
        let view = BatchView::new(py, Arc::clone(batch), Arc::clone(&self.columns));
        Arc::clone(latest.insert(Arc::new(view)))
    }

    /// Sends the results of some calls to the task.
    fn send(
        &self,
        attempts: Vec<AttemptId>,
        rows: RecordBatch,
        counts: Option<Vec<u32>>,
        retries: Option<Vec<bool>>,
    ) {
        let group = ResultGroup { counts, retries, ..ResultGroup::one_each(attempts, rows) };
        self.replies.send(group.into());
    }

    /// Makes a row for each call.
    fn rows(&self, py: Python<'_>, groups: &[Calls]) -> PyResult<Vec<Py<Row>>> {
        let mut rows = Vec::with_capacity(groups.iter().map(|group| group.calls.len()).sum());
        for group in groups.iter().filter(|group| !group.calls.is_empty()) {
            let views: Vec<_> = group.batches.iter().map(|batch| self.view(py, batch)).collect();
            for call in &group.calls {
                let Call { attempt, batch, row } = *call;
                let view = Arc::clone(&views[batch as usize]);
                rows.push(Py::new(py, Row::new(view, row as usize, attempt, number_of(attempt)))?);
            }
        }
        Ok(rows)
    }

    /// Makes what Python gets of what was taken; rows that cannot be made fail.
    fn hand_out(&self, py: Python<'_>, taken: &Waiting) -> Taken {
        let cancelled = taken.cancelled.iter().copied().map(number_of).collect();
        let [calls, timeouts] = [&taken.calls, &taken.timeouts].map(|groups| {
            guard::guarded(|| self.rows(py, groups)).unwrap_or_else(|error| {
                self.fail_all(py, groups, &error);
                Vec::new()
            })
        });
        (calls, cancelled, timeouts)
    }

    /// Ends all calls with `error`, for good.
    fn fail_all(&self, py: Python<'_>, groups: &[Calls], error: &PyErr) {
        let calls = groups.iter().flat_map(|group| &group.calls);
        let failures = calls.map(|call| {
            let failure = call_failure(py, error.clone_ref(py), ErrorKind::Internal);
            FailedCall::new(call.attempt, Box::new(failure), Retry::No)
        });
        self.replies.send(ReplyGroup { failures: failures.collect(), ..ReplyGroup::default() });
    }
}

/// Whether a failure asks for another attempt, after how many seconds, and for how many nobody is to call.
type Asks = (bool, Option<f64>, Option<f64>);

/// Returns the same for rows that no call was made for: they tell nothing of their destination.
fn left_out(mut failures: Vec<FailedCall>) -> Vec<FailedCall> {
    for failed in &mut failures {
        (failed.sign, failed.pause) = (CallSign::NotCalled, None);
    }
    failures
}

/// Returns the attempts that `rows` stand for: a list of rows, a group of them, or one.
fn attempts(rows: &Bound<'_, PyAny>) -> PyResult<Vec<AttemptId>> {
    if let Ok(rows) = rows.cast::<PyList>() {
        return rows.iter().map(|row| Ok(row.cast::<Row>()?.get().attempt_id)).collect();
    }
    match rows.cast::<RowGroup>() {
        Ok(group) => Ok(group.get().attempts()),
        Err(_) => Ok(vec![rows.cast::<Row>()?.get().attempt_id]),
    }
}

#[guarded]
#[pymethods]
impl Port {
    fn fileno(&self) -> i32 {
        self.mouth.reader.as_raw_fd()
    }

    /// Takes all that waits: calls, attempts that are no longer wanted, and rows that timed out.
    ///
    /// Nothing of it is lost: rows that cannot be made fail, and if even that fails, the task does.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Taken>> {
        let taken = self.mouth.take();
        if taken.is_closed {
            return Ok(None);
        }
        guard::guarded_value(|| self.hand_out(py, &taken)).map(Some).inspect_err(|error| {
            // Nobody else knows of these rows any more: without an outcome they would hang.
            let cause = PythonCause(error.clone_ref(py));
            self.replies.fail(TaskError::External(Arc::new(cause)));
        })
    }

    /// Does so for a function that takes record batches: calls come in groups.
    fn take_groups(&self, py: Python<'_>) -> PyResult<Option<TakenGroups>> {
        let mut taken = self.mouth.take();
        if taken.is_closed {
            return Ok(None);
        }
        let groups = std::mem::take(&mut taken.calls).into_iter();
        let groups = groups.filter(|it| !it.calls.is_empty()).flat_map(by_channel).collect();
        let (_, cancelled, timed_out) = self.hand_out(py, &taken);
        Ok(Some((groups, cancelled, timed_out)))
    }

    fn complete(
        &self,
        rows: &Bound<'_, PyAny>,
        results: FromArrow<RecordBatch>,
        counts: Option<Vec<u32>>,
        retry: Option<Vec<bool>>,
    ) -> PyResult<()> {
        self.send(attempts(rows)?, results.0, counts, retry);
        Ok(())
    }

    /// Completes rows with one result each; returns false, and does nothing, if one is not plain.
    fn try_complete(
        &self,
        columns: &Bound<'_, ResultColumns>,
        rows: &Bound<'_, PyAny>,
        results: &Bound<'_, PyList>,
    ) -> PyResult<bool> {
        let Some(batches) = columns.get().read(results) else { return Ok(false) };
        let mut attempts = attempts(rows)?;
        for batch in batches {
            let rest = attempts.split_off(batch.num_rows().min(attempts.len()));
            self.send(std::mem::replace(&mut attempts, rest), batch, None, None);
        }
        Ok(true)
    }

    /// Notes that a call begins for rows that waited for it in line; returns false if the task has
    /// ended, and it is not to be made.
    fn started(&self, rows: &Bound<'_, PyAny>) -> PyResult<bool> {
        let is_told = self.replies.begins() == Begins::WhenSaid;
        Ok(!is_told || self.replies.started(&attempts(rows)?))
    }

    /// Notes that a request is made for many rows; this is the first.
    fn request(&self, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(first) = attempts(rows)?.first() {
            self.replies.requested(*first);
        }
        Ok(())
    }

    /// Notes what calls have cost of limits, by their numbers.
    fn settle(&self, rows: &Bound<'_, PyAny>, limits: Vec<usize>, costs: Vec<u64>) -> PyResult<()> {
        let settled = attempts(rows)?.into_iter().zip(limits).zip(costs);
        let settled = settled.map(|((attempt, limit), cost)| SettledCall { attempt, limit, cost });
        self.replies.send(ReplyGroup { settled: settled.collect(), ..ReplyGroup::default() });
        Ok(())
    }

    /// Notes what the headers of replies say of limits.
    fn tell(&self, rows: &Bound<'_, PyAny>, headers: Vec<HashMap<String, String>>) -> PyResult<()> {
        let mut told = Vec::new();
        for (attempt, headers) in attempts(rows)?.into_iter().zip(headers) {
            let left = limit_headers::read(&headers).tightest().collect::<Vec<_>>();
            // Who has one limit for all channels has one at the service.
            let is_of_channel = false;
            told.extend(left.into_iter().map(|left| ToldLimit { attempt, left, is_of_channel }));
        }
        self.replies.tell(told);
        Ok(())
    }

    /// Ends a call that has failed for some of its rows: those that are called again together, in a part.
    /// Those that were not `called` were left out of it.
    fn divide(
        &self,
        rows: &Bound<'_, PyAny>,
        error: Bound<'_, PyAny>,
        called: bool,
    ) -> PyResult<()> {
        let (py, error) = (rows.py(), PyErr::from_value(error));
        let failure = call_failure(py, error, ErrorKind::UserFunctionFailed);
        let failures = FailedCall::in_part(&attempts(rows)?, &failure);
        let failures = if called { failures } else { left_out(failures) };
        self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
        Ok(())
    }

    /// Ends the calls of a row, or of a group of rows, with what was raised.
    fn fail(
        &self,
        rows: &Bound<'_, PyAny>,
        error: Bound<'_, PyAny>,
        kind: &str,
        asks: Asks,
        called: bool,
    ) -> PyResult<()> {
        let (py, (retry, delay, pause)) = (rows.py(), asks);
        let retry = match delay.map(Duration::try_from_secs_f64) {
            _ if !retry => Retry::No,
            Some(Ok(delay)) => Retry::After(delay),
            _ => Retry::Yes,
        };
        let kind = ErrorKind::from_code(kind).unwrap_or(ErrorKind::UserFunctionFailed);
        let error = PyErr::from_value(error);
        let pause = pause.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let failed = |attempt| {
            let failure = Box::new(call_failure(py, error.clone_ref(py), kind));
            let failed = FailedCall::new(attempt, failure, retry);
            // Also if nobody said for how long: it has too much to do.
            let sign = if pause.is_some() { CallSign::Overloaded } else { failed.sign };
            FailedCall { sign, pause: pause.filter(|it| !it.is_zero()), ..failed }
        };
        let failures: Vec<_> = attempts(rows)?.into_iter().map(failed).collect();
        let failures = if called { failures } else { left_out(failures) };
        self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
        Ok(())
    }
}
