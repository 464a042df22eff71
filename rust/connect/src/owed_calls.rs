// SPDX-License-Identifier: Apache-2.0
//! Calls that somebody has undertaken to answer.

use std::thread;

use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;

use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{FailedCall, Replies, ReplyGroup};

/// Calls that are not answered yet; dropping them without an answer fails them.
///
/// So no row waits in vain for one that has panicked, or that the runtime ended.
pub(crate) struct Owed {
    attempts: Vec<AttemptId>,
    replies: Replies,
    /// Who has undertaken it, for the failure.
    who: &'static str,
}

impl Owed {
    /// Undertakes to answer `attempts`.
    pub(crate) fn new(who: &'static str, attempts: Vec<AttemptId>, replies: Replies) -> Self {
        Self { attempts, replies, who }
    }

    /// Says that all of them were answered, or that somebody else will.
    pub(crate) fn settle(mut self) {
        self.attempts.clear();
    }

    /// Fails them all.
    pub(crate) fn fail(mut self, failure: &CallFailure, retry: Retry, sign: CallSign) {
        self.answer(failure, retry, sign);
    }

    fn answer(&mut self, failure: &CallFailure, retry: Retry, sign: CallSign) {
        let failed = |attempt| {
            let failure = Box::new(failure.clone());
            FailedCall { sign, ..FailedCall::new(attempt, failure, retry) }
        };
        let failures = std::mem::take(&mut self.attempts).into_iter().map(failed).collect();
        self.replies.send(ReplyGroup { failures, ..ReplyGroup::default() });
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.attempts.is_empty() {
            return;
        }
        let what = if thread::panicking() { "panicked; the log says why" } else { "was ended" };
        let message = format!("{} {what}, before the call was answered", self.who);
        let kind = ErrorKind::Internal;
        let failure = CallFailure {
            kind,
            message: message.clone(),
            summary: message,
            cause: None,
            status: None,
        };
        self.answer(&failure, Retry::IfRepeatable, CallSign::Neutral);
    }
}
