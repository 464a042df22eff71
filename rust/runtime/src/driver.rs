// SPDX-License-Identifier: Apache-2.0
//! The mailbox loop of a task.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sparkawait_core::mailbox::{Demand, Mail, MailboxProcessor, Outlet, Step};
use sparkawait_core::time::ProcessingTime;

use crate::account::Settled;
use crate::async_function::AsyncFunction;
use crate::batch_codec::{BatchCodec, CarryCodec};
use crate::clock::{Clock, MonotonicClock};
use crate::feeder::{Feeder, ReadAhead};
use crate::mail::{ReplySender, TaskInbox, TaskMail, priority_of};
use crate::metrics::MetricsReader;
use crate::operator_chain::OperatorChain;
use crate::output_flusher::OutputFlusher;
use crate::parker::Parker;
use crate::part::{Part, Patience};

/// Batches of input that wait at a task while it works on one.
const READ_AHEAD_BATCHES: usize = 2;

/// Records admitted in one run of the default action, before mail is looked at.
///
/// Large enough that a burst of calls is worth a wake-up of another thread,
/// small enough that replies do not wait for long.
const ADMISSION_BURST: usize = 1024;

/// Mails after which it is looked at the time, if they come without end: nothing else does it then.
const MAILS_BEFORE_TIME: u32 = 64;

/// Mails that are run before what they completed goes through the chain. That costs the same for one
/// mail as for all that are there; calls that have room wait for it.
const MAILS_TOGETHER: u32 = 16;

/// How long a turn lasts at most, so that the caller can look for signals.
const TURN: Duration = Duration::from_millis(100);

/// How old published metrics get while the task runs; at its end they are exact.
const METRICS_INTERVAL: Duration = Duration::from_millis(100);

/// How long a task that nothing can happen to any more is looked at before it fails. Tests, which are
/// built with debug assertions, do not wait: each of them looks for a false alarm.
const STUCK_FOR: Duration =
    if cfg!(debug_assertions) { Duration::ZERO } else { Duration::from_secs(10) };

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

/// Drives the operators of a task: its mailbox thread.
///
/// Counterpart of Flink's `StreamTask` around its `MailboxProcessor`. Other
/// threads send mail: input, and the outcomes of calls. The default action
/// admits rows from the input; it is suspended while there is none or while
/// `capacity` records are held, and then the thread waits for mail or for the
/// next deadline.
///
/// ```text
///   feeder ----- Input, EndOfInput --> +---------+    take_turn() --> Output(batch)
///   functions -- Replies ------------> | mailbox | --> operator chain
///                                      +---------+        | Actions
///   functions <--- invoke, cancel, ask_timeout -----------+
/// ```
pub struct Driver<X: BatchCodec, F, C = MonotonicClock> {
    chain: OperatorChain<X, F>,
    clock: C,
    processor: MailboxProcessor<TaskMail<X>>,
    /// Whether the last mail was run before its turn, for an operator that waits for room.
    has_yielded: bool,
    /// Since when nothing can happen any more although rows are held.
    stuck_since: Option<ProcessingTime>,
    /// Mails that were run since deadlines were looked at.
    mails: u32,
    parker: Arc<Parker>,
    /// Batches of input that were not taken hold its places.
    read_ahead: Arc<ReadAhead>,
    /// When the next batch leaves.
    flusher: OutputFlusher,
    /// Where batches are taken while turns go on; without one, the thread that takes a turn waits
    /// for a batch.
    outlet: Option<Arc<Outlet<X::Output, X::Error>>>,
    /// The part of the input that ends, if it comes in parts.
    part: Option<Part>,
    /// Whether it is worked off.
    has_part_ended: bool,
    /// Why the task fails, once its output is handed out.
    error: Option<X::Error>,
    is_closed: bool,
    metrics: MetricsReader,
    /// When metrics were published last.
    published_at: Option<ProcessingTime>,
}

/// The ends of a task's mailbox, made before the functions that need one of them.
pub struct Mailbox<X: BatchCodec> {
    processor: MailboxProcessor<TaskMail<X>>,
    inbox: TaskInbox<X>,
    parker: Arc<Parker>,
}

impl<X: BatchCodec> Mailbox<X> {
    /// Makes an open mailbox.
    pub fn new() -> Self {
        let parker = Arc::new(Parker::default());
        let processor = MailboxProcessor::new(Waker::from(Arc::clone(&parker)));
        let inbox = TaskInbox::new(Arc::clone(processor.inbox()));
        Self { processor, inbox, parker }
    }

