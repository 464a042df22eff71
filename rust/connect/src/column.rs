// SPDX-License-Identifier: Apache-2.0
//! A column that grows value by value, and can be cut back to what it was.
//!
//! That it can be cut is what arrow's builders cannot do: a document that turns out to be wrong
//! halfway, or that has a member twice, leaves nothing behind.

mod bytes;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array,
    DurationMicrosecondArray, Float32Array, Float64Array, Int64Array, ListArray, MapArray,
    NullArray, NullBufferBuilder, StringArray, StructArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use sparkawait_task::error::StartError;

use crate::zone::Zone;

pub(crate) use bytes::{Bytes, Full, push_end};

use bytes::{last, no_offsets, offsets_of, repeat_last};

/// What does not fit is an error: values are checked before they come here.
const CAST: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// Checks that values can be read into all columns of a schema `from` a text, or from JSON.
pub(crate) fn check_columns(fields: &Fields, from: &str) -> Result<(), StartError> {
    for field in fields {
        Column::new(field.data_type(), 0).map_err(|what| {
            let name = field.name();
            StartError::option(format!(
                "`schema`: column `{name}` cannot be read from {from}: it is or contains {what}"
            ))
        })?;
    }
    Ok(())
}

/// Values of one type.
#[derive(Debug)]
pub(crate) struct Column {
    data_type: DataType,
    nulls: NullBufferBuilder,
    pub(crate) values: Values,
    width: usize,
}

/// The values themselves; nulls have some value, too.
#[derive(Debug)]
pub(crate) enum Values {
    /// Nulls only.
    Void,
    Boolean(BooleanBufferBuilder),
    /// All integers but the widest unsigned ones.
    Integer {
        values: Vec<i64>,
        least: i64,
        most: i64,
    },
    Unsigned(Vec<u64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal {
        values: Vec<i128>,
        precision: u8,
        scale: i8,
    },
    /// Days since 1970.
    Date(Vec<i32>),
    Micros {
        values: Vec<i64>,
        unit: Unit,
        of: Micros,
    },
    Text(Bytes),
    Binary(Bytes),
    List {
        offsets: Vec<i32>,
        element: Box<Member>,
    },
    Struct {
        fields: Vec<Member>,
    },
    Map {
        offsets: Vec<i32>,
        keys: Bytes,
        value: Box<Member>,
    },
}

/// What microseconds count.
#[derive(Debug)]
pub(crate) enum Micros {
    /// Since 1970, or of a clock if there is no zone.
    Timestamp(Option<Zone>),
    Interval,
    /// Of the day.
    Time,
}

/// A column inside of another one.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) column: Column,
    /// Whether it must have a value wherever there is one around it.
    pub(crate) is_required: bool,
}

/// The unit that a type counts time in; all is read as microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    /// Microseconds of one.
    divisor: i64,
    /// How many are in a microsecond.
    factor: i64,
}

impl Column {
    /// Makes an empty column with room for `rows` values; says which type cannot be read.
    pub(crate) fn new(data_type: &DataType, rows: usize) -> Result<Self, String> {
        Ok(Self::of(data_type, Values::new(data_type, rows)?, rows))
    }

    /// Makes an empty column of maps to such values, whose keys may be bytes, too.
    pub(crate) fn of_maps(
        data_type: &DataType,
        value: &Field,
        rows: usize,
    ) -> Result<Self, String> {
        Ok(Self::of(data_type, Values::map(value, rows)?, rows))
    }

    fn of(data_type: &DataType, values: Values, rows: usize) -> Self {
        let width = values.width();
        Self { data_type: data_type.clone(), nulls: NullBufferBuilder::new(rows), values, width }
    }

    pub(crate) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Whether a value has members or elements.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(self.values, Values::List { .. } | Values::Struct { .. } | Values::Map { .. })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Returns the bytes that any value takes, without those of texts and of what is in a list or a map.
    #[inline]
    pub(crate) const fn width(&self) -> usize {
        self.width
    }

    /// Whether the last value is null.
    pub(crate) fn ends_with_null(&self) -> bool {
        self.len() > 0 && !self.nulls.is_valid(self.len() - 1)
    }

