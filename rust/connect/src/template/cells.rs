// SPDX-License-Identifier: Apache-2.0
//! The values of a column as texts.

use std::fmt;
use std::io::Write as _;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, LargeStringArray, StringArray,
    StringViewArray,
};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::native::StartError;

/// ISO 8601, without the fraction where there is none.
const FORMAT: FormatOptions<'static> = FormatOptions::new().with_display_error(false);

/// A column whose values are written as texts.
///
/// Numbers are written in decimal, booleans as `true` and `false`, dates and
/// timestamps in ISO 8601, binary values as their bytes.
pub struct Cells<'a> {
    array: &'a dyn Array,
    kind: Kind<'a>,
}

/// Common types are read directly; a formatter costs more per value.
enum Kind<'a> {
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    Binary(&'a BinaryArray),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Other(ArrayFormatter<'a>),
}

impl<'a> Cells<'a> {
    /// Opens a column.
    ///
    /// # Errors
    ///
    /// A type that cannot be written as text.
    pub fn new(array: &'a ArrayRef) -> Result<Self, StartError> {
        let array: &'a dyn Array = array.as_ref();
        let kind = match array.data_type() {
            DataType::Utf8 => Kind::Text(array.as_string()),
            DataType::LargeUtf8 => Kind::LargeText(array.as_string()),
            DataType::Utf8View => Kind::TextView(array.as_string_view()),
            DataType::Binary => Kind::Binary(array.as_binary()),
            DataType::Int32 => Kind::Int32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => Kind::Int64(array.as_primitive::<Int64Type>()),
            other => Kind::Other(ArrayFormatter::try_new(array, &FORMAT).map_err(|error| {
                StartError::option(format!("a column of type `{other}` has no text form: {error}"))
            })?),
        };
        Ok(Self { array, kind })
    }

    /// Appends the text of `row` to `out`; returns false if it is null.
    #[inline]
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> bool {
        if self.array.is_null(row) {
            return false;
        }
        // Writing into a vector does not fail.
        let _ = match &self.kind {
            Kind::Text(values) => out.write_all(values.value(row).as_bytes()),
            Kind::LargeText(values) => out.write_all(values.value(row).as_bytes()),
            Kind::TextView(values) => out.write_all(values.value(row).as_bytes()),
            Kind::Binary(values) => out.write_all(values.value(row)),
            Kind::Int32(values) => write!(out, "{}", values.value(row)),
            Kind::Int64(values) => write!(out, "{}", values.value(row)),
            Kind::Other(formatter) => write!(out, "{}", formatter.value(row)),
        };
        true
    }
}

impl fmt::Debug for Cells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cells").field("rows", &self.array.len()).finish_non_exhaustive()
    }
}
