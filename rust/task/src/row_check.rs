// SPDX-License-Identifier: Apache-2.0
//! Calls for rows that must not be called: they fail, and are not made.
//!
//! These are rows that were [refused](InputBatch::refused) when they came in, and those with texts
//! that cannot be read. A burst costs a look at each of its input batches.

use sparkawait_arrow::InputBatch;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_runtime::AsyncFunction;

use crate::cause::Cause;
use crate::error::{CallFailure, StartError};
use crate::function::{Call, Calls, FailedCall, Replies, ReplyGroup, TaskFunction};
use crate::row_config::RowConfig;
use crate::text_check::TextCheck;

/// A function that is not called for some rows.
pub(crate) struct RowCheckedFunction {
    function: TaskFunction,
    replies: Replies,
    texts: TextCheck,
}

impl RowCheckedFunction {
    /// Puts the check in front of `function`, if there may be such rows.
    ///
    /// # Errors
    ///
    /// A column that does not exist.
    pub(crate) fn wrap(
        function: TaskFunction,
        replies: Replies,
        rows: &RowConfig,
    ) -> Result<TaskFunction, StartError> {
        if rows.reads.is_empty() && rows.prices.rows.is_empty() {
            return Ok(function);
        }
        let texts = TextCheck::new(rows)?;
        Ok(Box::new(Self { function, replies, texts }))
    }

    /// Returns why a row must not be called.
    fn misfit(&self, input: &InputBatch, row: u32) -> Option<CallFailure> {
        if let Some(refused) = input.refused.get().and_then(|it| it.get(&row)) {
            let (message, summary) = (refused.message.clone(), refused.summary.clone());
            let (kind, raised) = (ErrorKind::CostInvalid, refused.raised.clone());
            return Some(CallFailure { kind, message, summary, raised, status: None });
        }
        self.texts.misfit(input, row)
    }

    /// Fails the calls of such rows, and returns the others.
    fn callable(&self, calls: Calls) -> Calls {
        let Calls { batches, calls } = calls;
        let (mut failures, mut others) = (Vec::new(), Vec::with_capacity(calls.len()));
        for call in calls {
            match self.misfit(&batches[call.batch as usize], call.row) {
                None => others.push(call),
                Some(failure) => failures.push(failed(&call, failure)),
            }
        }
        if !failures.is_empty() {
            self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
        }
        Calls { batches, calls: others }
    }
}

fn failed(call: &Call, failure: CallFailure) -> FailedCall {
    let (cause, sign) = (Cause::NotSent, CallSign::NotCalled);
    FailedCall { cause, sign, ..FailedCall::new(call.attempt, Box::new(failure), Retry::No) }
}

impl AsyncFunction<Calls> for RowCheckedFunction {
    fn invoke(&mut self, mut calls: Calls) {
        let may_misfit = |it: &InputBatch| it.invalid_texts.is_some() || it.refused.get().is_some();
        if calls.batches.iter().any(|it| may_misfit(it)) {
            calls = self.callable(calls);
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

sparkawait_core::opaque_debug!(RowCheckedFunction, texts: texts);
