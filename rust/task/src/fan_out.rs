// SPDX-License-Identifier: Apache-2.0
//! Several functions for each row, side by side: rows to the branches, and their results joined.
//!
//! ```text
//!   operator --calls--> FanOutCalls --> rows, each with its slot --> a branch for each function
//!      ^                                                                    |
//!      +-- a row of all results <-- RowFanOut <-- results, outcome, slot ---+
//! ```
//!
//! A branch puts out one row for each that it gets, whatever happened to it, see
//! [`RowConfig::is_branch`]; so a row is complete when each branch has put it out once. Rows go to
//! the branches a burst at a time, as a slice of their batch where they are neighbours, and come
//! back in bursts, too: what is done for a row is a few steps in arrays.

mod branch;

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::interleave;
use arrow::datatypes::{Field, Schema, SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use sparkawait_arrow::{InputBatch, OnError};
use sparkawait_core::operator::AttemptId;
use sparkawait_core::slab::Slab;
use sparkawait_runtime::{AsyncFunction, FanOut};

use crate::error::TaskError;
use crate::function::{Call, Calls, ReplyGroup, ResultGroup};
use crate::row_config::{NO_RESULT, RowConfig};
use crate::task_codec::TaskCodec;
use branch::{Branch, neighbours};

/// The column of a row's slot.
pub const SLOT: &str = "__sparkawait_slot";

/// The calls of an operator whose function is several others.
#[derive(Clone, Debug, Default)]
pub struct FanOutCalls {
    /// Filled and emptied by the task thread only; a function must be one that could be sent to
    /// others.
    bursts: Arc<Mutex<Vec<Calls>>>,
}

impl FanOutCalls {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<Calls>) -> T) -> T {
        look(&mut self.bursts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsyncFunction<Calls> for FanOutCalls {
    fn invoke(&mut self, calls: Calls) {
        self.with(|bursts| bursts.push(calls));
    }

    /// Its operator has no timeout: the branches have.
    fn ask_timeout(&mut self, _calls: Calls) {}

    /// Only at the end, which ends the branches, too.
    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {
        self.with(Vec::clear);
    }
}

/// Splits the calls of an operator over its branches, and joins what they put out.
pub struct RowFanOut {
    calls: FanOutCalls,
    /// What the branches get: the rows, hidden columns behind them, and slots behind these.
    input: SchemaRef,
    /// What they put out together.
    results: SchemaRef,
    branches: Vec<Branch>,
    slots: Slab<Slot>,
    /// Rows that were handed to the branches so far.
    handed_out: u64,
    /// Where the results of a slot are, branch by branch: chunk and row.
    places: Vec<(u32, u32)>,
    /// Slots that all branches have put out.
    complete: Vec<u32>,
}

/// A row that was handed to the branches.
struct Slot {
    attempt: AttemptId,
    /// The row's position in the task, and among those that the branches got.
    ordinal: u64,
    number: u64,
    /// Branches that have not put it out.
    missing: usize,
    /// Whether one of them has no result for it, so that the row is left out.
    is_dropped: bool,
}

// Shows sizes only: row contents do not belong in logs.
sparkawait_core::opaque_debug!(RowFanOut, branches: branches.len());

impl RowFanOut {
    /// Makes one for the operator of `rows`, whose function `calls` is, with these branches.
    pub(crate) fn new<'a>(
        rows: &RowConfig,
        calls: FanOutCalls,
        branches: impl IntoIterator<Item = &'a RowConfig>,
    ) -> Self {
        let hidden = rows.hidden.fields();
        let slot = Arc::new(Field::new(SLOT, arrow::datatypes::DataType::UInt32, false));
        let input = rows.input.fields().iter().chain(hidden).map(Arc::clone);
        Self {
            calls,
            input: Arc::new(Schema::new(input.chain([slot]).collect::<Vec<_>>())),
            results: SchemaRef::clone(&rows.results),
            branches: branches.into_iter().map(Branch::new).collect(),
            slots: Slab::new(),
            handed_out: 0,
            places: Vec::new(),
            complete: Vec::new(),
        }
    }

    /// Returns the rows of a burst, with a slot for each.
    fn rows(&mut self, calls: &Calls) -> Result<RecordBatch, ArrowError> {
        let count = self.branches.len();
        let slots = calls.calls.iter().map(|call| {
            let (ordinal, number) = (calls.ordinal(call), self.handed_out);
            self.handed_out += 1;
            let attempt = call.attempt;
            self.slots.insert(Slot { attempt, ordinal, number, missing: count, is_dropped: false })
        });
        let slots: Vec<u32> = slots.collect();
        self.places.resize(self.slots.places() * count, (0, 0));
        let sources = &calls.batches;
        let column = |index| gathered(sources, &calls.calls, |batch| batch.column(index));
        let columns = (0..self.input.fields().len() - 1).map(column);
        let slots = Ok(Arc::new(UInt32Array::from(slots)) as ArrayRef);
        let columns = columns.chain([slots]).collect::<Result<Vec<_>, _>>()?;
        self.fit_input(&columns);
        RecordBatch::try_new(SchemaRef::clone(&self.input), columns)
    }

    /// Takes over the types of hidden columns, which may differ from those that were announced in
    /// what lies within.
    fn fit_input(&mut self, columns: &[ArrayRef]) {
        let is_of = |(field, column): (&Arc<Field>, &ArrayRef)| {
            field.data_type() == column.data_type() && field.is_nullable()
        };
        let slot = columns.len() - 1;
        if self.input.fields()[..slot].iter().zip(columns).all(is_of) {
            return;
        }
        let fields = self.input.fields().iter().zip(columns).enumerate();
        let fields = fields.map(|(index, (field, column))| {
            Field::new(field.name(), column.data_type().clone(), index < slot)
        });
        self.input = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    }

    /// Joins the results of the slots that are complete.
    fn join(&mut self) -> Result<ResultGroup, ArrowError> {
        let complete = mem::take(&mut self.complete);
        let count = self.branches.len();
        let mut attempts = Vec::with_capacity(complete.len());
        let mut counts = Vec::with_capacity(complete.len());
        let mut kept = Vec::with_capacity(complete.len());
        for slot in &complete {
            let Some((Slot { attempt, is_dropped, .. }, _)) = self.slots.remove(*slot) else {
                continue;
            };
            attempts.push(attempt);
            counts.push(u32::from(!is_dropped));
            if !is_dropped {
                kept.push(*slot);
            }
        }
        let mut columns = Vec::with_capacity(self.results.fields().len());
        for (number, branch) in self.branches.iter_mut().enumerate() {
            let place = |slot: &u32| self.places[*slot as usize * count + number];
            branch.gather(kept.iter().map(place), &mut columns)?;
            complete.iter().map(place).for_each(|(chunk, _)| branch.release(chunk));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(kept.len()));
        let fields = self.results.fields().iter().zip(&columns);
        // Whether there are nulls where none may be is looked at where all results are.
        let fields = fields
            .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let counts = (kept.len() < attempts.len()).then_some(counts);
        Ok(ResultGroup { counts, ..ResultGroup::one_each(attempts, rows) })
    }
}

impl FanOut<TaskCodec> for RowFanOut {
    fn has_calls(&self) -> bool {
        self.calls.with(|bursts| !bursts.is_empty())
    }

