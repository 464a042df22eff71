// SPDX-License-Identifier: Apache-2.0
//! The operators of a task, each of which gets what the one before it puts out.

use std::fmt;
use std::num::NonZeroUsize;

use sparkawait_core::operator::AttemptId;
use sparkawait_core::time::ProcessingTime;

use crate::async_function::AsyncFunction;
use crate::batch_codec::{BatchCodec, CarryCodec};
use crate::chained_operator::ChainedOperator;
use crate::metrics::OperatorMetrics;

/// One operator or several, the output of each being the input of the next.
///
/// Counterpart of Flink's `OperatorChain`: all of them work on one thread, so that a row is handed
/// over without a queue, a lock or a wake-up. Differs in handing over batches, whose cost is that
/// of a few rows: what the next operator can admit now, and nothing before that. An operator
/// whose next one is full so keeps its rows, its own queue fills, and it admits no more.
///
/// ```text
///   input --> [ head ] --rows that fit--> [ .. ] --rows that fit--> [ last ] --> output
///                 ^                          ^                          ^
///                 +------ replies, each with the position of its operator
/// ```
///
/// What fails one of them ends all. The end of the input reaches each one when the one before it
/// has put out its last row.
pub struct OperatorChain<X: BatchCodec, F> {
    /// At least one.
    operators: Vec<ChainedOperator<X, F>>,
}

impl<X: BatchCodec, F: AsyncFunction<X::Calls>> OperatorChain<X, F> {
    /// Makes a chain of one operator.
    pub fn new(head: ChainedOperator<X, F>) -> Self {
        Self { operators: vec![head] }
    }

    /// Appends an operator, which gets the output of the last one.
    #[must_use]
    pub fn then(mut self, next: ChainedOperator<X, F>) -> Self {
        self.operators.push(next);
        self
    }

    pub(crate) fn head(&mut self) -> &mut ChainedOperator<X, F> {
        &mut self.operators[0]
    }

    pub(crate) fn last(&self) -> &ChainedOperator<X, F> {
        &self.operators[self.operators.len() - 1]
    }

    pub(crate) fn last_mut(&mut self) -> &mut ChainedOperator<X, F> {
        let last = self.operators.len() - 1;
        &mut self.operators[last]
    }

    /// Takes the outcomes of a burst of calls of the operator at `position`.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::accept_reply`].
    pub(crate) fn accept_reply(
        &mut self,
        position: usize,
        reply: X::Reply,
        now: ProcessingTime,
    ) -> Result<(), X::Error> {
        match self.operators.get_mut(position) {
            Some(operator) => operator.accept_reply(reply, now),
            None => Ok(()),
        }
    }

    /// Begins calls of the operator at `position` that waited before.
    pub(crate) fn started(&mut self, position: usize, attempts: &[AttemptId], now: ProcessingTime) {
        if let Some(operator) = self.operators.get_mut(position) {
            operator.started(attempts, now);
        }
    }

    /// Lets the operator at `position` have so many calls in flight from now on.
    pub(crate) fn permit(&mut self, position: usize, calls: NonZeroUsize) {
        if let Some(operator) = self.operators.get_mut(position) {
            operator.permit(calls);
        }
    }

    /// Hands over what the operators have put out to those behind them, the last first: what that
    /// takes makes room for those before it.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::take_output`] and [`BatchCodec::accept`], or the failure of a record.
    pub(crate) fn hand_over(&mut self, now: ProcessingTime) -> Result<(), X::Error> {
        for position in (1..self.operators.len()).rev() {
            let (before, rest) = self.operators.split_at_mut(position);
            let (operator, next) = (&mut before[position - 1], &mut rest[0]);
            if let Some(error) = operator.take_failure() {
                return Err(error);
            }
            if next.can_admit() {
                next.admit(usize::MAX, now)?;
            }
            match next.room() {
                _ if !operator.has_output() => {}
                0 => next.check_backlog(now),
                room => {
                    operator.hand_over(room, next)?;
                    next.admit(usize::MAX, now)?;
                }
            }
            if operator.is_finished() && !operator.has_output() {
                next.put_end_of_input();
                next.admit(0, now)?;
            }
        }
        Ok(())
    }

    /// Returns the position of the last operator that has no room for rows that wait for it.
    pub(crate) fn full(&self) -> Option<usize> {
        let mut pairs = self.operators.windows(2).enumerate().rev();
        let is_full = |pair: &[ChainedOperator<X, F>]| pair[0].has_output() && pair[1].room() == 0;
        pairs.find(|(_, pair)| is_full(pair)).map(|(index, _)| index + 1)
    }