    /// Says that a value was appended to [`values`](Self::values).
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.nulls.append_non_null();
    }

    /// Appends a null.
    pub(crate) fn push_null(&mut self) {
        match &mut self.values {
            Values::Void => {}
            Values::Boolean(values) => values.append(false),
            Values::Integer { values, .. } | Values::Micros { values, .. } => values.push(0),
            Values::Unsigned(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::Date(values) => values.push(0),
            Values::Text(values) | Values::Binary(values) => values.push_empty(),
            Values::List { offsets, .. } | Values::Map { offsets, .. } => repeat_last(offsets),
            Values::Struct { fields } => {
                for field in fields {
                    field.column.push_null();
                }
            }
        }
        self.nulls.append_null();
    }

    /// Takes back all values behind the first `len`, complete ones or not.
    pub(crate) fn truncate(&mut self, len: usize) {
        match &mut self.values {
            Values::Void => {}
            Values::Boolean(values) => values.truncate(len),
            Values::Integer { values, .. } | Values::Micros { values, .. } => values.truncate(len),
            Values::Unsigned(values) => values.truncate(len),
            Values::Float(values) => values.truncate(len),
            Values::Double(values) => values.truncate(len),
            Values::Decimal { values, .. } => values.truncate(len),
            Values::Date(values) => values.truncate(len),
            Values::Text(values) | Values::Binary(values) => values.truncate(len),
            Values::List { offsets, element } => {
                offsets.truncate(len + 1);
                element.column.truncate(last(offsets));
            }
            Values::Struct { fields } => {
                for field in fields {
                    field.column.truncate(len);
                }
            }
            Values::Map { offsets, keys, value } => {
                offsets.truncate(len + 1);
                keys.truncate(last(offsets));
                value.column.truncate(last(offsets));
            }
        }
        self.nulls.truncate(len);
    }

    /// Makes nulls of texts that are not UTF-8, and says which; `None`, at little cost, if all are.
    pub(crate) fn without_broken_texts(&mut self) -> Option<Vec<usize>> {
        let Values::Text(values) = &self.values else { return None };
        if values.are_texts() {
            return None;
        }
        let nulls = self.nulls.finish();
        let none = Values::Text(Bytes::new(values.len()));
        let mut sound = Self::of(&self.data_type, none, values.len());
        let mut broken = Vec::new();
        for row in 0..values.len() {
            let value = values.get(row);
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            if is_null || std::str::from_utf8(value).is_err() {
                if !is_null {
                    broken.push(row);
                }
                sound.push_null();
            } else if let Values::Text(values) = &mut sound.values {
                #[expect(clippy::let_underscore_must_use, reason = "no more than there was")]
                let _ = values.push(value);
                sound.advance();
            }
        }
        *self = sound;
        Some(broken)
    }

    /// Returns the array.
    pub(crate) fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let (len, nulls) = (self.len(), self.nulls.finish());
        let array = self.values.finish(len, nulls, &self.data_type)?;
        if *array.data_type() == self.data_type {
            return Ok(array);
        }
        cast_with_options(&array, &self.data_type, &CAST)
    }
}

