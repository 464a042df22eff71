// SPDX-License-Identifier: Apache-2.0
//! The operator and its mailbox under a manual clock, for `OperatorTestHarness`.
//!
//! Values, results and exceptions stay in Python: here they are numbers that
//! Python gave them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sparkawait_core::element::{Key, StreamElement, StreamRecord, Timestamp, Watermark};
use sparkawait_core::mailbox::{Mail, MailboxProcessor, Step};
use sparkawait_core::operator::{
    AttemptId, Completion, Config, Emitted, Ended, Failure, Remark, Retry, Snapshot,
};
use sparkawait_core::queue::EntryId;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};
use sparkawait_macros::guarded;

use crate::convert::{RetryArguments, to_capacity, to_mode, to_retry, to_timeout};

/// The number that Python gave a value, a list of results or an exception.
type Token = u64;
/// The token of nothing; Python's begin with 1.
const NO_TOKEN: Token = 0;
type Operator = AsyncWaitOperator<Token, Token, Token>;

/// The settings of the operator; times are in seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    mode: String,
    capacity: i64,
    max_concurrency: i64,
    timeout: Option<f64>,
    attempt_timeout: Option<f64>,
    max_wait: Option<f64>,
    retry: Option<RetryArguments>,
    asks_on_timeout: bool,
}

/// Something that happened: its name, entry, attempt, token, timestamp.
type Event = (&'static str, u64, u32, Token, Option<i64>);

/// A letter to the operator.
enum HarnessMail {
    /// The outcome of an attempt.
    Completion(AttemptId, Completion<Token, Token>),
    /// What is said beside the outcome of an attempt that follows.
    Remark(AttemptId, Remark),
    /// A deadline has passed.
    Timer,
}

/// One operator with its mailbox, its clock, and what happened since the last look.
struct State {
    operator: Operator,
    processor: MailboxProcessor<HarnessMail>,
    now: ProcessingTime,
    events: Vec<Event>,
}

/// Drives an operator by hand.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Harness {
    state: Mutex<State>,
}

/// What an operator held, and the objects that its numbers stand for.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct HarnessSnapshot {
    elements: Snapshot<Token, Token, Token>,
    /// By their numbers.
    objects: Py<PyTuple>,
}

#[guarded]
#[pymethods]
impl HarnessSnapshot {
    #[getter]
    fn objects(&self, py: Python<'_>) -> Py<PyTuple> {
        self.objects.clone_ref(py)
    }
}

impl State {
    fn new(operator: Operator) -> Self {
        Self {
            operator,
            processor: MailboxProcessor::new(Waker::noop().clone()),
            now: ProcessingTime::ZERO,
            events: Vec::new(),
        }
    }

    /// Runs mail until there is none.
    fn run(&mut self) {
        self.collect();
        loop {
            match self.processor.next_step() {
                Step::RunMail(mail) => self.run_mail(&mail.payload),
                // Elements are put by hand: it has nothing to do.
                Step::DefaultAction => self.processor.suspend_default_action(),
                Step::Park | Step::Finished => return,
            }
            self.collect();
        }
    }

    fn run_mail(&mut self, mail: &HarnessMail) {
        match *mail {
            HarnessMail::Timer => self.operator.handle_time(self.now),
            HarnessMail::Remark(attempt, remark) => {
                self.operator.remark(attempt, remark, self.now);
            }
            HarnessMail::Completion(attempt, completion) => {
                self.operator.handle_completion(attempt, completion, self.now);
            }
        }
    }

    /// Notes what the operator emits and asks for, and admits what was restored.
    fn collect(&mut self) {
        loop {
            while let Some(element) = self.operator.pop_output() {
                self.events.push(event_of(element));
            }
            if !self.operator.is_replaying() {
                break;
            }
            let before = self.operator.queue_size();
            self.operator.replay(self.now);
            if self.operator.queue_size() == before && !self.operator.has_output() {
                break;
            }
        }
        self.collect_actions();
        if let Some(failed) = self.operator.take_failure() {
            let attempts = failed.attempts;
            self.events.extend(failed.outcome.err().map(|failure| {
                let (name, token) = match failure {
                    Failure::Function(token) => ("failed", token),
                    Failure::RetriesExhausted(token) => ("exhausted", token),
                    Failure::Ended(failure) => {
                        let (reason, last) = *failure;
                        let name = match reason {
                            Ended::TimedOut | Ended::AttemptTimedOut | Ended::TooLate { .. } => {
                                "timed out"
                            }
                            // A harness has no budgets.
                            Ended::Refused { .. } | Ended::Spent(_) => "refused",
                            Ended::Unavailable { .. } => "unavailable",
                        };
                        (name, last.unwrap_or(NO_TOKEN))
                    }
                };
                (name, 0, attempts, token, None)
            }));
        }
    }

    /// Notes what the operator asks its driver for.
    fn collect_actions(&mut self) {
        let actions = std::mem::take(self.operator.actions());
        for (name, invocations) in [("invoke", actions.invoke), ("ask", actions.ask_timeout)] {
            self.events.extend(
                invocations.into_iter().map(|it| {
                    (name, it.attempt.entry.as_u64(), it.attempt.attempt, it.value, None)
                }),
            );
        }
        self.events.extend(
            actions.cancel.into_iter().map(|it| ("cancel", it.entry.as_u64(), it.attempt, 0, None)),
        );
    }

    fn put(&self, mail: HarnessMail) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a mailbox that is never closed refuses nothing"
        )]
        let _ = self.processor.inbox().put(Mail::new(mail, 0, "drive the operator by hand"));
    }
}

