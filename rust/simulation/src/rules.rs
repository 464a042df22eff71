// SPDX-License-Identifier: Apache-2.0
//! What holds for a row, as data: if you change a rule of the operator, change it here, too.
//!
//! Nothing here says how the operator does it. [`model`](crate::model) reads this table and holds what
//! it sees of a task against it.

/// What a call said, or what was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It returned, and nothing asks for another attempt.
    Answered,
    /// It failed for good.
    Failed,
    /// It failed or returned, and another attempt may be worth it.
    AsksForRetry,
    /// It was of several rows and failed, and asks for another call for the row, in a part.
    Divided,
    /// `attempt_timeout` passed.
    AttemptTimedOut,
    /// The `timeout` of its row passed.
    TimedOut,
}

/// What happens to a row whose last call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It has its results.
    Results,
    /// It has failed.
    Failure,
    /// It is called again, after a back-off.
    BackOff,
    /// It is called again, as soon as it may be, without a retry.
    InPart,
    /// The function is asked what to put out, if it wants to be; else it has failed.
    AskOrFail,
}

/// The rules.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a table")]
pub struct Rules {
    /// The `timeout` of a row begins with its first call. Nothing before counts that it waits in
    /// line for: a slot, a permit, a credit, a rate limit, an earlier row of its key, and after a
    /// restore its place in line.
    pub time_begins_with_the_first_call: bool,
    /// Neither does the wait of a further attempt in line, once its back-off is over.
    pub time_stands_in_line: bool,
    /// A row that waits for a destination which is paused, or has not replied for `timeout`, ends after
    /// `max_wait`.
    pub patience_ends: bool,
    /// A pause that a destination asks for counts for that only if there is a `max_wait`.
    pub asked_pause_counts_if_bounded: bool,
    /// What follows the end of the last call of a row: with another attempt left, and without.
    pub after: &'static [(Ended, Next, Next)],
    /// A row in back-off holds a permit of `max_concurrency`.
    pub back_off_holds_a_permit: bool,
    /// A row in back-off holds a slot of `capacity`, where there are no channels.
    pub back_off_holds_a_slot: bool,
    /// A second call beside a slow one takes a permit.
    pub hedge_takes_a_permit: bool,
    /// It pays limits in time.
    pub hedge_pays: bool,
    /// Rows with two calls hold less than all permits.
    pub hedges_leave_a_permit: bool,
    /// Each further attempt pays limits in time.
    pub retry_pays: bool,
    /// Cancellations of a burst are told before the calls that take their places.
    pub cancels_come_first: bool,
    /// A back-off that would end after the time of its row ends the row at once.
    pub late_back_off_ends_the_row: bool,
    /// A row that was restored has the whole of its timeout again.
    pub restored_has_all_time: bool,
    /// A call that was in flight when its row was saved is made again under the same number.
    pub restored_call_keeps_its_number: bool,
    /// A row saved while its function was asked about it: the restored task asks again, and calls
    /// nothing.
    pub restored_is_asked_again: bool,
    /// A call that is cancelled in the burst that it begins in is not made, and yet an attempt.
    pub a_call_in_vain_counts: bool,
    /// A function that is called beside others may return one result at most.
    pub several_beside_others_fail: bool,
    /// A retry that is answered gives back what it has cost its budget.
    pub answered_retry_gives_back: bool,
    /// While results take all room, one call is made at a time.
    pub results_bound_calls: bool,
    /// For so many nanoseconds a place at a limit that others take from waits for its call.
    pub place_waits: u64,
}

/// Those of today.
pub const RULES: Rules = Rules {
    time_begins_with_the_first_call: true,
    time_stands_in_line: true,
    patience_ends: true,
    asked_pause_counts_if_bounded: true,
    after: &[
        (Ended::Answered, Next::Results, Next::Results),
        (Ended::Failed, Next::Failure, Next::Failure),
        (Ended::AsksForRetry, Next::BackOff, Next::Failure),
        (Ended::Divided, Next::InPart, Next::InPart),
        (Ended::AttemptTimedOut, Next::BackOff, Next::Failure),
        (Ended::TimedOut, Next::AskOrFail, Next::AskOrFail),
    ],
    back_off_holds_a_permit: false,
    back_off_holds_a_slot: true,
    hedge_takes_a_permit: true,
    hedge_pays: true,
    hedges_leave_a_permit: true,
    retry_pays: true,
    cancels_come_first: true,
    late_back_off_ends_the_row: true,
    restored_has_all_time: true,
    restored_call_keeps_its_number: true,
    restored_is_asked_again: true,
    a_call_in_vain_counts: false,
    several_beside_others_fail: true,
    answered_retry_gives_back: true,
    results_bound_calls: true,
    place_waits: 100_000_000,
};

impl Rules {
    /// Returns what follows.
    pub fn next(&self, ended: Ended, can_retry: bool) -> Next {
        let found = self.after.iter().find(|it| it.0 == ended);
        found.map_or(Next::Failure, |it| if can_retry { it.1 } else { it.2 })
    }
}
