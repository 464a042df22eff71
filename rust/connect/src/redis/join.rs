// SPDX-License-Identifier: Apache-2.0
//! Rows whose keys are asked for in several commands, put together again.
//!
//! ```text
//!   row 7:  a -> node 1     MGET a   -- job of node 1 --> cell 0 --+
//!           b -> node 2     MGET b c -- job of node 2 --> cell 1 --+--> row 7 leaves
//!           c -> node 2                               --> cell 2 --+
//!           d is null                                     cell 3
//! ```
//!
//! A job keeps what it was answered until it is done, and then takes the lock
//! once; the rows that are whole by then leave together, in as many replies as they are large.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{GROUP_BYTES, ReplyGroup};

use crate::failure::Failure;
use crate::lookup::LookupReply;
use crate::text::TextColumn;

use super::failure::{self, misfit};
use super::resp::Reply;
use super::spec::Spec;

/// The columns of one row that a command asks for.
#[derive(Clone, Debug)]
struct Part {
    row: usize,
    columns: Range<usize>,
}

/// What the commands of one job ask for, in their order.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    columns: Vec<usize>,
}

impl Parts {
    /// Appends a command that asks for some columns of a row.
    pub(super) fn push(&mut self, row: usize, columns: impl IntoIterator<Item = usize>) {
        let start = self.columns.len();
        self.columns.extend(columns);
        self.parts.push(Part { row, columns: start..self.columns.len() });
    }

    /// Returns some of the commands.
    fn select(&self, indices: &[usize]) -> Self {
        let mut selected = Self::default();
        for &index in indices {
            let Part { row, columns } = self.parts[index].clone();
            selected.push(row, self.columns[columns].iter().copied());
        }
        selected
    }
}

/// The rows of a burst that are asked for in parts.
pub(super) struct Join {
    spec: Arc<Spec>,
    burst: Mutex<Burst>,
}

#[derive(Default)]
struct Burst {
    rows: Vec<Row>,
    /// What each job, or a part of one, was answered.
    pieces: Vec<Piece>,
    /// A cell for each column of each row: its piece, and where it is there.
    cells: Vec<Option<(usize, Range<usize>)>>,
}

/// Values, which are let go with the last of them.
struct Piece {
    bytes: Vec<u8>,
    /// Those whose row has not left.
    cells: usize,
}

impl Piece {
    fn leave(&mut self) {
        self.cells -= 1;
        if self.cells == 0 {
            self.bytes = Vec::new();
        }
    }
}

struct Row {
    attempt: AttemptId,
    /// Commands that were not answered.
    missing: usize,
    /// The first failure of any of them.
    failure: Option<Failure>,
}

impl Join {
    /// Awaits the answers to as many commands as are given for each row.
    pub(super) fn new(spec: Arc<Spec>, rows: impl IntoIterator<Item = (AttemptId, usize)>) -> Self {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(attempt, missing)| Row { attempt, missing, failure: None })
            .collect();
        let cells = vec![None; rows.len() * spec.schema.fields().len()];
        Self { spec, burst: Mutex::new(Burst { rows, pieces: Vec::new(), cells }) }
    }

    /// Takes what a job was answered, and lets the rows leave that are whole.
    fn take(&self, answered: Answered) -> Result<(), TaskError> {
        let mut burst = self.burst.lock().unwrap_or_else(PoisonError::into_inner);
        let width = self.spec.schema.fields().len();
        let ready = burst.add(answered, width);
        if ready.is_empty() {
            return Ok(());
        }
        let mut groups = Vec::new();
        let mut ready = ready.as_slice();
        while !ready.is_empty() {
            let (group, rest) = ready.split_at(burst.rows_of_group(ready, width));
            groups.push(burst.group(group, &self.spec)?);
            ready = rest;
        }
        drop(burst);
        for group in groups {
            self.spec.replies.send(group);
        }
        Ok(())
    }
}

impl Burst {
    /// Adds answers; returns the rows that have all of theirs.
    fn add(&mut self, answered: Answered, width: usize) -> Vec<usize> {
        if !answered.cells.is_empty() {
            let piece = self.pieces.len();
            self.pieces.push(Piece { bytes: answered.bytes, cells: answered.cells.len() });
            for (row, column, range) in answered.cells {
                self.cells[row * width + column] = Some((piece, range));
            }
        }
        let mut ready = Vec::new();
        for (index, failure) in answered.outcomes {
            let row = &mut self.rows[index];
            row.missing -= 1;
            if row.failure.is_none() {
                row.failure = failure;
            }
            if row.missing == 0 {
                ready.push(index);
            }
        }
        ready
    }

