// SPDX-License-Identifier: Apache-2.0
//! Panics become exceptions at this boundary.
//!
//! Every entry runs in here: `#[guarded]` of the crate `sparkawait-macros` sees to its body, and
//! [`FromArrow`] to arguments whose conversion is more than a cast.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_pyarrow::FromPyArrow;
use pyo3::prelude::*;
use sparkawait_runtime::panic_message;

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

/// Does as [`guarded`] for what does not fail.
pub(crate) fn guarded_value<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    guarded(|| Ok(work()))
}

/// An argument that is imported from Arrow in Python.
pub(crate) struct FromArrow<T>(pub(crate) T);

impl<'py, T: FromPyArrow> FromPyObject<'_, 'py> for FromArrow<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        guarded(|| T::from_pyarrow_bound(&object)).map(Self)
    }
}
