// SPDX-License-Identifier: Apache-2.0
//! The cells of a column, as Python values.
//!
//! Plain and nested cells are made here, as one that is asked for; what pyarrow
//! knows better, decimals and dates among it, pyarrow makes.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    ArrowNativeType, DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_pyarrow::ToPyArrow;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use sparkawait_core::ErrorKind;
use sparkawait_task::text_check::not_utf8;

use crate::error::AsyncIOError;

/// A column of a batch, or a part of a nested one.
pub(crate) struct Cells {
    array: ArrayRef,
    kind: Kind,
}

/// How cells are made.
enum Kind {
    /// From the array.
    Plain,
    /// A list of these.
    List(Box<Cells>),
    /// A `dict` of these keys and values.
    Map(Box<Cells>, Box<Cells>),
    /// A `Struct` of these, by name.
    Struct(Vec<(Py<PyString>, Cells)>),
    /// A variant of Spark, of its value and its metadata.
    Variant(Box<Cells>, Box<Cells>),
    /// An aware `datetime` in a time zone, which is looked up once.
    Instant(PyOnceLock<Py<PyAny>>),
    /// By pyarrow, whose array is made once.
    Converted(PyOnceLock<Py<PyAny>>),
    /// Those of a column in which some rows have a text that is not UTF-8.
    Checked(Vec<bool>, String, Box<Cells>),
}

impl Cells {
    pub(crate) fn new(py: Python<'_>, array: &ArrayRef) -> Self {
        let inside = |array: &ArrayRef| Box::new(Self::new(py, array));
        let kind = match array.data_type() {
            DataType::Null | DataType::Boolean | DataType::Float32 | DataType::Float64 => {
                Kind::Plain
            }
            DataType::Binary | DataType::LargeBinary => Kind::Plain,
            other if other.is_integer() || other.is_string() => Kind::Plain,
            DataType::List(_) => Kind::List(inside(array.as_list::<i32>().values())),
            DataType::LargeList(_) => Kind::List(inside(array.as_list::<i64>().values())),
            DataType::FixedSizeList(..) => Kind::List(inside(array.as_fixed_size_list().values())),
            DataType::Map(..) => {
                let map = array.as_map();
                Kind::Map(inside(map.keys()), inside(map.values()))
            }
            DataType::Struct(fields) => {
                let members = array.as_struct().columns();
                match (fields.as_ref(), members) {
                    ([_, second], [value, metadata]) if is_variant(second) => {
                        Kind::Variant(inside(value), inside(metadata))
                    }
                    _ => Kind::Struct(
                        fields
                            .iter()
                            .zip(members)
                            .map(|(field, member)| {
                                let name = PyString::intern(py, field.name()).unbind();
                                (name, Self::new(py, member))
                            })
                            .collect(),
                    ),
                }
            }
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Kind::Instant(PyOnceLock::new()),
            _ => Kind::Converted(PyOnceLock::new()),
        };
        Self { array: ArrayRef::clone(array), kind }
    }

    /// Makes cells of the column `name`, except for `invalid` rows, which have a text that is not
    /// UTF-8.
    pub(crate) fn checked(py: Python<'_>, array: &ArrayRef, name: &str, invalid: &[bool]) -> Self {
        let cells = Box::new(Self::new(py, array));
        let kind = Kind::Checked(invalid.to_vec(), name.to_owned(), cells);
        Self { array: ArrayRef::clone(array), kind }
    }

