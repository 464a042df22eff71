// SPDX-License-Identifier: Apache-2.0
//! The rows that wait for a free connection.

use std::collections::{HashSet, VecDeque};

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat, filter, interleave};
use serde::Deserialize;
use sparkawait_core::operator::AttemptId;

use crate::error::TaskError;
use crate::function::Calls;

/// What becomes of rows with a null among their arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NullArgs {
    /// They find nothing, without a call.
    #[default]
    Miss,
    /// The statement is run for them too.
    Call,
}

/// Rows whose arguments were copied out of their batches, oldest first.
pub(crate) struct Waiting {
    /// Index of the column of each argument.
    columns: Vec<usize>,
    null_args: NullArgs,
    segments: VecDeque<Keys>,
    count: usize,
}

/// Calls and their arguments.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) attempts: Vec<AttemptId>,
    /// A column for each argument, with a row for each call.
    pub(crate) arguments: Vec<ArrayRef>,
}

impl Waiting {
    /// Makes an empty queue of rows with arguments in `columns`.
    pub(crate) fn new(columns: Vec<usize>, null_args: NullArgs) -> Self {
        Self { columns, null_args, segments: VecDeque::new(), count: 0 }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether no row waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the rows of a burst, but for those that a null argument makes a miss: these are returned.
    pub(crate) fn add(&mut self, calls: &Calls) -> Result<Vec<AttemptId>, TaskError> {
        let mut null_keys = Vec::new();
        let mut attempts = Vec::with_capacity(calls.calls.len());
        let mut rows = Vec::with_capacity(calls.calls.len());
        let nulls = calls.batches.iter().map(|it| {
            let columns = self.columns.iter().map(|column| it.batch.column(*column));
            columns.filter_map(Array::logical_nulls).collect::<Vec<_>>()
        });
        let nulls: Vec<Vec<NullBuffer>> = nulls.collect();
        for call in &calls.calls {
            let (batch, row) = (call.batch as usize, call.row as usize);
            let is_null = || nulls[batch].iter().any(|it| it.is_null(row));
            if self.null_args == NullArgs::Miss && is_null() {
                null_keys.push(call.attempt);
            } else {
                attempts.push(call.attempt);
                rows.push((batch, row));
            }
        }
        if attempts.is_empty() {
            return Ok(null_keys);
        }
        let arguments = self.columns.iter().map(|column| {
            let parts: Vec<&dyn Array> =
                calls.batches.iter().map(|it| it.batch.column(*column).as_ref()).collect();
            interleave(&parts, &rows)
        });
        let arguments = arguments.collect::<Result<_, _>>().map_err(|error| internal(&error))?;
        self.count += attempts.len();
        self.segments.push_back(Keys { attempts, arguments });
        Ok(null_keys)
    }

    /// Removes calls that nobody waits for any more.
    pub(crate) fn remove(&mut self, cancelled: &HashSet<AttemptId>) {
        for keys in &mut self.segments {
            let keep: Vec<bool> =
                keys.attempts.iter().map(|attempt| !cancelled.contains(attempt)).collect();
            if keep.contains(&false) {
                // Left as it is if that fails: an answer to a cancelled call does no harm.
                if let Ok(kept) = keys.keep(keep) {
                    *keys = kept;
                }
            }
        }
        self.segments.retain(|keys| !keys.attempts.is_empty());
        self.count = self.segments.iter().map(|keys| keys.attempts.len()).sum();
    }

    /// Removes and returns the `rows` oldest rows, or all there are.
    pub(crate) fn take(&mut self, rows: usize) -> Result<Keys, TaskError> {
        let mut parts = Vec::new();
        let mut missing = rows.min(self.count);
        self.count -= missing;
        while missing > 0
            && let Some(keys) = self.segments.pop_front()
        {
            let length = keys.attempts.len();
            if length > missing {
                self.segments.push_front(keys.slice(missing, length - missing));
                parts.push(keys.slice(0, missing));
                missing = 0;
            } else {
                missing -= length;
                parts.push(keys);
            }
        }
        Keys::concat(&parts, self.columns.len())
    }
}

impl Keys {
    /// Returns the calls whose flag is set.
    pub(crate) fn keep(&self, flags: Vec<bool>) -> Result<Self, TaskError> {
        let attempts = self.attempts.iter().zip(&flags);
        let attempts = attempts.filter(|(_, keep)| **keep).map(|(attempt, _)| *attempt).collect();
        let flags = BooleanArray::from(flags);
        let arguments = self.arguments.iter().map(|column| filter(column, &flags));
        let arguments = arguments.collect::<Result<_, _>>().map_err(|error| internal(&error))?;
        Ok(Self { attempts, arguments })
    }

    /// Returns the calls in two parts.
    pub(crate) fn halves(&self) -> (Self, Self) {
        let (half, length) = (self.attempts.len() / 2, self.attempts.len());
        (self.slice(0, half), self.slice(half, length - half))
    }

    fn slice(&self, from: usize, length: usize) -> Self {
        Self {
            attempts: self.attempts[from..from + length].to_vec(),
            arguments: self.arguments.iter().map(|column| column.slice(from, length)).collect(),
        }
    }

    fn concat(parts: &[Self], columns: usize) -> Result<Self, TaskError> {
        if let [only] = parts {
            return Ok(only.clone());
        }
        let attempts = parts.iter().flat_map(|keys| keys.attempts.iter().copied()).collect();
        let arguments = (0..columns).map(|column| {
            let arrays: Vec<&dyn Array> =
                parts.iter().map(|keys| keys.arguments[column].as_ref()).collect();
            concat(&arrays)
        });
        let arguments = arguments.collect::<Result<_, _>>().map_err(|error| internal(&error))?;
        Ok(Self { attempts, arguments })
    }
}

fn internal(error: &arrow::error::ArrowError) -> TaskError {
    TaskError::Internal(format!("arguments of a statement cannot be copied: {error}"))
}
