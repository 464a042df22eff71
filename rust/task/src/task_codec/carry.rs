// SPDX-License-Identifier: Apache-2.0
//! Rows of a task that are held elsewhere, and taken up again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::{FieldRef, Schema};
use sparkawait_arrow::{ResultRows, RowRef};
use sparkawait_core::ErrorKind;
use sparkawait_core::element::{StreamElement, StreamRecord};
use sparkawait_core::operator::{
    Failure, Snapshot, SnapshotError, SnapshotRecord, SnapshotState, decode_snapshot,
    encode_snapshot,
};
use sparkawait_runtime::{CarryCodec, Restored};

use super::TaskCodec;
use super::places::Places;
use crate::error::{CallFailure, TaskError};
use crate::saved::{SavedBatch, SavedOperator, SavedRows};

/// The state of a record, as the snapshot of an operator has it.
type State<R, F> = SnapshotState<R, F>;

/// A snapshot as it is written.
type ByteSnapshot = Snapshot<Vec<u8>, Vec<u8>, Vec<u8>>;

/// What to do with rows of a query that was changed.
pub const WAY_OUT: &str = "They were carried over by another form of the query: run that once more \
                           with carry_over=CarryOver(drain=True), then the new one";

/// Rows of held batches that are to become one batch.
#[derive(Default)]
struct Picked {
    /// Handles of the batches.
    sources: Vec<u32>,
    /// Position in `sources`, and the row.
    rows: Vec<(usize, usize)>,
    /// Position of a handle in `sources`.
    known: HashMap<u32, usize>,
}

impl Picked {
    fn pick(&mut self, handle: u32, row: u32) {
        let source = *self.known.entry(handle).or_insert_with(|| {
            self.sources.push(handle);
            self.sources.len() - 1
        });
        self.rows.push((source, row as usize));
    }

    /// Puts the rows together, of the batches that `batch_of` gives.
    fn gather(&self, batch_of: impl Fn(u32) -> RecordBatch) -> Result<SavedBatch, TaskError> {
        let batches: Vec<RecordBatch> = self.sources.iter().map(|it| batch_of(*it)).collect();
        let Some(first) = batches.first() else {
            return Ok(SavedBatch(RecordBatch::new_empty(Arc::new(Schema::empty()))));
        };
        let columns = (0..first.num_columns()).map(|column| {
            let arrays: Vec<_> = batches.iter().map(|it| it.column(column).as_ref()).collect();
            interleave(&arrays, &self.rows)
        });
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let batch = columns.collect::<Result<Vec<ArrayRef>, _>>().and_then(|columns| {
            RecordBatch::try_new_with_options(first.schema(), columns, &options)
        });
        batch.map(SavedBatch).map_err(|error| {
            TaskError::Internal(format!("rows in flight cannot be put together: {error}"))
        })
    }
}

/// A batch that is held again.
struct TakenUp {
    /// Its rows.
    count: usize,
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

    /// Takes a batch up again.
    fn take_up(&mut self, rows: SavedRows) -> Result<TakenUp, TaskError> {
        let count = rows.batch.0.num_rows();
        self.accept_restored(rows.batch.0, rows.restarts + 1)?;
        Ok(TakenUp {
            count,
            handle: self.pending.take().map_or(0, |rows| rows.batch()),
            places: self.places.clone(),
        })
    }
}

impl CarryCodec for TaskCodec {
    type Saved = SavedOperator;

