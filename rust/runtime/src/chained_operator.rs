// SPDX-License-Identifier: Apache-2.0
//! One operator of a task, with its function and all that bounds what it does.

mod report;

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use sparkawait_core::element::StreamElement;
use sparkawait_core::operator::{Actions, AsyncWaitOperator, AttemptId, Config, Handled};
use sparkawait_core::policy::WarmUp;
use sparkawait_core::time::ProcessingTime;

use crate::account::Account;
use crate::async_function::AsyncFunction;
use crate::batch_codec::{BatchCodec, CarryCodec, InputRecord, Known, Restored};
use crate::byte_bounds::ByteBounds;
use crate::capacity_growth::CapacityGrowth;
use crate::channel_recorder::ChannelRecorder;
use crate::commit_gate::{CommitGate, Urgency};
use crate::driver_config::DriverConfig;
use crate::metrics::{LatencyRecorder, OperatorMetrics};
use crate::output_flusher::OutputFlusher;
use crate::output_size::OutputSize;
use crate::warnings::{BacklogWarning, LimitWarning, RoomWarning};

/// One operator of a task, with the function that it calls.
///
/// ```text
///   inputs --> codec --> operator --> codec --> a batch for the next operator, or the output
///                             |   ^
///                    invoke,  |   | replies
///                    cancel   v   |
///                           function
/// ```
pub struct ChainedOperator<X: BatchCodec, F> {
    operator: AsyncWaitOperator<X::Element, X::Results, X::Failure>,
    codec: X,
    function: F,
    /// What was carried out last: its vectors are swapped with those of the operator, so that a burst
    /// finds room for itself.
    carried_out: Actions<X::Element>,
    config: DriverConfig,
    max_concurrency: NonZeroUsize,
    /// Calls in flight that others leave to it.
    permitted: NonZeroUsize,
    /// Input that the codec has not taken.
    inputs: VecDeque<X::Input>,
    /// The rows that it was given.
    account: Account,
    /// Whether the input ended.
    has_ended: bool,
    /// Whether it ended, and the operator was not told.
    input_ended: bool,
    /// Whether rows of it were put out.
    has_put_out: bool,
    /// Which rows may leave, if they wait for a journal.
    gate: Option<Box<CommitGate>>,
    /// How much is held at a time.
    bounds: ByteBounds,
    /// How many rows it may hold, if these become more.
    growth: Option<CapacityGrowth>,
    /// Bytes of results that others hold for it.
    held_beside: usize,
    /// Whether few calls are made at first.
    warm_up: WarmUp,
    /// Rows that it may hold while nobody is known to want them; its slots bound them, too.
    most_held: usize,
    latency: LatencyRecorder,
    channels: ChannelRecorder,
    backlog: BacklogWarning,
    room_warning: RoomWarning,
    limit_warning: LimitWarning,
}

impl<X: BatchCodec, F: AsyncFunction<X::Calls>> ChainedOperator<X, F> {
    /// Makes an operator with `operator` as its settings.
    ///
    /// How batches are cut counts for the last operator of a chain: the others hand over what
    /// the next one can begin with.
    pub fn new(operator: Config, config: DriverConfig, codec: X, function: F) -> Self {
        let growth = config.growth.map(|it| CapacityGrowth::new(it, operator.capacity));
        Self {
            growth,
            max_concurrency: operator.max_concurrency,
            permitted: NonZeroUsize::MAX,
            warm_up: WarmUp::new(config.warm_up, operator.max_concurrency),
            most_held: usize::MAX,
            operator: AsyncWaitOperator::new(operator),
            gate: codec.has_journal().then(Box::default),
            codec,
            function,
            carried_out: Actions::default(),
            config,
            inputs: VecDeque::new(),
            account: Account::default(),
            has_ended: false,
            input_ended: false,
            has_put_out: false,
            bounds: ByteBounds::new(config.max_bytes_per_batch, config.expected_result_bytes)
                .with_capacity(config.capacity_bytes),
            latency: LatencyRecorder::new(),
            channels: ChannelRecorder::default(),
            backlog: BacklogWarning::default(),
            room_warning: RoomWarning::default(),
            limit_warning: LimitWarning::default(),
            held_beside: 0,
        }
    }

