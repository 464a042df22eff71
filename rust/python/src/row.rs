// SPDX-License-Identifier: Apache-2.0
//! A row of an Arrow batch as a Python mapping.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_pyarrow::ToPyArrow;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyString, PyTuple};
use sparkawait_arrow::InputBatch;
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;

/// The column names of a task's input.
#[derive(Debug)]
pub(crate) struct Columns {
    /// In the order of the schema.
    names: Py<PyTuple>,
    /// The last column of a name wins, as in a `dict`.
    index: HashMap<String, usize>,
}

impl Columns {
    pub(crate) fn new(py: Python<'_>, schema: &Schema) -> PyResult<Self> {
        let names = schema.fields().iter().map(|field| PyString::intern(py, field.name()));
        let index = schema.fields().iter().enumerate().map(|(i, field)| (field.name().clone(), i));
        Ok(Self { names: PyTuple::new(py, names)?.unbind(), index: index.collect() })
    }
}

/// An input batch as the rows of one or more bursts see it.
pub(crate) struct BatchView {
    pub(crate) input: Arc<InputBatch>,
    columns: Arc<Columns>,
    /// Columns of types that pyarrow converts, as pyarrow arrays, once asked for.
    converted: Vec<PyOnceLock<Py<PyAny>>>,
}

impl BatchView {
    pub(crate) fn new(input: Arc<InputBatch>, columns: Arc<Columns>) -> Self {
        let converted = (0..input.batch.num_columns()).map(|_| PyOnceLock::new()).collect();
        Self { input, columns, converted }
    }

    /// Converts one cell.
    fn cell<'py>(&self, py: Python<'py>, column: usize, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let array = self.input.batch.column(column);
        if array.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        match array.data_type() {
            DataType::Boolean => array.as_boolean().value(row).into_bound_py_any(py),
            DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into_bound_py_any(py),
            DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into_bound_py_any(py),
            DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into_bound_py_any(py),
            DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into_bound_py_any(py),
            DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into_bound_py_any(py),
            DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into_bound_py_any(py),
            DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into_bound_py_any(py),
            DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into_bound_py_any(py),
            DataType::Float32 => {
                array.as_primitive::<Float32Type>().value(row).into_bound_py_any(py)
            }
            DataType::Float64 => {
                array.as_primitive::<Float64Type>().value(row).into_bound_py_any(py)
            }
            DataType::Utf8 => array.as_string::<i32>().value(row).into_bound_py_any(py),
            DataType::LargeUtf8 => array.as_string::<i64>().value(row).into_bound_py_any(py),
            DataType::Utf8View => array.as_string_view().value(row).into_bound_py_any(py),
            DataType::Binary => {
                Ok(PyBytes::new(py, array.as_binary::<i32>().value(row)).into_any())
            }
            _ => self.cell_by_pyarrow(py, column, row),
        }
    }

    /// Lets pyarrow convert a cell of a nested, temporal or other type.
    fn cell_by_pyarrow<'py>(
        &self,
        py: Python<'py>,
        column: usize,
        row: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.converted[column].get_or_try_init(py, || {
            self.input.batch.column(column).to_data().to_pyarrow(py).map(Bound::unbind)
        })?;
        array.bind(py).get_item(row)?.call_method0("as_py")
    }
}

/// One attempt of one row: a read-only mapping whose cells are converted when asked for.
#[pyclass(frozen, mapping, module = "sparkawait._core")]
pub(crate) struct Row {
    view: Arc<BatchView>,
    index: usize,
    pub(crate) attempt_id: AttemptId,
    /// Identifies the attempt within its task.
    #[pyo3(get)]
    id: u64,
}

impl Row {
    pub(crate) fn new(view: Arc<BatchView>, index: usize, attempt_id: AttemptId, id: u64) -> Self {
        Self { view, index, attempt_id, id }
    }

    fn find(&self, name: &Bound<'_, PyAny>) -> Option<usize> {
        let name = name.cast::<PyString>().ok()?;
        self.view.columns.index.get(name.to_cow().ok()?.as_ref()).copied()
    }

    /// Converts all cells.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for name in self.view.columns.names.bind(py) {
            let column = self.find(&name).unwrap_or_default();
            dict.set_item(name, self.view.cell(py, column, self.index)?)?;
        }
        Ok(dict)
    }
}

#[pymethods]
impl Row {
    /// The number of the row's channel; `None` for a row of none.
    #[getter]
    fn channel(&self) -> Option<u64> {
        self.view.input.channels.get(self.index).copied().flatten().map(Key::as_u64)
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt_id.attempt
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.find(name) {
            Some(column) => self.view.cell(py, column, self.index),
            None => Err(PyKeyError::new_err(name.clone().unbind())),
        }
    }

    #[pyo3(signature = (name, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.find(name) {
            Some(column) => self.view.cell(py, column, self.index),
            None => Ok(default.unwrap_or_else(|| py.None().into_bound(py))),
        }
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        self.find(name).is_some()
    }

    fn __len__(&self) -> usize {
        self.view.columns.index.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_keys(py)?.try_iter()
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_keys(py)?.call_method0("keys")
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method0("values")
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method0("items")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mine = self.to_dict(py)?;
        match other.cast::<Row>() {
            Ok(row) => mine.eq(row.get().to_dict(py)?),
            Err(_) => mine.eq(other),
        }
    }

    /// By identity: a row is a handle of its attempt.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr() as usize >> 4
    }

    /// Shows names only: row contents do not belong in logs.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Row{}", self.view.columns.names.bind(py).repr()?))
    }
}

impl Row {
    /// Returns the names, each once, without converting a cell.
    fn to_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.get_type::<PyDict>().call_method1("fromkeys", (self.view.columns.names.bind(py),))
    }
}
