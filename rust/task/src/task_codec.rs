// SPDX-License-Identifier: Apache-2.0
//! Rows of record batches as elements of the operator.

mod call_log;
pub mod carry;
mod failure_counts;
mod failures;
mod first_failures;
mod journal;
mod outcomes;
mod places;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::vec::Drain;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use sparkawait_arrow::{
    BatchRows, CallInfo, ChannelColumns, Error, KeyColumns, Keys, OnError, ResultRows, RowFailure,
    RowRef, RowStore, Side, WatermarkAfter, WatermarkGenerator, has_bytes_for_texts,
    with_own_memory,
};
use sparkawait_core::ErrorKind;
use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::operator::{
    AttemptId, Begins, Completion, Emitted, Failure, Handled, Invocation, Remark,
};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::batch_codec::{InputElement, Known as KnownOutcome};
use sparkawait_runtime::{BatchCodec, Commits, ReplySender, RowsLeft, Urgency};

use crate::cause::Cause;
use crate::error::{CallFailure, TaskError};
use crate::function::{Call, Calls, Known, ReplyGroup, ReplySink, SettledCall, ToldLimit};
use crate::journal::key_field;
use crate::row_config::{ChannelSettings, NO_RESULT, OUTCOME, RowConfig};
use crate::row_prices::RowPrices;
use call_log::{Asked, CallEnd, CallLog};
use failure_counts::{FailureCounts, class_of};
use first_failures::{FirstFailures, FirstMisses};
use journal::TaskJournal;
use places::Places;

/// Turns input batches into elements and emitted elements into output batches.
#[derive(Debug)]
pub struct TaskCodec {
    config: RowConfig,
    /// Of the batches that come: the input, and the hidden columns behind it.
    columns: Schema,
    rows: RowStore,
    /// Slab handles of the batches of a burst of calls; kept for the next one.
    called: Vec<u32>,
    /// Rows of the last input batch that were not handed out.
    pending: Option<BatchRows>,
    /// Of all rows of that batch.
    places: Places,
    prices: RowPrices,
    /// Watermarks of pending rows, and the rows that come before the first of them.
    pending_watermarks: VecDeque<WatermarkAfter>,
    before_watermark: usize,
    keys: Option<KeyColumns>,
    channels: Option<ChannelColumns>,
    generator: Option<WatermarkGenerator>,
    /// Records that left without a result row although their call returned.
    dropped: u64,
    /// Why a record failed that could not be put out.
    lost: Option<RowFailure>,
    failure_counts: FailureCounts,
    first_failures: FirstFailures,
    first_misses: FirstMisses,
    /// Bytes of the failures that wait to be emitted.
    failure_bytes: usize,
    /// What the calls of rows were, if a column tells it.
    call_log: Option<Box<CallLog>>,
    /// Where what rows come to is kept.
    journal: Option<Box<TaskJournal>>,
    /// Whether the input comes from another operator, in the types of its function.
    is_chained: bool,
}

impl TaskCodec {
    /// Makes a codec that holds nothing, for an operator whose calls begin so.
    ///
    /// # Errors
    ///
    /// Columns that do not exist, clash, or have an unfit type.
    pub fn new(mut config: RowConfig, begins: Begins) -> Result<Self, TaskError> {
        let journal = config.journal.clone().map(|journal| {
            let hidden = config.hidden.fields().iter().cloned();
            let place = config.hidden.fields().len();
            let hidden = hidden.chain([Arc::new(key_field())]).collect::<Vec<_>>();
            config.hidden = Arc::new(Schema::new(hidden));
            let (results, input) = (Arc::clone(&config.results), Arc::clone(&config.input));
            Box::new(TaskJournal::new(journal, results, input, place))
        });
        let (input, results) = (SchemaRef::clone(&config.input), SchemaRef::clone(&config.results));
        let columns = config.columns();
        let keys = config.key.as_ref().map(|names| KeyColumns::new(&columns, names)).transpose()?;
        let generator = config.watermark.as_ref();
        let generator = generator.map(|it| WatermarkGenerator::new(&columns, it)).transpose()?;
        let channels = match &config.channel {
            Some(ChannelSettings::Columns(names)) => Some(ChannelColumns::new(&columns, names)?),
            Some(ChannelSettings::Function(_)) | None => None,
        };
        let prices = RowPrices::new(&config.prices, &columns)?;
        let (on_error, error_column) = if config.is_branch {
            (OnError::Capture, OUTCOME)
        } else {
            (config.on_error, config.error_column.as_str())
        };
        let (output, info_column) = (config.output, config.info_column.as_deref());
        let rows =
            RowStore::with_columns(input, results, output, on_error, error_column, info_column)?
                .carrying(&config.carried);
        let (tells, is_told) = (config.tells_calls(), config.info_column.is_some());
        let call_log = tells.then(|| Box::new(CallLog::new(prices.told(), begins, is_told)));
        Ok(Self {
            config,
            columns,
            rows,
            called: Vec::new(),
            pending: None,
            places: Places::default(),
            prices,
            pending_watermarks: VecDeque::new(),
            before_watermark: usize::MAX,
            keys,
            channels,
            generator,
            dropped: 0,
            lost: None,
            failure_counts: FailureCounts::default(),
            first_failures: FirstFailures::default(),
            first_misses: FirstMisses::default(),
            failure_bytes: 0,
            call_log,
            journal,
            is_chained: false,
        })
    }

