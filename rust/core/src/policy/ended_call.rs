// SPDX-License-Identifier: Apache-2.0
//! What the end of a call says of its destination.

use super::costs::Costs;
use crate::time::ProcessingTime;

/// What a call says of its destination.
///
/// It is not what its row needs: a result that is not there yet is asked for again, and its
/// destination is well all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSign {
    /// It bears the calls that it has.
    Good,
    /// It refused the call, because it has too many or is not ready for any.
    Overloaded,
    /// It could not be reached, or the connection was lost.
    Unreachable,
    /// It did not answer in time.
    TimedOut,
    /// It answered, that this call fails: it would, whatever state the destination is in.
    Neutral,
    /// Nothing: the call was cut off before its answer could be expected.
    CutOff,
    /// Nothing: the call was of several records and failed; the calls of its parts tell.
    Divided,
    /// Nothing: it was not called, since the answer was known, or somebody else asked for it.
    NotCalled,
}

impl CallSign {
    /// Returns whether the call was lost on its destination, which may have too many of them.
    pub const fn is_drop(self) -> bool {
        matches!(self, Self::Overloaded | Self::Unreachable | Self::TimedOut)
    }

    /// Returns whether the destination has answered, or would have.
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Good | Self::Neutral)
    }

    /// Returns whether the destination has said anything, even only to come again later.
    pub const fn is_reply(self) -> bool {
        matches!(self, Self::Good | Self::Neutral | Self::Overloaded)
    }
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedCall {
    /// When it started.
    pub started: ProcessingTime,
    /// When it ended.
    pub ended: ProcessingTime,
    /// Calls of its destination at its end, itself included.
    pub in_flight: u32,
    /// What it came to.
    pub sign: CallSign,
    /// What it was charged at its start.
    pub charged: Costs,
    /// What it cost, as is known now.
    pub cost: Costs,
}
