// SPDX-License-Identifier: Apache-2.0
//! The rows that wait for a free connection.

use std::collections::VecDeque;

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::interleave;
use serde::Deserialize;
use sparkawait_arrow::bytes_of_values;
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::Calls;

use crate::lines::{Lines, Rows};
use crate::postgres::keys::{Keys, internal};

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

/// How much there is at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Rows of a query.
    pub(crate) rows: usize,
    /// Bytes of the arguments of a query, unless it is of one row.
    pub(crate) bytes: usize,
    /// Bytes of the arguments of a row.
    pub(crate) row_bytes: usize,
}

/// Calls that no query is sent for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unasked {
    /// Those that a null argument makes a miss.
    pub(crate) null_keys: Vec<AttemptId>,
    /// Those whose arguments are larger than any may be.
    pub(crate) too_large: Vec<AttemptId>,
}

/// How rows wait: as the arguments of their queries.
pub(crate) struct Backlog {
    /// Index of the column of each argument.
    columns: Vec<usize>,
    null_args: NullArgs,
    most: Most,
}

/// The rows of a channel that wait.
#[derive(Default)]
pub(crate) struct Segments {
    /// Oldest first.
    segments: VecDeque<Keys>,
    /// In all segments.
    rows: usize,
}

impl Rows for Segments {
    fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

impl Backlog {
    /// Has rows wait with arguments in `columns`.
    pub(crate) fn new(columns: Vec<usize>, null_args: NullArgs, most: Most) -> Self {
        Self { columns, null_args, most }
    }

    /// Adds the rows of a burst to the lines, except those that it returns: they need no query.
    pub(crate) fn add(
        &self,
        calls: &Calls,
        lines: &mut Lines<Segments>,
    ) -> Result<Unasked, TaskError> {
        let mut unasked = Unasked::default();
        let mut attempts = Vec::with_capacity(calls.calls.len());
        let mut rows = Vec::with_capacity(calls.calls.len());
        let has_channels = calls.batches.iter().any(|it| !it.channels.is_empty());
        let mut channels = Vec::new();
        let nulls = calls.batches.iter().map(|it| {
            let columns = self.columns.iter().map(|column| it.batch.column(*column));
            columns.filter_map(Array::logical_nulls).collect::<Vec<_>>()
        });
        let nulls: Vec<Vec<NullBuffer>> = nulls.collect();
        // More than is copied of them.
        let bytes: usize =
            calls.batches.iter().map(|it| self.bytes(&it.batch, 0, it.batch.num_rows())).sum();
        for call in &calls.calls {
            let (batch, row) = (call.batch as usize, call.row as usize);
            let is_null = || nulls[batch].iter().any(|it| it.is_null(row));
            let is_too_large = || {
                bytes > self.most.row_bytes
                    && self.bytes(&calls.batches[batch].batch, row, 1) > self.most.row_bytes
            };
            if self.null_args == NullArgs::Miss && is_null() {
                unasked.null_keys.push(call.attempt);
            } else if is_too_large() {
                unasked.too_large.push(call.attempt);
            } else {
                attempts.push(call.attempt);
                rows.push((batch, row));
                if has_channels {
                    channels.push(calls.channel(call));
                }
            }
        }
        if has_channels {
            // The rows of a channel together, in their order: all are copied at once.
            let mut order: Vec<usize> = (0..channels.len()).collect();
            order.sort_by_key(|row| channels[*row]);
            attempts = order.iter().map(|row| attempts[*row]).collect();
            rows = order.iter().map(|row| rows[*row]).collect();
            channels.sort_unstable();
        }
        let mut from = 0;
        while from < rows.len() {
            let to =
                if bytes > self.most.bytes { self.end(calls, &rows, from) } else { rows.len() };
            let keys = self.copy(calls, &rows[from..to], attempts[from..to].to_vec())?;
            if has_channels {
                let mut at = 0;
                for same in channels[from..to].chunk_by(|one, other| one == other) {
                    push(lines, same[0], keys.slice(at, same.len()));
                    at += same.len();
                }
            } else {
                push(lines, None, keys);
            }
            from = to;
        }
        Ok(unasked)
    }

