// SPDX-License-Identifier: Apache-2.0
//! Calls, with the arguments that their statement is run for.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::{concat, filter};
use arrow::error::ArrowError;
use sparkawait_arrow::bytes_of_values;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;

use crate::requests::AwaitedCalls;

/// Calls and their arguments, which were copied out of the input batches.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) attempts: Vec<AttemptId>,
    /// A column for each argument, with a row for each call.
    pub(crate) arguments: Vec<ArrayRef>,
}

impl Keys {
    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Returns the bytes of the arguments of `length` calls, beginning with number `from`.
    pub(crate) fn bytes(&self, from: usize, length: usize) -> usize {
        self.arguments.iter().map(|it| bytes_of_values(it.as_ref(), from, length)).sum()
    }

    /// Returns how many calls from the first on have arguments of `bytes` bytes at most.
    pub(crate) fn rows_within(&self, bytes: usize) -> usize {
        let mut taken = 0;
        let fits = |row: &usize| {
            taken += self.bytes(*row, 1);
            taken <= bytes
        };
        (0..self.len()).take_while(fits).count()
    }

    /// Returns the calls whose flag is set.
    pub(crate) fn keep(&self, flags: Vec<bool>) -> Result<Self, TaskError> {
        let attempts = self.attempts.iter().zip(&flags);
        let attempts = attempts.filter(|(_, keep)| **keep).map(|(attempt, _)| *attempt).collect();
        let flags = BooleanArray::from(flags);
        let arguments = self.arguments.iter().map(|column| filter(column, &flags));
        let arguments = arguments.collect::<Result<_, _>>().map_err(|error| internal(&error))?;
        Ok(Self { attempts, arguments })
    }

    /// Returns the calls that somebody waits for.
    pub(crate) fn awaited(self, wanted: &AwaitedCalls) -> Result<Self, TaskError> {
        match wanted.flags(&self.attempts) {
            Some(flags) => self.keep(flags),
            None => Ok(self),
        }
    }

    /// Returns `length` calls, beginning with number `from`.
    pub(crate) fn slice(&self, from: usize, length: usize) -> Self {
        Self {
            attempts: self.attempts[from..from + length].to_vec(),
            arguments: self.arguments.iter().map(|column| column.slice(from, length)).collect(),
        }
    }

    /// Returns the calls of all `parts`; each part has `columns` arguments.
    pub(crate) fn concat(parts: &[Self], columns: usize) -> Result<Self, TaskError> {
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

/// Makes the error of a task whose arguments cannot be copied.
pub(crate) fn internal(error: &ArrowError) -> TaskError {
    TaskError::Internal(format!("arguments of a statement cannot be copied: {error}"))
}
