// SPDX-License-Identifier: Apache-2.0
//! Result columns out of the rows of a statement.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanBuilder, Date32Builder, Decimal128Builder,
    DurationMicrosecondBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, PrimitiveBuilder, RecordBatch, RecordBatchOptions, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use sparkawait_arrow::simple_string::simple_string;
use sparkawait_task::error::{CallFailure, TaskError};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::failure::plain_failure;
use crate::postgres::arguments::{DAY_MICROS, EPOCH_DAYS, EPOCH_MICROS};
use crate::postgres::exact_cast;
use crate::postgres::lists::{Elements, ListValues};
use crate::postgres::numeric::Numeric;
use crate::postgres::outputs::Form;
use crate::postgres::types::Wire;
use crate::text::TextColumn;

/// Days from 1970-01-01 to 0001-01-01 and to 10000-01-01: Spark's dates are between.
const DAYS: std::ops::Range<i32> = -719_162..2_932_897;

/// The bytes of a value as the server sent them.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Collects the rows of some calls.
pub(crate) struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    count: usize,
}

impl Rows {
    /// Makes the columns of `schema`; the `n`th is sent as `forms[n]`.
    pub(crate) fn new(schema: &SchemaRef, forms: &[Form], rows: usize) -> Self {
        let columns = schema.fields().iter().zip(forms);
        let columns = columns.map(|(field, form)| Column::new(field, *form, rows)).collect();
        Self { schema: SchemaRef::clone(schema), columns, count: 0 }
    }

    /// Appends a row, whose result columns begin at `first`.
    pub(crate) fn push(&mut self, row: &Row, first: usize) {
        for (index, column) in self.columns.iter_mut().enumerate() {
            match row.try_get::<_, Option<Raw<'_>>>(first + index) {
                Ok(Some(Raw(bytes))) => column.push(bytes),
                _ => column.push_null(),
            }
        }
        self.count += 1;
    }

    /// Appends a row of nulls.
    pub(crate) fn push_nulls(&mut self) {
        self.columns.iter_mut().for_each(Column::push_null);
        self.count += 1;
    }

    /// Returns the rows, and those that do not fit, ascending.
    pub(crate) fn finish(self) -> Result<(RecordBatch, Vec<(usize, CallFailure)>), TaskError> {
        let (mut arrays, mut bad) = (Vec::new(), Vec::new());
        for column in self.columns {
            let (array, rows) = column.finish()?;
            arrays.push(array);
            bad.extend(rows.into_iter().map(|(row, text)| (row, plain_failure(text))));
        }
        bad.sort_by_key(|(row, _)| *row);
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        let rows = RecordBatch::try_new_with_options(self.schema, arrays, &options)
            .map_err(|error| TaskError::Internal(format!("rows do not fit: {error}")))?;
        Ok((rows, bad))
    }
}

/// Collects the values of one column, or the elements of its arrays.
pub(super) struct Column {
    pub(super) field: FieldRef,
    values: Values,
    /// Values so far.
    pub(super) len: usize,
    /// Those that do not fit.
    bad: Vec<(usize, String)>,
}

enum Values {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    /// With precision and scale.
    Decimal(Decimal128Builder, u8, i8),
    /// Floating numbers that are near a decimal one.
    Near4(Float32Builder),
    Near8(Float64Builder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Time(Time64MicrosecondBuilder),
    Interval(DurationMicrosecondBuilder),
    Text(TextColumn),
    Uuid(TextColumn),
    Jsonb(TextColumn),
    List(Box<ListValues<Column>>),
}

impl Column {
    pub(super) fn new(field: &FieldRef, form: Form, rows: usize) -> Self {
        let values = match (form.is_list, field.data_type()) {
            (true, DataType::List(element)) => {
                let form = Form { is_list: false, ..form };
                Values::List(Box::new(ListValues::new(Self::new(element, form, rows), rows)))
            }
            _ => Values::new(field, form.wire, rows),
        };
        Self { field: FieldRef::clone(field), values, len: 0, bad: Vec::new() }
    }

    fn refuse(&mut self, what: &str) {
        self.bad.push((self.len, describe(&self.field, what)));
    }
}

impl Elements for Column {
    fn push(&mut self, bytes: &[u8]) {
        if self.values.try_push(bytes).is_none() {
            self.refuse(
                "the value does not fit: infinite, out of range, of more digits, or unreadable",
            );
            self.values.push_null();
        }
        self.len += 1;
    }

    fn push_null(&mut self) {
        self.values.push_null();
        self.len += 1;
    }

    fn len(&self) -> usize {
        self.len
    }

