// SPDX-License-Identifier: Apache-2.0
//! The mailbox loop of a task.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sparkawait_core::element::StreamElement;
use sparkawait_core::mailbox::{MailboxProcessor, Step, Suspension};
use sparkawait_core::operator::{AsyncWaitOperator, Config, Handled};
use sparkawait_core::time::ProcessingTime;

use crate::backlog_warning::BacklogWarning;
use crate::byte_bounds::ByteBounds;
use crate::channel_recorder::ChannelRecorder;
use crate::clock::{Clock, MonotonicClock};
use crate::exchange::{AsyncFunction, Exchange};
use crate::feeder::{Feeder, ReadAhead};
use crate::mail::{ReplySender, TaskInbox, TaskMail};
use crate::metrics::{LatencyRecorder, MetricsReader, TaskMetrics};
use crate::output_flusher::{BufferTimeout, OutputFlusher};
use crate::output_size::OutputSize;
use crate::parker::Parker;
use crate::warm_up::{WarmUp, WarmUpConfig};

/// Batches of input that wait at a task while it works on one.
const READ_AHEAD_BATCHES: usize = 2;

/// Records admitted in one run of the default action, before mail is looked at.
///
/// Large enough that a burst of calls is worth a wake-up of another thread,
/// small enough that replies do not wait for long.
const ADMISSION_BURST: usize = 1024;

/// How long a turn lasts at most, so that the caller can look for signals.
const TURN: Duration = Duration::from_millis(100);

/// How old published metrics get while the task runs; at its end they are exact.
const METRICS_INTERVAL: Duration = Duration::from_millis(100);

/// How a task begins, and how output batches are cut.
#[derive(Clone, Copy, Debug)]
pub struct DriverConfig {
    /// A batch of this many rows leaves at once.
    pub max_rows_per_batch: usize,
    /// A batch of about so many bytes leaves at once, and none has more unless one row has.
    pub max_bytes_per_batch: usize,
    /// When a smaller batch leaves.
    pub buffer_timeout: BufferTimeout,
    /// Batches are made smaller so that a row takes this long through one; `None`: never.
    pub target_latency: Option<Duration>,
    /// Few calls are made until rows have left and are asked for again; `None`: all at once.
    pub warm_up: Option<WarmUpConfig>,
}

/// What a turn came to.
#[derive(Debug)]
pub enum Turn<O> {
    /// A batch of results.
    Output(O),
    /// Nothing yet; take another turn.
    Paused,
    /// All input was processed and all results were handed out.
    Finished,
}

/// Drives one operator: the mailbox thread of a task.
///
/// Counterpart of Flink's `StreamTask` around its `MailboxProcessor`. Other
/// threads send mail: input, and the outcomes of calls. The default action
/// admits rows from the input; it is suspended while there is none or while
/// `capacity` records are held, and then the thread waits for mail or for the
/// next deadline.
///
/// ```text
///   feeder ----- Input, EndOfInput --> +---------+    take_turn() --> Output(batch)
///   function --- Replies ------------> | mailbox | --> operator --> exchange
///                                      +---------+        | Actions
///   function <---- invoke, cancel, ask_timeout -----------+
/// ```
pub struct Driver<X: Exchange, F, C = MonotonicClock> {
    operator: AsyncWaitOperator<X::Element, X::Results, X::Failure>,
    exchange: X,
    function: F,
    clock: C,
    config: DriverConfig,
    processor: MailboxProcessor<TaskMail<X>>,
    /// Set while the default action has nothing to do.
    suspension: Option<Suspension>,
    parker: Arc<Parker>,
    /// Input that the exchange has not taken; each holds a place of `read_ahead`.
    inputs: VecDeque<X::Input>,
    read_ahead: Arc<ReadAhead>,
    /// Whether `EndOfInput` came.
    input_ended: bool,
    /// How much is held at a time.
    bounds: ByteBounds,
    max_concurrency: NonZeroUsize,
    /// When the next batch leaves.
    flusher: OutputFlusher,
    /// Whether few calls are made at first.
    warm_up: WarmUp,
    /// Why the task fails, once its output is handed out.
    error: Option<X::Error>,
    is_closed: bool,
    latency: LatencyRecorder,
    channels: ChannelRecorder,
    backlog: BacklogWarning,
    metrics: MetricsReader,
    /// When metrics were published last.
    published_at: Option<ProcessingTime>,
}