    /// Returns how many of the first rows leave together; at least one.
    fn rows_of_group(&self, ready: &[usize], width: usize) -> usize {
        let mut bytes = 0;
        let fits = |index: &&usize| {
            let cells = self.cells[**index * width..][..width].iter().flatten();
            bytes += cells.map(|(_, range)| range.len()).sum::<usize>();
            bytes <= GROUP_BYTES
        };
        ready.iter().take_while(fits).count().max(1)
    }

    /// Makes the reply of some rows, whose values are let go.
    fn group(&mut self, ready: &[usize], spec: &Spec) -> Result<ReplyGroup, TaskError> {
        let width = spec.schema.fields().len();
        let mut reply = LookupReply::new(spec.misses, ready.len());
        let fields = spec.schema.fields().iter();
        let mut columns: Vec<_> = fields.map(|field| TextColumn::new(field, ready.len())).collect();
        for &index in ready {
            let row = &mut self.rows[index];
            let cells = &mut self.cells[index * width..][..width];
            if let Some(failure) = row.failure.take() {
                reply.failed(row.attempt, failure);
                for (piece, _) in cells.iter_mut().filter_map(Option::take) {
                    self.pieces[piece].leave();
                }
                continue;
            }
            let is_miss = cells.iter().all(Option::is_none);
            if is_miss && !reply.missed(row.attempt) {
                continue;
            }
            if !is_miss {
                reply.found(row.attempt, 1);
            }
            for (cell, column) in cells.iter_mut().zip(&mut columns) {
                match cell.take() {
                    Some((piece, range)) => {
                        let piece = &mut self.pieces[piece];
                        column.push(&piece.bytes[range]);
                        piece.leave();
                    }
                    None => column.push_null(),
                }
            }
        }
        let columns = columns.into_iter().map(TextColumn::finish).collect();
        spec.reply(reply, columns)
    }
}

/// What a job was answered for its parts of rows.
pub(super) struct PartAnswers {
    join: Arc<Join>,
    parts: Parts,
    answered: Answered,
}

#[derive(Default)]
struct Answered {
    bytes: Vec<u8>,
    /// Row and column of each value.
    cells: Vec<(usize, usize, Range<usize>)>,
    /// The row of each command, and why it failed.
    outcomes: Vec<(usize, Option<Failure>)>,
}

impl PartAnswers {
    /// Awaits the answers to the commands of a job.
    pub(super) fn new(join: Arc<Join>, parts: Parts) -> Self {
        Self { join, parts, answered: Answered::default() }
    }

    /// Awaits the answers to some of the commands again.
    pub(super) fn again(&self, indices: &[usize]) -> Self {
        Self::new(Arc::clone(&self.join), self.parts.select(indices))
    }

    /// Takes the reply to a command.
    pub(super) fn take(&mut self, index: usize, reply: Reply<'_>) {
        let Part { row, columns } = self.parts.parts[index].clone();
        let columns = &self.parts.columns[columns];
        let answered = &mut self.answered;
        let is_plain = |it| matches!(it, Reply::Text(_) | Reply::Nil);
        let failure = match reply {
            Reply::Array(array)
                if array.len() == columns.len() && array.elements().all(is_plain) =>
            {
                for (element, column) in array.elements().zip(columns) {
                    if let Reply::Text(text) = element {
                        let start = answered.bytes.len();
                        answered.bytes.extend_from_slice(text);
                        answered.cells.push((row, *column, start..answered.bytes.len()));
                    }
                }
                None
            }
            reply => Some(failure::of(reply, true).unwrap_or_else(|| {
                misfit("something else than a value for each key", columns.len()).into()
            })),
        };
        answered.outcomes.push((row, failure));
    }

    /// Fails a command.
    pub(super) fn fail(&mut self, index: usize, failure: &Failure) {
        self.answered.outcomes.push((self.parts.parts[index].row, Some(failure.clone())));
    }

    /// Hands over what was answered.
    pub(super) fn finish(self) -> Result<(), TaskError> {
        self.join.take(self.answered)
    }

    /// Hands over what was answered so far.
    pub(super) fn hand_over(&mut self) -> Result<(), TaskError> {
        self.join.take(std::mem::take(&mut self.answered))
    }
}
