// SPDX-License-Identifier: Apache-2.0
//! The operator that calls a function for every record and awaits the results.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

mod action;
mod channels;
mod config;
mod earlier_attempts;
mod hedge_handler;
mod hedging;
mod in_flight;
mod metrics;
mod outage_handler;
mod remarks;
mod result_handler;
mod single_channel;
mod snapshot;
mod state;
mod timeout_handler;
mod timers;
mod tolerance;

pub use action::{
    Actions, AttemptId, Completion, Emitted, Ended, Failure, Handled, Invocation, Remark, Retry,
};
pub use config::{Begins, Config, EndOfInput, FailurePolicy, OutputMode, Recall};
pub use earlier_attempts::Uncounted;
pub use metrics::{Levels, Metrics};
pub use snapshot::{Snapshot, SnapshotRecord, SnapshotState};
pub use tolerance::{FailAfter, Tolerance, TooMany};

use crate::element::{Key, StreamElement, StreamRecord, Watermark};
use crate::flow::{ChannelId, ChannelTable};
use crate::policy::{CallSign, Costs, LimitMetrics, Price};
use crate::queue::{
    AnyStreamElementQueue, Completed, EntryId, KeyOrderedStreamElementQueue,
    OrderedStreamElementQueue, QueueFull, Start, StreamElementQueue, UnorderedStreamElementQueue,
};
use crate::time::ProcessingTime;
use earlier_attempts::EarlierAttempts;
use hedging::Hedging;
use in_flight::{InFlight, Run};
use snapshot::Replayed;
use timers::Timers;

/// The outcome that a record waits in the queue with.
type Outcome<R, F> = Result<R, Failure<F>>;

