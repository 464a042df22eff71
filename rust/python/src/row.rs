// SPDX-License-Identifier: Apache-2.0
//! A row of an Arrow batch as a Python mapping.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyString, PyTuple};
use sparkawait_arrow::InputBatch;
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use sparkawait_macros::guarded;

use crate::cells::{Cells, to_struct};

/// The column names of a task's input.
#[derive(Debug)]
pub(crate) struct Columns {
    /// In the order of the schema.
    names: Py<PyTuple>,
    /// The last column of a name wins, as in a `dict`.
    index: HashMap<String, Column>,
    /// Finds attributes that are not columns: `object.__getattribute__`.
    others: Py<PyAny>,
}

/// Where a column is.
#[derive(Clone, Copy, Debug)]
struct Column {
    position: usize,
    /// Whether it is an attribute: it is not named like a method.
    is_attribute: bool,
}

impl Columns {
    pub(crate) fn new(py: Python<'_>, schema: &Schema) -> PyResult<Self> {
        let names = schema.fields().iter().map(|field| PyString::intern(py, field.name()));
        let class = py.get_type::<Row>();
        let mut index = HashMap::with_capacity(schema.fields().len());
        for (position, field) in schema.fields().iter().enumerate() {
            let is_attribute = !class.hasattr(field.name())?;
            index.insert(field.name().clone(), Column { position, is_attribute });
        }
        let others = py.get_type::<PyAny>().getattr("__getattribute__")?.unbind();
        Ok(Self { names: PyTuple::new(py, names)?.unbind(), index, others })
    }
}

/// An input batch as the rows of one or more bursts see it.
pub(crate) struct BatchView {
    pub(crate) input: Arc<InputBatch>,
    columns: Arc<Columns>,
    cells: Vec<Cells>,
}

impl BatchView {
    pub(crate) fn new(py: Python<'_>, input: Arc<InputBatch>, columns: Arc<Columns>) -> Self {
        let texts = input.invalid_texts.as_deref();
        let cells = input.batch.columns().iter().enumerate().map(|(position, column)| match texts
            .and_then(|it| it.rows(position))
        {
            None => Cells::new(py, column),
            Some(invalid) => {
                let name = input.batch.schema_ref().field(position).name();
                Cells::checked(py, column, name, invalid)
            }
        });
        let cells = cells.collect();
        Self { input, columns, cells }
    }
}

/// One attempt of one row: a read-only mapping whose cells are converted when asked for.
///
/// Columns are attributes too, but those that are named like a method. What
/// belongs to the attempt has names that no column has.
#[pyclass(frozen, mapping, module = "sparkawait._core")]
pub(crate) struct Row {
    view: Arc<BatchView>,
    index: usize,
    pub(crate) attempt_id: AttemptId,
    /// Identifies the attempt within its task.
    #[pyo3(get, name = "__sparkawait_attempt__")]
    id: u64,
}

impl Row {
    pub(crate) fn new(view: Arc<BatchView>, index: usize, attempt_id: AttemptId, id: u64) -> Self {
        Self { view, index, attempt_id, id }
    }

    fn find_column(&self, name: &Bound<'_, PyAny>) -> Option<Column> {
        let name = name.cast::<PyString>().ok()?;
        self.view.columns.index.get(name.to_cow().ok()?.as_ref()).copied()
    }

    fn find(&self, name: &Bound<'_, PyAny>) -> Option<usize> {
        self.find_column(name).map(|column| column.position)
    }

    fn cell<'py>(&self, py: Python<'py>, column: usize) -> PyResult<Bound<'py, PyAny>> {
        self.view.cells[column].get(py, self.index)
    }

    /// Converts all cells.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for name in self.view.columns.names.bind(py) {
            let column = self.find(&name).unwrap_or_default();
            dict.set_item(name, self.cell(py, column)?)?;
        }
        Ok(dict)
    }
}

#[guarded]
#[pymethods]
impl Row {
    /// Says who makes rows.
    #[new]
    #[pyo3(signature = (*_values, **_columns))]
    fn refuse(
        _values: &Bound<'_, PyTuple>,
        _columns: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(PyTypeError::new_err(
            "a `Row` is made by a task; to test a function, call it with a dict, as in \
             `await function({\"id\": 3})`, or over an input, as in \
             `sparkawait.arrow.ordered_wait([{\"id\": 3}], function).to_table()`",
        ))
    }

    /// The number of the row's channel; `None` for a row of none.
    #[getter(__sparkawait_channel__)]
    fn channel(&self) -> Option<u64> {
        self.view.input.channels.get(self.index).copied().flatten().map(Key::as_u64)
    }

    /// Returns a column, or what else has the name; asked first, since it is cheaper than to fail.
    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, row) = (slf.py(), slf.get());
        match row.find_column(name) {
            Some(column) if column.is_attribute => row.cell(py, column.position),
            _ => row.view.columns.others.bind(py).call1((slf, name)),
        }
    }

    /// Explains that there is no such column.
    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let names = self.view.columns.names.bind(py);
        py.import("sparkawait._values.cells")?.call_method1("no_column", (name, names))
    }

    /// Returns the cells as a `dict`; structs inside too, if it is `recursive`.
    #[pyo3(name = "asDict", signature = (recursive = false))]
    fn as_dict<'py>(&self, py: Python<'py>, recursive: bool) -> PyResult<Bound<'py, PyAny>> {
        let dict = self.to_dict(py)?;
        if recursive {
            to_struct(&dict)?.call_method1("asDict", (true,))
        } else {
            Ok(dict.into_any())
        }
    }

    /// Lists the columns too.
    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let names = py.get_type::<Self>().dir()?;
        for column in slf.get().view.columns.names.bind(py) {
            names.append(column)?;
        }
        Ok(names.into_any())
    }

    /// A copy, or a pickled row, is a `Struct`.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        Ok((py.import("sparkawait._values.cells")?.getattr("Struct")?, (self.to_dict(py)?,)))
    }

    fn __or__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method1("__or__", (as_dict(other)?,))
    }

    fn __ror__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method1("__ror__", (as_dict(other)?,))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.find(name) {
            Some(column) => self.cell(py, column),
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
            Some(column) => self.cell(py, column),
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

/// Returns the cells of a row, and anything else as it is.
fn as_dict<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match value.cast::<Row>() {
        Ok(row) => Ok(row.get().to_dict(value.py())?.into_any()),
        Err(_) => Ok(value.clone()),
    }
}
