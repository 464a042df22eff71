// SPDX-License-Identifier: Apache-2.0
//! What was completed, on its way to the journal of the job, and what comes from there.
//!
//! ```text
//!   a batch, its keys, what is known ──► rows that are not called ──────────────────────┐
//!                                  └──► calls ──► results ──► entries ──► a commit ──► output
//! ```
//!
//! Results are entered when they are there, so that they are kept although rows before them are not
//! completed. Failures are entered when they are emitted: none of them saves a call that costs. What
//! `on_timeout` answers does not come from the service, and is not entered.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int32Array, ListArray,
    RecordBatch, RecordBatchOptions, StringArray, StructArray, new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat, interleave};
use arrow::datatypes::{Field, Fields, Int32Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use foldhash::fast::RandomState;
use sparkawait_arrow::{InputBatch, ResultRows, RowFailure, RowStore};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Failure, Handled};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::batch_codec::Known;
use sparkawait_runtime::{Commits, Urgency};

use super::call_log::{Asked, CallLog, Entered};
use crate::error::{CallFailure, TaskError};
use crate::journal::{JournalConfig, KEY_WIDTH, Key};

/// What is known of the row at a place of the batch that is taken in.
type KnownRow = Known<ResultRows, Box<CallFailure>>;

/// What was completed and not handed to the journal.
#[derive(Debug, Default)]
struct Entries {
    keys: Vec<u8>,
    attempts: Vec<i32>,
    statuses: Vec<Option<i32>>,
    costs: Vec<Option<f64>>,
    /// By their positions.
    failures: Vec<(usize, RowFailure)>,
    chunks: Vec<RecordBatch>,
    /// Neighbouring rows of a chunk.
    results: Vec<(usize, Range<usize>)>,
    /// The end of the results of each.
    ends: Vec<i32>,
    batches: Vec<Arc<InputBatch>>,
    /// The position of a batch, and of a row in it.
    inputs: Vec<(usize, usize)>,
    bytes: usize,
    since: Option<ProcessingTime>,
}

/// Results that were kept, whose calls the log has not ended yet; without any, for a row that nobody
/// enters.
#[derive(Debug)]
struct Fresh {
    attempt: AttemptId,
    rows: Option<ResultRows>,
}

/// The journal of a task, as its codec sees it.
#[derive(Debug)]
pub(super) struct TaskJournal {
    config: JournalConfig,
    results: SchemaRef,
    input: SchemaRef,
    /// Where the hidden columns have the key.
    key: usize,
    now: ProcessingTime,
    /// Of the batch that is taken in, by its rows; empty if all are new.
    known: Vec<Option<KnownRow>>,
    /// Rows that have failed before, and are not asked again.
    known_failures: HashSet<u64, RandomState>,
    /// Of the last reply.
    fresh: Vec<Fresh>,
    /// What a row of its results takes.
    row_bytes: usize,
    entries: Entries,
    /// The number of the last commit.
    handed: u64,
}

/// Says what a batch with a column of known rows lacks.
fn malformed(what: &str) -> TaskError {
    TaskError::Internal(format!("what a journal knows of rows {what}"))
}

fn unbuildable(error: &ArrowError) -> TaskError {
    TaskError::Internal(format!("entries of a journal cannot be put together: {error}"))
}

impl TaskJournal {
    /// Makes one for rows of this `input`, with the key at its place among the hidden columns.
    pub(super) fn new(
        config: JournalConfig,
        results: SchemaRef,
        input: SchemaRef,
        key: usize,
    ) -> Self {
        Self {
            config,
            results,
            input,
            key,
            now: ProcessingTime::ZERO,
            known: Vec::new(),
            known_failures: HashSet::default(),
            fresh: Vec::new(),
            row_bytes: 0,
            entries: Entries::default(),
            handed: 0,
        }
    }

    pub(super) const fn set_time(&mut self, now: ProcessingTime) {
        self.now = now;
    }

    // --- what comes from it ---