    /// Makes one cell.
    pub(crate) fn get<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let array = &self.array;
        if array.is_null(row) {
            return Ok(py.None().into_bound(py));
        }
        match &self.kind {
            Kind::Plain => self.plain(py, row),
            Kind::List(elements) => {
                let list = PyList::empty(py);
                for element in self.range(row) {
                    list.append(elements.get(py, element)?)?;
                }
                Ok(list.into_any())
            }
            Kind::Map(keys, values) => {
                let dict = PyDict::new(py);
                for entry in self.range(row) {
                    dict.set_item(keys.get(py, entry)?, values.get(py, entry)?)?;
                }
                Ok(dict.into_any())
            }
            Kind::Struct(members) => {
                let dict = PyDict::new(py);
                for (name, member) in members {
                    dict.set_item(name, member.get(py, row)?)?;
                }
                if dict.len() < members.len() {
                    let message = "a struct has two fields of one name; rename one of them";
                    return Err(PyValueError::new_err(message));
                }
                to_struct(&dict)
            }
            Kind::Variant(value, metadata) => {
                let parts = (value.get(py, row)?, metadata.get(py, row)?);
                helper(py, Helper::Variant)?.call1(parts)
            }
            Kind::Instant(zone) => {
                let zone = zone.get_or_try_init(py, || {
                    let DataType::Timestamp(_, Some(name)) = array.data_type() else {
                        return Ok(py.None());
                    };
                    helper(py, Helper::Zone)?.call1((name.as_ref(),)).map(Bound::unbind)
                })?;
                let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
                helper(py, Helper::Instant)?.call1((micros, zone))
            }
            Kind::Checked(invalid, name, cells) => {
                if invalid[row] {
                    let kind = ErrorKind::TextInvalid.as_str();
                    let error = AsyncIOError::new_err((not_utf8(name), kind));
                    error.value(py).setattr(intern!(py, "__sparkawait_column__"), name)?;
                    return Err(error);
                }
                cells.get(py, row)
            }
            Kind::Converted(converted) => self.converted(py, converted, row),
        }
    }

    /// Makes a cell as `PyArrow` does.
    fn converted<'py>(
        &self,
        py: Python<'py>,
        converted: &PyOnceLock<Py<PyAny>>,
        row: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Python's times have microseconds, and PyArrow drops the rest without a word.
        let times = self.array.as_primitive_opt::<Time64NanosecondType>();
        if times.is_some_and(|it| it.value(row) % 1_000 != 0) {
            let message = "a time of `time64[ns]` is finer than a microsecond, and Python's are not; \
                           cast the column to `time64[us]`, or to an integer";
            return Err(PyValueError::new_err(message));
        }
        let converted = converted
            .get_or_try_init(py, || self.array.to_data().to_pyarrow(py).map(Bound::unbind))?;
        converted.bind(py).get_item(row)?.call_method0("as_py")
    }

    fn plain<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        let array = &self.array;
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
            DataType::LargeBinary => {
                Ok(PyBytes::new(py, array.as_binary::<i64>().value(row)).into_any())
            }
            _ => Ok(py.None().into_bound(py)),
        }
    }

    /// Returns where the elements or entries of a cell are.
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let array = &self.array;
        let of = |offsets: &[i32]| offsets[row].as_usize()..offsets[row + 1].as_usize();
        match array.data_type() {
            DataType::List(_) => of(array.as_list::<i32>().value_offsets()),
            DataType::Map(..) => of(array.as_map().value_offsets()),
            DataType::LargeList(_) => {
                let offsets = array.as_list::<i64>().value_offsets();
                offsets[row].as_usize()..offsets[row + 1].as_usize()
            }
            _ => {
                let list = array.as_fixed_size_list();
                let start = list.value_offset_at(row);
                start..start + list.value_length().as_usize()
            }
        }
    }
}

/// Whether a struct of two is how Spark sends a variant, told by the second field.
fn is_variant(metadata: &Field) -> bool {
    metadata.metadata().get("variant").is_some_and(|it| it == "true")
}

/// What `sparkawait._values.cells` makes.
#[derive(Clone, Copy)]
enum Helper {
    Struct,
    Instant,
    Variant,
    Zone,
}

/// Returns a class or function of `sparkawait._values.cells`, imported once.
fn helper(py: Python<'_>, which: Helper) -> PyResult<&Bound<'_, PyAny>> {
    static FOUND: [PyOnceLock<Py<PyAny>>; 4] = [const { PyOnceLock::new() }; 4];
    let name = match which {
        Helper::Struct => "Struct",
        Helper::Instant => "instant",
        Helper::Variant => "variant",
        Helper::Zone => "zone",
    };
    FOUND[which as usize].import(py, "sparkawait._values.cells", name)
}

/// Makes a `Struct` of its fields.
pub(crate) fn to_struct<'py>(fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    helper(fields.py(), Helper::Struct)?.call1((fields,))
}