    /// Takes what another operator of its chain puts out, in the types of that one's function.
    #[must_use]
    pub fn chained(self) -> Self {
        Self { is_chained: true, ..self }
    }

    /// Returns the batch in the types of the input, as Spark does between two plans.
    fn cast(&self, batch: RecordBatch) -> Result<RecordBatch, TaskError> {
        let wanted = self.columns.fields();
        let is_cast = |column: &ArrayRef, field: &FieldRef| {
            column.data_type().equals_datatype(field.data_type())
                // As it came, because not all of its texts are UTF-8.
                || has_bytes_for_texts(column.data_type(), field.data_type())
        };
        // Whether it has the right columns is checked where all input is.
        if batch.num_columns() != wanted.len()
            || batch.columns().iter().zip(wanted).all(|(column, field)| is_cast(column, field))
        {
            return Ok(batch);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let schema = batch.schema();
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for ((column, field), wanted) in batch.columns().iter().zip(schema.fields()).zip(wanted) {
            if is_cast(column, wanted) {
                fields.push(FieldRef::clone(field));
                columns.push(ArrayRef::clone(column));
                continue;
            }
            let (expected, got) = (wanted.data_type(), field.data_type());
            let cast = cast_with_options(column, expected, &options).map_err(|source| {
                let (column, expected, got) = (field.name().clone(), expected.clone(), got.clone());
                Error::Cast { side: Side::Input, column, expected, got, source }
            })?;
            fields.push(Arc::new(field.as_ref().clone().with_data_type(expected.clone())));
            columns.push(cast);
        }
        // As many columns of as many rows as before.
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|error| {
            TaskError::Internal(format!("columns cannot be put together: {error}"))
        })
    }

    /// Finds the channels of the rows of a batch; none without channels.
    fn find_channels(&mut self, batch: &RecordBatch) -> Result<Keys, TaskError> {
        match (&self.config.channel, &mut self.channels) {
            (Some(ChannelSettings::Function(finder)), _) => finder.find(batch),
            (_, Some(columns)) => Ok(columns.find(batch)?),
            (_, None) => Ok(Keys::default()),
        }
    }

    /// Returns the rows of a batch, and the hidden columns that came behind them.
    fn split(&self, batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch), TaskError> {
        let (visible, all) = (self.config.input.fields().len(), self.columns.fields().len());
        if visible == all {
            // Whether it has the right columns is checked where all input is.
            let hidden = RecordBatch::new_empty(SchemaRef::clone(&self.config.hidden));
            return Ok((batch.clone(), hidden));
        }
        let found = batch.num_columns();
        if found != all {
            let message = format!("an input batch has {found} columns, {all} were announced");
            return Err(TaskError::Internal(message));
        }
        let project = |positions: Range<usize>| {
            batch.project(&positions.collect::<Vec<_>>()).map_err(|error| {
                TaskError::Internal(format!("columns cannot be taken apart: {error}"))
            })
        };
        Ok((project(0..visible)?, project(visible..all)?))
    }

