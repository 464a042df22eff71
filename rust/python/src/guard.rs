// SPDX-License-Identifier: Apache-2.0
//! Panics become exceptions at this boundary.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use sparkawait_connect::supervision::panic_message;

use crate::error::internal_error;

/// Runs `work`; its panic becomes an `InternalError`.
///
/// `PyO3`'s own `PanicException` is a `BaseException`: `except Exception` misses
/// it, and a Spark worker would die of it.
pub(crate) fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // What panicked is not used again: the task fails.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic_message(panic.as_ref());
        Err(internal_error(&format!("the extension module panicked: {reason}; please report this")))
    })
}
