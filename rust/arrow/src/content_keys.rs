// SPDX-License-Identifier: Apache-2.0
//! The keys of rows by their content, which are the same in each run: what is kept of a row is found by it.
//!
//! ```text
//!   who is asked, names and types of the columns ──► derived key ─┐
//!                                                                 ├─► BLAKE3, 16 bytes of it
//!   the values of a row ─────────────────────────► one encoding ──┘
//! ```
//!
//! An encoding can be read back, so that one encoding is one input: inputs that differ in a type, a name or
//! a value differ in it. Nothing is normalised: -0.0 is not 0.0, each NaN has its bits, a map is as it stands,
//! and a text that is not UTF-8 its bytes. How Arrow lays values out does not count: slices,
//! dictionaries, runs, views, wide offsets, and what is behind a null. The name of a time zone
//! does not count, either: it changes how an instant is shown, not which it is. A function that shows one says so in `function`.
//!
//! | value | encoding |
//! |---|---|
//! | null; any other | 0; 1 and what follows |
//! | of a fixed width | its bytes, the lowest first; a boolean is one |
//! | text, bytes | their count, and they themselves |
//! | list, map | the count of elements, and each; of a map a key and a value, as a struct |
//! | struct | each of its fields |
//!
//! A count has 7 bits a byte, the lowest first, with the eighth set in all but the last.

use std::sync::Arc;

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    RecordBatch, StructArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;

use crate::error::Error;

/// What the keys are for, as BLAKE3 wants to know. Another encoding has another number.
const CONTEXT: &str = "sparkawait 2026-11-27 content of a row, version 1";

/// Bytes of a key.
const WIDTH: usize = 16;

/// What fields say of their types beside Arrow: extensions, and which structs of Spark are variants.
const MARKS: [&str; 3] = ["ARROW:extension:name", "ARROW:extension:metadata", "variant"];

/// What does not fit is an error.
const CAST: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// Returns the key of each row of a batch: 16 bytes of the content of its columns, and of `function`, which
/// says who is asked and how.
///
/// # Errors
///
/// [`Error::ContentType`] if a column has or contains a type without an encoding.
pub fn content_keys(function: &[u8], batch: &RecordBatch) -> Result<FixedSizeBinaryArray, Error> {
    let key = blake3::derive_key(CONTEXT, &head(function, batch.schema_ref())?);
    let columns = batch.columns().iter().map(|it| Values::open(it.as_ref()));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(Error::KeyEncoding)?;
    let (mut row, mut keys) = (Vec::new(), Vec::with_capacity(batch.num_rows() * WIDTH));
    for index in 0..batch.num_rows() {
        row.clear();
        for column in &columns {
            column.write(index, &mut row);
        }
        keys.extend_from_slice(&blake3::keyed_hash(&key, &row).as_bytes()[..WIDTH]);
    }
    let width = i32::try_from(WIDTH).unwrap_or(i32::MAX);
    FixedSizeBinaryArray::try_new(width, Buffer::from_vec(keys), None).map_err(Error::KeyEncoding)
}

/// Returns what all rows have in common.
fn head(function: &[u8], schema: &Schema) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    push_bytes(function, &mut out);
    push_count(schema.fields().len(), &mut out);
    for field in schema.fields() {
        push_bytes(field.name().as_bytes(), &mut out);
        write_type(field, &mut out).map_err(|data_type| {
            let (column, data_type) = (field.name().clone(), data_type.clone());
            Error::ContentType { column, data_type }
        })?;
    }
    Ok(out)
}

fn push_count(mut count: usize, out: &mut Vec<u8>) {
    while count >= 0x80 {
        out.push(count.to_le_bytes()[0] | 0x80);
        count >>= 7;
    }
    out.push(count.to_le_bytes()[0]);
}

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    push_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes the type of a field, without its name; returns the one that has no encoding otherwise.
fn write_type<'a>(field: &'a Field, out: &mut Vec<u8>) -> Result<(), &'a DataType> {
    for mark in MARKS {
        match field.metadata().get(mark) {
            None => out.push(0),
            Some(text) => {
                out.push(1);
                push_bytes(text.as_bytes(), out);
            }
        }
    }
    write_data_type(field.data_type(), out)
}

