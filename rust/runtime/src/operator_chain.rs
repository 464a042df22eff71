// SPDX-License-Identifier: Apache-2.0
//! The operators of a task; each gets what the one before it puts out.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sparkawait_core::operator::AttemptId;
use sparkawait_core::time::ProcessingTime;

use crate::account::Settled;
use crate::async_function::AsyncFunction;
use crate::batch_codec::{BatchCodec, CarryCodec};
use crate::chained_operator::ChainedOperator;
use crate::fan_out::FanOut;
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
///
/// An operator may call several functions side by side: then it has branches, which are operators of
/// their own. They come behind it in the numbering, and before the one that gets its output.
pub struct OperatorChain<X: BatchCodec, F> {
    /// All operators by their positions, branches included; at least one.
    operators: Vec<ChainedOperator<X, F>>,
    /// Positions of those that follow each other.
    line: Vec<usize>,
    /// Of the operators that have some.
    branches: Vec<Branches<X>>,
}

/// The branches of an operator.
struct Branches<X> {
    /// The operator's position.
    operator: usize,
    /// Their own.
    positions: Range<usize>,
    fan_out: Box<dyn FanOut<X>>,
}

impl<X: BatchCodec, F: AsyncFunction<X::Calls>> OperatorChain<X, F> {
    /// Makes a chain of one operator.
    pub fn new(head: ChainedOperator<X, F>) -> Self {
        Self { operators: vec![head], line: vec![0], branches: Vec::new() }
    }

    /// Appends an operator, which gets the output of the last one.
    #[must_use]
    pub fn then(mut self, next: ChainedOperator<X, F>) -> Self {
        self.line.push(self.operators.len());
        self.operators.push(next);
        self
    }

    /// Gives the last operator branches, whose work is handed out and joined by `fan_out`.
    #[must_use]
    pub fn fan_out(
        mut self,
        branches: impl IntoIterator<Item = ChainedOperator<X, F>>,
        fan_out: Box<dyn FanOut<X>>,
    ) -> Self {
        let (operator, first) = (self.last_position(), self.operators.len());
        self.operators.extend(branches);
        let positions = first..self.operators.len();
        self.branches.push(Branches { operator, positions, fan_out });
        self
    }

    fn last_position(&self) -> usize {
        self.line[self.line.len() - 1]
    }

    pub(crate) fn head(&mut self) -> &mut ChainedOperator<X, F> {
        &mut self.operators[0]
    }

    pub(crate) fn last(&self) -> &ChainedOperator<X, F> {
        &self.operators[self.last_position()]
    }

