// SPDX-License-Identifier: Apache-2.0
//! What a query found for each of its calls, put into columns as it comes.
//!
//! Servers mostly answer in the order of the calls. Then a row that belongs to
//! a later call than the last one says that the calls in between found nothing,
//! and their nulls go where they belong. Where the order is another one (a hash
//! join of the planner), the rows are put into it at the end.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use sparkawait_task::error::{CallFailure, TaskError};
use tokio_postgres::Row;

use crate::lookup::How;
use crate::postgres::columns::Rows;
use crate::postgres::failure::Fault;
use crate::postgres::outputs::Form;

/// Owner of a row of nulls.
const NOBODY: u32 = u32::MAX;

/// The rows of some calls, numbered from 0.
pub(crate) struct FoundRows {
    rows: Rows,
    how: How,
    /// The call that each row belongs to.
    owners: Vec<u32>,
    /// Rows that each call found.
    counts: Vec<u32>,
    /// By ascending call.
    failures: Vec<(usize, Fault)>,
    /// The last call that has a row; those before it got theirs, or nulls.
    last: usize,
    /// Whether all rows came in the order of their calls.
    is_in_order: bool,
    bytes: usize,
}

/// The outcome of a query.
pub(crate) struct Outcome {
    /// In the order of the calls; with a row of nulls for those without, if that is wanted.
    pub(crate) rows: RecordBatch,
    /// Rows that each call found.
    pub(crate) counts: Vec<u32>,
    /// The calls that failed, ascending; they have no rows.
    pub(crate) failures: Vec<(usize, Fault)>,
    /// The rows that do not fit, ascending.
    pub(crate) bad: Vec<(usize, CallFailure)>,
}

impl FoundRows {
    /// Makes the outcome of `calls` calls; nothing is known about them yet.
    pub(crate) fn new(schema: &SchemaRef, forms: &[Form], calls: usize, how: How) -> Self {
        Self {
            rows: Rows::new(schema, forms, calls),
            how,
            owners: Vec::with_capacity(calls),
            counts: vec![0; calls],
            failures: Vec::new(),
            last: 0,
            is_in_order: true,
            bytes: 0,
        }
    }

    /// Returns the number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.counts.len()
    }

    /// Returns the size of the rows, as they were sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the last call that has a row, if those before it are known to have theirs.
    pub(crate) fn reached(&self) -> Option<usize> {
        self.is_in_order.then_some(self.last)
    }

    /// Forgets the calls behind the first `calls`; nothing is known about them yet.
    pub(crate) fn truncate(&mut self, calls: usize) {
        self.counts.truncate(calls);
    }

    /// Appends a row of a call, whose result columns begin at `first`.
    pub(crate) fn push(&mut self, call: usize, row: &Row, first: usize) {
        self.reach(call);
        self.rows.push(row, first);
        self.bytes += row.raw_size_bytes();
        self.own(call);
    }

    /// Says that a call failed, whatever it found before.
    pub(crate) fn fail(&mut self, call: usize, failure: Fault) {
        self.reach(call);
        if self.counts[call] > 0 {
            // Its rows are left out at the end.
            self.is_in_order = false;
        }
        self.failures.push((call, failure));
    }

    /// Returns everything in the order of the calls.
    pub(crate) fn finish(mut self) -> Result<Outcome, TaskError> {
        self.reach(self.counts.len());
        let (rows, bad) = self.rows.finish()?;
        for (call, _) in &self.failures {
            self.counts[*call] = 0;
        }
        let outcome = Outcome { rows, counts: self.counts, failures: self.failures, bad };
        if self.is_in_order { Ok(outcome) } else { outcome.sorted(&self.owners, self.how) }
    }

    /// Appends nulls for the calls before `call` that found nothing.
    fn reach(&mut self, call: usize) {
        if call < self.last {
            self.is_in_order = false;
        }
        if !self.is_in_order {
            return;
        }
        if self.how == How::Left {
            for before in self.last..call {
                let failed = self.failures.last().is_some_and(|(last, _)| *last == before);
                if self.counts[before] == 0 && !failed {
                    self.rows.push_nulls();
                    self.owners.push(NOBODY);
                }
            }
        }
        self.last = call;
    }

    fn own(&mut self, call: usize) {
        self.counts[call] += 1;
        self.owners.push(u32::try_from(call).unwrap_or(NOBODY));
    }
}

impl Outcome {
    /// Puts the rows into the order of their calls; those of one call keep theirs.
    fn sorted(self, owners: &[u32], how: How) -> Result<Self, TaskError> {
        let Self { rows, counts, failures, bad } = self;
        let mut failed = failures.iter().map(|(call, _)| *call).peekable();
        // Where the next row of each call goes.
        let (mut places, mut end) = (Vec::with_capacity(counts.len()), 0);
        for (call, count) in counts.iter().enumerate() {
            places.push(end);
            let has_nulls = failed.next_if_eq(&call).is_none() && how == How::Left;
            end += if has_nulls { (*count).max(1) as usize } else { *count as usize };
        }
        let mut sources = vec![None; end];
        // The new place of each old row.
        let mut moved = vec![None; owners.len()];
        for (row, owner) in owners.iter().enumerate() {
            let call = *owner as usize;
            // Rows of nulls are made here, those of failed calls are left out.
            if counts.get(call).is_some_and(|count| *count > 0) {
                sources[places[call]] = u32::try_from(row).ok();
                moved[row] = Some(places[call]);
                places[call] += 1;
            }
        }
        let rows = take_record_batch(&rows, &UInt32Array::from(sources))
            .map_err(|error| TaskError::Internal(format!("rows cannot be sorted: {error}")))?;
        let bad = bad.into_iter().filter_map(|(row, failure)| Some((moved[row]?, failure)));
        let mut bad: Vec<_> = bad.collect();
        bad.sort_by_key(|(row, _)| *row);
        Ok(Self { rows, counts, failures, bad })
    }
}