    /// Returns the values in the declared type, and the rows whose value does not fit.
    fn finish(self) -> Result<(ArrayRef, Vec<(usize, String)>), TaskError> {
        let Self { field, values, mut bad, .. } = self;
        let natural = match values {
            Values::Text(column) | Values::Uuid(column) | Values::Jsonb(column) => {
                let parsed = column.finish()?;
                bad.extend(parsed.bad);
                return Ok((parsed.array, bad));
            }
            Values::List(lists) => {
                let (array, rows) = lists.finish(&field)?;
                bad.extend(rows);
                return Ok((array, bad));
            }
            values => values.finish(&field)?,
        };
        let wanted = field.data_type();
        if natural.data_type() == wanted {
            return Ok((natural, bad));
        }
        let array = exact_cast::cast(&natural, wanted)
            .map_err(|error| TaskError::Internal(describe(&field, &error.to_string())))?;
        if array.null_count() != natural.null_count() {
            let lost = (0..array.len()).filter(|row| array.is_null(*row) && natural.is_valid(*row));
            bad.extend(lost.map(|row| (row, describe(&field, "the value is not exactly one"))));
        }
        Ok((array, bad))
    }
}

/// Says what is wrong with a value of a column.
fn describe(field: &FieldRef, what: &str) -> String {
    format!("`{}` should be `{}`, but {what}", field.name(), simple_string(field.data_type()))
}

impl Values {
    fn new(field: &FieldRef, wire: Wire, rows: usize) -> Self {
        let text = || TextColumn::new(field, rows);
        match wire {
            Wire::Bool => Self::Bool(BooleanBuilder::with_capacity(rows)),
            Wire::Int2 => Self::Int2(PrimitiveBuilder::with_capacity(rows)),
            Wire::Int4 => Self::Int4(PrimitiveBuilder::with_capacity(rows)),
            Wire::Int8 => Self::Int8(PrimitiveBuilder::with_capacity(rows)),
            Wire::Float4 => Self::Float4(PrimitiveBuilder::with_capacity(rows)),
            Wire::Float8 => Self::Float8(PrimitiveBuilder::with_capacity(rows)),
            Wire::Numeric => match field.data_type() {
                DataType::Float32 => Self::Near4(PrimitiveBuilder::with_capacity(rows)),
                DataType::Float64 => Self::Near8(PrimitiveBuilder::with_capacity(rows)),
                DataType::Decimal128(precision, scale) => {
                    Self::Decimal(PrimitiveBuilder::with_capacity(rows), *precision, *scale)
                }
                _ => Self::Decimal(PrimitiveBuilder::with_capacity(rows), 38, 0),
            },
            Wire::Date => Self::Date(PrimitiveBuilder::with_capacity(rows)),
            Wire::Timestamp => Self::Timestamp(PrimitiveBuilder::with_capacity(rows)),
            Wire::Time => Self::Time(PrimitiveBuilder::with_capacity(rows)),
            Wire::Interval => Self::Interval(PrimitiveBuilder::with_capacity(rows)),
            Wire::Text | Wire::Bytea | Wire::ByText => Self::Text(text()),
            Wire::Uuid => Self::Uuid(text()),
            Wire::Jsonb => Self::Jsonb(text()),
        }
    }

    /// Appends the value; `None`, and nothing, if there is no such value in Arrow.
    fn try_push(&mut self, bytes: &[u8]) -> Option<()> {
        match self {
            Self::Bool(builder) => builder.append_value(*bytes.first()? != 0),
            Self::Int2(builder) => builder.append_value(i16::from_be_bytes(fixed(bytes)?)),
            Self::Int4(builder) => builder.append_value(i32::from_be_bytes(fixed(bytes)?)),
            Self::Int8(builder) => builder.append_value(i64::from_be_bytes(fixed(bytes)?)),
            Self::Float4(builder) => builder.append_value(f32::from_be_bytes(fixed(bytes)?)),
            Self::Float8(builder) => builder.append_value(f64::from_be_bytes(fixed(bytes)?)),
            Self::Decimal(builder, precision, scale) => {
                builder.append_value(Numeric::read(bytes)?.to_decimal(*precision, *scale)?);
            }
            Self::Near4(builder) => builder.append_value(Numeric::read(bytes)?.to_float()?),
            Self::Near8(builder) => builder.append_value(Numeric::read(bytes)?.to_float()?),
            // Infinity is the last of all numbers, and out of range.
            Self::Date(builder) => {
                let days = i32::from_be_bytes(fixed(bytes)?).checked_add(EPOCH_DAYS)?;
                builder.append_value(Some(days).filter(|days| DAYS.contains(days))?);
            }
            Self::Timestamp(builder) => {
                let micros = i64::from_be_bytes(fixed(bytes)?).checked_add(EPOCH_MICROS)?;
                let days = i32::try_from(micros.div_euclid(DAY_MICROS)).ok()?;
                builder.append_value(DAYS.contains(&days).then_some(micros)?);
            }
            Self::Time(builder) => {
                let micros = i64::from_be_bytes(fixed(bytes)?);
                // PostgreSQL has 24:00:00 too.
                builder.append_value((0..DAY_MICROS).contains(&micros).then_some(micros)?);
            }
            Self::Interval(builder) => builder.append_value(interval(bytes)?),
            Self::Text(column) => column.push(bytes),
            Self::Uuid(column) => column.push(&uuid_text(fixed(bytes)?)),
            // The first byte is the version of the format.
            Self::Jsonb(column) => column.push(bytes.get(1..)?),
            Self::List(lists) => lists.push(bytes)?,
        }
        Some(())
    }