    /// Takes a batch of input whose rows were restored so often.
    fn accept_restored(&mut self, input: RecordBatch, restarts: u32) -> Result<(), TaskError> {
        let input = if self.is_chained { with_own_memory(self.cast(input)?)? } else { input };
        let input = match &mut self.journal {
            Some(journal) => journal.take_off(&input, &mut self.rows)?,
            None => input,
        };
        let (rows, hidden) = self.split(&input)?;
        self.places.channels = self.find_channels(&input)?;
        if let Some(generator) = &mut self.generator {
            generator.observe(&input, &mut self.pending_watermarks);
            self.before_watermark = self.rows_before_watermark();
        }
        if let Some(keys) = &mut self.keys {
            self.places.keys = keys.keys(&input)?;
        }
        let channels = Arc::clone(&self.places.channels);
        let rows = self.rows.accept_input_with(rows, hidden, channels, restarts)?;
        if !rows.is_empty() {
            let batch = self.rows.inputs().batch(rows.batch());
            self.places.costs = self.prices.read(batch)?.into();
            if let Some(log) = &mut self.call_log {
                log.take(batch.ordinal(0), self.prices.of_rows(rows.len(), &self.places.costs));
                if let Some(journal) = &mut self.journal {
                    let known: Vec<usize> = journal.known_rows().collect();
                    for row in known {
                        let ordinal = batch.ordinal(row);
                        if self.config.info_column.is_none() {
                            log.forget(ordinal);
                        } else {
                            log.restore(ordinal, CallInfo { cached: true, ..CallInfo::default() });
                        }
                        self.failure_bytes += journal.note_known(row, ordinal);
                    }
                }
            }
        }
        self.pending = Some(rows);
        Ok(())
    }

    /// Forgets the calls of a row that is not put out.
    fn forget_calls(&mut self, row: RowRef) {
        if let Some(log) = &mut self.call_log {
            log.forget(self.rows.inputs().ordinal(row));
        }
    }

    /// Puts a row out that has failed.
    fn push_failure(&mut self, row: RowRef, failure: RowFailure) {
        if self.config.on_error == OnError::Drop && !self.config.is_branch {
            self.forget_calls(row);
        }
        // Given back with the policy "fail" only, and that emits no failure.
        if let Err(refused) = self.rows.push_failure(row, failure) {
            self.lost = Some(refused);
        }
    }

    /// Lets go of a row whose call returned nothing; a branch tells those before it of that.
    #[inline(never)]
    fn emit_without_result(&mut self, row: RowRef, nothing: ResultRows, attempts: u32) {
        self.dropped += 1;
        if !self.config.is_branch {
            self.forget_calls(row);
            return self.rows.push(row, nothing);
        }
        let (kind, message) = (Cow::Borrowed(NO_RESULT), String::new());
        self.push_failure(row, RowFailure { kind, message, attempts, status: None });
    }

    #[inline(never)]
    fn emit_failed(&mut self, row: RowRef, failure: Failure<Box<CallFailure>>, attempts: u32) {
        let bytes = CallFailure::held_bytes(&failure);
        debug_assert!(bytes <= self.failure_bytes, "a failure that was never counted");
        // Below nothing the task would take itself for full, and wait for ever.
        self.failure_bytes = self.failure_bytes.saturating_sub(bytes);
        self.note_failure(&failure);
        let class = class_of(&failure);
        let failure = self.row_failure(failure, attempts);
        if let (Some(journal), Some(log)) = (&mut self.journal, &self.call_log) {
            let (batch, place) = (self.rows.inputs().batch(row.batch), row.row as usize);
            let cost = log.paid(batch.ordinal(place));
            journal.enter_failure(batch, place, cost, &failure);
            if self.config.info_column.is_none() {
                self.forget_calls(row);
            }
        }
        self.failure_counts.add(&failure.kind, failure.status, class);
        self.push_failure(row, failure);
    }

    /// Returns how many rows come before the next watermark; more than there are without one.
    fn rows_before_watermark(&self) -> usize {
        self.pending_watermarks.front().map_or(usize::MAX, |next| next.rows)
    }
}

impl BatchCodec for TaskCodec {
    type Element = RowRef;
    type Results = ResultRows;
    type Failure = Box<CallFailure>;
    type Input = RecordBatch;
    type Calls = Calls;
    type Reply = ReplyGroup;
    type Output = RecordBatch;
    type Error = TaskError;

    fn set_time(&mut self, now: ProcessingTime) {
        if let Some(log) = &mut self.call_log {
            log.set_time(now);
        }
        if let Some(journal) = &mut self.journal {
            journal.set_time(now);
        }
    }

    fn rows_of(input: &RecordBatch) -> usize {
        input.num_rows()
    }

    fn accept(&mut self, input: RecordBatch) -> Result<(), TaskError> {
        self.accept_restored(input, 0)
    }

    #[inline]
    fn next_element(&mut self) -> Option<InputElement<RowRef>> {
        if self.before_watermark == 0
            && let Some(WatermarkAfter { watermark, .. }) = self.pending_watermarks.pop_front()
        {
            self.before_watermark = self.rows_before_watermark();
            return Some(StreamElement::Watermark(watermark));
        }
        let row = self.pending.as_mut().and_then(Iterator::next)?;
        self.before_watermark -= 1;
        Some(StreamElement::Record(self.places.put(row)))
    }

