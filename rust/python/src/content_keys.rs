// SPDX-License-Identifier: Apache-2.0
//! The keys of rows by their content, for what is kept between runs.

use arrow::array::{Array, RecordBatch};
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use sparkawait_arrow::Error;
use sparkawait_core::ErrorKind;
use sparkawait_macros::guarded;

use crate::error::{configuration_error, internal_error};
use crate::guard::FromArrow;

/// Returns the key of each row of a batch: 16 bytes of the content of its columns, and of `function`, which
/// says who is asked and how.
#[guarded]
#[pyfunction]
pub(crate) fn content_keys<'py>(
    py: Python<'py>,
    batch: FromArrow<RecordBatch>,
    function: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let keys = py.detach(|| sparkawait_arrow::content_keys(function, &batch.0));
    let keys = keys.map_err(|error| match error {
        Error::ContentType { .. } => {
            configuration_error(&error.to_string(), ErrorKind::TypeRefused)
        }
        error => internal_error(&error.to_string()),
    })?;
    keys.to_data().to_pyarrow(py)
}
