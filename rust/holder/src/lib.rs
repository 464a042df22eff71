// SPDX-License-Identifier: Apache-2.0
//! Tasks that outlive a micro-batch, and what of them is in the state of a stream.
//!
//! ```text
//!   micro-batch N        N + 1                  N + 2
//!   step: rows in,       step: rows in,         step: rows in,
//!     |   results out      |   results out        |   results out
//!     v                    v                      v
//!   [ detached task: operators, timers, retries, credits, calls in flight ]
//!     |                    |                      |
//!     +--> state N         +--> state N + 1       +--> state N + 2
//! ```
//!
//! The state is what counts: everything that a task holds is in it at the end of each part of its
//! input. A task that is still there saves the calls from being made again, no more.
//!
//! | module | what lives there |
//! |---|---|
//! | [`detached`] | a task on a thread of its own |
//! | `part` | where it is with its input, and what may follow what |
//! | `kept_answers` | answers that steps have, for those that come again |
//! | [`state`] | what a stream keeps of it |
//! | [`endpoint`] | steps of another process, over a Unix socket |
//! | [`ipc`] | record batches as bytes, and back |

mod bundles;
pub mod detached;
pub mod endpoint;
mod idle;
pub mod ipc;
mod kept_answers;
mod part;
mod part_end;
mod random;
mod reader;
pub mod state;

pub use bundles::BundleId;
pub use detached::DetachedTask;
pub use part::{Begun, Claim};
pub use part_end::{Counts, NUMBERS, PartEnd};
pub use state::{Carried, TaskId};
