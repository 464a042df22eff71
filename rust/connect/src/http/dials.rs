// SPDX-License-Identifier: Apache-2.0
//! Connections of HTTP that are being made, each by a task of its own.
//!
//! A call may end at any moment, and a connection that is made within it would end with it: a login
//! that takes longer than an attempt would never succeed. What a call leaves behind is for the next
//! call that needs a connection to the same server.

use std::error::Error as StdError;
use std::io;

use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::guard::Forbidden;
use super::http1::Line;

pub(super) type Cause = Box<dyn StdError + Send + Sync>;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoConnection {
    TimedOut,
    Forbidden(Forbidden),
    Failed(Cause),
}

/// What making a connection came to: `None` is one of HTTP/2, which its server's place has by then.
pub(super) type Dialled = Result<Option<Line>, NoConnection>;

/// A connection that is being made. It is no longer made when nobody has this any more.
pub(super) struct Dial {
    made: oneshot::Receiver<Dialled>,
    task: AbortHandle,
}

impl Dial {
    /// Starts a task that makes a connection.
    pub(super) fn start(making: impl Future<Output = Dialled> + Send + 'static) -> Self {
        let (maker, made) = oneshot::channel();
        let task = spawn_aside(&Handle::current(), "http connecting", async move {
            // Where nobody waits for it any more, it is not needed.
            drop(maker.send(making.await));
        });
        Self { made, task }
    }

    /// Waits for what it comes to.
    ///
    /// # Cancel safety
    ///
    /// If that is dropped, it is made all the same.
    pub(super) async fn made(&mut self) -> Dialled {
        (&mut self.made).await.unwrap_or_else(|_| panicked())
    }

    /// Returns what it came to, if it has.
    pub(super) fn outcome(&mut self) -> Option<Dialled> {
        match self.made.try_recv() {
            Ok(made) => Some(made),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(panicked()),
        }
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn panicked() -> Dialled {
    Err(NoConnection::Failed("connecting panicked; the log says why".into()))
}

impl From<io::Error> for NoConnection {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Failed(error.into()),
        }
    }
}

impl NoConnection {
    /// Whether this process has no file left to open.
    pub(super) fn has_no_files(&self) -> bool {
        let Self::Failed(cause) = self else { return false };
        let code = io_error(cause.as_ref()).and_then(io::Error::raw_os_error);
        code == Some(rustix::io::Errno::MFILE.raw_os_error())
    }
}

/// Finds what the system said among what an error was caused by.
fn io_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
