// SPDX-License-Identifier: Apache-2.0
//! Waiting that Ctrl-C ends.

use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::internal_error;

/// Longest time without a look at signals.
const TURN: Duration = Duration::from_millis(50);

/// Waits for `work` without the GIL; drops it when Python wants to handle a signal by an exception.
pub(crate) fn wait_for<T: Send>(
    py: Python<'_>,
    runtime: &Handle,
    work: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let mut work = Box::pin(work);
    loop {
        let turn = py.detach(|| runtime.block_on(async { timeout(TURN, work.as_mut()).await }));
        if let Ok(done) = turn {
            return Ok(done);
        }
        py.check_signals()?;
    }
}

/// Waits likewise for `work` that blocks; it is left behind, on a thread that ends with it, when
/// Python wants to handle a signal.
pub(crate) fn wait_for_blocking<T: Send + 'static>(
    py: Python<'_>,
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (done, waiting) = oneshot::channel();
    let run = move || {
        #[expect(clippy::let_underscore_must_use, reason = "nobody waits any more after a signal")]
        let _ = done.send(work());
    };
    thread::Builder::new()
        .name("sparkawait-wait".to_owned())
        .spawn(run)
        .map_err(|error| internal_error(&format!("no thread: {error}")))?;
    let ended = wait_for(py, runtime, waiting)?;
    ended.map_err(|_| internal_error("the extension module panicked; please report this"))
}
