// SPDX-License-Identifier: Apache-2.0
//! What the operator asks of its driver, and what comes back.

use std::time::Duration;

use crate::element::StreamRecord;
use crate::error::ErrorKind;
use crate::flow::Call;
use crate::policy::{CallSign, LimitLeft, Line, Spent};
use crate::queue::EntryId;

/// One attempt to call the function for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The record.
    pub entry: EntryId,
    /// From 1; [`AttemptId::TIMEOUT`] for the question what a timeout shall emit.
    pub attempt: u32,
}

impl AttemptId {
    /// The number of the pseudo-attempt that asks for the outcome of a timeout.
    pub const TIMEOUT: u32 = u32::MAX;

    /// Set in the number of a second attempt beside another one.
    const HEDGE: u32 = 1 << 31;

    /// Returns whether it is a second attempt beside one that is slow.
    #[must_use]
    pub const fn is_hedge(self) -> bool {
        self.attempt & Self::HEDGE != 0 && self.attempt != Self::TIMEOUT
    }

    /// Returns the attempt that it stands beside; itself if it is the first one.
    #[must_use]
    pub const fn first(self) -> Self {
        let attempt = if self.is_hedge() { self.attempt & !Self::HEDGE } else { self.attempt };
        Self { entry: self.entry, attempt }
    }

    /// Returns the second attempt beside this one.
    #[must_use]
    pub const fn hedge(self) -> Self {
        Self { entry: self.entry, attempt: self.attempt | Self::HEDGE }
    }

    /// Returns the call, as its limits know it.
    pub(super) const fn call(self) -> Call {
        let line = if self.is_hedge() { Line::Hedges } else { Line::Records };
        Call { entry: self.entry, line }
    }
}

/// A call to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation<E> {
    /// Names the call in its completion.
    pub attempt: AttemptId,
    /// The record's value.
    pub value: E,
}

/// What the driver carries out after it told the operator something.
///
/// Vectors instead of single values: the driver swaps in those of the last burst and works through a
/// burst at a time.
#[derive(Debug)]
pub struct Actions<E> {
    /// Calls to start, in this order.
    pub invoke: Vec<Invocation<E>>,
    /// Timed-out records whose outcome the function is asked for.
    pub ask_timeout: Vec<Invocation<E>>,
    /// Calls whose outcome no longer matters. Carried out first, so that a call which waited for
    /// one of them to end does not begin before that.
    pub cancel: Vec<AttemptId>,
    /// Calls that were handed over, and were taken back before the function had seen them: they were
    /// not made.
    pub recalled: Vec<AttemptId>,
}

impl<E> Actions<E> {
    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.invoke.is_empty()
            && self.ask_timeout.is_empty()
            && self.cancel.is_empty()
            && self.recalled.is_empty()
    }

    /// Puts all of it into `taken`, and goes on with the vectors of `taken`, emptied.
    pub fn swap(&mut self, taken: &mut Self) {
        taken.invoke.clear();
        taken.ask_timeout.clear();
        taken.cancel.clear();
        taken.recalled.clear();
        std::mem::swap(self, taken);
    }

    /// Takes a call back that nobody has seen: it is not made. Returns false if it was handed over
    /// before; then it is [cancelled](Self::cancel). The youngest are looked at first.
    pub(super) fn take_back(&mut self, attempt: AttemptId) -> bool {
        let place = self.invoke.iter().rposition(|it| it.attempt == attempt);
        place.map(|it| self.invoke.remove(it)).is_some()
    }
}

impl<E> Default for Actions<E> {
    fn default() -> Self {
        Self {
            invoke: Vec::new(),
            ask_timeout: Vec::new(),
            cancel: Vec::new(),
            recalled: Vec::new(),
        }
    }
}

/// Whether the outcome of an attempt asks for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The outcome is final.
    No,
    /// It is worth another one after the strategy's delay, but nobody knows whether the call was
    /// carried out: no answer came, or one that says no more than that something went wrong.
    IfRepeatable,
    /// A retry predicate matched, or the call was not carried out: try again after the strategy's
    /// delay.
    Yes,
    /// Try again after this delay, which the callee asked for.
    After(Duration),
    /// The call was of several records, and its failure says nothing of this one. It is called again at
    /// once, together with some of the others: in a *part*. That is another call, which takes permits
    /// like any, and no retry: the call and those of its parts are one try of the record. One that
    /// was handed over for a call and left out of it asks for the same, with [`CallSign::NotCalled`].
    InPart {
        /// How many records the part has that begins with this one; 0 if this one goes along with
        /// those before it.
        records: u32,
    },
}

