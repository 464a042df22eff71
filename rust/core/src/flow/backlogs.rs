// SPDX-License-Identifier: Apache-2.0
//! What waits in each channel, in one slab for all.

use super::lines::{Line, Lines};
use crate::queue::EntryId;

/// The records that wait in one channel, oldest first. Its nodes are in [`Backlogs`].
pub(super) type Backlog = Line;

/// The nodes of all [`Backlog`]s.
pub(super) type Backlogs = Lines<EntryId>;
