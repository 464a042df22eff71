// SPDX-License-Identifier: Apache-2.0
//! The rows that wait for a free connection.

use std::collections::{HashMap, HashSet, VecDeque};

use arrow::array::Array;
use arrow::buffer::NullBuffer;
use arrow::compute::interleave;
use serde::Deserialize;
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::Calls;

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

/// Rows channel by channel: those of a query are of one, and it has a bounded number of queries.
///
/// Without channels all rows are of the same, `None`.
pub(crate) struct Waiting {
    /// Index of the column of each argument.
    columns: Vec<usize>,
    null_args: NullArgs,
    /// Most rows of a query.
    most_rows: usize,
    /// Most queries of a channel at a time.
    most_queries: usize,
    /// The channels that have rows or queries.
    lines: HashMap<Option<Key>, Line>,
    /// Those that have rows and may have another query, each once, by whose turn it is.
    ready: VecDeque<Option<Key>>,
}

/// The rows and queries of a channel.
#[derive(Default)]
struct Line {
    /// Oldest first.
    segments: VecDeque<Keys>,
    /// In all segments.
    rows: usize,
    queries: usize,
    /// Whether it is among those that may have another query.
    is_ready: bool,
}

/// The rows of a query.
pub(crate) struct Batch {
    pub(crate) channel: Option<Key>,
    pub(crate) keys: Keys,
}

impl Waiting {
    /// Makes room for rows with arguments in `columns`.
    ///
    /// A query gets at most `most_rows`, and a channel has at most `most_queries` at a time.
    pub(crate) fn new(
        columns: Vec<usize>,
        null_args: NullArgs,
        most_rows: usize,
        most_queries: usize,
    ) -> Self {
        let (lines, ready) = (HashMap::new(), VecDeque::new());
        Self { columns, null_args, most_rows, most_queries, lines, ready }
    }

    /// Returns whether there are rows for a query that may be sent.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds the rows of a burst, but for those that a null argument makes a miss: these are returned.
    pub(crate) fn add(&mut self, calls: &Calls) -> Result<Vec<AttemptId>, TaskError> {
        let mut null_keys = Vec::new();
        let mut attempts = Vec::with_capacity(calls.calls.len());
        let mut rows = Vec::with_capacity(calls.calls.len());
        let has_channels = calls.batches.iter().any(|it| !it.channels.is_empty());
        let mut channels = Vec::new();
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
                if has_channels {
                    channels.push(calls.channel(call));
                }
            }
        }
        if attempts.is_empty() {
            return Ok(null_keys);
        }
        if has_channels {
            // The rows of a channel together, in their order: all are copied at once.
            let mut order: Vec<usize> = (0..channels.len()).collect();
            order.sort_by_key(|row| channels[*row]);
            attempts = order.iter().map(|row| attempts[*row]).collect();
            rows = order.iter().map(|row| rows[*row]).collect();
            channels.sort_unstable();
        }
        let arguments = self.columns.iter().map(|column| {
            let parts: Vec<&dyn Array> =
                calls.batches.iter().map(|it| it.batch.column(*column).as_ref()).collect();
            interleave(&parts, &rows)
        });
        let arguments = arguments.collect::<Result<_, _>>().map_err(|error| internal(&error))?;
        let keys = Keys { attempts, arguments };
        if has_channels {
            let mut from = 0;
            for same in channels.chunk_by(|one, other| one == other) {
                self.push(same[0], keys.slice(from, same.len()));
                from += same.len();
            }
        } else {
            self.push(None, keys);
        }
        Ok(null_keys)
    }

    /// Removes calls that nobody waits for any more.
    pub(crate) fn remove(&mut self, cancelled: &HashSet<AttemptId>) {
        for line in self.lines.values_mut() {
            for keys in &mut line.segments {
                let keep: Vec<bool> =
                    keys.attempts.iter().map(|attempt| !cancelled.contains(attempt)).collect();
                if keep.contains(&false) {
                    // Left as it is if that fails: an answer to a cancelled call does no harm.
                    if let Ok(kept) = keys.keep(keep) {
                        *keys = kept;
                    }
                }
            }
            line.segments.retain(|keys| keys.len() > 0);
            line.rows = line.segments.iter().map(Keys::len).sum();
            line.is_ready &= line.rows > 0;
        }
        self.lines.retain(|_, line| line.rows > 0 || line.queries > 0);
        self.ready.retain(|channel| self.lines.get(channel).is_some_and(|line| line.is_ready));
    }

    /// Removes the rows of a query, of the channel whose turn it is; `None` if no query may be sent.
    ///
    /// `free` connections are left for this query and for those after it: the rows that wait are
    /// spread over them, but for those that other channels get.
    pub(crate) fn take(&mut self, free: usize) -> Option<Result<Batch, TaskError>> {
        let ready = self.ready.len();
        let channel = self.ready.pop_front()?;
        let line = self.lines.get_mut(&channel)?;
        let queries = (free / ready).min(self.most_queries - line.queries).max(1);
        let parts = line.take(line.rows.div_ceil(queries).min(self.most_rows));
        line.queries += 1;
        line.is_ready = false;
        self.make_ready(channel);
        Some(Keys::concat(&parts, self.columns.len()).map(|keys| Batch { channel, keys }))
    }

    /// Says that a query of `channel` has ended.
    pub(crate) fn ended(&mut self, channel: Option<Key>) {
        let Some(line) = self.lines.get_mut(&channel) else { return };
        line.queries -= 1;
        if line.rows == 0 && line.queries == 0 && channel.is_some() {
            self.lines.remove(&channel);
        } else {
            self.make_ready(channel);
        }
    }

    fn push(&mut self, channel: Option<Key>, keys: Keys) {
        let line = self.lines.entry(channel).or_default();
        line.rows += keys.len();
        line.segments.push_back(keys);
        self.make_ready(channel);
    }

    fn make_ready(&mut self, channel: Option<Key>) {
        let Some(line) = self.lines.get_mut(&channel) else { return };
        if !line.is_ready && line.rows > 0 && line.queries < self.most_queries {
            line.is_ready = true;
            self.ready.push_back(channel);
        }
    }
}

impl Line {
    /// Removes the `rows` oldest rows, or all there are.
    fn take(&mut self, rows: usize) -> Vec<Keys> {
        let mut parts = Vec::new();
        let mut missing = rows.min(self.rows);
        self.rows -= missing;
        while missing > 0
            && let Some(keys) = self.segments.pop_front()
        {
            let length = keys.len();
            if length > missing {
                self.segments.push_front(keys.slice(missing, length - missing));
                parts.push(keys.slice(0, missing));
                missing = 0;
            } else {
                missing -= length;
                parts.push(keys);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests;