    /// Takes the last column off a batch: what is known of its rows.
    pub(super) fn take_off(
        &mut self,
        input: &RecordBatch,
        rows: &mut RowStore,
    ) -> Result<RecordBatch, TaskError> {
        let last = input.num_columns().checked_sub(1);
        let last = last.ok_or_else(|| malformed("is missing"))?;
        let known = input.column(last).as_struct_opt();
        let known = known.ok_or_else(|| malformed("is not a struct"))?;
        self.known.clear();
        if known.null_count() < known.len() {
            self.known = self.read(known, rows)?;
        }
        let others: Vec<usize> = (0..last).collect();
        input.project(&others).map_err(|error| unbuildable(&error))
    }

    fn read(
        &self,
        known: &StructArray,
        rows: &mut RowStore,
    ) -> Result<Vec<Option<KnownRow>>, TaskError> {
        let column =
            |name: &str| known.column_by_name(name).ok_or_else(|| malformed("lacks a column"));
        let text = |name: &str| {
            column(name)?.as_string_opt::<i32>().ok_or_else(|| malformed("has no texts"))
        };
        let number = |name: &str| {
            let numbers = column(name)?.as_primitive_opt::<Int32Type>();
            numbers.ok_or_else(|| malformed("has no numbers"))
        };
        let (kinds, messages) = (text("kind")?, text("message")?);
        let (attempts, statuses) = (number("attempt")?, number("status")?);
        let lists = column("result")?.as_list_opt::<i32>();
        let lists = lists.ok_or_else(|| malformed("has no lists"))?;
        let offsets = lists.value_offsets();
        let (first, end) = (offsets[0], offsets[lists.len()]);
        let values = lists.values().slice(offset(first), offset(end - first));
        let values = values.as_struct_opt().ok_or_else(|| malformed("has no rows of results"))?;
        let none =
            || self.results.fields().iter().map(|it| new_empty_array(it.data_type())).collect();
        let columns = if values.is_empty() { none() } else { values.columns().to_vec() };
        let options = RecordBatchOptions::new().with_row_count(Some(values.len()));
        let schema = SchemaRef::clone(&self.results);
        let chunk = RecordBatch::try_new_with_options(schema, columns, &options);
        let chunk = chunk.map_err(|error| unbuildable(&error))?;
        let mut rest = rows.accept_results(chunk)?;
        let read = (0..known.len()).map(|row| {
            let count = u32::try_from(offsets[row + 1] - offsets[row]).unwrap_or_default();
            let own = rest.split_front(count);
            if known.is_null(row) {
                rows.discard(own);
                return None;
            }
            let attempts = if attempts.is_null(row) { 0 } else { attempts.value(row) };
            let attempts = u32::try_from(attempts).unwrap_or_default();
            if kinds.is_null(row) {
                return Some(Known { outcome: Ok(own), attempts });
            }
            rows.discard(own);
            let kind = ErrorKind::from_code(kinds.value(row));
            let message = if messages.is_null(row) { "" } else { messages.value(row) };
            let mut failure =
                CallFailure::new(kind.unwrap_or(ErrorKind::UserFunctionFailed), message.to_owned());
            failure.status =
                statuses.is_valid(row).then(|| u16::try_from(statuses.value(row)).ok()).flatten();
            Some(Known { outcome: Err(Failure::Function(Box::new(failure))), attempts })
        });
        Ok(read.collect())
    }

    /// Returns whether something is known of the batch that is taken in.
    pub(super) const fn has_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// Returns what is known of a row of it.
    pub(super) fn known(&self, row: u32) -> Option<KnownRow> {
        self.known.get(row as usize).cloned().flatten()
    }

    /// Returns the positions, in the batch that is taken in, of the rows that are known.
    pub(super) fn known_rows(&self) -> impl Iterator<Item = usize> {
        self.known.iter().enumerate().filter_map(|(row, it)| it.as_ref().map(|_| row))
    }

    /// Notes that a row of it, at this position in the task, has failed before.
    pub(super) fn note_known(&mut self, row: usize, ordinal: u64) -> usize {
        let Some(Some(known)) = self.known.get(row) else { return 0 };
        let Err(failure) = &known.outcome else { return 0 };
        self.known_failures.insert(ordinal);
        CallFailure::held_bytes(failure)
    }