    fn push_null(&mut self) {
        match self {
            Self::Bool(builder) => builder.append_null(),
            Self::Int2(builder) => builder.append_null(),
            Self::Int4(builder) => builder.append_null(),
            Self::Int8(builder) => builder.append_null(),
            Self::Float4(builder) | Self::Near4(builder) => builder.append_null(),
            Self::Float8(builder) | Self::Near8(builder) => builder.append_null(),
            Self::Decimal(builder, ..) => builder.append_null(),
            Self::Date(builder) => builder.append_null(),
            Self::Timestamp(builder) => builder.append_null(),
            Self::Time(builder) => builder.append_null(),
            Self::Interval(builder) => builder.append_null(),
            Self::Text(it) | Self::Uuid(it) | Self::Jsonb(it) => it.push_null(),
            Self::List(lists) => lists.push_null(),
        }
    }

    /// Returns the values in the type that they were sent in.
    fn finish(self, field: &FieldRef) -> Result<ArrayRef, TaskError> {
        Ok(match self {
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Int2(builder) => primitive(builder),
            Self::Int4(builder) => primitive(builder),
            Self::Int8(builder) => primitive(builder),
            Self::Float4(builder) | Self::Near4(builder) => primitive(builder),
            Self::Float8(builder) | Self::Near8(builder) => primitive(builder),
            Self::Decimal(mut builder, precision, scale) => {
                let decimals = builder.finish().with_precision_and_scale(precision, scale);
                Arc::new(
                    decimals.map_err(|error| {
                        TaskError::Internal(describe(field, &error.to_string()))
                    })?,
                )
            }
            Self::Date(builder) => primitive(builder),
            // Both kinds of timestamps are sent in UTC.
            Self::Timestamp(mut builder) => match field.data_type() {
                DataType::Timestamp(_, zone) => {
                    Arc::new(builder.finish().with_timezone_opt(zone.clone()))
                }
                _ => Arc::new(builder.finish()),
            },
            Self::Time(builder) => primitive(builder),
            Self::Interval(builder) => primitive(builder),
            Self::Text(_) | Self::Uuid(_) | Self::Jsonb(_) | Self::List(_) => {
                return Err(TaskError::Internal(describe(field, "it is finished by itself")));
            }
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(mut builder: PrimitiveBuilder<T>) -> ArrayRef {
    Arc::new(builder.finish())
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// Reads an interval as microseconds; `None` if it has months, which are of no length.
fn interval(bytes: &[u8]) -> Option<i64> {
    let (micros, rest) = bytes.split_first_chunk()?;
    let (days, months) = rest.split_first_chunk()?;
    let (days, months) = (i32::from_be_bytes(*days), i32::from_be_bytes(fixed(months)?));
    let days = i64::from(days).checked_mul(DAY_MICROS).filter(|_| months == 0)?;
    days.checked_add(i64::from_be_bytes(*micros))
}

/// Writes a UUID in its usual form.
fn uuid_text(bytes: [u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_in_their_usual_form() {
        let bytes = std::array::from_fn(|index| u8::try_from(index * 17).unwrap());
        assert_eq!(&uuid_text(bytes), b"00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn an_interval_with_months_has_no_length() {
        let sent = |micros: i64, days: i32, months: i32| {
            [&micros.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat()
        };
        assert_eq!(interval(&sent(-5, 2, 0)), Some(2 * DAY_MICROS - 5));
        assert_eq!(interval(&sent(0, 0, 1)), None);
        assert_eq!(interval(&sent(0, i32::MAX, 0)), None);
        assert_eq!(interval(&sent(0, 1, 0)[..15]), None);
    }
}