    /// Returns the way for outcomes of calls of the operator at `position` of the chain, from 0;
    /// its function keeps it.
    pub fn reply_sender(&self, position: usize) -> ReplySender<X> {
        ReplySender::new(self.inbox.clone(), position)
    }

    /// Returns what wakes the thread of the task.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.parker))
    }
}

impl<X: BatchCodec> Default for Mailbox<X> {
    fn default() -> Self {
        Self::new()
    }
}

impl<X, F, C> Driver<X, F, C>
where
    X: BatchCodec,
    F: AsyncFunction<X::Calls>,
    C: Clock,
{
    /// Makes a driver of the operators of `chain`.
    pub fn new(mailbox: Mailbox<X>, chain: OperatorChain<X, F>, clock: C) -> (Self, Feeder<X>) {
        let Mailbox { processor, inbox, parker } = mailbox;
        let read_ahead = Arc::new(ReadAhead::new(READ_AHEAD_BATCHES));
        let feeder = Feeder::new(inbox, Arc::clone(&read_ahead));
        let driver = Self {
            flusher: chain.last().flusher(),
            chain,
            clock,
            processor,
            has_yielded: false,
            stuck_since: None,
            mails: 0,
            parker,
            read_ahead,
            outlet: None,
            part: None,
            has_part_ended: false,
            error: None,
            is_closed: false,
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
        self.chain.is_open()
    }

    /// Makes the place where another thread takes the output, which `consumer` wakes. A turn gives no
    /// batch from now on that this thread does not want yet.
    pub(crate) fn connect(&mut self, consumer: Waker) -> Arc<Outlet<X::Output, X::Error>> {
        let outlet = Outlet::new(Waker::from(Arc::clone(&self.parker)), consumer);
        let outlet = Arc::new(outlet);
        self.outlet = Some(Arc::clone(&outlet));
        outlet
    }

    /// Waits until the consumer wants something else, or has done so since the last wait.
    pub(crate) fn wait_for_demand(&self) {
        self.clock.park(&self.parker, TURN);
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
        if self.demand() == Demand::Any {
            self.chain.begin_turn(now);
        }
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

    /// Tells the log of input that waits for long for room; between two turns, for a task whose
    /// consumer sees nothing else of it.
    pub fn check_room(&mut self) {
        let now = self.clock.now();
        self.chain.head().check_room(now);
    }

    /// Returns what happened to the rows of a task that has [`Finished`](Turn::Finished).
    pub fn settled(&self) -> Settled {
        self.chain.settled(0)
    }

    /// Cancels all calls in flight and ends the feeder. Idempotent.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        // First, so that the thread that feeds the task does not wait for ever if a function panics.
        self.read_ahead.close();
        let now = self.clock.now();
        self.chain.close(now);
        // Calls that have begun since the last mail was run. One that is told later is refused, and not
        // made.
        for mail in self.processor.mailbox_mut().close() {
            if let TaskMail::Started(..) = mail.payload {
                self.run_mail(mail.payload, now);
            }
        }
        self.publish_metrics(now);
    }

    /// Makes passes until a batch leaves, or the turn is over. The steps of a pass need one another:
    ///
    /// | step | why there |
    /// |---|---|
    /// | `pass_on` | first, since what the last pass completed makes room for all that follows |
    /// | `output_turn` | before anything is admitted: a batch that is full leaves before calls are made for the next one |
    /// | `set_windows` | once rows have left: it counts the bytes of what is still held; it carries out the calls that it lets start |
    /// | `make_room` | when nothing is left to be carried out, which names rows by the places that it changes |
    /// | `has_calls_to_fan` | after what starts calls, since branches get theirs in `pass_on` |
    /// | `resume_default_action` | after `make_room`, which decides whether input is admitted |
    /// | one step: mails, input, or a wait | mail before input, so that what is held ends before more is taken |
    /// | `carry_out_actions` | last: one hand-over of all calls that the step let start |
    fn work(&mut self, begun: ProcessingTime) -> Result<Turn<X::Output>, X::Error> {
        let mut end = begun + TURN;
        // The consumer may have taken its time. Turns that each end with their first mail, or with what
        // was completed before, would never look at what has come due meanwhile.
        self.handle_time(begun);
        self.chain.carry_out_actions(begun);
        loop {
            let now = self.clock.now();
            let demand = self.demand();
            match demand {
                Demand::Any => self.flusher.asked(now),
                Demand::Closed => return Ok(Turn::Paused),
                Demand::Whole | Demand::None => {}
            }
            self.pass_on(demand, now);
            end = self.chain.opens_at().map_or(end, |opens_at| end.min(opens_at));
            if let Some(turn) = self.output_turn(demand, now)? {
                return Ok(turn);
            }
            if self.is_over() {
                // Its last batches wait for the consumer.
                if now >= end {
                    return Ok(Turn::Paused);
                }
                self.clock.park(&self.parker, end.saturating_since(now));
                continue;
            }
            if self.part.is_some() {
                end = end.min(self.end_of_part(now));
                if self.has_part_ended {
                    self.chain.carry_out_actions(now);
                    return Ok(Turn::Paused);
                }
            }
            self.chain.set_windows(now);
            if let Err(error) = self.chain.make_room() {
                self.fail(error, now);
            }
            if self.chain.has_calls_to_fan() {
                continue;
            }
            self.resume_default_action();
            match self.next_step() {
                Step::RunMail(mail) => {
                    self.stuck_since = None;
                    self.run_mails(mail, now);
                    if self.mails >= MAILS_BEFORE_TIME {
                        self.handle_time(now);
                    }
                }
                Step::DefaultAction => {
                    if now >= end {
                        return Ok(Turn::Paused);
                    }
                    self.handle_time(now);
                    self.process_input(now);
                }
                Step::Park if now >= end => return Ok(Turn::Paused),
                // An operator was handed a watermark behind its last row, say.
                Step::Park if self.chain.has_ready() && !self.is_held_back(demand) => {}
                Step::Park => self.handle_time_or_park(demand, now, end),
                Step::Finished => return Ok(Turn::Finished),
            }
            self.chain.carry_out_actions(now);
        }
    }

    /// Decides what to do next. While rows wait for an operator that is full, its mail goes first,
    /// and that of those behind it: what makes room. Every other mail keeps its turn, so that none
    /// waits for ever.
    fn next_step(&mut self) -> Step<TaskMail<X>> {
        if !std::mem::take(&mut self.has_yielded)
            && let Some(full) = self.chain.full()
            && let Some(mail) = self.processor.mailbox_mut().try_take(priority_of(full))
        {
            self.has_yielded = true;
            return Step::RunMail(mail);
        }
        self.processor.next_step()
    }

    /// Returns what the consumer wants. A consumer that takes turns itself waits for whatever there
    /// is.
    #[inline]
    fn demand(&self) -> Demand {
        self.outlet.as_ref().map_or(Demand::Any, |it| it.demand())
    }

    /// Returns whether only what is in the output is left to hand out.
    fn is_over(&self) -> bool {
        self.error.is_some() || self.chain.is_finished()
    }

    /// Moves what was completed through the chain, and to the output.
    fn pass_on(&mut self, demand: Demand, now: ProcessingTime) {
        if let Err(error) = self.chain.fan(now) {
            self.fail(error, now);
        }
        self.emit(demand, now);
        if let Err(error) = self.chain.hand_over(now) {
            self.fail(error, now);
        }
    }

    /// Returns whether a batch is full that nobody wants yet: then nothing moves but by mail and time.
    fn is_held_back(&mut self, demand: Demand) -> bool {
        let rows = self.flusher.rows();
        demand == Demand::None && self.chain.last_mut().is_output_full(rows)
    }

    /// Moves completed elements to the output, up to one batch.
    fn emit(&mut self, demand: Demand, now: ProcessingTime) {
        let before = self.chain.last().output_rows();
        let is_held_back = self.is_held_back(demand);
        let (rows, last) = (self.flusher.rows(), self.chain.last_mut());
        // Else many small turns would make it a larger one than `max_bytes` says.
        if !is_held_back {
            last.emit(rows);
        }
        // Behind that: rows that are completed and not emitted hold slots, as if nothing could go on.
        if let Err(error) = last.commit(now) {
            self.fail(error, now);
        }
        if is_held_back {
            return;
        }
        let held = self.chain.last().output_rows();
        self.flusher.emitted(held - before, held, now);
        self.chain.look_for_dropped(now);
    }

    /// Returns what the turn came to, if it is over.
    fn output_turn(
        &mut self,
        demand: Demand,
        now: ProcessingTime,
    ) -> Result<Option<Turn<X::Output>>, X::Error> {
        self.chain.stop_if_failed(now);
        if self.is_over() {
            match self.chain.last_mut().commit_all(now) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => self.fail(error, now),
            }
        }
        if demand == Demand::None {
            return Ok(None);
        }
        let is_over = self.is_over();
        let is_full = self.chain.last_mut().is_output_full(self.flusher.rows());
        // As long as it is open whether more are wanted, nothing is kept back of what there is.
        let is_first = self.chain.last().output_rows() > 0 && !self.chain.is_open();
        let is_old = self.flusher.deadline().is_some_and(|deadline| deadline <= now);
        let is_awaited = demand == Demand::Any && (is_old || is_first);
        if is_over || is_full || is_awaited || self.chain.waits_for_output() {
            if let Some(batch) = self.chain.last_mut().take_output()? {
                self.flusher.left(now);
                self.chain.left(now);
                self.use_permits(now);
                return Ok(Some(Turn::Output(batch)));
            }
            self.flusher.nothing_left();
        }
        if !is_over {
            return Ok(None);
        }
        if let Some(error) = self.error.take().or_else(|| self.chain.last_mut().take_failure()) {
            return Err(error);
        }
        if !self.is_closed {
            self.chain.settle()?;
        }
        Ok(Some(Turn::Finished))
    }

    /// Looks whether the part of the input that ends is worked off; returns when it is so in any case.
    fn end_of_part(&mut self, now: ProcessingTime) -> ProcessingTime {
        let Some(part) = &mut self.part else { return ProcessingTime::NEVER };
        if self.chain.head().has_input() {
            return ProcessingTime::NEVER;
        }
        let ends = part.admitted(now);
        if now >= ends || self.chain.is_empty() {
            self.part = None;
            self.has_part_ended = true;
        }
        ends
    }

    /// Runs `mail`, and some of those that are there behind it.
    fn run_mails(&mut self, mail: Mail<TaskMail<X>>, now: ProcessingTime) {
        self.run_mail(mail.payload, now);
        self.mails += 1;
        for _ in 1..MAILS_TOGETHER {
            // An operator that is full has an order of its own, and a failure must be told.
            if self.error.is_some() || self.chain.full().is_some() {
                return;
            }
            let Some(mail) = self.processor.mailbox_mut().try_take_from_batch() else { return };
            self.run_mail(mail.payload, now);
            self.mails += 1;
        }
    }

    fn run_mail(&mut self, mail: TaskMail<X>, now: ProcessingTime) {
        match mail {
            TaskMail::Replies(position, reply) => {
                if let Err(error) = self.chain.accept_reply(position, reply, now) {
                    self.fail(error, now);
                }
            }
            TaskMail::Started(position, attempts, moment) => {
                // The task may have been at other things since.
                let began = self.clock.at(moment, now);
                self.chain.started(position, &attempts, began, now);
            }
            TaskMail::Permitted(position, calls) => self.chain.permit(position, calls),
            TaskMail::Input(input) => self.chain.head().put_input(input),
            TaskMail::EndOfInput => self.chain.head().put_end_of_input(),
            TaskMail::EndOfPart(patience) => self.part = Some(Part::new(patience)),
            TaskMail::Failed(error) => self.fail(error, now),
        }
    }

    /// Ends the task with `error`, after what was emitted is handed out.
    fn fail(&mut self, error: X::Error, now: ProcessingTime) {
        self.chain.stop(now);
        self.error.get_or_insert(error);
    }

    /// The default action: admits rows from the input while there are slots.
    fn process_input(&mut self, now: ProcessingTime) {
        match self.chain.head().admit(ADMISSION_BURST, now) {
            Ok(accepted) => (0..accepted).for_each(|_| self.read_ahead.release()),
            Err(error) => self.fail(error, now),
        }
        let head = self.chain.head();
        if !head.can_admit() {
            if head.has_input() {
                head.check_backlog(now);
            }
            self.processor.suspend_default_action();
        }
    }

    /// Makes the calls that there is room for, before the consumer has its batch and takes its time.
    fn use_permits(&mut self, now: ProcessingTime) {
        self.resume_default_action();
        if !self.processor.is_default_action_suspended() && self.chain.head().can_admit() {
            self.process_input(now);
            self.chain.carry_out_actions(now);
            if let Err(error) = self.chain.fan(now) {
                self.fail(error, now);
            }
        }
        // Those of rows that were handed over, too: their time runs.
        self.chain.carry_out_actions(now);
    }

    fn resume_default_action(&mut self) {
        if self.processor.is_default_action_suspended() && self.chain.head().can_admit() {
            self.processor.resume_default_action();
        }
    }

    /// Lets due deadlines take effect, behind the mail that is here: a reply wins.
    #[inline(never)]
    fn handle_time(&mut self, now: ProcessingTime) {
        self.mails = 0;
        if self.chain.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        self.processor.mailbox_mut().create_batch();
        while let Some(mail) = self.processor.mailbox_mut().try_take_from_batch() {
            self.run_mail(mail.payload, now);
        }
        self.chain.handle_time(now);
    }

    /// Waits for mail or for what comes due first.
    fn handle_time_or_park(&mut self, demand: Demand, now: ProcessingTime, end: ProcessingTime) {
        let next = match self.chain.poll_timeout() {
            Some(due) if due <= now => return self.chain.handle_time(now),
            next => next,
        };
        // A busy consumer wakes this thread when it asks for more.
        let is_awaited = demand == Demand::Any;
        let flush = self.flusher.deadline().filter(|_| is_awaited);
        let has_deadline = next.is_some_and(|it| it != ProcessingTime::NEVER) || flush.is_some();
        if !has_deadline && is_awaited && self.is_stuck(now) {
            let error = self.chain.stuck();
            return self.fail(error, now);
        }
        let deadlines = [next, flush, Some(end)];
        let until = deadlines.into_iter().flatten().min().unwrap_or(end);
        self.clock.park(&self.parker, until.saturating_since(now));
    }

    /// Returns whether rows have been held for a while that wait for nothing that could come.
    fn is_stuck(&mut self, now: ProcessingTime) -> bool {
        let is_last_part = self.part.as_ref().is_some_and(Part::drains);
        if self.error.is_some() || !self.chain.is_stuck(!is_last_part) {
            self.stuck_since = None;
            return false;
        }
        now >= *self.stuck_since.get_or_insert(now) + STUCK_FOR
    }

    fn publish_metrics(&mut self, now: ProcessingTime) {
        self.metrics.publish(self.chain.metrics(now));
    }
}