    /// Returns whether the input of the last operator waits for room, and nothing but the output
    /// can make some.
    pub(crate) fn waits_for_output(&self) -> bool {
        let before = self.operators.len().checked_sub(2).map(|index| &self.operators[index]);
        self.last().waits_for_output(before.is_some_and(ChainedOperator::has_output))
    }

    /// Sets how many calls of each operator may be in flight.
    pub(crate) fn set_windows(&mut self, now: ProcessingTime) {
        let (mut behind, is_chain) = (0, self.operators.len() > 1);
        for operator in self.operators.iter_mut().rev() {
            operator.set_window(now);
            if is_chain {
                operator.bound_held(behind, now);
                behind += operator.queue_size();
            }
        }
    }

    /// Lets go of input that keeps further input out for few rows.
    ///
    /// # Errors
    ///
    /// As [`BatchCodec::compact`].
    pub(crate) fn make_room(&mut self) -> Result<(), X::Error> {
        self.operators.iter_mut().try_for_each(ChainedOperator::make_room)
    }

    pub(crate) fn carry_out_actions(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(|it| it.carry_out_actions(now));
    }

    /// Returns when [`handle_time`](Self::handle_time) has something to do.
    pub(crate) fn poll_timeout(&mut self) -> Option<ProcessingTime> {
        self.operators.iter_mut().filter_map(ChainedOperator::poll_timeout).min()
    }

    /// Lets due deadlines take effect.
    pub(crate) fn handle_time(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(|it| it.handle_time(now));
    }

    /// Returns whether all rows were put out, or the last operator failed and has put out what was
    /// completed before.
    pub(crate) fn is_finished(&self) -> bool {
        self.last().is_finished()
    }

    /// Ends the calls of all operators if the last one has failed; the others fail on their way.
    pub(crate) fn stop_if_failed(&mut self, now: ProcessingTime) {
        if self.operators.len() > 1 && self.last().has_failed() {
            self.stop(now);
        }
    }

    /// Ends all calls; what the last operator has completed can still be put out.
    pub(crate) fn stop(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(ChainedOperator::stop);
        self.carry_out_actions(now);
    }

    /// Ends all calls and functions.
    pub(crate) fn close(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(|it| it.close(now));
    }

    // --- warm-up ---

    /// Returns whether all calls may be made.
    pub(crate) fn is_open(&self) -> bool {
        self.operators.iter().all(|it| it.warm_up().is_open())
    }

    /// Returns when a turn is to end, so that another one opens what is not open.
    pub(crate) fn opens_at(&self) -> Option<ProcessingTime> {
        self.operators.iter().filter_map(|it| it.warm_up().opens_at()).min()
    }

    /// Notes that the consumer waits for a batch.
    pub(crate) fn begin_turn(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(|it| it.warm_up_mut().begin_turn(now));
    }

    /// Notes that rows have left the task.
    pub(crate) fn left(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(|it| it.warm_up_mut().left(now));
    }

    /// Notes that rows would have left the task, if their calls had had results.
    pub(crate) fn look_for_dropped(&mut self, now: ProcessingTime) {
        let waits =
            |it: &mut ChainedOperator<X, F>| it.warm_up().is_cold() && it.has_dropped_all(now);
        if self.operators.iter_mut().any(waits) {
            self.left(now);
        }
    }

    /// Returns whether no operator holds anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.operators.iter().all(ChainedOperator::is_empty)
    }

    /// Describes what each operator has done.
    pub(crate) fn metrics(&mut self, now: ProcessingTime) -> Vec<OperatorMetrics> {
        self.operators.iter_mut().map(|it| it.metrics(now)).collect()
    }
}

impl<X: CarryCodec, F: AsyncFunction<X::Calls>> OperatorChain<X, F> {
    /// Returns what each operator holds.
    ///
    /// # Errors
    ///
    /// As [`CarryCodec::save`].
    pub(crate) fn save(&mut self, now: ProcessingTime) -> Result<Vec<X::Saved>, X::Error> {
        self.operators.iter_mut().map(|it| it.save(now)).collect()
    }

    /// Returns whether a row is held that was restored `times` times, or more often.
    pub(crate) fn holds_restored(&self, times: u32) -> bool {
        self.operators.iter().any(|it| it.holds_restored(times))
    }
}

impl<X: BatchCodec, F> fmt::Debug for OperatorChain<X, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorChain").field("operators", &self.operators).finish()
    }
}