    /// Makes what decides when its output leaves the task.
    pub(crate) fn flusher(&self) -> OutputFlusher {
        let config = &self.config;
        let size = OutputSize::new(config.max_rows_per_batch, config.target_latency);
        OutputFlusher::new(size, config.buffer_timeout)
    }

    // --- input ---

    /// Puts `input` behind the input that waits.
    pub(crate) fn put_input(&mut self, input: X::Input) {
        self.account.put_in(X::rows_of(&input));
        self.inputs.push_back(input);
    }

    /// Notes that the input has ended. Idempotent.
    pub(crate) fn put_end_of_input(&mut self) {
        self.input_ended |= !std::mem::replace(&mut self.has_ended, true);
    }

    /// Admits up to `most` rows of the input, as long as there are slots.
    ///
    /// Returns how many batches the codec took.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::accept`].
    pub(crate) fn admit(&mut self, most: usize, now: ProcessingTime) -> Result<usize, X::Error> {
        let (mut accepted, mut most) = (0, most);
        self.codec.set_time(now);
        'input: loop {
            // Asked again: a policy that is asked before each call lets in one row at a time. Slots
            // are those of rows at the usual price, so where it differs that holds for one row.
            let alone = if self.codec.has_prices() { 1 } else { usize::MAX };
            let rows = most.min(self.free_slots()).min(alone);
            if rows == 0 {
                break;
            }
            most -= rows;
            for _ in 0..rows {
                if !self.take_element(&mut accepted, now)? {
                    break 'input;
                }
            }
        }
        if self.input_ended && !self.has_input() {
            self.input_ended = false;
            self.operator.end_input(now);
        }
        self.backlog.admitted(now);
        Ok(accepted)
    }

    /// Takes the next element of the input; returns false if there is none, or if the operator has
    /// no place for it. The number of free slots is a hint: a record admitted before may have taken
    /// more than one, or have failed the operator. Then the codec has the record again.
    #[expect(clippy::inline_always, reason = "once per record")]
    #[inline(always)]
    fn take_element(
        &mut self,
        accepted: &mut usize,
        now: ProcessingTime,
    ) -> Result<bool, X::Error> {
        loop {
            match self.codec.next_element() {
                Some(StreamElement::Record(InputRecord { record, key, channel, price })) => {
                    let known = if self.codec.has_known() { self.codec.known() } else { None };
                    let put = if let Some(Known { outcome, attempts }) = known {
                        let (places, outcome) = ((channel, key), (outcome, attempts));
                        self.operator.process_completed(record, places, outcome, now)
                    } else {
                        self.operator.process_element_for(price, channel, record, key, now)
                    };
                    if let Err(refused) = put {
                        return self.codec.put_back(refused.element).map(|()| false);
                    }
                    return Ok(true);
                }
                Some(StreamElement::Watermark(watermark)) => {
                    self.operator.process_watermark(watermark);
                    return Ok(true);
                }
                None => {}
            }
            if self.lacks_room() {
                return Ok(false);
            }
            let Some(input) = self.inputs.pop_front() else { return Ok(false) };
            *accepted += 1;
            self.codec.accept(input)?;
        }
    }

    /// Returns whether [`admit`](Self::admit) would do something.
    pub(crate) fn can_admit(&self) -> bool {
        (self.has_input() && self.free_slots() > 0 && !self.lacks_room())
            || (self.input_ended && !self.has_input())
    }

    /// Returns how many rows it could admit now, if it had any: what the operator before it may
    /// put out. None as long as others wait.
    pub(crate) fn room(&self) -> usize {
        if self.has_input() || !self.bounds.takes_input(self.codec.input_bytes()) {
            return 0;
        }
        self.free_slots()
    }

    /// Returns how many rows may be admitted.
    fn free_slots(&self) -> usize {
        let completed = self.operator.records_without_slot();
        let waits = self.operator.queue_size() > completed || self.waits_for_journal();
        if waits && self.bounds.is_full(self.codec.result_bytes(), completed) {
            // What is not completed, or not committed, will be, and makes room.
            return 0;
        }
        let slots = self.operator.free_slots();
        if self.most_held == usize::MAX {
            return slots;
        }
        slots.min(self.most_held.saturating_sub(self.operator.queue_size()))
    }

    pub(crate) fn has_input(&self) -> bool {
        self.codec.has_element() || !self.inputs.is_empty()
    }

    /// Returns whether there is input, and it waits for others to leave: too much is held.
    fn lacks_room(&self) -> bool {
        !self.inputs.is_empty()
            && !self.codec.has_element()
            && !self.bounds.takes_input(self.codec.input_bytes())
    }

    /// Returns whether input waits for room, and only the output can make some; `more` tells
    /// whether there is input elsewhere.
    pub(crate) fn waits_for_output(&self, more: bool) -> bool {
        (more || !self.inputs.is_empty())
            && !self.codec.has_element()
            && self.operator.queue_size() == 0
            && !self.bounds.takes_input(self.codec.input_bytes())
    }

    /// Says why input that there is stands still, if one channel is to blame.
    pub(crate) fn check_backlog(&mut self, now: ProcessingTime) {
        // Before that all channels have few calls, so that even quick ones fill the backlog.
        if self.warm_up.is_open() {
            self.backlog.check(&self.operator, &self.codec, now);
        }
    }

    /// Says that input waits for long for room.
    pub(crate) fn check_room(&mut self, now: ProcessingTime) {
        let waits = self.has_input() && !self.can_admit();
        self.room_warning.check::<X>(waits, &mut self.operator, now);
    }

    // --- calls ---

    /// Begins calls that waited before.
    pub(crate) fn started(
        &mut self,
        attempts: &[AttemptId],
        began: ProcessingTime,
        now: ProcessingTime,
    ) {
        self.account.announce(attempts.len());
        self.codec.set_time(began);
        self.codec.started(attempts);
        for attempt in attempts {
            self.operator.handle_started(*attempt, began, now);
        }
    }

    /// Lets so many calls be in flight from now on, beside the operator's own bounds.
    pub(crate) fn permit(&mut self, calls: NonZeroUsize) {
        self.permitted = calls;
    }

    /// Counts bytes of results that others hold for it as those that it holds.
    pub(crate) fn hold_beside(&mut self, bytes: usize) {
        self.held_beside = bytes;
    }

    /// Lets as many calls be in flight as everybody permits who bounds them: there is room for
    /// what they bring, somebody wants it, and others have their share. Sets how many rows may be held,
    /// too.
    pub(crate) fn set_window(&mut self, now: ProcessingTime) {
        let held = self.codec.result_bytes() + self.held_beside;
        let completed = self.operator.records_without_slot();
        let calls = self.bounds.calls(held, completed, self.max_concurrency, now);
        let calls = calls.min(self.warm_up.window()).min(self.permitted);
        self.operator.set_window(calls, now);
        if let Some(growth) = &self.growth {
            let rows = (self.operator.queue_size(), self.operator.in_flight());
            self.operator.set_capacity(growth.capacity(held, rows, self.bounds.bytes_of_a_call()));
        }
        if self.operator.is_replaying() {
            self.operator.replay(now);
        }
        // Calls that it lets start do not wait until something else happens.
        self.carry_out_actions(now);
    }

    /// Lets go of input that holds few rows that are needed, if it keeps further input out.
    ///
    /// To be called when nothing is left to be carried out: that would name rows by their old place.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::compact`].
    pub(crate) fn make_room(&mut self) -> Result<(), X::Error> {
        if self.bounds.takes_input(self.codec.input_bytes()) || !self.codec.is_sparse() {
            return Ok(());
        }
        debug_assert!(self.operator.actions().is_empty(), "actions name rows by their old place");
        self.codec.compact(self.operator.values_mut())
    }

    /// Hands what the operator asks for to the function.
    pub(crate) fn carry_out_actions(&mut self, now: ProcessingTime) {
        let actions = self.operator.actions();
        if actions.is_empty() {
            return;
        }
        actions.swap(&mut self.carried_out);
        let Actions { invoke, ask_timeout, cancel, recalled } = &mut self.carried_out;
        self.codec.set_time(now);
        if !recalled.is_empty() {
            self.codec.recalled(recalled);
        }
        if !cancel.is_empty() {
            self.codec.cancelled(cancel);
            self.function.cancel(std::mem::take(cancel));
        }
        if !invoke.is_empty() {
            self.bounds.start(now);
            self.warm_up.on_start(now);
            self.function.invoke(self.codec.calls(invoke.drain(..)));
        }
        if !ask_timeout.is_empty() {
            self.function.ask_timeout(self.codec.calls(ask_timeout.drain(..)));
        }
    }

    /// Takes the outcomes of a burst of calls.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::accept_reply`].
    pub(crate) fn accept_reply(
        &mut self,
        reply: X::Reply,
        now: ProcessingTime,
    ) -> Result<(), X::Error> {
        let (operator, latency) = (&mut self.operator, &mut self.latency);
        let (mut calls, held, attempts) = (0, self.codec.result_bytes(), operator.attempts());
        self.codec.set_time(now);
        self.codec.remarks(&reply, |attempt, remark| operator.remark(attempt, remark, now));
        let accepted = self.codec.accept_reply(reply, |attempt, completion| {
            calls += 1;
            let handled = operator.handle_completion(attempt, completion, now);
            if let Handled::Final(nanos) | Handled::Retried(nanos) = handled {
                latency.record(nanos);
            }
            handled
        });
        self.account.correct(attempts, self.operator.attempts());
        self.bounds.measure(calls, self.codec.result_bytes().saturating_sub(held));
        accepted
    }

    /// Returns when [`handle_time`](Self::handle_time) has something to do.
    pub(crate) fn poll_timeout(&mut self) -> Option<ProcessingTime> {
        let of_calls = self.operator.poll_timeout();
        match self.gate.as_ref().and_then(|it| it.due()) {
            None => of_calls,
            Some(due) => Some(of_calls.map_or(due, |it| it.min(due))),
        }
    }

    /// Lets due deadlines take effect.
    pub(crate) fn handle_time(&mut self, now: ProcessingTime) {
        self.operator.handle_time(now);
    }

    // --- output ---

    /// Moves completed elements to the output, until that has `rows` rows that may leave.
    pub(crate) fn emit(&mut self, rows: usize) {
        // What waits for a journal would else keep others from it.
        let rows = if self.gate.is_some() { usize::MAX } else { rows };
        while self.codec.output_rows() < rows {
            let Some(element) = self.operator.pop_output() else { break };
            self.codec.emit(element);
        }
        if let Some(gate) = &mut self.gate {
            gate.emitted(self.codec.output_rows(), self.codec.open_commit());
        }
    }

    /// Hands what was completed to the journal, if there is one and it is due, or nothing else is to
    /// come.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::commit`].
    pub(crate) fn commit(&mut self, now: ProcessingTime) -> Result<(), X::Error> {
        if self.gate.is_none() {
            return Ok(());
        }
        let is_pressed =
            self.operator.is_finished() || self.free_slots() == 0 && self.operator.in_flight() == 0;
        self.commit_with(if is_pressed { Urgency::Pressed } else { Urgency::None }, now)
    }

    /// Hands all that was completed to the journal; returns whether there is nothing that it has not
    /// committed.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::commit`].
    pub(crate) fn commit_all(&mut self, now: ProcessingTime) -> Result<bool, X::Error> {
        self.commit_with(Urgency::Last, now)?;
        Ok(!self.waits_for_journal())
    }

    fn commit_with(&mut self, urgency: Urgency, now: ProcessingTime) -> Result<(), X::Error> {
        let Some(gate) = &mut self.gate else { return Ok(()) };
        self.codec.set_time(now);
        gate.note(self.codec.commit(urgency)?);
        Ok(())
    }

    /// Returns whether there is something that a journal has not committed: rows, or failures of rows that
    /// are not put out.
    pub(crate) fn waits_for_journal(&self) -> bool {
        self.gate.as_ref().is_some_and(|it| it.is_waiting() || it.done() < self.codec.open_commit())
    }

    /// Returns the rows of the output that may leave.
    pub(crate) fn output_rows(&self) -> usize {
        self.gate.as_ref().map_or_else(|| self.codec.output_rows(), |it| it.open_rows())
    }

    /// Returns whether [`emit`](Self::emit) would emit something.
    pub(crate) fn has_ready(&self) -> bool {
        self.operator.has_output()
    }

    /// Returns whether rows wait to be emitted, or to be put out.
    pub(crate) fn has_output(&self) -> bool {
        self.operator.has_output() || self.codec.output_rows() > 0
    }

    /// Returns whether a batch of `rows` rows, or of the most bytes, can be taken.
    pub(crate) fn is_output_full(&mut self, rows: usize) -> bool {
        let max_bytes = self.config.max_bytes_per_batch;
        match &self.gate {
            None => self.codec.is_output_full(rows, max_bytes),
            Some(gate) => match gate.open_rows() {
                0 => false,
                open => open >= rows || self.codec.is_output_full(usize::MAX, max_bytes),
            },
        }
    }

    /// Takes a batch of the output, if that has any rows.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::take_output`].
    pub(crate) fn take_output(&mut self) -> Result<Option<X::Output>, X::Error> {
        let DriverConfig { max_rows_per_batch, max_bytes_per_batch, .. } = self.config;
        let batch = match &mut self.gate {
            None => self.codec.take_output(max_rows_per_batch, max_bytes_per_batch)?,
            Some(gate) if gate.open_rows() == 0 => None,
            Some(gate) => {
                let (rows, held) =
                    (max_rows_per_batch.min(gate.open_rows()), self.codec.output_rows());
                let batch = self.codec.take_output(rows, max_bytes_per_batch)?;
                gate.left(held - self.codec.output_rows());
                batch
            }
        };
        self.has_put_out |= batch.is_some();
        Ok(batch)
    }

    /// Moves up to `room` rows, and those of the record that is the last of them, to `next`.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::take_output`].
    pub(crate) fn hand_over(&mut self, room: usize, next: &mut Self) -> Result<(), X::Error> {
        self.emit(room);
        while let Some(batch) = self.take_output()? {
            next.put_input(X::pass_on(batch));
        }
        Ok(())
    }

    /// Admits all that there is room for.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::accept`].
    pub(crate) fn take_in(&mut self, now: ProcessingTime) -> Result<(), X::Error> {
        if self.can_admit() {
            self.admit(usize::MAX, now)?;
        }
        Ok(())
    }

    // --- life ---

    /// Returns whether all rows were emitted, or a failure was reached.
    pub(crate) fn is_finished(&self) -> bool {
        self.operator.is_finished()
    }

    /// Returns whether it holds nothing, and nothing waits for it.
    pub(crate) fn is_empty(&self) -> bool {
        self.operator.queue_size() == 0 && !self.operator.is_replaying() && !self.has_input()
    }

    /// Returns the rows that it holds.
    pub(crate) fn queue_size(&self) -> usize {
        self.operator.queue_size()
    }

    /// Returns whether a record has failed it.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.operator.failure().is_some()
    }

    /// Describes the record that failed it, once.
    pub(crate) fn take_failure(&mut self) -> Option<X::Error> {
        self.operator.take_failure().map(|failed| self.codec.failure(failed))
    }

    /// Ends its calls; what it has completed can still be put out.
    pub(crate) fn stop(&mut self) {
        self.operator.close();
    }

    /// Ends its calls and its function.
    pub(crate) fn close(&mut self, now: ProcessingTime) {
        self.channels.record_last(&self.operator, &self.codec, now);
        self.operator.close();
        self.function.close();
        // Somebody has paid for what was completed.
        if self.commit_all(now).is_err() {
            tracing::warn!(
                "the last results of `{}` are not in its journal",
                self.codec.function()
            );
        }
    }

    // --- what the consumer wants ---

    /// As long as nobody is known to want them, holds no more rows than few calls take, those
    /// included that wait `behind` it in the chain.
    pub(crate) fn bound_held(&mut self, behind: usize) {
        let few = self.warm_up.window().get();
        self.most_held = if self.warm_up.is_open() { few } else { few.saturating_sub(behind) };
    }

    pub(crate) fn warm_up(&self) -> &WarmUp {
        &self.warm_up
    }

    /// Notes that the consumer of the task waits for a batch.
    pub(crate) fn begin_turn(&mut self, now: ProcessingTime) {
        self.warm_up.begin_turn(now);
        if let Some(growth) = &mut self.growth {
            growth.taken();
        }
    }

    /// Notes that rows have left the task.
    pub(crate) fn batch_left(&mut self, now: ProcessingTime) {
        self.warm_up.left(now);
        if let Some(growth) = &mut self.growth {
            growth.left(self.operator.emitted());
        }
    }

    /// Returns whether all that was completed so far had no results: nothing to wait for.
    pub(crate) fn has_dropped_all(&mut self, now: ProcessingTime) -> bool {
        !self.has_put_out && self.codec.output_rows() == 0 && self.operator.metrics(now).emitted > 0
    }

    // --- metrics ---

    pub(crate) fn metrics(&mut self, now: ProcessingTime) -> OperatorMetrics {
        self.channels.record(&self.operator, &self.codec, now);
        let limits = self.operator.limit_metrics(now);
        if let Some(limits) = &limits {
            self.limit_warning.check(limits);
        }
        let operator = self.operator.metrics(now);
        OperatorMetrics {
            operator,
            dropped: self.codec.dropped(),
            failures: self.codec.failures(),
            result_bytes: self.bounds.bytes_of_a_call(),
            call_latency: self.latency.buckets(),
            channels: self.channels.report(),
            limits,
        }
    }
}