    fn save(
        &mut self,
        snapshot: Snapshot<RowRef, ResultRows, Box<CallFailure>>,
        inputs: &VecDeque<RecordBatch>,
    ) -> Result<SavedOperator, TaskError> {
        let mut saved = SavedOperator::default();
        let (mut groups, mut results) = (Vec::<(u32, Picked)>::new(), Picked::default());
        let mut place_of = |row: RowRef, restarts: u32| {
            let group = groups.iter().position(|(it, _)| *it == restarts).unwrap_or_else(|| {
                groups.push((restarts, Picked::default()));
                groups.len() - 1
            });
            let place = [index(group), index(groups[group].1.rows.len())];
            groups[group].1.pick(row.batch, row.row);
            bytes_of(place)
        };
        let mut range_of = |rows: ResultRows| {
            let range = [index(results.rows.len()), rows.len];
            (rows.start..rows.start + rows.len).for_each(|row| results.pick(rows.chunk, row));
            bytes_of(range)
        };
        let elements = snapshot.into_iter().map(|element| {
            element.map(|SnapshotRecord { record, attempts, state }| {
                let restarts = self.rows.inputs().batch(record.value.batch).restarts;
                let value = place_of(record.value, restarts);
                let is_pending = matches!(state, SnapshotState::Pending { .. });
                saved.pending += usize::from(is_pending);
                saved.completed += usize::from(!is_pending);
                let state = map_state(state, &mut range_of, |it| encode_failure(&it));
                let record = StreamRecord::new(value, record.timestamp);
                SnapshotRecord { record, attempts, state }
            })
        });
        saved.snapshot = encode_snapshot(&elements.collect());
        for (restarts, picked) in groups {
            let batch = picked.gather(|handle| self.whole(handle))?;
            saved.rows.push(SavedRows { restarts, batch });
        }
        if !results.rows.is_empty() {
            let chunk_of = |handle| self.rows.chunks().chunk(handle).clone();
            saved.results = Some(results.gather(chunk_of)?);
        }
        if let Some(rest) = self.pending.as_ref().filter(|rows| !rows.is_empty()) {
            let (batch, rows) = (self.whole(rest.batch()), rest.rest());
            let rest = batch.slice(rows.start as usize, rows.len());
            saved.inputs.push(SavedBatch(rest));
        }
        saved.inputs.extend(inputs.iter().cloned().map(SavedBatch));
        Ok(saved)
    }

    fn rows_saved(saved: &SavedOperator) -> usize {
        let held = saved.rows.iter().map(|it| it.batch.0.num_rows());
        held.chain(saved.inputs.iter().map(|it| it.0.num_rows())).sum()
    }

    fn restore(&mut self, saved: SavedOperator) -> Result<Restored<Self>, TaskError> {
        let elements: ByteSnapshot = decode_snapshot(&saved.snapshot).map_err(|error| {
            let kind = match error {
                SnapshotError::UnknownVersion(_) => ErrorKind::SnapshotVersionUnknown,
                SnapshotError::Damaged => ErrorKind::SnapshotDamaged,
            };
            TaskError::Saved { kind, message: error.to_string() }
        })?;
        let mut batches = Vec::new();
        for rows in saved.rows {
            batches.push(self.take_up(rows).map_err(|it| other_columns(&it))?);
        }
        let results = match saved.results {
            Some(SavedBatch(results)) => {
                self.rows.accept_results(results).map_err(|it| other_columns(&it.into()))?
            }
            None => ResultRows::EMPTY,
        };
        let mut keys = Vec::new();
        let mut snapshot = Vec::with_capacity(elements.len());
        for element in elements {
            let StreamElement::Record(SnapshotRecord { record, attempts, state }) = element else {
                // No settings that make watermarks can be saved.
                continue;
            };
            let [batch, row] =
                numbers_of(&record.value).ok_or_else(|| damaged("a row is missing"))?;
            let batch = batches.get(batch as usize).filter(|it| (row as usize) < it.count);
            let batch = batch.ok_or_else(|| damaged("a row is missing"))?;
            let (channel, price) = batch.places.place(row);
            keys.push((batch.places.key(row), channel, price));
            let value = RowRef { batch: batch.handle, row };
            let state =
                read_state(state, results).ok_or_else(|| damaged("an outcome is missing"))?;
            if let SnapshotState::Completed(Err(failure)) = &state {
                self.failure_bytes += CallFailure::held_bytes(failure);
            }
            let record = StreamRecord::new(value, record.timestamp);
            snapshot.push(StreamElement::Record(SnapshotRecord { record, attempts, state }));
        }
        let inputs = saved.inputs.into_iter().map(|SavedBatch(batch)| batch).collect();
        Ok(Restored { snapshot, keys, inputs })
    }

    fn holds_restored(&self, times: u32) -> bool {
        self.rows.inputs().holds_restored(times)
    }
}

/// Says that rows were saved by an operator with other columns.
fn other_columns(error: &TaskError) -> TaskError {
    let message = format!("{error}. {WAY_OUT}");
    TaskError::Saved { kind: ErrorKind::SnapshotSchemaMismatch, message }
}

fn damaged(message: &str) -> TaskError {
    TaskError::Saved { kind: ErrorKind::SnapshotDamaged, message: message.to_owned() }
}

/// A position among rows in flight, which are fewer than a batch can have.
fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn bytes_of<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn numbers_of<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (numbers, []) = bytes.as_chunks::<4>() else { return None };
    let numbers: &[[u8; 4]; N] = numbers.try_into().ok()?;
    Some(numbers.map(u32::from_le_bytes))
}

