// SPDX-License-Identifier: Apache-2.0
//! Failures as exceptions of `sparkawait.exceptions`.

use std::error::Error as StdError;

use pyo3::exceptions::PyValueError;
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::IntoPyDict;
use sparkawait_arrow::{Error as ArrowError, Side};
use sparkawait_core::ErrorKind;
use sparkawait_task::error::{CallFailure, Raised, TaskError, TimedOut};

import_exception!(sparkawait.exceptions, AsyncFunctionError);
import_exception!(sparkawait.exceptions, AsyncIOError);
import_exception!(sparkawait.exceptions, ConfigurationError);
import_exception!(sparkawait.exceptions, ElementTimeoutError);
import_exception!(sparkawait.exceptions, InternalError);
import_exception!(sparkawait.exceptions, OperatorStateError);
import_exception!(sparkawait.exceptions, ResultError);
import_exception!(sparkawait.exceptions, SnapshotError);

/// An exception of the user's function as the cause of a Rust error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PythonCause(pub(crate) PyErr);

pub(crate) fn configuration_error(message: &str, kind: ErrorKind) -> PyErr {
    ConfigurationError::new_err((message.to_owned(), kind.as_str()))
}

pub(crate) fn internal_error(message: &str) -> PyErr {
    InternalError::new_err((message.to_owned(), ErrorKind::Internal.as_str()))
}

pub(crate) fn closed_error(message: &str) -> PyErr {
    OperatorStateError::new_err((message.to_owned(), ErrorKind::OperatorClosed.as_str()))
}

/// Builds `class(message, kind, attempts=attempts, status=status)`.
fn with_attempts(
    py: Python<'_>,
    class: &Bound<'_, PyAny>,
    message: &str,
    kind: ErrorKind,
    attempts: u32,
    status: Option<u16>,
) -> PyErr {
    let keywords = [("attempts", Some(attempts)), ("status", status.map(u32::from))];
    let built = keywords
        .into_py_dict(py)
        .and_then(|keywords| class.call((message, kind.as_str()), Some(&keywords)));
    built.map_or_else(|error| error, PyErr::from_value)
}

/// Finds the exception inside of what was raised.
fn exception_of(py: Python<'_>, raised: Option<&Raised>) -> Option<PyErr> {
    let raised: &(dyn StdError + Send + Sync) = raised?.as_ref();
    Some(raised.downcast_ref::<PythonCause>()?.0.clone_ref(py))
}

/// Returns the exception that the task raises, with the user's exception as its cause.
pub(crate) fn to_exception(py: Python<'_>, error: &TaskError) -> PyErr {
    let message = error.to_string();
    match error {
        TaskError::Row { failure, attempts, .. } => {
            let raised = row_exception(py, &message, failure, *attempts);
            raised.set_cause(py, exception_of(py, failure.raised.as_ref()));
            raised
        }
        TaskError::TimedOut { timed_out, .. } => {
            let raised = timeout_exception(py, &message, timed_out);
            let last = timed_out.last.as_ref().and_then(|failure| failure.raised.as_ref());
            raised.set_cause(py, exception_of(py, last));
            raised
        }
        TaskError::External(cause) => {
            exception_of(py, Some(cause)).unwrap_or_else(|| internal_error(&message))
        }
        TaskError::Saved { .. } => SnapshotError::new_err((message, error.kind().as_str())),
        TaskError::Start(error) => configuration_error(&error.message, error.kind),
        TaskError::Arrow(refused) => arrow_exception(py, message, error.kind(), refused),
        _ => internal_error(&message),
    }
}

/// Returns the exception for a batch that was refused, with what Arrow said as its cause.
fn arrow_exception(py: Python<'_>, message: String, kind: ErrorKind, error: &ArrowError) -> PyErr {
    let raised = match error.side() {
        Some(Side::Result) => ResultError::new_err((message, kind.as_str())),
        _ => AsyncIOError::new_err((message, kind.as_str())),
    };
    raised.set_cause(py, error.source().map(|source| PyValueError::new_err(source.to_string())));
    raised
}

/// Returns the exception for a row whose function failed.
pub(crate) fn row_exception(
    py: Python<'_>,
    message: &str,
    failure: &CallFailure,
    attempts: u32,
) -> PyErr {
    match failure.kind {
        kind @ (ErrorKind::ResultIsNone
        | ErrorKind::ResultNotAList
        | ErrorKind::ResultSchemaMismatch
        | ErrorKind::ResultTooLarge
        | ErrorKind::BatchResultCountMismatch) => {
            ResultError::new_err((message.to_owned(), kind.as_str()))
        }
        kind => {
            let class = py.get_type::<AsyncFunctionError>();
            with_attempts(py, &class, message, kind, attempts, failure.status)
        }
    }
}

/// Returns the exception for a row whose time has passed.
pub(crate) fn timeout_exception(py: Python<'_>, message: &str, timed_out: &TimedOut) -> PyErr {
    let class = py.get_type::<ElementTimeoutError>();
    let (attempts, status) = (timed_out.attempts, timed_out.status());
    with_attempts(py, &class, message, timed_out.kind(), attempts, status)
}

/// Describes an exception of the user's function.
///
/// Our own exceptions name no row content and are quoted; of others only the
/// type is named outside of the error column.
pub(crate) fn call_failure(py: Python<'_>, error: PyErr, kind: ErrorKind) -> CallFailure {
    let value = error.value(py);
    let text = value.str().map(|text| text.to_string()).unwrap_or_default();
    let name = error.get_type(py).qualname().map(|name| name.to_string()).unwrap_or_default();
    let is_ours = error.is_instance_of::<AsyncIOError>(py);
    let message = if text.is_empty() { name.clone() } else { format!("{name}: {text}") };
    let (message, summary) =
        if is_ours { (text.clone(), text) } else { (message, format!("`{name}`")) };
    let status = status_of(py, &error);
    let raised: Raised = std::sync::Arc::new(PythonCause(error));
    CallFailure { kind, message, summary, raised: Some(raised), status }
}

/// Returns the status of the response that an exception of a client tells of.
fn status_of(py: Python<'_>, error: &PyErr) -> Option<u16> {
    static STATUS_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function = STATUS_OF.import(py, "sparkawait.retry", "answered_status");
    function.ok()?.call1((error.value(py),)).ok()?.extract().ok()
}