    pub(crate) fn last_mut(&mut self) -> &mut ChainedOperator<X, F> {
        let last = self.last_position();
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
    pub(crate) fn started(
        &mut self,
        position: usize,
        attempts: &[AttemptId],
        began: ProcessingTime,
        now: ProcessingTime,
    ) {
        if let Some(operator) = self.operators.get_mut(position) {
            operator.started(attempts, began, now);
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
        for pair in self.line.windows(2).rev() {
            let (before, rest) = self.operators.split_at_mut(pair[1]);
            let (operator, next) = (&mut before[pair[0]], &mut rest[0]);
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
        }
        self.hand_over_end(now)
    }

    /// Returns whether something can be handed over, or be put out, that could not be before.
    pub(crate) fn has_ready(&self) -> bool {
        let can_hand_over = |pair: &[usize]| {
            self.operators[pair[0]].has_output() && self.operators[pair[1]].room() > 0
        };
        self.last().has_ready() || self.line.windows(2).any(can_hand_over)
    }

    /// Tells each operator of the end of its input once the one before it has put out its last row, the
    /// first one first: what has nothing left passes the end on at once.
    fn hand_over_end(&mut self, now: ProcessingTime) -> Result<(), X::Error> {
        for pair in self.line.windows(2) {
            let (before, rest) = self.operators.split_at_mut(pair[1]);
            let (operator, next) = (&mut before[pair[0]], &mut rest[0]);
            // By a row that it was handed just now: it is finished, and its rows have not left.
            if let Some(error) = operator.take_failure() {
                return Err(error);
            }
            if operator.is_finished() && !operator.has_output() {
                next.put_end_of_input();
                next.admit(0, now)?;
            }
        }
        Ok(())
    }

    /// Hands calls to branches, and what these have completed back, until there is no more of it.
    ///
    /// # Errors
    ///
    /// As [`FanOut`]'s, [`BatchCodec::accept`] and [`BatchCodec::take_output`], or the failure of a
    /// record in a branch.
    pub(crate) fn fan(&mut self, now: ProcessingTime) -> Result<(), X::Error> {
        for Branches { operator, positions, fan_out } in &mut self.branches {
            loop {
                self.operators[*operator].carry_out_actions(now);
                let calls = fan_out.take_calls()?;
                let has_calls = !calls.is_empty();
                for (branch, input) in calls {
                    self.operators[positions.start + branch].put_input(input);
                }
                for (number, branch) in self.operators[positions.clone()].iter_mut().enumerate() {
                    branch.take_in(now)?;
                    branch.emit(usize::MAX);
                    while let Some(output) = branch.take_output()? {
                        fan_out.accept(number, output)?;
                    }
                    // What has left made room.
                    branch.take_in(now)?;
                    // A row that was taken in just now may have failed it, too.
                    if let Some(error) = branch.take_failure() {
                        return Err(fan_out.failure(error));
                    }
                }
                let reply = fan_out.take_reply()?;
                let has_reply = reply.is_some();
                let operator = &mut self.operators[*operator];
                if let Some(reply) = reply {
                    operator.accept_reply(reply, now)?;
                }
                operator.hold_beside(fan_out.held_bytes());
                if !has_calls && !has_reply {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns whether [`fan`](Self::fan) has calls to hand out.
    pub(crate) fn has_calls_to_fan(&self) -> bool {
        self.branches.iter().any(|it| it.fan_out.has_calls())
    }

    /// Returns the position of the last operator that has no room for rows that wait for it.
    pub(crate) fn full(&self) -> Option<usize> {
        let is_full = |pair: &[usize]| {
            self.operators[pair[0]].has_output() && self.operators[pair[1]].room() == 0
        };
        self.line.windows(2).rev().find(|pair| is_full(pair)).map(|pair| pair[1])
    }

    /// Returns whether the input of the last operator waits for room, and only the output can make
    /// some.
    pub(crate) fn waits_for_output(&self) -> bool {
        let before = self.line.iter().rev().nth(1).map(|&position| &self.operators[position]);
        self.last().waits_for_output(before.is_some_and(ChainedOperator::has_output))
    }

    /// Sets how many calls of each operator may be in flight.
    pub(crate) fn set_windows(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().rev().for_each(|it| it.set_window(now));
        if self.line.len() == 1 {
            return;
        }
        let mut behind = 0;
        // What is in branches waits in the operator that has them, too.
        for &position in self.line.iter().rev() {
            let operator = &mut self.operators[position];
            operator.bound_held(behind);
            behind += operator.queue_size();
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

    /// Ends all calls and functions. One that panics keeps no other open; its panic goes on then.
    pub(crate) fn close(&mut self, now: ProcessingTime) {
        let close =
            |it: &mut ChainedOperator<X, F>| catch_unwind(AssertUnwindSafe(|| it.close(now))).err();
        let panics: Vec<_> = self.operators.iter_mut().filter_map(close).collect();
        if let Some(first) = panics.into_iter().next() {
            resume_unwind(first);
        }
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
        self.operators.iter_mut().for_each(|it| it.begin_turn(now));
    }

    /// Notes that rows have left the task.
    pub(crate) fn left(&mut self, now: ProcessingTime) {
        self.operators.iter_mut().for_each(|it| it.batch_left(now));
    }

    /// Notes that rows would have left the task, if their calls had had results.
    pub(crate) fn look_for_dropped(&mut self, now: ProcessingTime) {
        let waits =
            |it: &mut ChainedOperator<X, F>| it.warm_up().is_cold() && it.has_dropped_all(now);
        if self.operators.iter_mut().any(waits) {
            self.left(now);
        }
    }

    /// Checks that all rows have left each operator, at the end of the input.
    ///
    /// # Errors
    ///
    /// As [`ChainedOperator::settle`].
    pub(crate) fn settle(&self) -> Result<(), X::Error> {
        self.settle_with(|_| None)?;
        self.lost_beside().map_or(Ok(()), |it| Err(X::broken(it)))
    }

    /// Returns what happened to the rows, with those `held` of the first operator that are handed
    /// over.
    pub(crate) fn settled(&self, held: usize) -> Settled {
        let left = self.last().left();
        Settled {
            input: self.operators[0].settled(held),
            output: left.output,
            left_out: left.without_result + left.dropped,
        }
    }

    /// Says what got lost between an operator and those that it calls side by side, if nothing is on
    /// its way.
    fn lost_beside(&self) -> Option<String> {
        self.branches.iter().find_map(|of| {
            let calls = self.operators[of.operator].calls_beside();
            let mut positions: Vec<usize> = of.positions.clone().collect();
            // Those beside it have answered a row that one of them never got.
            positions.sort_by_key(|it| self.operators[*it].was_given(calls));
            positions.into_iter().find_map(|it| self.operators[it].lost_beside(it, calls))
        })
    }

    /// Checks it with the rows `held` of each operator that are handed over.
    fn settle_with(&self, held: impl Fn(usize) -> Option<usize>) -> Result<(), X::Error> {
        for (position, operator) in self.operators.iter().enumerate() {
            let before = self.line.windows(2).find(|pair| pair[1] == position);
            let before = before.map(|pair| &self.operators[pair[0]]);
            operator.settle(position, before, held(position))?;
        }
        Ok(())
    }

    /// Returns whether it holds rows that nothing can happen to any more, if no deadline is armed
    /// and there is no mail: no call will be answered, and no input helps.
    ///
    /// As long as `more` input may come, only rows that keep it out count.
    pub(crate) fn is_stuck(&self, more: bool) -> bool {
        let has_branches = |it: &usize| self.branches.iter().any(|of| of.operator == *it);
        // The calls of an operator with branches are the rows of these.
        let mut callers = (0..self.operators.len()).filter(|it| !has_branches(it));
        let holds_rows = if more && !self.operators[0].has_ended() {
            self.operators[0].has_input()
        } else {
            self.operators.iter().any(ChainedOperator::holds_rows)
        };
        holds_rows && self.is_open() && !callers.any(|it| self.operators[it].awaits_answers())
    }

    /// Makes the error of a chain that is stuck.
    pub(crate) fn stuck(&self) -> X::Error {
        let rooms = self.operators.iter().enumerate().map(|(position, it)| it.describe(position));
        X::broken(format!(
            "the task would wait for ever: it holds rows, and no call is in flight, no deadline is set \
             and nothing was sent to it. {}{}",
            self.lost_beside().map_or_else(String::new, |it| it + ". "),
            rooms.collect::<Vec<_>>().join(". ")
        ))
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
    /// As [`CarryCodec::save`], or rows are missing.
    pub(crate) fn save(&mut self, now: ProcessingTime) -> Result<Vec<X::Saved>, X::Error> {
        let saved = self.operators.iter_mut().map(|it| it.save(now));
        let saved = saved.collect::<Result<Vec<_>, _>>()?;
        self.settle_with(|position| saved.get(position).map(X::rows_saved))?;
        Ok(saved)
    }

    /// Returns whether a row is held that was restored `times` times, or more often.
    pub(crate) fn holds_restored(&self, times: u32) -> bool {
        self.operators.iter().any(|it| it.holds_restored(times))
    }
}

sparkawait_core::opaque_debug!([X: BatchCodec, F] OperatorChain<X, F>, operators: operators);