/// Reads the state of a record. One that is pending has the whole of its timeout again, unless that
/// had passed: the function is asked about it once more, and not called.
fn read_state(
    state: State<Vec<u8>, Vec<u8>>,
    results: ResultRows,
) -> Option<State<ResultRows, Box<CallFailure>>> {
    let mut is_whole = true;
    let mut range_of = |bytes: Vec<u8>| {
        let range = numbers_of(&bytes).filter(|[start, len]| {
            start.checked_add(*len).is_some_and(|end| end <= results.len || *len == 0)
        });
        is_whole &= range.is_some();
        let [start, len] = range.unwrap_or_default();
        let start = if len == 0 { 0 } else { results.start + start };
        ResultRows { chunk: results.chunk, start, len }
    };
    let state = map_state(state, &mut range_of, |it| Box::new(decode_failure(&it)));
    let state = match state {
        SnapshotState::Pending { time_left, backoff_left, was_running, last_failure } => {
            // Nobody knows what a call came to that ran.
            let time_left = time_left.filter(|it| it.is_zero() && !was_running);
            SnapshotState::Pending { time_left, backoff_left, was_running, last_failure }
        }
        completed @ SnapshotState::Completed(_) => completed,
    };
    is_whole.then_some(state)
}

/// Rewrites the results and the failures of a state.
fn map_state<R, F, S, G>(
    state: State<R, F>,
    mut result: impl FnMut(R) -> S,
    failure: impl Fn(F) -> G,
) -> State<S, G> {
    match state {
        SnapshotState::Pending { time_left, backoff_left, was_running, last_failure } => {
            let last_failure = last_failure.map(failure);
            SnapshotState::Pending { time_left, backoff_left, was_running, last_failure }
        }
        SnapshotState::Completed(Ok(results)) => SnapshotState::Completed(Ok(result(results))),
        SnapshotState::Completed(Err(failed)) => SnapshotState::Completed(Err(match failed {
            Failure::Function(it) => Failure::Function(failure(it)),
            Failure::RetriesExhausted(it) => Failure::RetriesExhausted(failure(it)),
            Failure::TimedOut(last) => Failure::TimedOut(last.map(failure)),
            Failure::AttemptTimedOut(last) => Failure::AttemptTimedOut(last.map(failure)),
            Failure::NotCalled(why) => Failure::NotCalled(Box::new((why.0, why.1.map(failure)))),
        })),
    }
}

/// Writes a failure; what was raised cannot be held elsewhere, its text can.
fn encode_failure(failure: &CallFailure) -> Vec<u8> {
    let kind = failure.kind.as_str();
    // None is 0, which no service answers.
    let status = u32::from(failure.status.unwrap_or_default());
    let mut bytes = bytes_of([index(kind.len()), index(failure.message.len()), status]);
    for text in [kind, &failure.message, &failure.summary] {
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn decode_failure(bytes: &[u8]) -> CallFailure {
    let read = || {
        let (numbers, texts) = bytes.split_at_checked(12)?;
        let [kind, message, status] = numbers_of(numbers)?;
        let (kind, texts) = texts.split_at_checked(kind as usize)?;
        let (message, summary) = texts.split_at_checked(message as usize)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let kind = std::str::from_utf8(kind).ok().and_then(ErrorKind::from_code);
        let kind = kind.unwrap_or(ErrorKind::UserFunctionFailed);
        let status = u16::try_from(status).ok().filter(|status| *status != 0);
        let (message, summary) = (text(message), text(summary));
        Some(CallFailure { kind, message, summary, cause: None, status })
    };
    read().unwrap_or_else(|| CallFailure {
        kind: ErrorKind::UserFunctionFailed,
        message: String::new(),
        summary: String::new(),
        cause: None,
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_carried_with_its_kind_its_texts_and_its_status() {
        for status in [None, Some(401)] {
            let failure = CallFailure {
                kind: ErrorKind::Unauthorized,
                message: "the key of Zoë".to_owned(),
                summary: "a key".to_owned(),
                cause: None,
                status,
            };
            let carried = decode_failure(&encode_failure(&failure));
            assert_eq!((carried.kind, carried.status), (failure.kind, status));
            assert_eq!((carried.message, carried.summary), (failure.message, failure.summary));
        }
        assert_eq!(decode_failure(b"cut off").kind, ErrorKind::UserFunctionFailed);
    }
}
