// SPDX-License-Identifier: Apache-2.0
//! Result columns out of the replies to one job.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{GROUP_BYTES, ReplyGroup};

use crate::failure::{Failure, plain_failure};
use crate::json::JsonRows;
use crate::lookup::LookupReply;
use crate::owed_calls::Owed;
use crate::text::TextColumn;

use super::failure::{self, misfit};
use super::job::{Awaiting, Loss};
use super::join::PartAnswers;
use super::map::{map_column, push_map};
use super::redirects::Redirects;
use super::resp::{Array, Reply};
use super::spec::{Shape, Spec};

/// What collects the replies.
enum Collected {
    Columns(Vec<TextColumn>),
    Parts(PartAnswers),
    Documents { reader: JsonRows, bytes: Vec<u8>, found: Vec<(AttemptId, Option<Range<usize>>)> },
}

/// The calls of a job, whose replies come in their order.
pub(super) struct Answers {
    attempts: Vec<AttemptId>,
    /// The same, failed if these are dropped.
    owed: Option<Owed>,
    /// Calls that were answered.
    next: usize,
    /// Those of them whose commands were not sent last.
    first: usize,
    reply: LookupReply,
    collected: Collected,
    /// Of the replies in it, as they were sent.
    bytes: usize,
    spec: Arc<Spec>,
    /// Where commands are sent again that belong to another node.
    redirects: Option<Redirects>,
    /// Whether the next reply is to an `ASKING`.
    is_skipping: bool,
    /// Whether a reply said that the server is not the primary any more.
    leaves: bool,
}

impl Answers {
    /// Awaits the replies to `attempts`.
    pub(super) fn new(
        spec: Arc<Spec>,
        attempts: Vec<AttemptId>,
        redirects: Option<Redirects>,
    ) -> Result<Self, TaskError> {
        let collected = Collected::new(&spec, attempts.len())?;
        Ok(Self::collecting(collected, spec, attempts, redirects))
    }

    /// Awaits the replies to commands that ask for parts of rows.
    pub(super) fn of_parts(
        spec: Arc<Spec>,
        attempts: Vec<AttemptId>,
        parts: PartAnswers,
        redirects: Option<Redirects>,
    ) -> Self {
        Self::collecting(Collected::Parts(parts), spec, attempts, redirects)
    }

    /// Awaits the replies to some of the calls again.
    pub(super) fn again(&self, indices: &[usize], redirects: Redirects) -> Result<Self, TaskError> {
        let attempts = indices.iter().map(|index| self.attempts[*index]).collect();
        let spec = Arc::clone(&self.spec);
        match &self.collected {
            Collected::Parts(parts) => {
                Ok(Self::of_parts(spec, attempts, parts.again(indices), Some(redirects)))
            }
            _ => Self::new(spec, attempts, Some(redirects)),
        }
    }

    fn collecting(
        collected: Collected,
        spec: Arc<Spec>,
        attempts: Vec<AttemptId>,
        redirects: Option<Redirects>,
    ) -> Self {
        let reply = LookupReply::new(spec.misses, attempts.len());
        let is_skipping = redirects.as_ref().is_some_and(Redirects::is_asking);
        let owed = Owed::new("the connection to Redis", attempts.clone(), spec.replies.clone());
        let owed = Some(owed);
        Self {
            attempts,
            owed,
            next: 0,
            first: 0,
            reply,
            collected,
            bytes: 0,
            spec,
            redirects,
            is_skipping,
            leaves: false,
        }
    }

    /// Whether each command is preceded by an `ASKING`.
    fn is_asking(&self) -> bool {
        self.redirects.as_ref().is_some_and(Redirects::is_asking)
    }

    /// Replies to the calls that were answered before the others are.
    #[cold]
    fn reply_early(&mut self) {
        self.bytes = 0;
        if let Err(error) = self.reply_and_go_on() {
            self.spec.replies.fail(error);
        }
    }

    fn reply_and_go_on(&mut self) -> Result<(), TaskError> {
        if let Collected::Parts(parts) = &mut self.collected {
            return parts.hand_over();
        }
        let missing = self.attempts.len() - self.next;
        let collected = Collected::new(&self.spec, missing)?;
        let collected = std::mem::replace(&mut self.collected, collected);
        let reply = LookupReply::new(self.spec.misses, missing);
        collected.reply(std::mem::replace(&mut self.reply, reply), &self.spec)
    }
}

