// SPDX-License-Identifier: Apache-2.0
//! What an operator says when its account does not add up.

use super::ChainedOperator;
use crate::async_function::AsyncFunction;
use crate::batch_codec::{BatchCodec, CarryCodec};

impl<X: BatchCodec, F: AsyncFunction<X::Calls>> ChainedOperator<X, F> {
    /// Checks that all rows have left, at the end of the input; `position` names the operator.
    ///
    /// # Errors
    ///
    /// [`BatchCodec::broken`] if they have not.
    pub(crate) fn settle(&self, position: usize) -> Result<(), X::Error> {
        self.settle_with(position, None)
    }

    fn settle_with(&self, position: usize, held: Option<usize>) -> Result<(), X::Error> {
        let Some(mismatch) = self.account.mismatch(&self.codec.left(), held) else { return Ok(()) };
        let (function, config) = (self.codec.function(), self.operator.config());
        Err(X::broken(format!(
            "operator {position} (`{function}`) has lost or doubled rows: {mismatch}. \
             Options: {config:?}, {:?}",
            self.config
        )))
    }
}

impl<X: CarryCodec, F: AsyncFunction<X::Calls>> ChainedOperator<X, F> {
    /// Checks that all rows have left or are in `saved`, at the end of a part.
    ///
    /// # Errors
    ///
    /// As [`settle`](Self::settle).
    pub(crate) fn settle_part(&self, position: usize, saved: &X::Saved) -> Result<(), X::Error> {
        self.settle_with(position, Some(X::rows_saved(saved)))
    }
}
