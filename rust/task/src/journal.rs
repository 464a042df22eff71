// SPDX-License-Identifier: Apache-2.0
//! Where what rows came to is kept from one run to the next.
//!
//! A row is looked up before its task gets it: the column [`KNOWN`] of its batch says what it came
//! to in an earlier run. The task appends the others under their [`KEY`] when they are completed,
//! and lets them leave when the journal has committed them.

use std::fmt::Debug;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field};

use crate::error::TaskError;

/// The hidden column with the key of each row, of [`KEY_WIDTH`] bytes.
pub const KEY: &str = "__sparkawait_key";

/// The last column of all: what each row came to before; null if that is unknown.
///
/// A struct: `kind` and `message` of a failure, or null; its `attempt`s, `status` and `cost`; `result`,
/// a list of the rows that it came to.
pub const KNOWN: &str = "__sparkawait_known";

/// The width of a key.
pub const KEY_WIDTH: i32 = 16;

/// What stands in it.
pub(crate) type Key = [u8; KEY_WIDTH as usize];

/// Commits what rows came to, on a thread of its own.
pub trait Journal: Debug + Send + Sync {
    /// Takes what was completed since the last time, in the columns that the journal has. The numbers of
    /// a task begin with 1.
    fn append(&self, number: u64, entries: RecordBatch);

    /// Returns the number of the last commit that is done, with all before it.
    ///
    /// # Errors
    ///
    /// One has failed.
    fn committed(&self) -> Result<u64, TaskError>;

    /// Has `waker` told when a commit is done or has failed.
    fn connect(&self, waker: Waker);
}

/// A journal, and when it is written.
#[derive(Clone, Debug)]
pub struct JournalConfig {
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// What is completed waits so long at most before a commit begins with it.
    pub interval: Duration,
    /// One begins earlier for so many bytes.
    pub max_bytes: usize,
    /// Whether it has the rows that were asked for, too.
    pub keeps_input: bool,
}

/// Returns the field of the key.
pub(crate) fn key_field() -> Field {
    Field::new(KEY, DataType::FixedSizeBinary(KEY_WIDTH), false)
}
