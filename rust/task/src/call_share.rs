// SPDX-License-Identifier: Apache-2.0
//! The share that an operator has of the calls that go over connections which others use, too.
//!
//! Operators of a process that use the same connections divide what these bear: a call that found
//! them taken would stand in a line that no operator knows of, while its time runs. With `n` of them
//! each has a part of `n` of its calls, and has all again when it is alone. They are told by mail.

use std::num::NonZeroUsize;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sparkawait_runtime::ReplySender;

use crate::shared::Shared;
use crate::task_codec::TaskCodec;

/// The operators of this process, by the connections that they use.
static OPERATORS: Shared = Shared::new();

/// Those that use the same connections.
#[derive(Default)]
struct Operators {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they began.
    operators: Vec<Operator>,
    /// How many there were.
    begun: u64,
}

struct Operator {
    id: u64,
    /// Calls that it may have when it is alone.
    calls: usize,
    mailbox: ReplySender<TaskCodec>,
}

/// The place of an operator among those that use the same connections, until it is dropped.
pub(crate) struct CallShare {
    operators: Arc<Operators>,
    id: u64,
    /// The process that has the operator; a forked child has a copy of it, and no part in it.
    process: u32,
}

impl CallShare {
    /// Adds an operator with `calls` calls; all are told their shares.
    pub(crate) fn of(connections: &str, calls: usize, mailbox: ReplySender<TaskCodec>) -> Self {
        let Ok(operators) = OPERATORS
            .get_or_make(connections, || Ok::<_, std::convert::Infallible>(Operators::default()));
        let mut state = operators.state();
        let id = state.begun;
        state.begun += 1;
        state.operators.push(Operator { id, calls, mailbox });
        state.divide();
        drop(state);
        Self { operators, id, process: process::id() }
    }
}

impl Drop for CallShare {
    fn drop(&mut self) {
        if self.process == process::id() {
            let mut state = self.operators.state();
            state.operators.retain(|it| it.id != self.id);
            state.divide();
        }
    }
}

impl Operators {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn divide(&self) {
        for Operator { calls, mailbox, .. } in &self.operators {
            let share = NonZeroUsize::new(calls / self.operators.len());
            // One that has ended leaves by itself.
            let _ = mailbox.permit(share.unwrap_or(NonZeroUsize::MIN));
        }
    }
}