impl Awaiting for Answers {
    /// Takes the next reply, of so many bytes; returns whether it was the last one.
    #[inline]
    fn take(&mut self, reply: Reply<'_>, bytes: usize) -> bool {
        if self.is_skipping {
            self.is_skipping = false;
            return false;
        }
        if self.bytes > 0 && self.bytes + bytes > GROUP_BYTES {
            self.reply_early();
        }
        self.bytes += bytes;
        let attempt = self.attempts[self.next];
        self.next += 1;
        let is_cluster = self.redirects.is_some();
        if let Some(redirects) = &mut self.redirects {
            self.is_skipping = redirects.is_asking();
            if redirects.take(self.next - 1, reply) {
                return self.next == self.attempts.len();
            }
        } else if let Reply::Error(words) = reply {
            self.leaves |= failure::is_of_no_primary(words);
        }
        if let Collected::Parts(parts) = &mut self.collected {
            parts.take(self.next - 1, reply);
        } else if let Some(failure) = failure::of(reply, is_cluster) {
            self.reply.failed(attempt, failure);
        } else {
            match &mut self.collected {
                Collected::Columns(columns) => {
                    let taken = match self.spec.shape {
                        Shape::Rows => take_rows(&mut self.reply, columns, attempt, reply),
                        Shape::Map => take_map(&mut self.reply, columns, attempt, reply),
                        _ => take_row(&mut self.reply, columns, attempt, reply),
                    };
                    if let Err(what) = taken {
                        let failure = misfit(what, self.spec.schema.fields().len());
                        self.reply.failed(attempt, failure);
                    }
                }
                Collected::Parts(_) => {}
                Collected::Documents { bytes, found, .. } => match reply {
                    Reply::Nil => found.push((attempt, None)),
                    Reply::Text(text) => {
                        let start = bytes.len();
                        bytes.extend_from_slice(text);
                        found.push((attempt, Some(start..bytes.len())));
                    }
                    _ => {
                        let failure = misfit("an array instead of a text", 1);
                        self.reply.failed(attempt, failure);
                    }
                },
            }
        }
        self.next == self.attempts.len()
    }

    fn is_wanted(&self) -> Option<bool> {
        Some(!self.spec.cancelled.has_all(&self.attempts[self.next..]))
    }

    fn may_be_repeated(&self) -> bool {
        // An `ASKING` before them may have been answered.
        self.spec.reads && !self.is_asking() && self.is_wanted() == Some(true)
    }

    fn go_on(&mut self) -> usize {
        if self.next > 0 {
            self.reply_early();
        }
        self.first = self.next;
        self.next
    }

    fn leaves(&self) -> bool {
        self.leaves
    }

    /// Fails the calls that were not answered, unless another node can be asked, and replies to
    /// the others.
    fn fail(mut self: Box<Self>, loss: &Loss<'_>) {
        let commands = if self.is_asking() { 2 } else { 1 };
        let sent = self.first + loss.sent / commands;
        for index in self.next..self.attempts.len() {
            if self.redirects.as_mut().is_some_and(|redirects| redirects.lose(index)) {
                continue;
            }
            let failure = if index < sent { loss.failure } else { loss.unsent };
            if let Collected::Parts(parts) = &mut self.collected {
                parts.fail(index, failure);
            } else {
                self.reply.failed(self.attempts[index], failure.clone());
            }
        }
        self.finish();
    }

    /// Fails all calls, whatever was collected: it may be in no state to be used.
    fn abandon(self: Box<Self>, failure: &Failure) {
        if let Some(owed) = self.owed {
            owed.fail(failure);
        }
    }

    /// Replies to all calls.
    fn finish(mut self: Box<Self>) {
        let spec = Arc::clone(&self.spec);
        let owed = self.owed.take();
        let result = match self.redirects.take() {
            Some(redirects) => {
                redirects.resend(|indices, redirects| self.again(indices, redirects))
            }
            None => Ok(()),
        };
        if let Err(error) = result.and_then(|()| self.collected.reply(self.reply, &spec)) {
            spec.replies.fail(error);
        }
        if let Some(owed) = owed {
            owed.settle();
        }
    }
}

impl Collected {
    /// Makes room for the replies to `calls` calls.
    fn new(spec: &Spec, calls: usize) -> Result<Self, TaskError> {
        let schema = &spec.schema;
        let columns =
            || schema.fields().iter().map(|field| TextColumn::new(field, calls)).collect();
        Ok(match &spec.shape {
            Shape::Row | Shape::Rows => Self::Columns(columns()),
            Shape::Map => {
                let column = map_column(schema, calls);
                Self::Columns(vec![column.map_err(|error| TaskError::Internal(error.message))?])
            }
            Shape::Document { rows, paths } => Self::Documents {
                reader: JsonRows::new(spec.found_schema(), rows.as_deref(), paths)
                    .map_err(|error| TaskError::Internal(error.message))?
                    .telling_of_absent(paths),
                bytes: Vec::new(),
                found: Vec::with_capacity(calls),
            },
        })
    }