    /// Returns whether the row at this position in the task was not called, as it has failed before.
    pub(super) fn has_failed_before(&self, ordinal: u64) -> bool {
        self.known_failures.contains(&ordinal)
    }

    // --- what goes there ---

    fn key_of(&self, batch: &InputBatch, row: usize) -> Key {
        let keys = batch.hidden.column(self.key).as_fixed_size_binary_opt();
        let key = keys.and_then(|keys| Key::try_from(keys.value(row)).ok());
        // Its type was checked where the batch was taken.
        key.unwrap_or_default()
    }

    /// Returns what a row that is called will be entered under.
    pub(super) fn asked(&self, batch: &Arc<InputBatch>, row: usize) -> Asked {
        let input = self.config.keeps_input.then(|| (Arc::clone(batch), row));
        Asked { key: self.key_of(batch, row), input }
    }

    /// Begins with the results of a reply.
    pub(super) fn begin_chunk(&mut self, chunk: &RecordBatch) {
        self.row_bytes = chunk.get_array_memory_size() / chunk.num_rows().max(1);
        self.entries.chunks.push(chunk.clone());
    }

    /// Keeps results of that reply that a row is completed with.
    pub(super) fn keep(&mut self, attempt: AttemptId, rows: ResultRows, handled: Handled) {
        let rows = (handled != Handled::TimeoutAnswered).then_some(rows);
        self.fresh.push(Fresh { attempt, rows });
    }

    /// Enters what was kept, once the log of calls knows how these ended; `is_last`: nobody else asks
    /// what the calls were.
    pub(super) fn enter(&mut self, log: &mut CallLog, is_last: bool) {
        let chunk = self.entries.chunks.len().saturating_sub(1);
        let mut fresh = std::mem::take(&mut self.fresh);
        for Fresh { attempt, rows } in fresh.drain(..) {
            let Some((entered, rows)) = log.enter(attempt.entry, is_last).zip(rows) else {
                continue;
            };
            // Nobody was asked, so nothing is saved by knowing it.
            if entered.attempts == 0 && !entered.is_shared {
                continue;
            }
            let (start, end) = (rows.start as usize, (rows.start + rows.len) as usize);
            let results = &mut self.entries.results;
            match results.last_mut().filter(|(of, rows)| (*of, rows.end) == (chunk, start)) {
                Some((_, rows)) => rows.end = end,
                None if start < end => results.push((chunk, start..end)),
                None => {}
            }
            let bytes = self.row_bytes * (end - start);
            self.push(entered, (end - start, bytes));
        }
        self.fresh = fresh;
    }

    /// Enters a row that has failed and leaves.
    pub(super) fn enter_failure(
        &mut self,
        batch: &Arc<InputBatch>,
        row: usize,
        cost: Option<f64>,
        failure: &RowFailure,
    ) {
        if self.known_failures.remove(&batch.ordinal(row)) {
            return;
        }
        let (attempts, status) = (failure.attempts, failure.status);
        let asked = self.asked(batch, row);
        self.entries.failures.push((self.entries.ends.len(), failure.clone()));
        let entered = Entered { asked, attempts, is_shared: false, status, cost };
        self.push(entered, (0, failure.message.len()));
    }

    fn push(&mut self, entered: Entered, (results, bytes): (usize, usize)) {
        let entries = &mut self.entries;
        let Asked { key, input } = entered.asked;
        entries.keys.extend(key);
        entries.attempts.push(i32::try_from(entered.attempts).unwrap_or(i32::MAX));
        entries.statuses.push(entered.status.map(i32::from));
        entries.costs.push(entered.cost);
        let end = end_of(&entries.ends) + results;
        entries.ends.push(i32::try_from(end).unwrap_or(i32::MAX));
        if let Some((batch, row)) = input {
            if !entries.batches.last().is_some_and(|last| Arc::ptr_eq(last, &batch)) {
                entries.batches.push(batch);
            }
            entries.inputs.push((entries.batches.len() - 1, row));
        }
        entries.bytes += bytes + size_of::<Key>();
        entries.since.get_or_insert(self.now);
    }

    /// Returns the number of the commit that has all that was entered.
    pub(super) const fn open_commit(&self) -> u64 {
        self.handed + if self.entries.ends.is_empty() { 0 } else { 1 }
    }