    #[cold]
    fn put_back(&mut self, record: StreamRecord<RowRef>) -> Result<(), TaskError> {
        if !self.pending.as_mut().is_some_and(|rows| rows.put_back(record.value)) {
            let message = "a row was refused that is not the last one that was handed out";
            return Err(TaskError::Internal(message.to_owned()));
        }
        self.before_watermark += 1;
        Ok(())
    }

    #[inline]
    fn has_known(&self) -> bool {
        self.journal.as_ref().is_some_and(|it| it.has_known())
    }

    fn known(&self) -> Option<KnownOutcome<ResultRows, Box<CallFailure>>> {
        self.journal.as_ref()?.known(self.pending.as_ref()?.last_row()?)
    }

    fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    fn open_commit(&self) -> u64 {
        self.journal.as_ref().map_or(0, |it| it.open_commit())
    }

    fn commit(&mut self, urgency: Urgency) -> Result<Commits, TaskError> {
        match &mut self.journal {
            None => Ok(Commits::default()),
            Some(journal) => journal.commit(urgency),
        }
    }

    fn has_prices(&self) -> bool {
        self.prices.are_of_rows()
    }

    fn channel_name(&self, channel: Key, record: Option<&RowRef>) -> Option<String> {
        if let Some(ChannelSettings::Function(finder)) = &self.config.channel {
            return finder.name(channel);
        }
        let columns = self.channels.as_ref()?;
        match record {
            None => columns.name(channel),
            Some(RowRef { batch, row }) => {
                Some(columns.label(self.rows.inputs().batch(*batch), *row as usize))
            }
        }
    }

    #[inline]
    fn has_element(&self) -> bool {
        self.pending.as_ref().is_some_and(|rows| !rows.is_empty())
            || !self.pending_watermarks.is_empty()
    }

    fn calls(&mut self, invocations: Drain<'_, Invocation<RowRef>>) -> Calls {
        let mut batches = Vec::new();
        // Rows in a row are of one batch, so mostly nothing is looked up.
        let (known, mut last) = (&mut self.called, 0);
        known.clear();
        let calls = invocations
            .map(|Invocation { attempt, value }| {
                if known.get(last) != Some(&value.batch) {
                    last = known.iter().position(|&it| it == value.batch).unwrap_or_else(|| {
                        known.push(value.batch);
                        batches.push(Arc::clone(self.rows.inputs().batch(value.batch)));
                        known.len() - 1
                    });
                }
                #[expect(clippy::cast_possible_truncation, reason = "fewer than the calls")]
                Call { attempt, batch: last as u32, row: value.row }
            })
            .collect();
        let calls = Calls { batches, calls };
        if let Some(log) = &mut self.call_log {
            for call in &calls.calls {
                let asked = || {
                    let (batch, row) = (&calls.batches[call.batch as usize], call.row as usize);
                    self.journal.as_ref().map_or_else(Asked::default, |it| it.asked(batch, row))
                };
                log.call(calls.ordinal(call), call.attempt, asked);
            }
        }
        calls
    }

    fn started(&mut self, attempts: &[AttemptId]) {
        if let Some(log) = &mut self.call_log {
            log.start(attempts);
        }
    }

    fn cancelled(&mut self, attempts: &[AttemptId]) {
        if let Some(log) = &mut self.call_log {
            log.cancel(attempts);
        }
    }

    fn recalled(&mut self, attempts: &[AttemptId]) {
        if let Some(log) = &mut self.call_log {
            log.recall(attempts);
        }
    }

    fn remarks(&self, reply: &ReplyGroup, mut remark: impl FnMut(AttemptId, Remark)) {
        let results = reply.results.as_ref().filter(|_| self.prices.are_in_results());
        let in_results = results.map(|it| self.prices.settle(it)).unwrap_or_default();
        for attempt in &reply.requests {
            remark(*attempt, Remark::Request);
        }
        // What a function says itself is nearer to what it was asked for.
        for SettledCall { attempt, limit, cost } in in_results.iter().chain(&reply.settled).copied()
        {
            remark(attempt, Remark::Cost { limit, cost });
        }
        for ToldLimit { attempt, left, is_of_channel } in reply.told.iter().copied() {
            remark(attempt, Remark::Left { left, is_of_channel });
        }
        for failed in &reply.failures {
            if failed.cause == Cause::NotSent {
                remark(failed.attempt, Remark::NotSent);
            }
            if let Some(delay) = failed.pause {
                remark(failed.attempt, Remark::Pause(delay));
            }
        }
    }

