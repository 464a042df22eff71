// SPDX-License-Identifier: Apache-2.0
//! What users' functions return, as columns, where there is nothing to decide.

use std::sync::Arc;

use sparkawait_task::function::GROUP_BYTES;

use crate::guard::FromArrow;
use arrow::array::{ArrayRef, BooleanArray, GenericByteBuilder, PrimitiveArray, RecordBatch};
use arrow::datatypes::{
    ArrowPrimitiveType, BinaryType, ByteArrayType, DataType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Schema, SchemaRef, Utf8Type,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use sparkawait_macros::guarded;

/// Integers up to here are the same as a 64-bit float.
const EXACT_IN_FLOAT: i64 = 1 << 53;

/// Columns of plain types, each read in one pass over the dicts that functions returned.
///
/// Reads exact types only. The builder in Python gets a result that is not a `dict`, lacks a column
/// or has any other value: it knows conversions and explains what does not fit. Both give the same
/// columns.
#[pyclass(frozen, module = "sparkawait._core")]
pub(crate) struct ResultColumns {
    schema: SchemaRef,
    names: Vec<Py<PyString>>,
    /// Whether a column of the function's must not be null; by column.
    required: Vec<bool>,
}

#[guarded]
#[pymethods]
impl ResultColumns {
    /// Prepares columns; `None` if one of them has a type that is not plain.
    #[staticmethod]
    fn of(py: Python<'_>, schema: FromArrow<Schema>, required: Vec<String>) -> Option<Self> {
        let schema = schema.0;
        let is_plain = !schema.fields().is_empty()
            && schema.fields().iter().all(|field| is_plain(field.data_type()));
        let names = schema.fields().iter().map(|it| PyString::intern(py, it.name()).unbind());
        let is_required = schema.fields().iter().map(|field| required.contains(field.name()));
        let (names, required) = (names.collect(), is_required.collect());
        is_plain.then(|| Self { schema: Arc::new(schema), names, required })
    }
}

impl ResultColumns {
    /// Reads one row of each result, in batches of no more texts than a group may have; `None` if
    /// one of them needs more than that.
    pub(crate) fn read(&self, results: &Bound<'_, PyList>) -> Option<Vec<RecordBatch>> {
        // Taken first: reading a dict may run code that changes the list.
        let dicts: Vec<Bound<'_, PyDict>> = results
            .iter()
            .map(|result| result.cast_into_exact::<PyDict>().ok())
            .collect::<Option<_>>()?;
        let first = self.read_group(results.py(), &dicts)?;
        let mut read = first.num_rows();
        let mut batches = vec![first];
        while read < dicts.len() {
            let batch = self.read_group(results.py(), &dicts[read..])?;
            read += batch.num_rows();
            batches.push(batch);
        }
        Some(batches)
    }

    /// Reads the first results, at least one.
    fn read_group(&self, py: Python<'_>, dicts: &[Bound<'_, PyDict>]) -> Option<RecordBatch> {
        let mut rows = dicts.len();
        let mut columns = Vec::with_capacity(self.names.len());
        for (index, name) in self.names.iter().enumerate() {
            let data_type = self.schema.field(index).data_type();
            let column = read_column(&dicts[..rows], name.bind(py), data_type)?;
            if self.required[index] && column.null_count() > 0 {
                return None;
            }
            rows = column.len();
            columns.push(column);
        }
        for column in columns.iter_mut().filter(|column| column.len() > rows) {
            *column = column.slice(0, rows);
        }
        RecordBatch::try_new(SchemaRef::clone(&self.schema), columns).ok()
    }
}

const fn is_plain(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Utf8
            | DataType::Binary
    )
}

