// SPDX-License-Identifier: Apache-2.0
//! One tokio runtime per process.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::runtime::{Builder, Handle, Runtime};

/// Names the number of worker threads, 1 by default: Spark runs a Python worker per core.
const THREADS_VARIABLE: &str = "SPARKAWAIT_WORKER_THREADS";

/// The runtime of this process. Read and replaced without a lock, because a
/// lock that another thread holds at a fork stays locked in the child for ever.
static CURRENT: ArcSwapOption<ProcessRuntime> = ArcSwapOption::const_empty();

/// A runtime and the process whose threads run it.
struct ProcessRuntime {
    process_id: u32,
    runtime: Runtime,
}

/// Returns the handle of this process's runtime, which is built on first use.
///
/// A forked child inherits the parent's runtime without its threads; the child
/// leaves it alone and builds its own.
///
/// # Errors
///
/// The operating system refused a thread or a file descriptor.
pub fn handle() -> std::io::Result<Handle> {
    let process_id = std::process::id();
    if let Some(current) = CURRENT.load().as_ref().filter(|it| it.process_id == process_id) {
        return Ok(current.runtime.handle().clone());
    }
    // Tokio panics where a thread is refused.
    std::thread::Builder::new().spawn(|| {})?.join().ok();
    let threads = std::env::var(THREADS_VARIABLE).ok().and_then(|it| it.parse().ok());
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads.unwrap_or(1).max(1))
        .thread_name("sparkawait-io")
        .enable_all()
        .build()?;
    let built = Arc::new(ProcessRuntime { process_id, runtime });
    let previous = CURRENT.swap(Some(Arc::clone(&built)));
    // Dropping a runtime joins its threads; those of the parent do not exist
    // here, and those of a racing thread's runtime may have work already.
    std::mem::forget(previous);
    Ok(built.runtime.handle().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_built_once() {
        let first = handle().unwrap();
        let second = handle().unwrap();

        assert_eq!(first.id(), second.id());
    }
}
