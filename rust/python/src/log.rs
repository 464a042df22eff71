// SPDX-License-Identifier: Apache-2.0
//! The lines that Rust logs, for Python's logging.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use pyo3::prelude::*;
use sparkawait_macros::guarded;
use sparkawait_runtime::log;
use tracing::level_filters::LevelFilter;

/// The log of this process.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct Log {
    log: Arc<log::Log>,
}

#[guarded]
#[pymethods]
impl Log {
    /// Opens the log for lines of `level`, as Python's logging counts levels, and above.
    #[new]
    fn new(level: i64) -> PyResult<Self> {
        Ok(Self { log: log::Log::open(to_filter(level))? })
    }

    /// Readable while lines wait.
    fn fileno(&self) -> i32 {
        self.log.as_raw_fd()
    }

    /// Takes the lines that wait, with their levels, and how many were lost behind them.
    fn take(&self) -> (Vec<(u8, String)>, u64) {
        let (lines, lost) = self.log.take();
        (lines.into_iter().map(|line| (to_level(line.level), line.text)).collect(), lost)
    }
}

fn to_filter(level: i64) -> LevelFilter {
    match level {
        ..=10 => LevelFilter::DEBUG,
        11..=20 => LevelFilter::INFO,
        21..=30 => LevelFilter::WARN,
        31..=40 => LevelFilter::ERROR,
        _ => LevelFilter::OFF,
    }
}

fn to_level(level: tracing::Level) -> u8 {
    match level {
        tracing::Level::ERROR => 40,
        tracing::Level::WARN => 30,
        tracing::Level::INFO => 20,
        _ => 10,
    }
}