/// Rows that are held elsewhere.
impl<X: CarryCodec, F: AsyncFunction<X::Calls>> ChainedOperator<X, F> {
    /// Makes an operator that goes on with what another one has saved: what that had completed is
    /// emitted, what was pending is called again.
    ///
    /// # Errors
    ///
    /// As [`CarryCodec::restore`].
    pub fn restored(
        operator: Config,
        config: DriverConfig,
        mut codec: X,
        function: F,
        saved: X::Saved,
    ) -> Result<Self, X::Error> {
        let mut account = Account::default();
        account.restore(X::rows_saved(&saved));
        let Restored { snapshot, keys, inputs } = codec.restore(saved)?;
        let mut places = keys.iter().map(|(_, channel, price)| (*channel, *price));
        let mut of_keys = keys.iter().map(|(key, ..)| *key);
        let restored = AsyncWaitOperator::restore_on(
            operator.clone(),
            snapshot,
            |_| places.next().unwrap_or_default(),
            |_| of_keys.next().flatten(),
            ProcessingTime::ZERO,
        );
        let new = Self::new(operator, config, codec, function);
        Ok(Self { operator: restored, inputs, account, ..new })
    }

    /// Returns what it holds, and goes on with it.
    ///
    /// # Errors
    ///
    /// As [`CarryCodec::save`].
    pub(crate) fn save(&mut self, now: ProcessingTime) -> Result<X::Saved, X::Error> {
        self.codec.set_time(now);
        self.codec.save(self.operator.snapshot(now), &self.inputs)
    }

    /// Returns whether it holds a row that was restored `times` times, or more often.
    pub(crate) fn holds_restored(&self, times: u32) -> bool {
        self.codec.holds_restored(times)
    }
}

sparkawait_core::opaque_debug!([X: BatchCodec, F] ChainedOperator<X, F>, inputs: inputs.len());