    fn accept_reply(
        &mut self,
        reply: ReplyGroup,
        mut complete: impl FnMut(AttemptId, Completion<ResultRows, Box<CallFailure>>) -> Handled,
    ) -> Result<(), TaskError> {
        let Some(mut log) = self.call_log.take() else {
            return self.accept_outcomes(reply, complete);
        };
        self.remarks(&reply, |attempt, remark| log.remark(attempt, remark));
        for (attempt, status) in &reply.statuses {
            log.answer(*attempt, *status);
        }
        let is_shared = reply.results.as_ref().is_some_and(|it| it.known == Known::All);
        let reads = !self.config.reads.is_empty();
        let accepted = self.accept_outcomes(reply, |attempt, completion| {
            let end = CallEnd::of(&completion, is_shared, |kind| is_uncalled(kind, reads));
            let handled = complete(attempt, completion);
            log.end(attempt, end, handled);
            handled
        });
        if let Some(journal) = &mut self.journal {
            journal.enter(&mut log, self.config.info_column.is_none());
        }
        self.call_log = Some(log);
        accepted
    }

    #[inline]
    fn emit(&mut self, element: StreamElement<Emitted<RowRef, ResultRows, Box<CallFailure>>>) {
        let StreamElement::Record(emitted) = element else { return };
        let row = emitted.record.value;
        match emitted.outcome {
            Ok(results) if !results.is_empty() => self.rows.push(row, results),
            Ok(nothing) => self.emit_without_result(row, nothing, emitted.attempts),
            Err(failure) => self.emit_failed(row, failure, emitted.attempts),
        }
    }

    fn input_bytes(&self) -> usize {
        self.rows.inputs().held_bytes()
    }

    fn is_sparse(&self) -> bool {
        self.rows.is_sparse()
    }

    fn compact<'a>(&mut self, rows: impl Iterator<Item = &'a mut RowRef>) -> Result<(), TaskError> {
        Ok(self.rows.compact(rows)?)
    }

    fn result_bytes(&self) -> usize {
        self.rows.chunks().held_bytes() + self.failure_bytes + self.rows.bytes_of_failures()
    }

    fn output_rows(&self) -> usize {
        self.rows.row_count()
    }

    fn is_output_full(&mut self, max_rows: usize, max_bytes: usize) -> bool {
        self.rows.is_full(max_rows, max_bytes)
    }

    fn take_output(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Option<RecordBatch>, TaskError> {
        if let Some(lost) = &self.lost {
            let message = format!("a row failed ({}), which was to fail the task", lost.kind);
            return Err(TaskError::Internal(message));
        }
        let log = &mut self.call_log;
        let mut calls = |row: u64, is_last: bool| {
            log.as_mut().map_or_else(CallInfo::default, |log| log.leave(row, is_last))
        };
        Ok(self.rows.take_with(max_rows, max_bytes, &mut calls)?)
    }

    fn pass_on(output: RecordBatch) -> RecordBatch {
        output
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn failures(&mut self) -> Arc<[(String, u64)]> {
        self.failure_counts.tell()
    }

    fn left(&self) -> RowsLeft {
        let (left, are_all) = (self.rows.left(), self.rows.has_each_left_once());
        let sparkawait_arrow::RowsLeft { put_out, without_result, dropped, output, .. } = left;
        RowsLeft { put_out, without_result, dropped, are_all, output }
    }

    fn function(&self) -> &str {
        &self.config.function
    }

    fn broken(what: String) -> TaskError {
        TaskError::Internal(what)
    }

    fn failure(&mut self, failed: Emitted<RowRef, (), Box<CallFailure>>) -> TaskError {
        self.task_failure(failed)
    }
}

/// Whether a record with this kind of failure was not called, see `row_check`; `reads` tells whether
/// its texts are looked at before.
const fn is_uncalled(kind: ErrorKind, reads: bool) -> bool {
    match kind {
        ErrorKind::CostInvalid => true,
        ErrorKind::TextInvalid => reads,
        _ => false,
    }
}

/// The task itself, behind all layers.
impl ReplySink for ReplySender<TaskCodec> {
    fn started(&self, attempts: Vec<AttemptId>) -> bool {
        Self::started(self, attempts)
    }

    fn send(&self, group: ReplyGroup) -> bool {
        Self::send(self, group)
    }

    fn fail(&self, error: TaskError) -> bool {
        Self::fail(self, error)
    }
}