impl Retry {
    /// Returns what a failed call says about its destination if nothing more is known. One that
    /// asks for another attempt after a delay has too much to do; one that is worth another attempt
    /// did not find its destination well. Where records are called again in parts, these tell. Any
    /// other failure belongs to its record.
    pub const fn sign(self) -> CallSign {
        match self {
            Self::No => CallSign::Neutral,
            Self::IfRepeatable | Self::Yes => CallSign::Unreachable,
            Self::After(_) => CallSign::Overloaded,
            Self::InPart { .. } => CallSign::Divided,
        }
    }
}

/// The end of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<R, F> {
    /// Results (0..n as one value), or the function's failure.
    pub outcome: Result<R, F>,
    /// What the retry predicates say of the outcome.
    pub retry: Retry,
    /// What the call says of its destination.
    pub sign: CallSign,
}

impl<R, F> Completion<R, F> {
    /// Makes the end of an attempt that was answered by a destination that is well.
    #[inline]
    pub const fn answered(results: R, retry: Retry) -> Self {
        Self { outcome: Ok(results), retry, sign: CallSign::Good }
    }

    /// Makes the end of an attempt that failed.
    #[inline]
    pub const fn failed(failure: F, retry: Retry, sign: CallSign) -> Self {
        Self { outcome: Err(failure), retry, sign }
    }
}

/// What a reply says beside the outcome of its call; to be told before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// Its destination asks to be left alone for so long.
    Pause(Duration),
    /// It was not sent, and has cost its limits in time nothing.
    NotSent,
    /// A request was made that begins with its record, for limits that count requests.
    Request,
    /// It has cost so much of a limit in time; for each limit the last word counts.
    Cost {
        /// The number of the limit.
        limit: usize,
        /// The permits.
        cost: u64,
    },
    /// What is left of a limit of its service, before what is asked for next. Among limits that it
    /// counts alike, the last word counts.
    Left {
        /// How much.
        left: LimitLeft,
        /// Whether it tells nothing of the destinations of other channels.
        is_of_channel: bool,
    },
}

/// What happened to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// Nothing: the attempt was completed before, replaced, timed out or cancelled.
    Ignored,
    /// The outcome is forgotten: the record is in back-off, is called again in a part, or has no time left
    /// for that. The attempt ran for so many nanoseconds.
    Retried(u64),
    /// The outcome is the record's. The attempt ran for so many nanoseconds.
    Final(u64),
    /// The outcome, which the function gave for a timeout, is the record's.
    TimeoutAnswered,
}

/// Why a record has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure<F> {
    /// The function failed, and the failure was not to be retried.
    Function(F),
    /// The function failed, and no further attempt was left.
    RetriesExhausted(F),
    /// It was ended before its function had an answer for good. With the failure of the last attempt
    /// that failed, if one did. In a box, so that results are moved in two words.
    Ended(Box<(Ended, Option<F>)>),
}

impl<F> Failure<F> {
    /// Makes the failure of a record that was ended.
    pub fn ended(why: Ended, last: Option<F>) -> Self {
        Self::Ended(Box::new((why, last)))
    }
}

/// Why a record was ended before its function had an answer for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time passed.
    TimedOut,
    /// The time of an attempt passed that is not followed by another one.
    AttemptTimedOut,
    /// Too little of its time was left for the next attempt.
    TooLate {
        /// After which that was to begin; longer than the time `left`.
        delay: Duration,
        /// The time that was left then.
        left: Duration,
    },
    /// It was refused instead of being let wait: its destination dropped its last calls and is left alone.
    Refused {
        /// For so long at least.
        rest: Duration,
    },
    /// It has waited too long for a destination that is not there.
    Unavailable {
        /// How long it has waited in all.
        waited: Duration,
        /// Whether its destination is paused; it has not answered for long otherwise.
        is_paused: bool,
    },
    /// A budget has less left than a call of it costs.
    Spent(Spent),
}

impl Ended {
    /// Returns the stable code.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::TimedOut | Self::AttemptTimedOut | Self::TooLate { .. } => {
                ErrorKind::ElementTimedOut
            }
            Self::Refused { .. } => ErrorKind::DestinationPaused,
            Self::Unavailable { .. } => ErrorKind::DestinationUnavailable,
            Self::Spent(_) => ErrorKind::BudgetSpent,
        }
    }
}

/// A record that leaves the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted<E, R, F> {
    /// The input; all its results carry its timestamp.
    pub record: StreamRecord<E>,
    /// Attempts started.
    pub attempts: u32,
    /// The results, or why there are none.
    pub outcome: Result<R, Failure<F>>,
}