/// What there is of a task at the end of a part of its input.
#[derive(Debug)]
pub struct Carry<X: CarryCodec> {
    /// What was completed.
    pub outputs: Vec<X::Output>,
    /// What each operator of the chain holds.
    pub operators: Vec<X::Saved>,
    /// What happened to the rows of all parts so far.
    pub settled: Settled,
}

impl<X, F, C> Driver<X, F, C>
where
    X: CarryCodec,
    F: AsyncFunction<X::Calls>,
    C: Clock,
{
    /// Returns whether the part of the input is worked off that [`Feeder::put_end_of_part`] ended;
    /// once for each part.
    pub fn has_part_ended(&mut self) -> bool {
        std::mem::take(&mut self.has_part_ended)
    }

    /// Returns all that was completed, and a copy of what is not; calls go on.
    ///
    /// # Errors
    ///
    /// The rows do not fit into a batch; close the task.
    pub fn carry(&mut self) -> Result<Carry<X>, X::Error> {
        let now = self.clock.now();
        let last = self.chain.last_mut();
        last.emit(usize::MAX);
        let mut outputs = Vec::new();
        while let Some(output) = last.take_output()? {
            outputs.push(output);
        }
        self.flusher.nothing_left();
        self.publish_metrics(now);
        let operators = self.chain.save(now)?;
        let held = operators.first().map_or(0, X::rows_saved);
        Ok(Carry { outputs, operators, settled: self.chain.settled(held) })
    }

    /// Returns whether a row is held that was restored `times` times, or more often.
    pub fn holds_restored(&self, times: u32) -> bool {
        self.chain.holds_restored(times)
    }

    /// Goes on with the part of the input that has just ended.
    pub fn resume_part(&mut self, patience: Patience) {
        self.part = Some(Part::new(patience));
    }
}

sparkawait_core::opaque_debug!([X: BatchCodec, F, C] Driver<X, F, C>, is_closed: is_closed);

sparkawait_core::opaque_debug!([X: BatchCodec] Mailbox<X>);
