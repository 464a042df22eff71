// SPDX-License-Identifier: Apache-2.0
//! What the records of an operator wait for.

use super::AsyncWaitOperator;
use super::in_flight::Phase;
use crate::queue::StreamElementQueue;

/// How many records of an operator wait for what, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Records held, restored ones that wait for a slot included.
    pub held: usize,
    /// Restored records that wait for a slot.
    pub restored: usize,
    /// Those that wait to be emitted.
    pub completed: usize,
    /// Calls that run, and those that may run at this moment.
    pub running: usize,
    /// See `running`.
    pub window: usize,
    /// Records of which the function was asked what to emit, because their time had passed.
    pub asked: usize,
    /// Records between two attempts.
    pub backing_off: usize,
}

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Counts what records wait for. Looks at each of them.
    pub fn levels(&self) -> Levels {
        let (mut asked, restored) = (0, self.replay.len());
        self.queue.any(|in_flight| {
            asked += usize::from(in_flight.phase == Phase::TimedOut);
            false
        });
        Levels {
            held: self.queue.len() + restored,
            restored,
            completed: self.completed,
            running: self.running,
            window: self.window,
            asked,
            backing_off: self.backing_off,
        }
    }
}
