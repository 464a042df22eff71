// SPDX-License-Identifier: Apache-2.0
//! Several functions for each record, side by side.

use crate::batch_codec::BatchCodec;

/// Hands the calls of an operator to several others, its *branches*, and joins what they put out.
///
/// ```text
///   operator --calls--> fan-out --input--> a branch for each function
///      ^                   |  ^               |
///      +------ reply ------+  +--- output ----+
/// ```
///
/// The operator has the order of the output and the slots; each branch has permits, retries,
/// timeouts and channels of its own. Belongs to the task thread.
pub trait FanOut<X: BatchCodec>: Send {
    /// Returns whether calls wait to be handed to the branches.
    fn has_calls(&self) -> bool;

    /// Returns the records that were called for since it was asked last, as input of the branches,
    /// with the number of each.
    ///
    /// # Errors
    ///
    /// The records cannot be put together; the task fails.
    fn take_calls(&mut self) -> Result<Vec<(usize, X::Input)>, X::Error>;

    /// Takes what the branch of this number has put out.
    ///
    /// # Errors
    ///
    /// The output does not belong to calls of the branch; the task fails.
    fn accept(&mut self, branch: usize, output: X::Output) -> Result<(), X::Error>;

    /// Returns the outcomes of the calls that all branches have answered since it was asked last.
    ///
    /// # Errors
    ///
    /// The results cannot be put together; the task fails.
    fn take_reply(&mut self) -> Result<Option<X::Reply>, X::Error>;

    /// Returns the failure of a branch, with the record named as the operator names it.
    fn failure(&self, error: X::Error) -> X::Error;

    /// Returns the bytes of results that wait for those of other branches.
    fn held_bytes(&self) -> usize;
}
