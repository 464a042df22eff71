// SPDX-License-Identifier: Apache-2.0
//! Calls for rows whose texts are not UTF-8 in a column that is read: they fail and are not made.
//!
//! A native function takes the texts of its columns as they are. What is left of such a text is
//! another one, for which a service would find another row. Python reads cell by cell, and is told
//! so there; keys are compared as bytes. A burst costs a look at each of its input batches.

use std::fmt;

use sparkawait_arrow::InvalidTexts;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_runtime::AsyncFunction;

use crate::error::{CallFailure, StartError};
use crate::function::{Call, Calls, FailedCall, Replies, ReplyGroup, TaskFunction};
use crate::native::column_index;
use crate::row_config::RowConfig;

/// Says that a row has a text in the column `name` that is not UTF-8, and what to do.
pub fn not_utf8(name: &str) -> String {
    format!(
        "column `{name}` has a text in this row that is not UTF-8; cast it to binary, or repair it: \
         make_valid_utf8(..), before Spark 4 decode(cast(.. as binary), 'UTF-8')"
    )
}

/// A function that is not called for rows whose texts it could not read.
pub(crate) struct TextCheckedFunction {
    function: TaskFunction,
    replies: Replies,
    /// The columns that are read.
    names: Vec<String>,
    positions: Vec<usize>,
}

impl TextCheckedFunction {
    /// Puts the check in front of `function`, if something is read on its way.
    ///
    /// # Errors
    ///
    /// A column that does not exist.
    pub(crate) fn wrap(
        function: TaskFunction,
        replies: Replies,
        rows: &RowConfig,
    ) -> Result<TaskFunction, StartError> {
        if rows.reads.is_empty() {
            return Ok(function);
        }
        let position = |name: &String| column_index(&rows.input, name, &rows.function);
        let positions = rows.reads.iter().map(position).collect::<Result<_, _>>()?;
        Ok(Box::new(Self { function, replies, names: rows.reads.clone(), positions }))
    }

    /// Fails the calls whose rows cannot be read, and returns the others.
    fn readable(&self, calls: Calls) -> Calls {
        let Calls { batches, calls } = calls;
        let unreadable = |call: &Call| {
            let texts: &InvalidTexts = batches[call.batch as usize].invalid_texts.as_deref()?;
            texts.column_in_row(&self.positions, call.row as usize)
        };
        let (mut failures, mut others) = (Vec::new(), Vec::with_capacity(calls.len()));
        for call in calls {
            match unreadable(&call) {
                None => others.push(call),
                Some(column) => failures.push(self.failed(&call, column)),
            }
        }
        if !failures.is_empty() {
            self.replies.send(ReplyGroup { results: None, failures });
        }
        Calls { batches, calls: others }
    }

    fn failed(&self, call: &Call, column: usize) -> FailedCall {
        let place = self.positions.iter().position(|it| *it == column).unwrap_or_default();
        let message = not_utf8(&self.names[place]);
        let summary = message.clone();
        let failure = CallFailure { kind: ErrorKind::TextInvalid, message, summary, cause: None };
        let sign = CallSign::NotCalled;
        FailedCall { sign, ..FailedCall::new(call.attempt, Box::new(failure), Retry::No) }
    }
}

impl AsyncFunction<Calls> for TextCheckedFunction {
    fn invoke(&mut self, mut calls: Calls) {
        if calls.batches.iter().any(|it| it.invalid_texts.is_some()) {
            calls = self.readable(calls);
            if calls.calls.is_empty() {
                return;
            }
        }
        self.function.invoke(calls);
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.function.ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        self.function.cancel(attempts);
    }

    fn close(&mut self) {
        self.function.close();
    }
}

impl fmt::Debug for TextCheckedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextCheckedFunction").field("reads", &self.names).finish_non_exhaustive()
    }
}
