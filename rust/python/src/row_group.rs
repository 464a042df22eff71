// SPDX-License-Identifier: Apache-2.0
//! Rows of calls as they lie in input batches, for a function that takes record batches.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use sparkawait_arrow::{InputBatch, rows_of};
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use sparkawait_macros::guarded;
use sparkawait_task::function::{Call, Calls};

use crate::error::internal_error;

/// Attempts of rows that one call is made for; none of its rows is touched before it is.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct RowGroup {
    /// Of the rows of one channel, which are seen by the loop's thread only.
    calls: Mutex<Calls>,
}

impl From<Calls> for RowGroup {
    fn from(calls: Calls) -> Self {
        Self { calls: Mutex::new(calls) }
    }
}

impl RowGroup {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attempts(&self) -> Vec<AttemptId> {
        self.calls().calls.iter().map(|call| call.attempt).collect()
    }
}

/// Returns calls by their channels, in the order in which these come first.
pub(crate) fn by_channel(calls: Calls) -> Vec<(Option<u64>, RowGroup)> {
    if calls.batches.iter().all(|it| it.channels.is_empty()) {
        return vec![(None, calls.into())];
    }
    let channels: HashSet<_> = calls.calls.iter().map(|call| calls.channel(call)).collect();
    if channels.len() < 2 {
        let channel = channels.into_iter().next().flatten();
        return vec![(channel.map(Key::as_u64), calls.into())];
    }
    let mut parts: Vec<(Option<Key>, Vec<Call>)> = Vec::with_capacity(channels.len());
    for call in &calls.calls {
        let channel = calls.channel(call);
        match parts.iter_mut().find(|(it, _)| *it == channel) {
            Some((_, part)) => part.push(*call),
            None => parts.push((channel, vec![*call])),
        }
    }
    let group = |part| RowGroup::from(Calls { batches: calls.batches.clone(), calls: part });
    parts.into_iter().map(|(key, part)| (key.map(Key::as_u64), group(part))).collect()
}

/// Returns `calls` as rows of batches, each batch once.
fn places(calls: &Calls) -> (Vec<&InputBatch>, Vec<(usize, usize)>) {
    let batches = calls.batches.iter().map(Arc::as_ref).collect();
    let rows = calls.calls.iter().map(|call| (call.batch as usize, call.row as usize)).collect();
    (batches, rows)
}

/// Numbers an attempt: unique among the attempts that may be in flight together.
pub(crate) fn number_of(attempt: AttemptId) -> u64 {
    // An entry's number has a slot and a generation, or a sequence; attempts of
    // one entry are few, so 7 bits of the attempt keep neighbours apart, and one
    // more the two calls of an attempt.
    let number = u64::from(attempt.attempt & 0x7F) | u64::from(attempt.is_hedge()) << 7;
    attempt.entry.as_u64().wrapping_shl(8) | number
}

#[guarded]
#[pymethods]
impl RowGroup {
    fn __len__(&self) -> usize {
        self.calls().calls.len()
    }

    /// Puts the rows of another group behind those of this one.
    fn extend(&self, other: &Bound<'_, Self>) {
        // Not both at a time, should it be the same.
        let (batches, others) = {
            let other = other.get().calls();
            (other.batches.clone(), other.calls.clone())
        };
        let mut calls = self.calls();
        // Where this group ends within the batch that the other one begins in, it stays one batch:
        // rows that are neighbours in it are so here.
        let joins =
            calls.batches.last().zip(batches.first()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        let first = u32::try_from(calls.batches.len()).unwrap_or(u32::MAX) - u32::from(joins);
        calls.batches.extend(batches.into_iter().skip(usize::from(joins)));
        calls.calls.extend(others.iter().map(|it| Call { batch: it.batch + first, ..*it }));
    }

    /// Removes the first rows, and returns them as a group of their own.
    fn split(&self, rows: usize) -> Self {
        let mut calls = self.calls();
        let rows = rows.min(calls.calls.len());
        let first = calls.calls.drain(..rows).collect();
        Calls { batches: calls.batches.clone(), calls: first }.into()
    }

    /// Forgets rows by the numbers of their attempts; returns how many are left.
    fn drop(&self, numbers: HashSet<u64>) -> usize {
        let mut calls = self.calls();
        calls.calls.retain(|call| !numbers.contains(&number_of(call.attempt)));
        calls.calls.len()
    }

    /// Returns the numbers of the attempts.
    fn numbers(&self) -> Vec<u64> {
        self.calls().calls.iter().map(|call| number_of(call.attempt)).collect()
    }

    /// Removes rows by the numbers of their attempts, and returns them as a group of their own.
    fn take(&self, numbers: HashSet<u64>) -> Self {
        let mut calls = self.calls();
        let is_taken = |call: &Call| numbers.contains(&number_of(call.attempt));
        let (taken, left) = calls.calls.drain(..).partition(is_taken);
        calls.calls = left;
        Calls { batches: calls.batches.clone(), calls: taken }.into()
    }

    /// Returns the rows as a record batch: without a copy where they are neighbours in one batch.
    fn record_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let gathered = {
            let calls = self.calls();
            let (batches, rows) = places(&calls);
            rows_of(&batches, &rows)
        };
        gathered.map_err(|error| internal_error(&error.to_string()))?.to_pyarrow(py)
    }
}