fn event_of(element: StreamElement<Emitted<Token, Token, Token>>) -> Event {
    match element {
        StreamElement::Watermark(Watermark(Timestamp(at))) => ("watermark", 0, 0, 0, Some(at)),
        StreamElement::Record(emitted) => {
            let timestamp = emitted.record.timestamp.map(|Timestamp(at)| at);
            // Failures fail the harness, so whatever is emitted has results.
            ("record", 0, emitted.attempts, emitted.outcome.unwrap_or_default(), timestamp)
        }
    }
}

fn to_config(settings: &Settings) -> PyResult<Config> {
    let mode = to_mode(&settings.mode)?;
    let mut config = Config::new(mode, to_capacity("capacity", settings.capacity)?);
    config.max_concurrency = to_capacity("max_concurrency", settings.max_concurrency)?;
    config.timeout = to_timeout("timeout", settings.timeout)?;
    config.attempt_timeout = to_timeout("attempt_timeout", settings.attempt_timeout)?;
    config.max_wait = to_timeout("max_wait", settings.max_wait)?;
    config.retry = to_retry(settings.retry.as_ref())?;
    config.asks_on_timeout = settings.asks_on_timeout;
    Ok(config)
}

impl Harness {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[guarded]
#[pymethods]
impl Harness {
    #[new]
    fn new(settings: Settings) -> PyResult<Self> {
        let state = State::new(Operator::new(to_config(&settings)?));
        Ok(Self { state: Mutex::new(state) })
    }

    /// Makes one that holds what another one held.
    #[staticmethod]
    fn restore(
        snapshot: &HarnessSnapshot,
        settings: Settings,
        key_of: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let config = to_config(&settings)?;
        let elements = snapshot.elements.clone();
        let mut keys = Vec::new();
        for element in &elements {
            if let StreamElement::Record(record) = element {
                let key: Option<u64> = key_of.call1((record.record.value,))?.extract()?;
                keys.push(key.map(Key::new));
            }
        }
        let mut keys = keys.into_iter();
        let operator =
            Operator::restore(config, elements, |_| keys.next().flatten(), ProcessingTime::ZERO);
        Ok(Self { state: Mutex::new(State::new(operator)) })
    }

    /// Returns what it holds, with the objects that its numbers stand for; nothing changes.
    fn snapshot(&self, objects: Py<PyTuple>) -> HarnessSnapshot {
        let state = self.state();
        HarnessSnapshot { elements: state.operator.snapshot(state.now), objects }
    }

    fn process_element(&self, token: Token, timestamp: Option<i64>, key: Option<u64>) -> bool {
        let mut state = self.state();
        let record = StreamRecord::new(token, timestamp.map(Timestamp));
        let now = state.now;
        let is_taken = state.operator.process_element(record, key.map(Key::new), now).is_ok();
        state.collect();
        is_taken
    }

    fn process_watermark(&self, timestamp: i64) {
        let mut state = self.state();
        state.operator.process_watermark(Watermark(Timestamp(timestamp)));
        state.collect();
    }

    fn complete(&self, entry: u64, attempt: u32, token: Token, retry: bool) {
        let attempt = AttemptId { entry: EntryId::from_u64(entry), attempt };
        let retry = if retry { Retry::Yes } else { Retry::No };
        self.state().put(HarnessMail::Completion(attempt, Completion::answered(token, retry)));
    }

    #[pyo3(signature = (entry, attempt, token, retry, delay, pause))]
    fn fail(
        &self,
        entry: u64,
        attempt: u32,
        token: Token,
        retry: bool,
        delay: Option<f64>,
        pause: Option<f64>,
    ) {
        let attempt = AttemptId { entry: EntryId::from_u64(entry), attempt };
        let retry = match delay.map(Duration::try_from_secs_f64) {
            _ if !retry => Retry::No,
            Some(Ok(delay)) => Retry::After(delay),
            _ => Retry::Yes,
        };
        let state = &mut self.state();
        if let Some(delay) = pause.and_then(|it| Duration::try_from_secs_f64(it).ok()) {
            state.put(HarnessMail::Remark(attempt, Remark::Pause(delay)));
        }
        let completion = Completion::failed(token, retry, retry.sign());
        state.put(HarnessMail::Completion(attempt, completion));
    }

    /// Runs the mailbox until it is idle.
    fn run(&self) {
        self.state().run();
    }

    /// Returns what happened since the last call.
    fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.state().events)
    }

    /// Returns when the next timer is due, in nanoseconds.
    fn next_timer(&self) -> Option<u64> {
        self.state().operator.poll_timeout().map(ProcessingTime::as_nanos)
    }

    /// Moves the clock; what is due becomes mail.
    fn set_now(&self, nanos: u64) {
        let mut state = self.state();
        state.now = ProcessingTime::from_nanos(nanos);
        let now = state.now;
        if state.operator.poll_timeout().is_some_and(|due| due <= now) {
            state.put(HarnessMail::Timer);
        }
    }

    /// Returns whether the outcome of an attempt is awaited.
    fn awaits(&self, entry: u64, attempt: u32) -> bool {
        let attempt = AttemptId { entry: EntryId::from_u64(entry), attempt };
        self.state().operator.awaits(attempt)
    }

    fn end_input(&self) {
        let mut state = self.state();
        let now = state.now;
        state.operator.end_input(now);
        state.collect();
    }

    fn close(&self) {
        let mut state = self.state();
        state.operator.close();
        state.collect();
    }

    #[getter]
    fn finished(&self) -> bool {
        self.state().operator.is_finished()
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.state().operator.in_flight()
    }

    #[getter]
    fn queue_size(&self) -> usize {
        self.state().operator.queue_size()
    }

    #[getter]
    fn active_timers(&self) -> usize {
        self.state().operator.active_timers()
    }

    #[getter]
    fn pending_retries(&self) -> usize {
        self.state().operator.pending_retries()
    }
}