fn write_data_type<'a>(data_type: &'a DataType, out: &mut Vec<u8>) -> Result<(), &'a DataType> {
    match data_type {
        DataType::Timestamp(unit, zone) => {
            out.extend([17, number_of(*unit), u8::from(zone.is_some())]);
        }
        DataType::Time32(unit) => out.extend([18, number_of(*unit)]),
        DataType::Time64(unit) => out.extend([19, number_of(*unit)]),
        DataType::Duration(unit) => out.extend([20, number_of(*unit)]),
        DataType::Interval(IntervalUnit::YearMonth) => out.extend([21, 0]),
        DataType::Interval(IntervalUnit::DayTime) => out.extend([21, 1]),
        DataType::Interval(IntervalUnit::MonthDayNano) => out.extend([21, 2]),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            out.extend([22, *precision, scale.to_le_bytes()[0]]);
        }
        DataType::Decimal256(precision, scale) => {
            out.extend([23, *precision, scale.to_le_bytes()[0]]);
        }
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => {
            out.push(24);
            write_type(element, out)?;
        }
        DataType::Struct(fields) => {
            out.push(25);
            push_count(fields.len(), out);
            for field in fields {
                push_bytes(field.name().as_bytes(), out);
                write_type(field, out)?;
            }
        }
        DataType::Map(entries, _) => {
            out.push(26);
            let DataType::Struct(fields) = entries.data_type() else { return Err(data_type) };
            for field in fields {
                write_type(field, out)?;
            }
        }
        DataType::Dictionary(_, values) => write_data_type(values, out)?,
        DataType::RunEndEncoded(_, values) => write_data_type(values.data_type(), out)?,
        data_type => out.push(number_of_type(data_type).ok_or(data_type)?),
    }
    Ok(())
}

/// Returns what a type is written as that has no parts.
const fn number_of_type(data_type: &DataType) -> Option<u8> {
    Some(match data_type {
        DataType::Null => 0,
        DataType::Boolean => 1,
        DataType::Int8 => 2,
        DataType::Int16 => 3,
        DataType::Int32 => 4,
        DataType::Int64 => 5,
        DataType::UInt8 => 6,
        DataType::UInt16 => 7,
        DataType::UInt32 => 8,
        DataType::UInt64 => 9,
        DataType::Float16 => 10,
        DataType::Float32 => 11,
        DataType::Float64 => 12,
        DataType::Date32 => 13,
        DataType::Date64 => 14,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 15,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => 16,
        _ => return None,
    })
}

