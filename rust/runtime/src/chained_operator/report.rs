// SPDX-License-Identifier: Apache-2.0
//! What an operator says when something is wrong: what it holds, and what its account lacks.

use sparkawait_core::operator::Begins;

use super::ChainedOperator;
use crate::account::Calls;
use crate::async_function::AsyncFunction;
use crate::batch_codec::{BatchCodec, RowsLeft};

impl<X: BatchCodec, F: AsyncFunction<X::Calls>> ChainedOperator<X, F> {
    /// Returns whether its input has ended; some of it may wait.
    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether it holds rows, its input and its output included.
    pub(crate) fn holds_rows(&self) -> bool {
        !self.is_empty() || self.codec.output_rows() > 0
    }

    /// Returns whether its function has something to answer, or its journal.
    pub(crate) fn awaits_answers(&self) -> bool {
        self.operator.in_flight() > 0
            || self.operator.levels().asked > 0
            || self.waits_for_journal()
    }

    /// Describes what it holds, without any contents of rows.
    pub(crate) fn describe(&self, position: usize) -> String {
        let levels = self.operator.levels();
        let (input, results) = (self.codec.input_bytes(), self.codec.result_bytes());
        let mut text = format!(
            "operator {position} (`{}`) holds {} rows of {}: {} completed, {} called of {}, {} asked \
             for their timeout, {} between attempts, {} restored; {} batches of input wait; {} rows \
             of output; {input} bytes of input and {results} of results",
            self.codec.function(),
            levels.held,
            self.operator.config().capacity,
            levels.completed,
            levels.running,
            levels.window,
            levels.asked,
            levels.backing_off,
            levels.restored,
            self.inputs.len() + usize::from(self.codec.has_element()),
            self.codec.output_rows(),
        );
        if levels.backing_off > 0 {
            text.push_str("; a retry budget that only calls fill lets none of these go on");
        }
        text
    }

    /// Checks that all that the operator before put out has come in, and has left or is among the
    /// rows `held` that are handed over; `position` names the operator.
    ///
    /// # Errors
    ///
    /// [`BatchCodec::broken`] if some rows have not.
    pub(crate) fn settle(
        &self,
        position: usize,
        before: Option<&Self>,
        held: Option<usize>,
    ) -> Result<(), X::Error> {
        let on_the_way = before.and_then(|it| self.account.mismatch_behind(&it.codec.left()));
        let mismatch = on_the_way.or_else(|| self.account.mismatch(&self.codec.left(), held));
        mismatch.map_or(Ok(()), |it| Err(X::broken(self.lost(position, &it))))?;
        // No row is wrong by that, so no job ends for it.
        debug_assert_eq!(self.mismatch_of_calls(), None, "operator {position}");
        Ok(())
    }

    /// Says how far attempts are not the calls that were announced, where these are.
    fn mismatch_of_calls(&self) -> Option<String> {
        match self.operator.config().begins {
            Begins::AtOnce => None,
            Begins::WhenSaid => self.account.mismatch_of_calls(self.operator.attempts()),
        }
    }

    /// Returns how many rows of its input have left it, or are among the rows `held` that are handed
    /// over.
    pub(crate) fn settled(&self, held: usize) -> u64 {
        self.account.settled(&self.codec.left(), held)
    }

    /// Returns what happened to the rows that have left it.
    pub(crate) fn left(&self) -> RowsLeft {
        self.codec.left()
    }

    /// Returns the calls that it has made of functions side by side.
    pub(crate) fn calls_beside(&self) -> Calls {
        let made = self.operator.attempts();
        Calls { made, answered: made.saturating_sub(self.operator.in_flight() as u64) }
    }

    /// Returns whether all rows came that it was called for.
    pub(crate) const fn was_given(&self, calls: Calls) -> bool {
        self.account.was_given(calls)
    }

    /// Says what got lost between this operator, at `position`, and the one that made these `calls` of
    /// it and of others beside it.
    pub(crate) fn lost_beside(&self, position: usize, calls: Calls) -> Option<String> {
        let mismatch = self.account.mismatch_beside(calls, &self.codec.left());
        mismatch.map(|it| self.lost(position, &it))
    }

    fn lost(&self, position: usize, mismatch: &str) -> String {
        let (function, config) = (self.codec.function(), self.operator.config());
        format!(
            "operator {position} (`{function}`) has lost or doubled rows: {mismatch}. \
             Options: {config:?}, {:?}",
            self.config
        )
    }
}