    /// Returns the bytes of the arguments of some rows.
    fn bytes(&self, batch: &RecordBatch, row: usize, rows: usize) -> usize {
        let columns = self.columns.iter().map(|column| batch.column(*column));
        columns.map(|column| bytes_of_values(column.as_ref(), row, rows)).sum()
    }

    /// Returns the end of the rows that are copied together, from the row at `from` on.
    fn end(&self, calls: &Calls, rows: &[(usize, usize)], from: usize) -> usize {
        let mut bytes = 0;
        let fits = |(batch, row): &&(usize, usize)| {
            bytes += self.bytes(&calls.batches[*batch].batch, *row, 1);
            bytes <= self.most.bytes
        };
        from + rows[from..].iter().take_while(fits).count().max(1)
    }

    /// Copies the arguments of some rows out of their batches.
    fn copy(
        &self,
        calls: &Calls,
        rows: &[(usize, usize)],
        attempts: Vec<AttemptId>,
    ) -> Result<Keys, TaskError> {
        let arguments = self.columns.iter().map(|column| {
            let parts: Vec<&dyn Array> =
                calls.batches.iter().map(|it| it.batch.column(*column).as_ref()).collect();
            interleave(&parts, rows)
        });
        let arguments = arguments.collect::<Result<_, _>>().map_err(|error| internal(&error))?;
        Ok(Keys { attempts, arguments })
    }

    /// Removes the rows of a query, where `queries` of them are for those that wait.
    pub(crate) fn take(&self, rows: &mut Segments, queries: usize) -> Result<Keys, TaskError> {
        let share = rows.rows.div_ceil(queries).min(self.most.rows);
        Keys::concat(&rows.take(share, self.most.bytes), self.columns.len())
    }
}

/// Adds rows of a channel.
fn push(lines: &mut Lines<Segments>, channel: Option<Key>, keys: Keys) {
    lines.change(channel, |line| {
        line.rows += keys.len();
        line.segments.push_back(keys);
    });
}

impl Segments {
    /// Removes calls that nobody waits for any more; they are sorted.
    pub(crate) fn remove(&mut self, cancelled: &[AttemptId]) {
        for keys in &mut self.segments {
            let is_wanted = |attempt| cancelled.binary_search(attempt).is_err();
            let keep: Vec<bool> = keys.attempts.iter().map(is_wanted).collect();
            if keep.contains(&false) {
                // Left as it is if that fails: an answer to a cancelled call does no harm.
                if let Ok(kept) = keys.keep(keep) {
                    *keys = kept;
                }
            }
        }
        self.segments.retain(|keys| keys.len() > 0);
        self.rows = self.segments.iter().map(Keys::len).sum();
    }

    /// Removes the `rows` oldest rows, or all there are, as far as they come to `most_bytes`.
    fn take(&mut self, rows: usize, most_bytes: usize) -> Vec<Keys> {
        let mut parts = Vec::new();
        let (mut missing, mut left) = (rows.min(self.rows), most_bytes);
        while missing > 0
            && let Some(keys) = self.segments.pop_front()
        {
            let (length, bytes) = (keys.len(), keys.bytes(0, keys.len()));
            let fit = if bytes <= left { length } else { keys.rows_within(left) };
            let taken = fit.min(missing).max(usize::from(parts.is_empty()));
            if taken < length {
                self.segments.push_front(keys.slice(taken, length - taken));
            }
            if taken > 0 {
                parts.push(if taken < length { keys.slice(0, taken) } else { keys });
            }
            self.rows -= taken;
            missing -= taken;
            left = left.saturating_sub(bytes);
            if fit < length {
                break;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests;