/// The ends of a task's mailbox, made before the function that needs one of them.
pub struct Mailbox<X: Exchange> {
    processor: MailboxProcessor<TaskMail<X>>,
    inbox: TaskInbox<X>,
    parker: Arc<Parker>,
}

impl<X: Exchange> Mailbox<X> {
    /// Makes an open mailbox.
    pub fn new() -> Self {
        let parker = Arc::new(Parker::default());
        let processor = MailboxProcessor::new(Waker::from(Arc::clone(&parker)));
        let inbox = TaskInbox::new(Arc::clone(processor.inbox()));
        Self { processor, inbox, parker }
    }

    /// Returns the way for outcomes of calls; the function keeps it.
    pub fn reply_sender(&self) -> ReplySender<X> {
        ReplySender::new(self.inbox.clone())
    }
}

impl<X: Exchange> Default for Mailbox<X> {
    fn default() -> Self {
        Self::new()
    }
}

impl<X, F, C> Driver<X, F, C>
where
    X: Exchange,
    F: AsyncFunction<X::Calls>,
    C: Clock,
{
    /// Makes a driver of an operator with `operator` as its settings.
    pub fn new(
        mailbox: Mailbox<X>,
        operator: Config,
        config: DriverConfig,
        exchange: X,
        function: F,
        clock: C,
    ) -> (Self, Feeder<X>) {
        let Mailbox { processor, inbox, parker } = mailbox;
        let read_ahead = Arc::new(ReadAhead::new(READ_AHEAD_BATCHES));
        let feeder = Feeder::new(inbox, Arc::clone(&read_ahead));
        let warm_up = WarmUp::new(config.warm_up, operator.max_concurrency);
        let output_size = OutputSize::new(config.max_rows_per_batch, config.target_latency);
        let driver = Self {
            max_concurrency: operator.max_concurrency,
            operator: AsyncWaitOperator::new(operator),
            exchange,
            function,
            clock,
            config,
            processor,
            suspension: None,
            parker,
            inputs: VecDeque::new(),
            read_ahead,
            input_ended: false,
            bounds: ByteBounds::new(config.max_bytes_per_batch),
            flusher: OutputFlusher::new(output_size, config.buffer_timeout),
            warm_up,
            error: None,
            is_closed: false,
            latency: LatencyRecorder::new(),
            channels: ChannelRecorder::default(),
            backlog: BacklogWarning::default(),
            metrics: MetricsReader::default(),
            published_at: None,
        };
        (driver, feeder)
    }

    /// Returns where the task publishes its metrics, at the end of each turn.
    pub fn metrics_reader(&self) -> MetricsReader {
        self.metrics.clone()
    }

    /// Returns whether all calls may be made: the task has begun and its rows are wanted.
    pub fn is_open(&self) -> bool {
        self.warm_up.is_open()
    }

    /// Works until a batch of results is full or old enough, or a short time has passed.
    ///
    /// Blocks while there is nothing to do. Take turns from one thread at a time.
    ///
    /// # Errors
    ///
    /// The task's failure. What was emitted before it has been handed out.
    pub fn take_turn(&mut self) -> Result<Turn<X::Output>, X::Error> {
        let now = self.clock.now();
        self.flusher.asked(now);
        self.warm_up.begin_turn(now);
        let turn = self.work(now);
        let now = self.clock.now();
        if self.published_at.is_none_or(|last| now >= last + METRICS_INTERVAL) {
            self.published_at = Some(now);
            self.publish_metrics(now);
        }
        if !matches!(turn, Ok(Turn::Output(_) | Turn::Paused)) {
            self.close();
        }
        turn
    }

    /// Cancels all calls in flight and ends the feeder. Idempotent.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let now = self.clock.now();
        self.channels.record_last(&self.operator, &self.exchange, now);
        self.operator.close();
        self.function.close();
        self.read_ahead.close();
        self.processor.mailbox_mut().close();
        self.publish_metrics(now);
    }

    fn work(&mut self, begun: ProcessingTime) -> Result<Turn<X::Output>, X::Error> {
        let mut end = begun + TURN;
        loop {
            let now = self.clock.now();
            self.emit(now);
            end = self.warm_up.opens_at().map_or(end, |opens_at| end.min(opens_at));
            if let Some(turn) = self.output_turn(now)? {
                return Ok(turn);
            }
            self.set_window(now);
            self.resume_default_action();
            match self.processor.next_step() {
                Step::RunMail(mail) => self.run_mail(mail.payload, now),
                Step::DefaultAction => {
                    if now >= end {
                        return Ok(Turn::Paused);
                    }
                    self.handle_time(now);
                    self.process_input(now);
                }
                Step::Park if now >= end => return Ok(Turn::Paused),
                Step::Park => self.handle_time_or_park(now, end),
                Step::Finished => return Ok(Turn::Finished),
            }
            self.carry_out_actions(now);
        }
    }

    /// Lets as many calls be in flight as everybody permits who bounds them: there is room for
    /// what they bring, and somebody wants it.
    fn set_window(&mut self, now: ProcessingTime) {
        let calls = self.bounds.calls(self.exchange.result_bytes(), self.max_concurrency);
        self.operator.set_window(calls.min(self.warm_up.window()), now);
        // Calls that it lets start do not wait until something else happens.
        self.carry_out_actions(now);
    }

    /// Moves completed elements to the output, up to one batch.
    fn emit(&mut self, now: ProcessingTime) {
        let before = self.exchange.output_rows();
        while self.exchange.output_rows() < self.flusher.rows() {
            let Some(element) = self.operator.pop_output() else { break };
            self.exchange.emit(element);
        }
        let held = self.exchange.output_rows();
        self.flusher.emitted(held - before, held, now);
        // Rows without results are nothing to wait for.
        if self.warm_up.is_cold() && held == 0 && self.operator.metrics(now).emitted > 0 {
            self.warm_up.left(now);
        }
    }

    /// Returns what the turn came to, if it is over.
    fn output_turn(&mut self, now: ProcessingTime) -> Result<Option<Turn<X::Output>>, X::Error> {
        let is_over = self.error.is_some() || self.operator.is_finished();
        let (max_rows, max_bytes) = (self.flusher.rows(), self.config.max_bytes_per_batch);
        let is_full = self.exchange.is_output_full(max_rows, max_bytes);
        // As long as it is open whether more are wanted, nothing is kept back of what there is.
        let is_first = self.exchange.output_rows() > 0 && !self.warm_up.is_open();
        let is_old = self.flusher.deadline().is_some_and(|deadline| deadline <= now);
        if is_over || is_full || is_old || is_first || self.waits_for_output() {
            if let Some(batch) =
                self.exchange.take_output(self.config.max_rows_per_batch, max_bytes)?
            {
                self.flusher.left(now);
                self.warm_up.left(now);
                return Ok(Some(Turn::Output(batch)));
            }
            self.flusher.nothing_left();
        }
        if !is_over {
            return Ok(None);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.operator.take_failure() {
            Some(failed) => Err(self.exchange.failure(failed)),
            None => Ok(Some(Turn::Finished)),
        }
    }

    fn run_mail(&mut self, mail: TaskMail<X>, now: ProcessingTime) {
        match mail {
            TaskMail::Replies(reply) => {
                let (operator, latency) = (&mut self.operator, &mut self.latency);
                let (mut calls, held) = (0, self.exchange.result_bytes());
                let accepted = self.exchange.accept_reply(reply, |attempt, completion| {
                    calls += 1;
                    let handled = operator.handle_completion(attempt, completion, now);
                    if let Handled::Final(took) | Handled::Retried(took) = handled {
                        latency.record(took);
                    }
                    handled
                });
                self.bounds.measure(calls, self.exchange.result_bytes().saturating_sub(held));
                if let Err(error) = accepted {
                    self.fail(error);
                }
            }
            TaskMail::Input(input) => self.inputs.push_back(input),
            TaskMail::EndOfInput => self.input_ended = true,
            TaskMail::Failed(error) => self.fail(error),
        }
    }

    /// Ends the task with `error`, after what was emitted is handed out.
    fn fail(&mut self, error: X::Error) {
        self.operator.close();
        self.error.get_or_insert(error);
    }

    /// The default action: admits rows from the input while there are slots.
    fn process_input(&mut self, now: ProcessingTime) {
        for _ in 0..ADMISSION_BURST.min(self.operator.free_slots()) {
            if !self.exchange.has_element() && !self.accept_input() {
                break;
            }
            match self.exchange.next_element() {
                None => {}
                Some(StreamElement::Watermark(watermark)) => {
                    self.operator.process_watermark(watermark);
                }
                Some(StreamElement::Record((record, key))) => {
                    // A slot was free, and nothing else takes one.
                    let channel = self.exchange.channel();
                    let _ = self.operator.process_element_on(channel, record, key, now);
                }
            }
        }
        if self.input_ended && !self.has_input() {
            self.input_ended = false;
            self.operator.end_input(now);
        }
        self.backlog.admitted(now);
        if !self.can_admit() {
            // Before that all channels have few calls, so that even quick ones fill the backlog.
            if self.has_input() && self.warm_up.is_open() {
                self.backlog.check(&self.operator, &self.exchange, now);
            }
            self.suspension = self.processor.suspend_default_action().ok();
        }
    }

    /// Lets the exchange take the next batch; returns false if there is none.
    fn accept_input(&mut self) -> bool {
        if self.lacks_room() {
            return false;
        }
        let Some(input) = self.inputs.pop_front() else { return false };
        self.read_ahead.release();
        match self.exchange.accept(input) {
            Ok(()) => true,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn has_input(&self) -> bool {
        self.exchange.has_element() || !self.inputs.is_empty()
    }

    /// Returns whether there is input, and it waits for others to leave: too much is held.
    fn lacks_room(&self) -> bool {
        !self.inputs.is_empty()
            && !self.exchange.has_element()
            && !self.bounds.takes_input(self.exchange.input_bytes())
    }

    /// Returns whether the input waits for room, and nothing but the output can make some.
    fn waits_for_output(&self) -> bool {
        self.lacks_room() && self.operator.queue_size() == 0
    }

    /// Returns whether the default action has something to do.
    fn can_admit(&self) -> bool {
        (self.has_input() && self.operator.has_capacity() && !self.lacks_room())
            || (self.input_ended && !self.has_input())
    }

    fn resume_default_action(&mut self) {
        if self.suspension.is_some() && self.can_admit() {
            self.suspension.take().into_iter().for_each(|it| self.processor.resume(it));
        }
    }

    /// Lets due deadlines take effect, behind the mail that is here: a reply wins.
    fn handle_time(&mut self, now: ProcessingTime) {
        if self.operator.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        self.processor.mailbox_mut().create_batch();
        while let Some(mail) = self.processor.mailbox_mut().try_take_from_batch() {
            self.run_mail(mail.payload, now);
        }
        self.operator.handle_time(now);
    }

    /// Waits for mail or for what comes due first.
    fn handle_time_or_park(&mut self, now: ProcessingTime, end: ProcessingTime) {
        let next = match self.operator.poll_timeout() {
            Some(due) if due <= now => return self.operator.handle_time(now),
            next => next,
        };
        let deadlines = [next, self.flusher.deadline(), Some(end)];
        let until = deadlines.into_iter().flatten().min().unwrap_or(end);
        self.parker.park(until.saturating_since(now));
    }

    /// Hands what the operator asks for to the function.
    fn carry_out_actions(&mut self, now: ProcessingTime) {
        let actions = self.operator.actions();
        if actions.is_empty() {
            return;
        }
        let invoke = std::mem::take(&mut actions.invoke);
        let ask_timeout = std::mem::take(&mut actions.ask_timeout);
        let cancel = std::mem::take(&mut actions.cancel);
        if !invoke.is_empty() {
            self.warm_up.called(now);
            self.function.invoke(self.exchange.calls(invoke));
        }
        if !ask_timeout.is_empty() {
            self.function.ask_timeout(self.exchange.calls(ask_timeout));
        }
        if !cancel.is_empty() {
            self.function.cancel(cancel);
        }
    }

    fn publish_metrics(&mut self, now: ProcessingTime) {
        self.channels.record(&self.operator, &self.exchange, now);
        let operator = self.operator.metrics(now);
        let (dropped, call_latency) = (self.exchange.dropped(), self.latency.buckets());
        let channels = self.channels.report();
        self.metrics.publish(TaskMetrics { operator, dropped, call_latency, channels });
    }
}

impl<X: Exchange, F, C> fmt::Debug for Driver<X, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

impl<X: Exchange> fmt::Debug for Mailbox<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}
