// SPDX-License-Identifier: Apache-2.0
//! Why a call failed, in the one form that all connectors use.

use std::time::Duration;

use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::CallFailure;
use sparkawait_task::function::FailedCall;

/// What a failure is about, and so who else it hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum About {
    /// The call, or the state that its service is in.
    #[default]
    Call,
    /// What a request for many rows says: one for fewer of them may do better.
    Rows,
    /// The same of one that was carried out: what is answered to fewer may do better.
    AnsweredRows,
    /// One or the other: nobody knows.
    RowsOrCall,
    /// All rows: the task ends with it.
    Task,
}

impl About {
    /// Returns whether it is about the rows of a request for sure.
    pub fn is_of_rows(self) -> bool {
        matches!(self, Self::Rows | Self::AnsweredRows)
    }
}

/// Why a call failed, and what may be done about it. Can be given to each of the calls that it hit.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the row is told.
    pub call: Box<CallFailure>,
    /// Whether the call was carried out.
    pub cause: Cause,
    /// Whether it is worth another attempt.
    pub retry: Retry,
    /// What it says of the server.
    pub sign: CallSign,
    /// For how long the server asks not to be called.
    pub pause: Option<Duration>,
    /// What it is about.
    pub about: About,
}

impl Failure {
    /// Makes a failure that may pass.
    pub fn passing(cause: Cause, call: impl Into<Box<CallFailure>>) -> Self {
        let (call, retry) = (call.into(), cause.retry());
        Self { call, cause, retry, sign: retry.sign(), pause: None, about: About::Call }
    }

    /// Makes a failure that no other attempt helps.
    pub fn lasting(cause: Cause, call: impl Into<Box<CallFailure>>) -> Self {
        let (call, retry, sign) = (call.into(), Retry::No, CallSign::Neutral);
        Self { call, cause, retry, sign, pause: None, about: About::Call }
    }

    /// Returns whether another attempt may help.
    pub fn may_pass(&self) -> bool {
        self.retry != Retry::No
    }

    /// Returns the same where another attempt may fare better after all.
    #[must_use]
    pub fn that_may_pass(self) -> Self {
        Self { retry: self.cause.retry(), ..self }
    }

    /// Returns the same for a call that is not made again where nobody knows whether it was carried out.
    #[must_use]
    pub fn unanswered(mut self) -> Self {
        if self.cause == Cause::Unknown && self.call.status.is_none() {
            self.call.kind = ErrorKind::Unanswered;
        }
        self
    }

    /// Returns the same for a call whose first request was carried out.
    #[must_use]
    pub fn behind_what_was_done(self) -> Self {
        let retry = match self.retry {
            Retry::Yes | Retry::After(_) => Retry::IfRepeatable,
            other => other,
        };
        Self { cause: Cause::Unknown, retry, ..self }
    }

    /// Returns the same for the calls that were not sent because of it: what failed came before them.
    #[must_use]
    pub fn before_call(self) -> Self {
        let retry = if self.retry == Retry::IfRepeatable { Retry::Yes } else { self.retry };
        Self { cause: Cause::NotSent, retry, pause: None, about: About::Call, ..self }
    }

    /// Makes the end of a call.
    pub fn of_call(self, attempt: AttemptId) -> FailedCall {
        let Self { call, cause, retry, sign, pause, about: _ } = self;
        FailedCall { attempt, failure: call, cause, retry, sign, pause }
    }
}

/// A value that its row cannot have, in an answer that came.
impl From<CallFailure> for Failure {
    fn from(call: CallFailure) -> Self {
        Self::lasting(Cause::Answered, call)
    }
}

/// Makes the failure of a call to a service.
///
/// `message` may quote what the service said and goes to the error column;
/// `summary` must not hold row contents or secrets, and goes to logs.
pub fn service_failure(message: impl Into<String>, summary: impl Into<String>) -> CallFailure {
    CallFailure { message: message.into(), ..plain_failure(summary) }
}

/// Makes the failure of a call to a service, with a text that holds neither row contents nor secrets.
pub fn plain_failure(text: impl Into<String>) -> CallFailure {
    CallFailure::new(ErrorKind::UserFunctionFailed, text)
}

/// Makes the failure of a call that the service has answered with "no", for good.
///
/// A caller without permission gets a kind of its own: no row fares better.
pub fn refusal(is_of_caller: bool, failure: CallFailure) -> CallFailure {
    let kind = if is_of_caller { ErrorKind::Unauthorized } else { ErrorKind::RequestRefused };
    CallFailure { kind, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_carried_out_is_in_doubt_and_nothing_else_is() {
        let of = |may_have_left, is_answered| {
            let cause = Cause::of(may_have_left, is_answered);
            let failure = Failure::passing(cause, plain_failure("down"));
            (cause, failure.retry, cause.may_repeat(false), cause.may_repeat(true))
        };

        assert_eq!(of(false, false), (Cause::NotSent, Retry::Yes, true, true));
        // A server that refused to be connected to was not sent the call.
        assert_eq!(of(false, true), (Cause::NotSent, Retry::Yes, true, true));
        assert_eq!(of(true, false), (Cause::Unknown, Retry::IfRepeatable, false, true));
        assert_eq!(of(true, true), (Cause::Answered, Retry::Yes, true, true));
    }

    #[test]
    fn a_call_that_waited_for_something_that_failed_was_not_sent() {
        let pause = Some(Duration::from_millis(7));
        let unknown = Failure::passing(Cause::Unknown, plain_failure("the token server is gone"));
        let before = Failure { pause, about: About::Rows, ..unknown }.before_call();

        assert_eq!((before.cause, before.retry, before.pause), (Cause::NotSent, Retry::Yes, None));
        assert_eq!(before.about, About::Call);
        let lasting = Failure::from(plain_failure("no")).before_call();
        assert_eq!((lasting.cause, lasting.may_pass()), (Cause::NotSent, false));
        assert_eq!(lasting.that_may_pass().retry, Retry::Yes);
    }
}