    /// Replies to the calls whose replies were collected.
    fn reply(self, reply: LookupReply, spec: &Spec) -> Result<(), TaskError> {
        let group = match self {
            Self::Columns(columns) => {
                let columns = columns.into_iter().map(TextColumn::finish).collect();
                spec.reply(reply, columns)?
            }
            Self::Parts(parts) => return parts.finish(),
            Self::Documents { reader, bytes, found } => {
                finish_documents(reply, &reader, &bytes, found, &spec.schema)?
            }
        };
        spec.replies.send(group);
        Ok(())
    }
}

/// Takes a reply as at most one row.
#[inline]
fn take_row(
    reply: &mut LookupReply,
    columns: &mut [TextColumn],
    attempt: AttemptId,
    answer: Reply<'_>,
) -> Result<(), &'static str> {
    match answer {
        Reply::Text(text) => {
            let [column] = columns else { return Err("one value") };
            column.push(text);
            reply.found(attempt, 1);
        }
        Reply::Array(array) => {
            check_row(array, columns.len())?;
            if array.elements().all(|it| it == Reply::Nil) {
                miss(reply, columns, attempt);
            } else {
                push_row(array, columns);
                reply.found(attempt, 1);
            }
        }
        _ => miss(reply, columns, attempt),
    }
    Ok(())
}

/// Takes a reply as any number of rows.
fn take_rows(
    reply: &mut LookupReply,
    columns: &mut [TextColumn],
    attempt: AttemptId,
    answer: Reply<'_>,
) -> Result<(), &'static str> {
    let Reply::Array(array) = answer else { return take_row(reply, columns, attempt, answer) };
    if array.len() == 0 {
        miss(reply, columns, attempt);
        return Ok(());
    }
    for element in array.elements() {
        match element {
            Reply::Array(row) => check_row(row, columns.len())?,
            _ if columns.len() == 1 => {}
            _ => return Err("rows of one value"),
        }
    }
    for element in array.elements() {
        match element {
            Reply::Array(row) => push_row(row, columns),
            Reply::Text(text) => columns[0].push(text),
            _ => columns[0].push_null(),
        }
    }
    reply.found(attempt, u32::try_from(array.len()).unwrap_or(u32::MAX));
    Ok(())
}

/// Takes a reply as at most one map.
fn take_map(
    reply: &mut LookupReply,
    columns: &mut [TextColumn],
    attempt: AttemptId,
    answer: Reply<'_>,
) -> Result<(), &'static str> {
    match (answer, &mut *columns) {
        (Reply::Array(elements), [column]) if elements.len() > 0 => {
            push_map(column, elements)?;
            reply.found(attempt, 1);
        }
        (Reply::Text(_), _) => return Err("one value"),
        _ => miss(reply, columns, attempt),
    }
    Ok(())
}

fn miss(reply: &mut LookupReply, columns: &mut [TextColumn], attempt: AttemptId) {
    if reply.missed(attempt) {
        columns.iter_mut().for_each(TextColumn::push_null);
    }
}

/// Checks that an array is a row of plain values.
fn check_row(array: Array<'_>, columns: usize) -> Result<(), &'static str> {
    if array.len() != columns {
        return Err("an array of another length");
    }
    let is_plain = |it| matches!(it, Reply::Text(_) | Reply::Nil);
    if array.elements().all(is_plain) { Ok(()) } else { Err("an array in an array") }
}

fn push_row(array: Array<'_>, columns: &mut [TextColumn]) {
    for (element, column) in array.elements().zip(columns) {
        match element {
            Reply::Text(text) => column.push(text),
            _ => column.push_null(),
        }
    }
}

fn finish_documents(
    mut reply: LookupReply,
    reader: &JsonRows,
    bytes: &[u8],
    found: Vec<(AttemptId, Option<Range<usize>>)>,
    schema: &SchemaRef,
) -> Result<ReplyGroup, TaskError> {
    let texts: Vec<&[u8]> =
        found.iter().filter_map(|(_, range)| range.clone()).map(|range| &bytes[range]).collect();
    let decoded = reader.decode(&texts)?;
    let mut documents = decoded.documents.into_iter();
    // A null index takes a row of nulls.
    let mut indices: Vec<Option<u32>> = Vec::with_capacity(found.len());
    let mut next = 0;
    for (attempt, range) in found {
        let document = range.and_then(|_| documents.next());
        match document {
            Some(Ok(rows)) if rows > 0 => {
                indices.extend((next..next + rows).map(Some));
                next += rows;
                reply.found(attempt, rows);
            }
            Some(Err(message)) => {
                reply.failed(attempt, plain_failure(message));
            }
            _ => {
                if reply.missed(attempt) {
                    indices.push(None);
                }
            }
        }
    }
    let columns = decoded.batch.columns().to_vec();
    let rows = RecordBatch::try_new(SchemaRef::clone(schema), columns)
        .and_then(|rows| take_record_batch(&rows, &UInt32Array::from(indices)))
        .map_err(|error| TaskError::Internal(format!("rows do not fit the schema: {error}")))?;
    Ok(reply.finish(rows))
}