/// Calls a function for each record, many at a time, and emits the results.
///
/// Counterpart of Flink's `AsyncWaitOperator`, without its threads: the driver reports records,
/// completions and time, and carries out the [`Actions`] that it asks for. `E` is a record's value,
/// `R` its results, `F` a failure of the function.
///
/// ```text
///  process_element --> [ queue: Waiting > Running > BackOff .. Completed ] --> pop_output
///                             |   ^             (timers: poll_timeout, handle_time)
///                     Actions v   | handle_completion
///                          the function
/// ```
///
/// A record takes a slot of `capacity` from admission to emission, and one of `max_concurrency`
/// permits while an attempt runs; [`set_window`](Self::set_window) gives out fewer at a time.
/// Without channels it is admitted while a permit is free, so the slots beyond the permits hold
/// completed records, those in back-off, and those whose key is busy. Its attempts and its timeout
/// have one outcome that counts, and only one.
#[derive(Debug)]
pub struct AsyncWaitOperator<E, R, F> {
    config: Config,
    /// The timeout of a record; the largest number if it has none.
    timeout_nanos: u64,
    queue: AnyStreamElementQueue<InFlight<E>, Outcome<R, F>>,
    /// Who may start, if permits are spread over destinations; then nothing is in `waiting`.
    channels: Option<Box<ChannelTable>>,
    /// Attempts that run, so permits taken.
    running: usize,
    /// Attempts that may run at this moment; none after a failure or close.
    window: usize,
    /// Records that may be held at this moment.
    capacity: usize,
    /// Records that were admitted and wait for a permit, in the order in which they became ready:
    /// after a back-off, a restore, or the end of an earlier one of their key. A permit is theirs
    /// before a new record is admitted.
    waiting: VecDeque<EntryId>,
    /// What comes due, by name.
    timers: Timers,
    /// Records in back-off.
    backing_off: usize,
    /// When the destination of all records answered last; with channels each has its own.
    answered_at: ProcessingTime,
    /// Completed records that were not emitted.
    completed: usize,
    /// Which calls are slow, and have another one beside them.
    hedging: Option<Box<Hedging>>,
    /// Of the pending records that were called before.
    earlier: EarlierAttempts<F>,
    /// Restored elements that were not admitted yet, oldest first.
    replay: VecDeque<StreamElement<Replayed<E, R, F>>>,
    /// What the driver has to carry out.
    actions: Actions<E>,
    /// Whether the input has ended.
    input_ended: bool,
    /// The record that failed the operator.
    failed: Option<Emitted<E, (), F>>,
    /// Whether the operator failed or was closed: completions are ignored.
    is_closed: bool,
    /// Whether it is open and no record has two calls, so that most completions need one look.
    has_single_calls: bool,
    metrics: Metrics,
}

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Makes an operator that holds nothing.
    pub fn new(config: Config) -> Self {
        let capacity = config.queue_capacity();
        let queue = match config.mode {
            OutputMode::Ordered => {
                AnyStreamElementQueue::Ordered(OrderedStreamElementQueue::new(capacity))
            }
            OutputMode::Unordered => {
                AnyStreamElementQueue::Unordered(UnorderedStreamElementQueue::new(capacity))
            }
            OutputMode::KeyOrdered => {
                AnyStreamElementQueue::KeyOrdered(KeyOrderedStreamElementQueue::new(capacity))
            }
        };
        Self {
            channels: config.channel_table(),
            hedging: config.hedge.map(|hedge| Box::new(Hedging::new(hedge))),
            timeout_nanos: config
                .timeout
                .map_or(u64::MAX, |it| (ProcessingTime::ZERO + it).as_nanos()),
            window: config.max_concurrency.get(),
            capacity: config.capacity.get(),
            has_single_calls: config.hedge.is_none(),
            config,
            queue,
            running: 0,
            waiting: VecDeque::new(),
            timers: Timers::new(),
            backing_off: 0,
            answered_at: ProcessingTime::ZERO,
            completed: 0,
            earlier: EarlierAttempts::new(),
            replay: VecDeque::new(),
            actions: Actions::default(),
            input_ended: false,
            failed: None,
            is_closed: false,
            metrics: Metrics::default(),
        }
    }

    /// Returns its settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether [`process_element`](Self::process_element) would take a record.
    pub fn has_capacity(&self) -> bool {
        self.free_slots() > 0
    }

    /// Returns how many records [`process_element`](Self::process_element) would take.
    pub fn free_slots(&self) -> usize {
        if self.is_closed || !self.replay.is_empty() {
            return 0;
        }
        let permits = self.window.saturating_sub(self.running);
        match &self.channels {
            None => self.slots().min(permits),
            Some(channels) if channels.is_single() => {
                self.slots().min(permits).min(channels.free_calls())
            }
            Some(_) => self.slots(),
        }
    }

    /// Returns the number of free slots, for new records and for restored ones.
    fn slots(&self) -> usize {
        match &self.channels {
            None => self.capacity.saturating_sub(self.taken_slots()),
            Some(channels) => self.slots_beside(channels),
        }
    }

    /// Returns the number of records that take slots.
    fn taken_slots(&self) -> usize {
        self.queue.len() - self.records_without_slot()
    }

    /// Admits a record and starts its first attempt, unless an earlier record of its key is pending.
    ///
    /// Its timeout starts with its first attempt. `key` matters in key-ordered mode only.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] gives the record back while `capacity` records are held, while
    /// no permit is free, while restored records are replayed, and after a failure or close.
    pub fn process_element(
        &mut self,
        record: StreamRecord<E>,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        self.process_element_on(None, record, key, now)
    }

    /// Does as [`process_element`](Self::process_element) for a record of `channel`.
    ///
    /// With channels the first attempt starts as soon as its channel has a
    /// credit; records with `None` are of one channel among themselves.
    ///
    /// # Errors
    ///
    /// As `process_element`; with channels the queue is full when it holds
    /// `capacity + max_backlog` records. [`free_slots`](Self::free_slots) is to
    /// be asked before, which stops the input earlier.
    pub fn process_element_on(
        &mut self,
        channel: Option<Key>,
        record: StreamRecord<E>,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        match self.channels {
            None => self.admit_to_call(record, key, now),
            Some(_) => self.admit_to_channel(channel, record, key, now),
        }
    }

    /// Does as [`process_element_on`](Self::process_element_on) for a record of this price, which
    /// counts where there are limits in time.
    ///
    /// # Errors
    ///
    /// As `process_element_on`.
    pub fn process_element_for(
        &mut self,
        price: Price,
        channel: Option<Key>,
        record: StreamRecord<E>,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        if price == Price::Usual || self.channels.is_none() {
            return self.process_element_on(channel, record, key, now);
        }
        self.admit_to_busy_channel(price, channel, record, key, now)
    }

    /// Admits a record if there is a permit for it.
    #[inline(never)]
    fn admit_to_call(
        &mut self,
        record: StreamRecord<E>,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        let capacity = self.config.capacity;
        // After a failure or close there are no permits.
        if self.running >= self.window || !self.replay.is_empty() {
            return Err(QueueFull { element: record, capacity });
        }
        let (channel, timeout) = (ChannelId(0), self.timeout_nanos);
        let refused = |full: QueueFull<InFlight<E>>| {
            Err(QueueFull { element: full.element.record, capacity })
        };
        // Only its key can block it, so mostly it starts before it is in the queue: written as one that
        // does, with nothing to be looked up on the way.
        if self.config.mode != OutputMode::KeyOrdered {
            let run = Some(Run::new(self.config.begins, now));
            let in_flight = InFlight::new(record, run, channel, timeout, now);
            return self.admit(in_flight, true, key, now).map(drop).or_else(refused);
        }
        let in_flight = InFlight::new(record, None, channel, timeout, now);
        match self.admit(in_flight, false, key, now) {
            Ok((id, Start::Now)) => self.start(id, now),
            Ok((id, Start::Blocked)) => self.block(id),
            Err(full) => return refused(full),
        }
        Ok(())
    }

    /// Admits a record, for which its channel mostly has a credit at hand.
    #[inline(never)]
    fn admit_to_channel(
        &mut self,
        channel: Option<Key>,
        record: StreamRecord<E>,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        if self.may_start_new()
            && self.replay.is_empty()
            && let Some(channels) = &mut self.channels
            && let Some(channel) = channels.start_at_once(channel, now)
        {
            let run = Some(Run::new(self.config.begins, now));
            let in_flight = InFlight::new(record, run, channel, self.timeout_nanos, now);
            let admitted = self.admit(in_flight, true, key, now);
            return match admitted {
                Ok(_) => Ok(()),
                Err(full) => Err(self.turn_away(full.element, true)),
            };
        }
        self.admit_to_busy_channel(Price::Usual, channel, record, key, now)
    }

    /// Returns whether only its channel keeps a new record from being called; its key may, too.
    fn may_start_new(&self) -> bool {
        self.running < self.window && self.config.mode != OutputMode::KeyOrdered
    }

    /// Admits a record of a channel that must be asked whether the call may start now.
    #[inline(never)]
    fn admit_to_busy_channel(
        &mut self,
        price: Price,
        channel: Option<Key>,
        record: StreamRecord<E>,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(), QueueFull<StreamRecord<E>>> {
        let may_start = self.may_start_new();
        let is_single = self.channels.as_ref().is_some_and(|it| it.is_single());
        // Before its channel's policies are told of a call, which is not taken back.
        let is_full = self.is_closed
            || self.queue.len() == self.queue.capacity().get()
            || (is_single && self.free_slots() == 0);
        let is_open = !is_full && self.replay.is_empty();
        let Some(channels) = self.channels.as_mut().filter(|_| is_open) else {
            return Err(QueueFull { element: record, capacity: self.config.capacity });
        };
        let (channel, charged) = channels.admit_for(channel, price, may_start, now);
        let starts = charged.is_some();
        let run = starts.then(|| Run::new(self.config.begins, now));
        let in_flight = InFlight::new(record, run, channel, self.timeout_nanos, now);
        let admitted = self.admit(in_flight, starts, key, now);
        let (id, start) = admitted.map_err(|full| self.turn_away(full.element, starts))?;
        self.note_price(id, price, charged);
        if !starts {
            self.make_ready_on(channel, id, start, now);
        }
        Ok(())
    }

    fn note_price(&mut self, id: EntryId, price: Price, charged: Option<Costs>) {
        if let Some(channels) = &mut self.channels {
            channels.note_price(id, price, charged);
        }
    }

    /// Takes back what a record that found no place was given by its channel.
    #[cold]
    fn turn_away(&mut self, refused: InFlight<E>, starts: bool) -> QueueFull<StreamRecord<E>> {
        if let Some(channels) = &mut self.channels {
            if starts {
                channels.cancel_start(refused.channel);
            }
            channels.leave(refused.channel);
        }
        QueueFull { element: refused.record, capacity: self.config.capacity }
    }

    /// Puts a record into the queue; with `starts` its permit is taken, its time runs, and it is
    /// called.
    #[expect(clippy::inline_always, reason = "once per record, from two places")]
    #[inline(always)]
    fn admit(
        &mut self,
        in_flight: InFlight<E>,
        starts: bool,
        key: Option<Key>,
        now: ProcessingTime,
    ) -> Result<(EntryId, Start), QueueFull<InFlight<E>>> {
        let deadline = in_flight.deadline;
        let value = in_flight.record.value.clone();
        let (id, start) = self.queue.try_put_keyed(in_flight, key)?;
        self.metrics.admitted += 1;
        if deadline != ProcessingTime::NEVER {
            self.timers.records.push(deadline, id);
        }
        if starts {
            self.invoke(AttemptId { entry: id, attempt: 1 }, value, now);
        }
        Ok((id, start))
    }

    /// Sets how many calls may be in flight at this moment, up to `max_concurrency`.
    ///
    /// It is `max_concurrency` at first. More calls start at once if it is raised;
    /// none is cancelled if it is lowered, but none starts either until fewer run.
    /// Each channel has the same share of it as it has of `max_concurrency`. Costs a
    /// few steps for each channel that is known.
    pub fn set_window(&mut self, calls: NonZeroUsize, now: ProcessingTime) {
        let window = calls.min(self.config.max_concurrency);
        if self.window == window.get() || self.is_closed {
            return;
        }
        self.window = window.get();
        if let Some(channels) = &mut self.channels {
            channels.set_window(window);
        }
        self.start_waiting(now);
    }

    /// Sets how many records may be held at this moment, up to `capacity` of the settings.
    ///
    /// It is that at first. If it is lowered, no record is let in until fewer are held.
    pub fn set_capacity(&mut self, records: NonZeroUsize) {
        self.capacity = records.min(self.config.capacity).get();
    }

    /// Appends a watermark behind the records admitted so far.
    pub fn process_watermark(&mut self, watermark: Watermark) {
        if self.is_closed {
            return;
        }
        if self.replay.is_empty() {
            self.queue.put_watermark(watermark);
        } else {
            self.replay.push_back(StreamElement::Watermark(watermark));
        }
    }

    /// Tells that no further record will come.
    ///
    /// Everything held is awaited; [`is_finished`](Self::is_finished) tells when it is done.
    pub fn end_input(&mut self, now: ProcessingTime) {
        self.input_ended = true;
        if self.config.at_end_of_input == EndOfInput::LastAttempt {
            self.hurry_retries(now);
        }
    }

    /// Removes the next element that may leave.
    ///
    /// Call it until it returns `None` or the output is full; each record that
    /// leaves frees a slot.
    pub fn pop_output(&mut self) -> Option<StreamElement<Emitted<E, R, F>>> {
        let element = self.queue.pop_completed()?;
        Some(element.map(|Completed { value, result }| {
            self.metrics.emitted += 1;
            self.completed -= 1;
            Emitted { record: value.record, attempts: value.attempt, outcome: result }
        }))
    }

    /// Borrows the values of all records that are held, in any order, for one who keeps them
    /// elsewhere from now on. They must stay the same records.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut E> {
        let restored = self.replay.iter_mut().filter_map(|element| match element {
            StreamElement::Record(replayed) => Some(&mut replayed.record.record.value),
            StreamElement::Watermark(_) => None,
        });
        self.queue.values_mut().map(|in_flight| &mut in_flight.record.value).chain(restored)
    }

    /// Returns whether [`pop_output`](Self::pop_output) would return an element.
    pub fn has_output(&self) -> bool {
        self.queue.has_completed()
    }

    /// Returns what to carry out; the driver swaps in empty vectors.
    pub fn actions(&mut self) -> &mut Actions<E> {
        &mut self.actions
    }

    /// Returns whether input has ended and everything was emitted, or a failure was reached.
    pub fn is_finished(&self) -> bool {
        if self.is_closed {
            return !self.has_output();
        }
        self.input_ended && self.replay.is_empty() && self.queue.is_empty()
    }

    /// Returns the record that failed the operator, if one did.
    ///
    /// Records before it may still be waiting in [`pop_output`](Self::pop_output).
    pub fn failure(&self) -> Option<&Emitted<E, (), F>> {
        self.failed.as_ref()
    }

    /// Takes the record that failed the operator.
    pub fn take_failure(&mut self) -> Option<Emitted<E, (), F>> {
        self.failed.take()
    }

    /// Cancels all calls in flight. Later completions are ignored. Idempotent.
    pub fn close(&mut self) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        self.has_single_calls = false;
        let mut unmade: Vec<_> = self.actions.invoke.drain(..).map(|it| it.attempt).collect();
        unmade.sort_unstable();
        self.actions.ask_timeout.clear();
        for element in self.queue.values() {
            let StreamElement::Record(entry) = element else { continue };
            let second = self.hedging.as_ref().and_then(|it| it.second(entry.id));
            for attempt in entry.value.running(entry.id) {
                let beside = second.filter(|_| attempt.is_hedge()).map(|it| it.has_begun);
                let has_begun = beside.or(entry.value.run().map(|it| it.has_begun)) == Some(true);
                if unmade.binary_search(&attempt).is_ok() {
                    let kind = self.earlier.kind_of(attempt);
                    self.metrics.correct(kind, has_begun, CallSign::NotCalled);
                } else {
                    self.actions.cancel.push(attempt);
                    self.metrics.cancelled += u64::from(has_begun);
                }
            }
        }
        self.running = 0;
        self.window = 0;
        self.backing_off = 0;
    }

    /// Returns totals and levels.
    pub fn metrics(&mut self, now: ProcessingTime) -> Metrics {
        // Records are admitted in the order of the queue.
        let oldest = self.queue.oldest().map(|it| it.age(now));
        Metrics {
            in_flight: self.running,
            queue_size: self.queue.len(),
            oldest_age: oldest.unwrap_or_default(),
            ..self.metrics
        }
    }

    /// Returns what limits in time have let pass; `None` where nothing bounds calls.
    pub fn limit_metrics(&self, now: ProcessingTime) -> Option<LimitMetrics> {
        self.channels.as_ref().and_then(|it| it.limit_metrics(now))
    }

    /// Returns whether the outcome of `attempt` is awaited.
    pub fn awaits(&mut self, attempt: AttemptId) -> bool {
        !self.is_closed && self.queue.get_mut(attempt.entry).is_some_and(|it| it.awaits(attempt))
    }

    /// Returns the number of records that were emitted.
    pub fn emitted(&self) -> u64 {
        self.metrics.emitted
    }

    /// Returns the number of records held, pending and completed.
    pub fn queue_size(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of completed records that take no slot.
    pub fn records_without_slot(&self) -> usize {
        if self.config.completed_take_slots { 0 } else { self.completed }
    }

    /// Returns the number of calls that wait for their outcome, whether they have begun or not.
    pub fn in_flight(&self) -> usize {
        self.running
    }

    /// Returns the number of records in back-off.
    pub fn pending_retries(&self) -> usize {
        self.backing_off
    }
}

#[cfg(test)]
mod tests;
