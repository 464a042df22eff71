// SPDX-License-Identifier: Apache-2.0
//! Channels that a function finds by itself: it knows where a row goes, its columns do not.

use std::fmt;

use arrow::array::RecordBatch;
use sparkawait_arrow::Keys;
use sparkawait_core::Key;

use crate::error::TaskError;

/// Finds the channel of each row: where it goes.
///
/// Used by the task thread, once per batch; a row keeps what was found for it.
pub trait ChannelFinder: fmt::Debug + Send + Sync {
    /// Returns the channel of each row of `batch` as of now; `None` where a row goes nowhere.
    ///
    /// # Errors
    ///
    /// The batch does not have the columns that the function was started for; the task fails.
    fn find(&self, batch: &RecordBatch) -> Result<Keys, TaskError>;

    /// Names a channel.
    fn name(&self, channel: Key) -> Option<String>;
}