impl Values {
    fn new(data_type: &DataType, rows: usize) -> Result<Self, String> {
        let integer =
            |least: i64, most: i64| Self::Integer { values: Vec::with_capacity(rows), least, most };
        let micros = |unit: TimeUnit, of: Micros| {
            let (values, unit) = (Vec::with_capacity(rows), Unit::of(unit));
            Self::Micros { values, unit, of }
        };
        Ok(match data_type {
            DataType::Null => Self::Void,
            DataType::Boolean => Self::Boolean(BooleanBufferBuilder::new(rows)),
            DataType::Int8 => integer(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => integer(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => integer(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => integer(i64::MIN, i64::MAX),
            DataType::UInt8 => integer(0, u8::MAX.into()),
            DataType::UInt16 => integer(0, u16::MAX.into()),
            DataType::UInt32 => integer(0, u32::MAX.into()),
            DataType::UInt64 => Self::Unsigned(Vec::with_capacity(rows)),
            DataType::Float32 => Self::Float(Vec::with_capacity(rows)),
            DataType::Float64 => Self::Double(Vec::with_capacity(rows)),
            DataType::Decimal128(precision, scale) => Self::Decimal {
                values: Vec::with_capacity(rows),
                precision: *precision,
                scale: *scale,
            },
            DataType::Date32 | DataType::Date64 => Self::Date(Vec::with_capacity(rows)),
            DataType::Timestamp(unit, zone) => {
                let zone = zone.as_deref().map(Zone::parse).transpose()?;
                micros(*unit, Micros::Timestamp(zone))
            }
            DataType::Duration(unit) => micros(*unit, Micros::Interval),
            DataType::Time64(unit) | DataType::Time32(unit) => micros(*unit, Micros::Time),
            _ if data_type.is_string() => Self::Text(Bytes::new(rows)),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                Self::Binary(Bytes::new(rows))
            }
            other => return Self::nested(other, rows),
        })
    }

    fn nested(data_type: &DataType, rows: usize) -> Result<Self, String> {
        Ok(match data_type {
            DataType::List(element) | DataType::LargeList(element) => {
                let element = Box::new(Member::new(element, rows)?);
                Self::List { offsets: no_offsets(rows), element }
            }
            DataType::Struct(fields) => Self::Struct {
                fields: fields.iter().map(|it| Member::new(it, rows)).collect::<Result<_, _>>()?,
            },
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(entry) if entry.len() == 2 && entry[0].data_type().is_string() => {
                    Self::map(&entry[1], rows)?
                }
                _ => return Err(format!("`{data_type}`, whose keys are not text")),
            },
            other => return Err(format!("`{other}`")),
        })
    }

    fn map(value: &Field, rows: usize) -> Result<Self, String> {
        let value = Box::new(Member::new(value, rows)?);
        Ok(Self::Map { offsets: no_offsets(rows), keys: Bytes::new(rows), value })
    }

    /// Returns the bytes of one, with a whole one that says whether it is null.
    fn width(&self) -> usize {
        1 + match self {
            Self::Void => 0,
            Self::Boolean(_) => 1,
            // Of what has no width of its own, where it ends.
            Self::Float(_)
            | Self::Date(_)
            | Self::Text(_)
            | Self::Binary(_)
            | Self::List { .. }
            | Self::Map { .. } => 4,
            Self::Integer { .. } | Self::Micros { .. } | Self::Unsigned(_) | Self::Double(_) => 8,
            Self::Decimal { .. } => 16,
            Self::Struct { fields } => fields.iter().map(|it| it.column.width).sum(),
        }
    }

    /// Returns the values in the type that is nearest to how they are kept.
    fn finish(
        self,
        len: usize,
        nulls: Option<NullBuffer>,
        data_type: &DataType,
    ) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Void => Arc::new(NullArray::new(len)),
            Self::Boolean(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Self::Integer { values, .. } => Arc::new(Int64Array::new(values.into(), nulls)),
            Self::Unsigned(values) => Arc::new(UInt64Array::new(values.into(), nulls)),
            Self::Float(values) => Arc::new(Float32Array::new(values.into(), nulls)),
            Self::Double(values) => Arc::new(Float64Array::new(values.into(), nulls)),
            Self::Decimal { values, precision, scale } => Arc::new(
                Decimal128Array::new(values.into(), nulls)
                    .with_precision_and_scale(precision, scale)?,
            ),
            Self::Date(values) => Arc::new(Date32Array::new(values.into(), nulls)),
            Self::Micros { values, .. } => match data_type {
                DataType::Timestamp(_, zone) => {
                    let array = TimestampMicrosecondArray::new(values.into(), nulls);
                    Arc::new(array.with_timezone_opt(zone.clone()))
                }
                DataType::Duration(_) => {
                    Arc::new(DurationMicrosecondArray::new(values.into(), nulls))
                }
                _ => Arc::new(Time64MicrosecondArray::new(values.into(), nulls)),
            },
            Self::Text(values) => {
                let (offsets, bytes) = values.finish();
                Arc::new(StringArray::try_new(offsets, bytes, nulls)?)
            }
            Self::Binary(values) => {
                let (offsets, bytes) = values.finish();
                Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?)
            }
            Self::List { offsets, element } => {
                let (DataType::List(field) | DataType::LargeList(field)) = data_type else {
                    return Err(ArrowError::SchemaError("a list of another type".to_owned()));
                };
                let (offsets, values) = (offsets_of(offsets), element.column.finish()?);
                Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?)
            }
            Self::Struct { fields } => {
                let DataType::Struct(types) = data_type else {
                    return Err(ArrowError::SchemaError("a struct of another type".to_owned()));
                };
                let columns = fields.into_iter().map(|field| field.column.finish());
                let columns = columns.collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new_with_length(types.clone(), columns, nulls, len)?)
            }
            Self::Map { offsets, keys, value } => {
                finish_map(offsets, keys, value.column, nulls, data_type)?
            }
        })
    }
}

fn finish_map(
    offsets: Vec<i32>,
    keys: Bytes,
    value: Column,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let misfit = || ArrowError::SchemaError("a map of another type".to_owned());
    let DataType::Map(entries, is_sorted) = data_type else { return Err(misfit()) };
    let DataType::Struct(fields) = entries.data_type() else { return Err(misfit()) };
    let (key_offsets, bytes) = keys.finish();
    let keys: ArrayRef = if fields[0].data_type().is_string() {
        Arc::new(StringArray::try_new(key_offsets, bytes, None)?)
    } else {
        Arc::new(BinaryArray::try_new(key_offsets, bytes, None)?)
    };
    let keys = cast_with_options(&keys, fields[0].data_type(), &CAST)?;
    let pairs = StructArray::try_new(Fields::clone(fields), vec![keys, value.finish()?], None)?;
    let (entries, offsets) = (Arc::clone(entries), offsets_of(offsets));
    Ok(Arc::new(MapArray::try_new(entries, offsets, pairs, nulls, *is_sorted)?))
}

impl Member {
    /// Makes an empty column with room for `rows` values; says which type cannot be read.
    pub(crate) fn new(field: &Field, rows: usize) -> Result<Self, String> {
        Ok(Self {
            name: field.name().clone(),
            column: Column::new(field.data_type(), rows)?,
            is_required: !field.is_nullable(),
        })
    }
}

impl Unit {
    fn of(unit: TimeUnit) -> Self {
        let (divisor, factor) = match unit {
            TimeUnit::Second => (1_000_000, 1),
            TimeUnit::Millisecond => (1_000, 1),
            TimeUnit::Microsecond => (1, 1),
            TimeUnit::Nanosecond => (1, 1_000),
        };
        Self { divisor, factor }
    }

    /// Whether so many microseconds are kept whole.
    #[inline]
    pub(crate) fn holds(self, micros: i64) -> bool {
        micros % self.divisor == 0 && micros.checked_mul(self.factor).is_some()
    }
}