    /// Hands over what was entered, if that is due.
    pub(super) fn commit(&mut self, urgency: Urgency) -> Result<Commits, TaskError> {
        let done = self.config.journal.committed()?;
        let Some(since) = self.entries.since else {
            // Replies came, and nobody waited for them any more.
            self.entries.chunks.clear();
            return Ok(Commits { done, due: None });
        };
        let due = since + self.config.interval;
        let is_idle = done == self.handed;
        let is_due = urgency == Urgency::Pressed
            || due <= self.now
            || self.entries.bytes >= self.config.max_bytes;
        if urgency != Urgency::Last && !(is_idle && is_due) {
            return Ok(Commits { done, due: is_idle.then_some(due) });
        }
        let entries = std::mem::take(&mut self.entries);
        let entries = self.batch_of(entries).map_err(|error| unbuildable(&error))?;
        self.handed += 1;
        self.config.journal.append(self.handed, entries);
        Ok(Commits { done: self.config.journal.committed()?, due: None })
    }

    /// Puts entries together.
    fn batch_of(&self, entries: Entries) -> Result<RecordBatch, ArrowError> {
        let count = entries.ends.len();
        let keys = FixedSizeBinaryArray::try_new(KEY_WIDTH, entries.keys.into(), None)?;
        let texts = |of: fn(&RowFailure) -> &str| -> ArrayRef {
            let mut texts = vec![None; count];
            for (row, failure) in &entries.failures {
                texts[*row] = Some(of(failure));
            }
            Arc::new(StringArray::from(texts))
        };
        let (kinds, messages) = (texts(|it| &it.kind), texts(|it| &it.message));
        let mut has_result = vec![true; count];
        entries.failures.iter().for_each(|(row, _)| has_result[*row] = false);
        let values = columns_of(self.results.fields(), end_of(&entries.ends), |position| {
            let of = |(chunk, rows): &(usize, Range<usize>)| {
                entries.chunks[*chunk].column(position).slice(rows.start, rows.len())
            };
            let pieces: Vec<ArrayRef> = entries.results.iter().map(of).collect();
            concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>())
        })?;
        let offsets: ScalarBuffer<i32> = std::iter::once(0).chain(entries.ends).collect();
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        let (offsets, has_result) = (OffsetBuffer::new(offsets), NullBuffer::from(has_result));
        let lists = ListArray::try_new(item, offsets, Arc::new(values), Some(has_result))?;
        let mut columns: Vec<(&str, ArrayRef)> = vec![
            ("key", Arc::new(keys)),
            ("attempt", Arc::new(Int32Array::from(entries.attempts))),
            ("kind", kinds),
            ("message", messages),
            ("status", Arc::new(Int32Array::from(entries.statuses))),
            ("cost", Arc::new(Float64Array::from(entries.costs))),
            ("result", Arc::new(lists)),
        ];
        if self.config.keeps_input {
            let rows = columns_of(self.input.fields(), entries.inputs.len(), |position| {
                let of = |it: &Arc<InputBatch>| ArrayRef::clone(it.batch.column(position));
                let pieces: Vec<ArrayRef> = entries.batches.iter().map(of).collect();
                interleave(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>(), &entries.inputs)
            })?;
            columns.push(("input", Arc::new(rows)));
        }
        let fields = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), *name != "key"));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, it)| it).collect())
    }
}

/// Returns a place that Arrow has checked.
fn offset(number: i32) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn end_of(ends: &[i32]) -> usize {
    ends.last().map_or(0, |it| offset(*it))
}

/// Puts `count` rows together, as structs of `fields`; `column` makes each of these.
fn columns_of(
    fields: &Fields,
    count: usize,
    column: impl Fn(usize) -> Result<ArrayRef, ArrowError>,
) -> Result<StructArray, ArrowError> {
    if fields.is_empty() {
        return Ok(StructArray::new_empty_fields(count, None));
    }
    let of = |position: usize| match count {
        0 => Ok(new_empty_array(fields[position].data_type())),
        _ => column(position),
    };
    let columns = (0..fields.len()).map(of).collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new(fields.clone(), columns, None)
}