const fn number_of(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// The values of a column, or of what is in one.
struct Values {
    nulls: Option<NullBuffer>,
    kind: Kind,
}

enum Kind {
    Null,
    Boolean(BooleanBuffer),
    Fixed {
        bytes: Buffer,
        width: usize,
    },
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    Views(BinaryViewArray),
    List {
        offsets: OffsetBuffer<i32>,
        elements: Box<Values>,
    },
    LargeList {
        offsets: OffsetBuffer<i64>,
        elements: Box<Values>,
    },
    Struct(Vec<Values>),
    /// The rows of others.
    Dictionary {
        rows: Vec<usize>,
        values: Box<Values>,
    },
}

impl Values {
    fn open(array: &dyn Array) -> Result<Self, ArrowError> {
        let nulls = array.nulls().cloned();
        let as_type =
            |data_type: &DataType| Self::open(&cast_with_options(array, data_type, &CAST)?);
        let kind = match array.data_type() {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Boolean(array.as_boolean().values().clone()),
            DataType::Utf8 => Kind::Bytes(array.as_string::<i32>().clone().into()),
            DataType::Binary => Kind::Bytes(array.as_binary::<i32>().clone()),
            DataType::LargeUtf8 => Kind::LargeBytes(array.as_string::<i64>().clone().into()),
            DataType::LargeBinary => Kind::LargeBytes(array.as_binary::<i64>().clone()),
            DataType::Utf8View => Kind::Views(array.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Kind::Views(array.as_binary_view().clone()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let elements = Box::new(Self::open(list.values())?);
                Kind::List { offsets: list.offsets().clone(), elements }
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let elements = Box::new(Self::open(list.values())?);
                Kind::LargeList { offsets: list.offsets().clone(), elements }
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let elements = Self { nulls: None, kind: Kind::of_fields(map.entries())? };
                Kind::List { offsets: map.offsets().clone(), elements: Box::new(elements) }
            }
            DataType::Struct(_) => Kind::of_fields(array.as_struct())?,
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = dictionary.values();
                // It can count none of them, and then all of its rows are null.
                let is_empty = values.is_empty();
                let rows = if is_empty { Vec::new() } else { dictionary.normalized_keys() };
                Kind::Dictionary { rows, values: Box::new(Self::open(values)?) }
            }
            // What others send, rarely, is copied into what Spark sends.
            DataType::FixedSizeBinary(_) => return as_type(&DataType::LargeBinary),
            DataType::ListView(it)
            | DataType::LargeListView(it)
            | DataType::FixedSizeList(it, _) => {
                return as_type(&DataType::LargeList(Arc::clone(it)));
            }
            DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
                return as_type(&DataType::Decimal128(*precision, *scale));
            }
            DataType::RunEndEncoded(_, values) => return as_type(values.data_type()),
            data_type => {
                let width = data_type.primitive_width().ok_or_else(|| {
                    ArrowError::NotYetImplemented(format!("the content of {data_type}"))
                })?;
                let data = array.to_data();
                let (start, length) = (data.offset() * width, data.len() * width);
                Kind::Fixed { bytes: data.buffers()[0].slice_with_length(start, length), width }
            }
        };
        Ok(Self { nulls, kind })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.nulls.as_ref().is_some_and(|it| it.is_null(row)) || matches!(self.kind, Kind::Null)
        {
            return out.push(0);
        }
        if let Kind::Dictionary { rows, values } = &self.kind {
            return values.write(rows[row], out);
        }
        out.push(1);
        match &self.kind {
            Kind::Null | Kind::Dictionary { .. } => {}
            Kind::Boolean(values) => out.push(u8::from(values.value(row))),
            Kind::Fixed { bytes, width } => {
                out.extend_from_slice(&bytes[row * width..(row + 1) * width]);
            }
            Kind::Bytes(values) => push_bytes(values.value(row), out),
            Kind::LargeBytes(values) => push_bytes(values.value(row), out),
            Kind::Views(values) => push_bytes(values.value(row), out),
            Kind::List { offsets, elements } => {
                elements.write_all(offset(offsets[row]), offset(offsets[row + 1]), out);
            }
            Kind::LargeList { offsets, elements } => {
                elements.write_all(offset(offsets[row]), offset(offsets[row + 1]), out);
            }
            Kind::Struct(fields) => fields.iter().for_each(|it| it.write(row, out)),
        }
    }

    fn write_all(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        push_count(to - from, out);
        (from..to).for_each(|row| self.write(row, out));
    }
}

impl Kind {
    fn of_fields(rows: &StructArray) -> Result<Self, ArrowError> {
        let fields = rows.columns().iter().map(|it| Values::open(it.as_ref()));
        Ok(Self::Struct(fields.collect::<Result<_, _>>()?))
    }
}

/// Returns an offset of Arrow, which is never negative.
fn offset(of: impl TryInto<usize>) -> usize {
    of.try_into().unwrap_or(usize::MAX)
}

#[cfg(not(target_endian = "little"))]
compile_error!("values are encoded as they lie in memory, the lowest byte first");

#[cfg(test)]
mod tests;
