// SPDX-License-Identifier: Apache-2.0
//! The values of a column as texts, as Spark's `cast(.. as string)` writes them.

use arrow::array::{
    AnyDictionaryArray, Array, AsArray, BinaryArray, Int32Array, Int64Array, LargeStringArray,
    PrimitiveArray, StringArray, StringViewArray, new_empty_array,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type,
    Decimal128Type, Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, IntervalUnit, IntervalYearMonthType, TimeUnit, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use sparkawait_task::error::StartError;

use super::numbers::{write_decimal, write_double, write_float, write_integer};
use super::times::{
    Fraction, Moment, write_date, write_date_time, write_day_time_interval, write_time,
    write_year_month_interval,
};
use crate::zone::Zone;

const MILLIS_PER_DAY: i64 = 86_400_000;

/// A column whose values are written as texts.
///
/// | type | text |
/// |---|---|
/// | `boolean`, whole numbers | `true`, `-7` |
/// | `float`, `double` | `0.1`, `1.0E7`, `NaN`, `-Infinity`, with the shortest digits |
/// | `decimal` | all digits of its scale, no exponent |
/// | `date` | `2024-02-29` |
/// | `timestamp` | `2024-02-29 13:00:00.5` in the zone of its type |
/// | `timestamp_ntz`, `time` | `2024-02-29 13:00:00.5`, `13:00:00.5` |
/// | intervals | `INTERVAL '1 02:03:04' DAY TO SECOND` |
/// | `string`, `binary` | their bytes |
pub struct Cells<'a> {
    nulls: Option<NullBuffer>,
    kind: Kind<'a>,
    rows: usize,
}

/// Common types are read directly.
enum Kind<'a> {
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    Binary(&'a BinaryArray),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    /// Where the value of each row is among others.
    Dictionary(Vec<usize>, Box<Cells<'a>>),
    Other(Writer<'a>),
}

/// Appends the value of a row that is not null.
type Writer<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

impl<'a> Cells<'a> {
    /// Opens a column.
    ///
    /// # Errors
    ///
    /// A type whose values have no text, and a time zone that does not exist.
    pub fn new(array: &'a dyn Array) -> Result<Self, StartError> {
        let kind = match array.data_type() {
            DataType::Utf8 => Kind::Text(array.as_string()),
            DataType::LargeUtf8 => Kind::LargeText(array.as_string()),
            DataType::Utf8View => Kind::TextView(array.as_string_view()),
            DataType::Binary => Kind::Binary(array.as_binary()),
            DataType::Int32 => Kind::Int32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => Kind::Int64(array.as_primitive::<Int64Type>()),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = Self::new(dictionary.values().as_ref())?;
                Kind::Dictionary(positions(dictionary), Box::new(values))
            }
            other => Kind::Other(writer(array)?.ok_or_else(|| {
                StartError::option(format!("a value of type `{other}` has no text"))
            })?),
        };
        // Those of a dictionary's values, and all rows of a column without a type, among them.
        Ok(Self { nulls: array.logical_nulls(), kind, rows: array.len() })
    }

    /// Checks that columns of a type can be opened.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn check(data_type: &DataType) -> Result<(), StartError> {
        let array = new_empty_array(data_type);
        Cells::new(array.as_ref()).map(drop)
    }

    /// Returns the text of `row` if it is one; that of a null is any.
    #[inline]
    pub(crate) fn as_str(&self, row: usize) -> Option<&'a str> {
        match &self.kind {
            Kind::Text(values) => Some(values.value(row)),
            Kind::LargeText(values) => Some(values.value(row)),
            Kind::TextView(values) => Some(values.value(row)),
            _ => None,
        }
    }

    /// Whether the value of `row` is null.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the text of `row` to `out`; returns false if it is null.
    #[inline]
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> bool {
        if self.is_null(row) {
            return false;
        }
        match &self.kind {
            Kind::Text(values) => out.extend_from_slice(values.value(row).as_bytes()),
            Kind::LargeText(values) => out.extend_from_slice(values.value(row).as_bytes()),
            Kind::TextView(values) => out.extend_from_slice(values.value(row).as_bytes()),
            Kind::Binary(values) => out.extend_from_slice(values.value(row)),
            Kind::Int32(values) => write_integer(values.value(row), out),
            Kind::Int64(values) => write_integer(values.value(row), out),
            Kind::Dictionary(keys, values) => return values.write(keys[row], out),
            Kind::Other(write) => write(row, out),
        }
        true
    }
}

