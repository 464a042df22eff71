// SPDX-License-Identifier: Apache-2.0
//! Where the rows are that have some keys, for what is kept between runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayData, BooleanArray, FixedSizeBinaryArray, Int64Array, make_array};
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use sparkawait_macros::guarded;

use crate::error::internal_error;
use crate::guard::FromArrow;

/// Finds rows by their keys, without the GIL.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct KeyTable {
    inner: Mutex<sparkawait_arrow::KeyTable>,
}

impl KeyTable {
    fn lock(&self) -> MutexGuard<'_, sparkawait_arrow::KeyTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[guarded]
#[pymethods]
impl KeyTable {
    #[new]
    fn new(takes_newest: bool) -> Self {
        Self { inner: Mutex::new(sparkawait_arrow::KeyTable::new(takes_newest)) }
    }

    /// Adds rows of a file, which `settle` lets be found.
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn add(
        &self,
        py: Python<'_>,
        file: u32,
        name: &str,
        first: u32,
        keys: FromArrow<ArrayData>,
        times: FromArrow<ArrayData>,
        results: FromArrow<ArrayData>,
    ) -> PyResult<()> {
        let keys: FixedSizeBinaryArray = array_of(keys.0)?;
        let times: Int64Array = array_of(times.0)?;
        let results: BooleanArray = array_of(results.0)?;
        py.detach(|| self.lock().add((file, name), first, &keys, &times, &results));
        Ok(())
    }

    fn settle(&self, py: Python<'_>) {
        py.detach(|| self.lock().settle());
    }

    fn forget(&self, py: Python<'_>, files: Vec<u32>) {
        py.detach(|| self.lock().forget(&files));
    }

    fn find<'py>(
        &self,
        py: Python<'py>,
        keys: FromArrow<ArrayData>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keys: FixedSizeBinaryArray = array_of(keys.0)?;
        let found = py.detach(|| self.lock().find(&keys));
        found.to_data().to_pyarrow(py)
    }

    fn __len__(&self) -> usize {
        self.lock().len()
    }

    #[getter]
    fn size(&self) -> usize {
        self.lock().size()
    }
}

/// Returns an array of one type.
fn array_of<T: Array + Clone + 'static>(data: ArrayData) -> PyResult<T> {
    let array = make_array(data);
    let found = array.as_any().downcast_ref::<T>().cloned();
    found.ok_or_else(|| internal_error(&format!("an array of {} came", array.data_type())))
}