/// Reads one column, or its start; `None` if a cell is missing or not exactly of its type.
fn read_column(
    dicts: &[Bound<'_, PyDict>],
    name: &Bound<'_, PyString>,
    data_type: &DataType,
) -> Option<ArrayRef> {
    let cells = Cells { dicts, name };
    match data_type {
        DataType::Boolean => {
            let read = |cell: &Bound<'_, PyAny>| Some(cell.cast_exact::<PyBool>().ok()?.is_true());
            Some(Arc::new(cells.read(read).collect::<Option<BooleanArray>>()?))
        }
        DataType::Int8 => cells.numbers::<Int8Type>(whole),
        DataType::Int16 => cells.numbers::<Int16Type>(whole),
        DataType::Int32 => cells.numbers::<Int32Type>(whole),
        DataType::Int64 => cells.numbers::<Int64Type>(whole),
        DataType::Float32 => cells.numbers::<Float32Type>(single),
        DataType::Float64 => cells.numbers::<Float64Type>(float),
        // Lone surrogates are refused.
        DataType::Utf8 => {
            cells.texts::<Utf8Type>(|cell| cell.cast_exact::<PyString>().ok()?.to_str().ok())
        }
        DataType::Binary => {
            cells.texts::<BinaryType>(|cell| Some(cell.cast_exact::<PyBytes>().ok()?.as_bytes()))
        }
        _ => None,
    }
}

/// The cells of one column.
#[derive(Clone, Copy)]
struct Cells<'a, 'py> {
    dicts: &'a [Bound<'py, PyDict>],
    name: &'a Bound<'py, PyString>,
}

impl<'a, 'py> Cells<'a, 'py> {
    /// Returns each cell; `None` where it is missing.
    fn iter(self) -> impl Iterator<Item = Option<Bound<'py, PyAny>>> + 'a {
        self.dicts.iter().map(move |dict| dict.get_item(self.name).ok().flatten())
    }

    /// Reads each cell; `Some(None)` is a null, `None` a cell that is missing or does not fit.
    fn read<T>(
        self,
        read: impl Fn(&Bound<'py, PyAny>) -> Option<T> + 'a,
    ) -> impl Iterator<Item = Option<Option<T>>> + 'a {
        self.iter().map(move |cell| {
            let cell = cell?;
            if cell.is_none() { Some(None) } else { read(&cell).map(Some) }
        })
    }

    fn numbers<T: ArrowPrimitiveType>(
        self,
        read: impl Fn(&Bound<'py, PyAny>) -> Option<T::Native> + 'a,
    ) -> Option<ArrayRef> {
        let mut builder = PrimitiveArray::<T>::builder(self.dicts.len());
        for cell in self.read(read) {
            builder.append_option(cell?);
        }
        Some(Arc::new(builder.finish()))
    }

    /// Reads texts or bytes: the first ones, if all are too many for a group.
    fn texts<T: ByteArrayType<Offset = i32>>(
        self,
        read: impl for<'c> Fn(&'c Bound<'py, PyAny>) -> Option<&'c T::Native>,
    ) -> Option<ArrayRef> {
        let mut builder = GenericByteBuilder::<T>::with_capacity(self.dicts.len(), 0);
        for cell in self.iter() {
            let cell = cell?;
            if cell.is_none() {
                builder.append_null();
                continue;
            }
            let text = read(&cell)?;
            let bytes: &[u8] = text.as_ref();
            let before = builder.values_slice().len();
            if before + bytes.len() > GROUP_BYTES {
                if before > 0 {
                    break;
                }
                i32::try_from(bytes.len()).ok()?;
            }
            builder.append_value(text);
        }
        Some(Arc::new(builder.finish()))
    }
}

/// Reads an integer that fits; a `bool` does not count as one.
fn whole<T: TryFrom<i64>>(cell: &Bound<'_, PyAny>) -> Option<T> {
    T::try_from(cell.cast_exact::<PyInt>().ok()?.extract::<i64>().ok()?).ok()
}

/// Reads a float as a single one: rounded, but no infinity of another number.
fn single(cell: &Bound<'_, PyAny>) -> Option<f32> {
    let double = cell.cast_exact::<PyFloat>().ok()?.value();
    #[expect(clippy::cast_possible_truncation, reason = "as Spark does")]
    let rounded = double as f32;
    (rounded.is_infinite() == double.is_infinite()).then_some(rounded)
}

/// Reads a float, or an integer that is the same as one.
fn float(cell: &Bound<'_, PyAny>) -> Option<f64> {
    if let Ok(float) = cell.cast_exact::<PyFloat>() {
        return Some(float.value());
    }
    let integer = whole::<i64>(cell)?;
    #[expect(clippy::cast_precision_loss, reason = "none, within these bounds")]
    (-EXACT_IN_FLOAT..=EXACT_IN_FLOAT).contains(&integer).then_some(integer as f64)
}