sparkawait_core::opaque_debug!(Cells<'_>, rows: rows);

/// Returns where the value of each row is among those of a dictionary; that of a null is any.
pub(crate) fn positions(dictionary: &dyn AnyDictionaryArray) -> Vec<usize> {
    if dictionary.values().is_empty() {
        // All rows are null, if there are any; the library asks for a value at least.
        return vec![0; dictionary.keys().len()];
    }
    dictionary.normalized_keys()
}

/// Returns what writes the values of a column; `None` if its type has no text.
fn writer(array: &dyn Array) -> Result<Option<Writer<'_>>, StartError> {
    let writer: Writer<'_> = match array.data_type() {
        // Nothing is written of it: all rows are null.
        DataType::Null => Box::new(|_, _| {}),
        DataType::Boolean => {
            let values = array.as_boolean();
            Box::new(|row, out| {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            })
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            Box::new(|row, out| out.extend_from_slice(values.value(row)))
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            Box::new(|row, out| out.extend_from_slice(values.value(row)))
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            Box::new(|row, out| out.extend_from_slice(values.value(row)))
        }
        DataType::Timestamp(..) => {
            let Some((read, zone)) = timestamps(array)? else { return Ok(None) };
            Box::new(move |row, out| {
                let shown = zone.as_ref().map_or(read(row), |zone| local(read(row), zone));
                write_date_time(shown, b' ', Fraction::Shortest, out);
            })
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let Some(read) = moments(array) else { return Ok(None) };
            Box::new(move |row, out| write_time(read(row), Fraction::Shortest, out))
        }
        DataType::Duration(_) => {
            let Some(read) = moments(array) else { return Ok(None) };
            Box::new(move |row, out| write_day_time_interval(read(row), out))
        }
        _ => return Ok(number_writer(array)),
    };
    Ok(Some(writer))
}

/// Returns what writes a column of numbers, or of days and months.
fn number_writer(array: &dyn Array) -> Option<Writer<'_>> {
    Some(match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array, write_integer),
        DataType::Int16 => of::<Int16Type>(array, write_integer),
        DataType::UInt8 => of::<UInt8Type>(array, write_integer),
        DataType::UInt16 => of::<UInt16Type>(array, write_integer),
        DataType::UInt32 => of::<UInt32Type>(array, write_integer),
        DataType::UInt64 => of::<UInt64Type>(array, write_integer),
        DataType::Float16 => of::<Float16Type>(array, |it, out| write_float(it.into(), out)),
        DataType::Float32 => of::<Float32Type>(array, write_float),
        DataType::Float64 => of::<Float64Type>(array, write_double),
        DataType::Decimal32(_, scale) => decimal::<Decimal32Type>(array, *scale),
        DataType::Decimal64(_, scale) => decimal::<Decimal64Type>(array, *scale),
        DataType::Decimal128(_, scale) => decimal::<Decimal128Type>(array, *scale),
        DataType::Decimal256(_, scale) => {
            let scale = *scale;
            of::<Decimal256Type>(array, move |it, out| write_decimal(&it.to_string(), scale, out))
        }
        DataType::Date32 => of::<Date32Type>(array, |days, out| write_date(days.into(), out)),
        DataType::Date64 => of::<Date64Type>(array, |millis, out| {
            write_date(millis.div_euclid(MILLIS_PER_DAY), out);
        }),
        DataType::Interval(IntervalUnit::YearMonth) => {
            of::<IntervalYearMonthType>(array, write_year_month_interval)
        }
        _ => return None,
    })
}

/// Returns what reads the instants, or what clocks showed, of a column of time stamps, with the zone
/// of its type.
#[expect(clippy::type_complexity, reason = "a reader and a zone")]
pub(crate) fn timestamps(
    array: &dyn Array,
) -> Result<Option<(Box<dyn Fn(usize) -> Moment>, Option<Zone>)>, StartError> {
    let DataType::Timestamp(_, zone) = array.data_type() else { return Ok(None) };
    let zone = zone.as_deref().map(Zone::parse).transpose().map_err(StartError::option)?;
    Ok(moments(array).map(|read| (read, zone)))
}

/// Returns what clocks of a zone show at an instant.
pub(crate) fn local(instant: Moment, zone: &Zone) -> Moment {
    let offset = zone.offset_seconds(instant.micros());
    Moment { seconds: instant.seconds.saturating_add(offset.into()), nanos: instant.nanos }
}

/// Returns what reads a column that counts a unit of time.
fn moments(array: &dyn Array) -> Option<Box<dyn Fn(usize) -> Moment>> {
    let data_type = array.data_type();
    let (DataType::Timestamp(unit, _)
    | DataType::Duration(unit)
    | DataType::Time32(unit)
    | DataType::Time64(unit)) = data_type
    else {
        return None;
    };
    let per_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let data = array.to_data();
    let (counts, offset, rows) = (data.buffers()[0].clone(), data.offset(), data.len());
    if matches!(data_type, DataType::Time32(_)) {
        let counts = ScalarBuffer::<i32>::new(counts, offset, rows);
        return Some(Box::new(move |row| Moment::new(counts[row].into(), per_second)));
    }
    let counts = ScalarBuffer::<i64>::new(counts, offset, rows);
    Some(Box::new(move |row| Moment::new(counts[row], per_second)))
}

fn decimal<T>(array: &dyn Array, scale: i8) -> Writer<'_>
where
    T: ArrowPrimitiveType,
    T::Native: itoa::Integer,
{
    of::<T>(array, move |unscaled, out| {
        write_decimal(itoa::Buffer::new().format(unscaled), scale, out);
    })
}

fn of<T: ArrowPrimitiveType>(
    array: &dyn Array,
    write: impl Fn(T::Native, &mut Vec<u8>) + 'static,
) -> Writer<'_> {
    let values: &PrimitiveArray<T> = array.as_primitive();
    Box::new(move |row, out| write(values.value(row), out))
}

#[cfg(test)]
mod tests;
