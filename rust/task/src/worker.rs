// SPDX-License-Identifier: Apache-2.0
//! The tokio task that the calls of one Spark task live in.

use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::AsyncFunction;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::function::{Calls, Replies};
use crate::supervision::spawn;

/// What the task thread tells the tokio task; one for a burst of calls.
#[derive(Debug)]
pub enum Command {
    /// Calls to start.
    Invoke(Calls),
    /// Calls whose outcome nobody waits for any more, sorted: each call that waits is looked up in them.
    Cancel(Vec<AttemptId>),
}

/// Commands in the order that they were given; `None` once the function is closed.
pub type Commands = UnboundedReceiver<Command>;

/// A native function whose calls live in one tokio task.
///
/// The task gets the commands and sends the replies; it ends when the function is
/// closed or dropped, and everything that it owns with it.
#[derive(Debug)]
pub struct Worker {
    commands: UnboundedSender<Command>,
}

impl Worker {
    /// Starts the task: `work` makes it out of the commands' receiver.
    pub fn start<W>(
        runtime: &Handle,
        name: &'static str,
        replies: Replies,
        work: impl FnOnce(Commands) -> W,
    ) -> Self
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let (commands, receiver) = unbounded_channel();
        spawn(runtime, name, replies, work(receiver));
        Self { commands }
    }
}

impl AsyncFunction<Calls> for Worker {
    fn invoke(&mut self, calls: Calls) {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "refused only after `close`, when nobody waits for a reply"
        )]
        let _ = self.commands.send(Command::Invoke(calls));
    }

    fn ask_timeout(&mut self, _calls: Calls) {
        // Native functions declare no timeout handler, so that none is ever asked.
    }

    fn cancel(&mut self, mut attempts: Vec<AttemptId>) {
        attempts.sort_unstable();
        #[expect(
            clippy::let_underscore_must_use,
            reason = "refused only after `close`, when nobody waits for a reply"
        )]
        let _ = self.commands.send(Command::Cancel(attempts));
    }

    fn close(&mut self) {
        self.commands = unbounded_channel().0;
    }
}
