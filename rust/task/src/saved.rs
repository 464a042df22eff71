// SPDX-License-Identifier: Apache-2.0
//! What an operator holds, as one batch that can be kept elsewhere.
//!
//! ```text
//!   columns of the rows, and the hidden ones behind them  |  the last column, a struct
//!   ------------------------------------------------------+---------------------------------------
//!   rows that were admitted and not emitted, in the       |  phase, attempts, times left, failure,
//!   order in which they arrived                           |  results: a list of rows of results
//!   rows that were not admitted yet                       |  phase "input"
//! ```
//!
//! The struct is found by its place, so no column of a row can be taken for it.

mod row_state;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use sparkawait_core::ErrorKind;

use crate::error::TaskError;
use row_state::RowStates;
pub(crate) use row_state::{Phase, RowState};

/// The last column.
const STATE: &str = "sparkawait";

/// Everything that an operator admitted and did not emit, and its input that it did not admit.
#[derive(Clone)]
pub struct SavedOperator {
    batch: RecordBatch,
    /// Its last column.
    states: RowStates,
}

impl SavedOperator {
    /// Puts `rows` together with how far each of them is. `results` are those of all rows, one
    /// after the other.
    pub(crate) fn new(
        rows: &RecordBatch,
        states: &[RowState],
        results: &StructArray,
    ) -> Result<Self, ArrowError> {
        let state: ArrayRef = Arc::new(row_state::column_of(states, results)?);
        let schema = rows.schema_ref();
        let field = Arc::new(Field::new(STATE, state.data_type().clone(), false));
        let fields: Vec<FieldRef> = schema.fields().iter().cloned().chain([field]).collect();
        let columns = rows.columns().iter().cloned().chain([state]).collect();
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        let batch = RecordBatch::try_new(Arc::new(schema), columns)?;
        Self::read(batch).map_err(|error| ArrowError::ExternalError(Box::new(error)))
    }

    /// Takes a batch for what an operator has saved.
    ///
    /// # Errors
    ///
    /// It is another batch.
    pub fn read(batch: RecordBatch) -> Result<Self, TaskError> {
        let states = batch.columns().last().and_then(RowStates::read);
        let states = states.ok_or_else(|| damaged("a batch does not tell how far its rows are"))?;
        Ok(Self { batch, states })
    }

    /// Returns all of it, for [`read`](Self::read).
    pub const fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The number of rows that have no outcome.
    pub fn pending(&self) -> usize {
        self.phases().filter(|it| matches!(it, Phase::Input | Phase::Pending)).count()
    }

    /// The number of these that were called at that moment.
    pub fn called(&self) -> usize {
        self.states.called()
    }

    /// The number of rows that have one.
    pub fn completed(&self) -> usize {
        self.rows() - self.pending()
    }

    /// How often each row was restored before.
    pub fn restarts(&self) -> &[u32] {
        self.states.restarts()
    }

    /// How far each row is.
    pub(crate) fn phases(&self) -> impl Iterator<Item = Phase> {
        self.states.phases()
    }

    /// How far the row at a position is; `None` if the state tells too little of it.
    pub(crate) fn state(&self, row: usize) -> Option<RowState> {
        self.states.state(row)
    }

    /// The results of all rows, one after the other; `None` if there are none.
    pub(crate) fn results(&self) -> Option<RecordBatch> {
        self.states.results()
    }

    /// The rows as they came.
    pub(crate) fn columns(&self) -> Result<RecordBatch, ArrowError> {
        let count = self.batch.num_columns().saturating_sub(1);
        let schema: SchemaRef = self.batch.schema();
        let fields: Vec<FieldRef> = schema.fields().iter().take(count).cloned().collect();
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows()));
        let columns = self.batch.columns().iter().take(count).cloned().collect();
        RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
    }
}

// Shows sizes only: row contents do not belong in logs.
sparkawait_core::opaque_debug!(SavedOperator, pending: pending(), completed: completed());

/// Says that what was saved is not what an operator saves.
pub(crate) fn damaged(message: &str) -> TaskError {
    TaskError::Saved { kind: ErrorKind::SnapshotDamaged, message: message.to_owned() }
}
