// SPDX-License-Identifier: Apache-2.0
//! Calls that somebody has undertaken to answer.

use std::thread;

use sparkawait_core::ErrorKind;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::CallSign;

use sparkawait_task::cause::Cause;
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::{Replies, ReplyGroup};

use crate::failure::Failure;

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
    pub(crate) fn fail(mut self, failure: &Failure) {
        self.answer(failure);
    }

    fn answer(&mut self, failure: &Failure) {
        let attempts = std::mem::take(&mut self.attempts).into_iter();
        let failures = attempts.map(|attempt| failure.clone().of_call(attempt)).collect();
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
        let failure = CallFailure::new(ErrorKind::Internal, message);
        let sign = CallSign::Neutral;
        self.answer(&Failure { sign, ..Failure::passing(Cause::Unknown, failure) });
    }
}
