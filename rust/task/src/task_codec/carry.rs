// SPDX-License-Identifier: Apache-2.0
//! Rows of a task that are held elsewhere, and taken up again.

use std::collections::{HashMap, VecDeque};
use std::iter::repeat_with;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::compute::{CastOptions, cast_with_options, interleave};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use sparkawait_arrow::{CallInfo, ResultRows, RowRef, with_own_memory};
use sparkawait_core::ErrorKind;
use sparkawait_core::element::StreamElement;
use sparkawait_core::operator::{Snapshot, SnapshotRecord, SnapshotState};
use sparkawait_runtime::batch_codec::InputRecord;
use sparkawait_runtime::{CarryCodec, Restored};

use super::TaskCodec;
use super::call_log::CallLog;
use super::places::Places;
use crate::error::{CallFailure, TaskError};
use crate::saved::{Phase, RowState, SavedOperator, damaged};

/// What to do with rows of a query that was changed.
pub const WAY_OUT: &str = "They were carried over by another form of the query: start that once \
                           more, end it with sa.drain(query), then start the new one";

/// Rows of several batches that are to become one batch.
#[derive(Default)]
struct Picked {
    batches: Vec<RecordBatch>,
    /// Position in `batches`, and the row.
    rows: Vec<(usize, usize)>,
    /// Position in `batches` of those that have a handle.
    known: HashMap<u32, usize>,
}

impl Picked {
    /// Adds a row of the batch that has a handle, which `batch` gives the first time.
    fn pick(&mut self, handle: u32, row: u32, batch: impl FnOnce() -> RecordBatch) {
        let position = *self.known.entry(handle).or_insert_with(|| {
            self.batches.push(batch());
            self.batches.len() - 1
        });
        self.rows.push((position, row as usize));
    }

    /// Adds all rows of a batch.
    fn append(&mut self, batch: RecordBatch) {
        let position = self.batches.len();
        self.rows.extend((0..batch.num_rows()).map(|row| (position, row)));
        self.batches.push(batch);
    }

    /// Puts the rows together, in columns of the types that the first batch has, or of `empty` if
    /// there is none.
    fn gather(self, empty: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let Some(first) = self.batches.first() else {
            return Ok(RecordBatch::new_empty(SchemaRef::clone(empty)));
        };
        let schema = first.schema();
        let columns = (0..schema.fields().len()).map(|position| {
            let arrays: Vec<ArrayRef> = self
                .batches
                .iter()
                .map(|it| column(it, position, &schema))
                .collect::<Result<_, _>>()?;
            let arrays: Vec<_> = arrays.iter().map(AsRef::as_ref).collect();
            interleave(&arrays, &self.rows)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        RecordBatch::try_new_with_options(schema, columns, &options)
    }
}

/// Returns a column of a batch in the type that `schema` has for it. Rows that were not admitted have
/// those that they came in.
fn column(batch: &RecordBatch, position: usize, schema: &Schema) -> Result<ArrayRef, ArrowError> {
    let (wanted, found) = (schema.field(position), batch.schema_ref().fields().get(position));
    if found.is_none_or(|it| it.name() != wanted.name()) {
        let message = format!("a batch has no column `{}` in its place", wanted.name());
        return Err(ArrowError::SchemaError(message));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(batch.column(position), wanted.data_type(), &options)
}

/// A batch that is held again.
struct TakenUp {
    handle: u32,
    places: Places,
}

impl TaskCodec {
    /// Returns a held batch as it came: with its hidden columns.
    fn whole(&self, handle: u32) -> RecordBatch {
        let input = self.rows.inputs().batch(handle);
        if input.hidden.num_columns() == 0 {
            return input.batch.clone();
        }
        let (rows, hidden) = (input.batch.schema(), input.hidden.schema());
        let fields = rows.fields().iter().chain(hidden.fields());
        let columns = input.batch.columns().iter().chain(input.hidden.columns());
        let fields: Vec<FieldRef> = fields.map(FieldRef::clone).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, rows.metadata().clone()));
        // As many rows on both sides.
        RecordBatch::try_new(schema, columns.map(ArrayRef::clone).collect())
            .unwrap_or_else(|_| input.batch.clone())
    }

    /// Takes rows up again that were restored so often before.
    fn take_up(&mut self, rows: RecordBatch, restarts: u32) -> Result<TakenUp, TaskError> {
        self.accept_restored(with_own_memory(rows)?, restarts + 1)?;
        Ok(TakenUp {
            handle: self.pending.take().map_or(0, |rows| rows.batch()),
            places: self.places.clone(),
        })
    }

    /// The rows that were not admitted.
    fn waiting(&self, inputs: &VecDeque<RecordBatch>) -> impl Iterator<Item = RecordBatch> {
        let rest = self.pending.as_ref().filter(|rows| !rows.is_empty()).map(|rest| {
            let rows = rest.rest();
            self.whole(rest.batch()).slice(rows.start as usize, rows.len())
        });
        rest.into_iter().chain(inputs.iter().cloned())
    }
}

impl CarryCodec for TaskCodec {
    type Saved = SavedOperator;

