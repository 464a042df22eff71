// SPDX-License-Identifier: Apache-2.0
//! Calls for rows that must not be called: they fail, and are not made.
//!
//! These are rows that were [refused](InputBatch::refused) when they came in, and those with texts
//! that cannot be read. A burst costs a look at each of its input batches.

use sparkawait_arrow::InputBatch;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::Retry;
use sparkawait_core::policy::CallSign;

use crate::cause::Cause;
use crate::error::{CallFailure, StartError};
use crate::function::{Call, Calls, FailedCall, Replies, ReplyGroup};
use crate::row_config::RowConfig;
use crate::text_check::TextCheck;

/// Keeps such calls from a function.
pub(crate) struct RowCheck {
    replies: Replies,
    texts: TextCheck,
}

impl RowCheck {
    /// Makes the check, if there may be such rows.
    ///
    /// # Errors
    ///
    /// A column that does not exist.
    pub(crate) fn new(replies: Replies, rows: &RowConfig) -> Result<Option<Self>, StartError> {
        if rows.reads.is_empty() && rows.prices.rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { replies, texts: TextCheck::new(rows)? }))
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
    pub(crate) fn callable(&self, calls: Calls) -> Calls {
        let may_misfit = |it: &InputBatch| it.invalid_texts.is_some() || it.refused.get().is_some();
        if !calls.batches.iter().any(|it| may_misfit(it)) {
            return calls;
        }
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