    fn take_calls(&mut self) -> Result<Vec<(usize, RecordBatch)>, TaskError> {
        let bursts = self.calls.with(mem::take);
        let count = self.branches.len();
        let mut inputs = Vec::with_capacity(bursts.len() * count);
        for calls in bursts {
            let rows = self.rows(&calls).map_err(|error| kernel(&error))?;
            inputs.extend((0..count).map(|branch| (branch, rows.clone())));
        }
        Ok(inputs)
    }

    fn accept(&mut self, branch: usize, output: RecordBatch) -> Result<(), TaskError> {
        let count = self.branches.len();
        let of = &mut self.branches[branch];
        let (outcome, slot) = (of.results, output.num_columns().saturating_sub(1));
        if slot != outcome + 1 + usize::from(of.has_info) {
            let message = format!("a branch of {outcome} columns has put out {}", slot + 1);
            return Err(TaskError::Internal(message));
        }
        let slots = output.column(slot).as_primitive::<UInt32Type>().values().clone();
        let outcomes = ArrayRef::clone(output.column(outcome));
        let chunk = of.hold(&output).map_err(|error| kernel(&error))?;
        let has_failures = outcomes.null_count() < outcomes.len();
        let kinds = has_failures.then(|| outcomes.as_struct().column(0).as_string::<i32>());
        for (row, slot) in (0u32..).zip(slots.iter()) {
            let is_dropped = kinds.is_some_and(|kinds| {
                let index = row as usize;
                outcomes.is_valid(index)
                    && (of.on_error == OnError::Drop || kinds.value(index) == NO_RESULT)
            });
            let Some(found) = self.slots.get_mut(*slot) else {
                return Err(TaskError::Internal("a branch has put a row out twice".to_owned()));
            };
            found.missing -= 1;
            found.is_dropped |= is_dropped;
            self.places[*slot as usize * count + branch] = (chunk, row);
            if found.missing == 0 {
                self.complete.push(*slot);
            }
        }
        Ok(())
    }

    fn take_reply(&mut self) -> Result<Option<ReplyGroup>, TaskError> {
        if self.complete.is_empty() {
            return Ok(None);
        }
        let results = self.join().map_err(|error| kernel(&error))?;
        Ok(Some(results.into()))
    }

    fn failure(&self, mut error: TaskError) -> TaskError {
        if let TaskError::Row { row, .. } | TaskError::TimedOut { row, .. } = &mut error
            && let Some((_, slot)) = self.slots.iter().find(|(_, slot)| slot.number == *row)
        {
            *row = slot.ordinal;
        }
        error
    }

    fn held_bytes(&self) -> usize {
        self.branches.iter().map(|it| it.bytes).sum()
    }
}

/// Returns a column of the rows of some calls.
fn gathered<'a>(
    sources: &'a [Arc<InputBatch>],
    calls: &[Call],
    column: impl Fn(&'a InputBatch) -> &'a ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    if let [source] = sources
        && let Some(start) = neighbours(calls.iter().map(|it| it.row as usize))
    {
        return Ok(column(source).slice(start, calls.len()));
    }
    let arrays: Vec<&dyn Array> = sources.iter().map(|it| column(it).as_ref()).collect();
    let rows: Vec<_> = calls.iter().map(|it| (it.batch as usize, it.row as usize)).collect();
    interleave(&arrays, &rows)
}

fn kernel(error: &ArrowError) -> TaskError {
    TaskError::Internal(format!("rows of several functions cannot be put together: {error}"))
}