    fn save(
        &mut self,
        snapshot: Snapshot<RowRef, ResultRows, Box<CallFailure>>,
        inputs: &VecDeque<RecordBatch>,
    ) -> Result<SavedOperator, TaskError> {
        let (mut rows, mut results) = (Picked::default(), Picked::default());
        let mut states = Vec::with_capacity(snapshot.len());
        for element in snapshot {
            // No settings that make watermarks can be saved.
            let StreamElement::Record(SnapshotRecord { record, attempts, age, state }) = element
            else {
                continue;
            };
            let RowRef { batch, row } = record.value;
            rows.pick(batch, row, || self.whole(batch));
            if let SnapshotState::Completed(Ok(ResultRows { chunk, start, len })) = state {
                for row in start..start + len {
                    results.pick(chunk, row, || self.rows.chunks().chunk(chunk).clone());
                }
            }
            let is_completed = matches!(state, SnapshotState::Completed(_));
            let ordinal = self.rows.inputs().ordinal(record.value);
            let told = |log: &CallLog| {
                if is_completed { log.completed(ordinal) } else { log.pending(ordinal) }
            };
            let calls = self.call_log.as_deref().map(told);
            let restarts = self.rows.inputs().batch(batch).restarts;
            states.push(RowState::of(state, attempts, restarts).with_age(age).with_calls(calls));
        }
        for batch in self.waiting(inputs) {
            states.extend(repeat_with(RowState::input).take(batch.num_rows()));
            rows.append(batch);
        }
        let columns = Arc::new(self.columns.clone());
        let saved = rows.gather(&columns).and_then(|rows| {
            let results = results.gather(&self.config.results)?;
            SavedOperator::new(&rows, &states, &StructArray::from(results))
        });
        saved.map_err(|error| {
            TaskError::Internal(format!("rows in flight cannot be put together: {error}"))
        })
    }

    fn rows_saved(saved: &SavedOperator) -> usize {
        saved.rows()
    }

    fn restore(&mut self, saved: SavedOperator) -> Result<Restored<Self>, TaskError> {
        let unreadable = |_: ArrowError| damaged("the columns of rows cannot be taken apart");
        let rows = saved.columns().map_err(unreadable)?;
        let admitted = saved.phases().take_while(|it| *it != Phase::Input).count();
        let mut results = match saved.results() {
            Some(results) => self
                .rows
                .accept_results(with_own_memory(results)?)
                .map_err(|it| other_columns(&it.into()))?,
            None => ResultRows::EMPTY,
        };
        let (mut keys, mut snapshot) = (Vec::new(), Vec::with_capacity(admitted));
        for run in runs(&saved.restarts()[..admitted]) {
            let restarts = saved.restarts()[run.start];
            let taken_up = self.take_up(rows.slice(run.start, run.len()), restarts);
            let TakenUp { handle, places } = taken_up.map_err(|it| other_columns(&it))?;
            for (row, position) in (0_u32..).zip(run) {
                let InputRecord { record, key, channel, price } =
                    places.put(RowRef { batch: handle, row });
                keys.push((key, channel, price));
                let state = saved.state(position);
                let state = state.ok_or_else(|| damaged("the state of a row is missing"))?;
                let (attempts, age, count) = (state.attempts, state.age, state.results);
                let age = age.unwrap_or_default();
                if let Some(log) = &mut self.call_log {
                    let unknown = CallInfo { attempts, ..CallInfo::default() };
                    let ordinal = self.rows.inputs().ordinal(record.value);
                    log.restore(ordinal, state.calls.unwrap_or(unknown));
                }
                let own = results.split_front(count);
                let state = state.into_state(own).filter(|_| own.len == count);
                let state = state.ok_or_else(|| damaged("an outcome is missing"))?;
                if let SnapshotState::Completed(Err(failure)) = &state {
                    self.failure_bytes += CallFailure::held_bytes(failure);
                }
                let record = renewed(SnapshotRecord { record, attempts, age, state });
                snapshot.push(StreamElement::Record(record));
            }
        }
        if !results.is_empty() || saved.phases().skip(admitted).any(|it| it != Phase::Input) {
            return Err(damaged("rows are out of their order"));
        }
        let waiting = rows.slice(admitted, rows.num_rows() - admitted);
        let inputs = Some(waiting).filter(|it| it.num_rows() > 0).into_iter().collect();
        Ok(Restored { snapshot, keys, inputs })
    }

    fn holds_restored(&self, times: u32) -> bool {
        self.rows.inputs().holds_restored(times)
    }
}

/// Neighbours that were restored equally often.
fn runs(restarts: &[u32]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    restarts.chunk_by(|one, next| one == next).map(move |run| {
        start += run.len();
        start - run.len()..start
    })
}

/// Says that rows were saved by an operator with other columns.
fn other_columns(error: &TaskError) -> TaskError {
    let message = format!("{error}. {WAY_OUT}");
    TaskError::Saved { kind: ErrorKind::SnapshotSchemaMismatch, message }
}

/// Gives a row that is pending the whole of its timeout again, unless that had passed: the function is
/// asked about it once more, and not called. An attempt that ran is made again under its number, and
/// no second time because the row was saved once more before that.
fn renewed<E, R, F>(mut saved: SnapshotRecord<E, R, F>) -> SnapshotRecord<E, R, F> {
    if let SnapshotState::Pending { time_left, was_running, .. } = &mut saved.state {
        // Nobody knows what a call came to that ran.
        *time_left = time_left.filter(|it| it.is_zero() && !*was_running);
        saved.attempts -= u32::from(*was_running && saved.attempts > 0);
        *was_running = false;
    }
    saved
}
