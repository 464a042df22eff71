// SPDX-License-Identifier: Apache-2.0
//! How far a call has come that failed: the one question that decides what may be done about it.
//!
//! | cause | sent again | its permits | in doubt |
//! |---|---|---|---|
//! | [`NotSent`](Cause::NotSent) | always | come back | no |
//! | [`Unknown`](Cause::Unknown) | if two calls do what one does | are spent | yes |
//! | [`Answered`](Cause::Answered) | if the answer says that it is worth it | are spent | no |

use sparkawait_core::operator::Retry;

/// What is known of whether a call that failed was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was not: no part of it left, or the service has handed it back untouched.
    NotSent,
    /// Nobody knows: no answer came, or one that does not say.
    Unknown,
    /// The service has said that it did nothing about it, or that it failed for good.
    Answered,
}

impl Cause {
    /// Returns the cause of a failure: whether anything of the call may have left before it, and
    /// whether an answer came that says what happened to the call. All connectors ask this.
    pub const fn of(may_have_left: bool, is_answered: bool) -> Self {
        match (may_have_left, is_answered) {
            (false, _) => Self::NotSent,
            (true, false) => Self::Unknown,
            (true, true) => Self::Answered,
        }
    }

    /// Returns whether making the call once more does no harm; `is_repeatable` if two calls do what one
    /// does.
    pub const fn may_repeat(self, is_repeatable: bool) -> bool {
        is_repeatable || !matches!(self, Self::Unknown)
    }

    /// Returns what a failure asks for that may pass.
    pub const fn retry(self) -> Retry {
        match self {
            Self::NotSent | Self::Answered => Retry::Yes,
            Self::Unknown => Retry::IfRepeatable,
        }
    }
}
