// SPDX-License-Identifier: Apache-2.0
//! Who takes the output of a task that a thread drives: looks whenever the task looks at the clock or
//! waits, as if on another thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sparkawait_runtime::{DrivenTask, Turn};
use sparkawait_task::function::TaskFunction;
use sparkawait_task::task_codec::TaskCodec;

use super::output::{Ended, Output};
use crate::random::Random;
use crate::world::{Shared, TaskClock};

/// A task in simulation, as its consumer has it.
pub(super) type SimulatedTask = DrivenTask<TaskCodec, TaskFunction, TaskClock>;

/// The consumer of a task.
pub(super) struct Consumer {
    pub(super) task: Arc<SimulatedTask>,
    pub(super) output: Arc<Mutex<Output>>,
    pub(super) shared: Shared,
    /// When it looks, and for how long it does something else.
    pub(super) random: Random,
    /// Most nanoseconds for which it does something else.
    pub(super) pause: u64,
    /// Until when it does something else.
    pub(super) away_until: u64,
    /// Whether it waits for a batch.
    pub(super) waits: bool,
}

impl Consumer {
    /// Looks at the outlet, or does something else; returns whether the thread of the task is woken.
    pub(super) fn look(&mut self) -> bool {
        let now = {
            let world = self.shared.world();
            // Its turns would go on for ever.
            assert!(world.broken.is_none(), "a rule is broken");
            world.now
        };
        // A task of few calls goes on only while its consumer waits.
        if self.task.is_open() && (now < self.away_until || !self.random.in_a_hundred(60)) {
            return false;
        }
        match self.task.take(Duration::ZERO) {
            Ok(Turn::Output(batch)) => {
                self.waits = false;
                if self.pause > 0 && self.random.in_a_hundred(30) {
                    self.away_until = now + self.random.next() % self.pause;
                }
                self.output.lock().unwrap_or_else(PoisonError::into_inner).left(&batch);
                true
            }
            Ok(Turn::Paused) => !std::mem::replace(&mut self.waits, true),
            ended => {
                let what = format!("{ended:?}");
                self.shared.world().fail("the end is told when the thread has nothing to do", what);
                false
            }
        }
    }

    /// Takes what a thread has put out that has ended, and how it ended.
    pub(super) fn take_rest(&self) -> Ended {
        let mut batches = 0;
        loop {
            match self.task.take(Duration::ZERO) {
                Ok(Turn::Output(batch)) => {
                    batches += 1;
                    self.output.lock().unwrap_or_else(PoisonError::into_inner).left(&batch);
                }
                Ok(Turn::Paused) => {
                    let what = format!("{batches} batches, and then nothing");
                    self.shared.world().fail("a thread that ends says how", what);
                    return Ended::Broken;
                }
                Ok(Turn::Finished) => return Ended::Finished,
                Err(error) => return Ended::Failed(error),
            }
        }
    }
}
