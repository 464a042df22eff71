// SPDX-License-Identifier: Apache-2.0
//! Result columns out of the rows of a statement.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBuilder, Date32Builder, Float32Builder, Float64Builder, Int16Builder,
    Int32Builder, Int64Builder, RecordBatch, RecordBatchOptions, TimestampMicrosecondBuilder,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use arrow::util::display::FormatOptions;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::error::{CallFailure, TaskError};
use crate::lookup::service_failure;
use crate::postgres::arguments::{EPOCH_DAYS, EPOCH_MICROS};
use crate::postgres::types::Wire;
use crate::text::TextColumn;

/// What does not fit becomes null, and is found by that.
const CAST: CastOptions<'static> = CastOptions { safe: true, format_options: FormatOptions::new() };

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
    /// Makes the columns of `schema`, of which the `n`th is sent as `wires[n]`.
    pub(crate) fn new(schema: &SchemaRef, wires: &[Wire], rows: usize) -> Self {
        let columns = schema.fields().iter().zip(wires);
        let columns = columns.map(|(field, wire)| Column::new(field, *wire, rows)).collect();
        Self { schema: SchemaRef::clone(schema), columns, count: 0 }
    }

    /// Appends a row, whose result columns begin at `first`.
    pub(crate) fn push(&mut self, row: &Row, first: usize) {
        for (index, column) in self.columns.iter_mut().enumerate() {
            match row.try_get::<_, Option<Raw<'_>>>(first + index) {
                Ok(Some(Raw(bytes))) => column.push(bytes, self.count),
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
            bad.extend(rows.into_iter().map(|(row, text)| (row, service_failure(&text, &text))));
        }
        bad.sort_by_key(|(row, _)| *row);
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        let rows = RecordBatch::try_new_with_options(self.schema, arrays, &options)
            .map_err(|error| TaskError::Internal(format!("rows do not fit: {error}")))?;
        Ok((rows, bad))
    }
}

/// Collects the values of one column.
struct Column {
    field: FieldRef,
    values: Values,
    bad: Vec<(usize, String)>,
}

enum Values {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Text(TextColumn),
    Uuid(TextColumn),
    Jsonb(TextColumn),
}

impl Column {
    fn new(field: &FieldRef, wire: Wire, rows: usize) -> Self {
        let text = || TextColumn::new(field, rows);
        let values = match wire {
            Wire::Bool => Values::Bool(BooleanBuilder::with_capacity(rows)),
            Wire::Int2 => Values::Int2(Int16Builder::with_capacity(rows)),
            Wire::Int4 => Values::Int4(Int32Builder::with_capacity(rows)),
            Wire::Int8 => Values::Int8(Int64Builder::with_capacity(rows)),
            Wire::Float4 => Values::Float4(Float32Builder::with_capacity(rows)),
            Wire::Float8 => Values::Float8(Float64Builder::with_capacity(rows)),
            Wire::Date => Values::Date(Date32Builder::with_capacity(rows)),
            Wire::Timestamp => Values::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows)),
            Wire::Text | Wire::Bytea | Wire::ByText => Values::Text(text()),
            Wire::Uuid => Values::Uuid(text()),
            Wire::Jsonb => Values::Jsonb(text()),
        };
        Self { field: FieldRef::clone(field), values, bad: Vec::new() }
    }

    /// Appends the value of row `row`.
    fn push(&mut self, bytes: &[u8], row: usize) {
        if self.try_push(bytes).is_none() {
            let (name, wanted) = (self.field.name(), self.field.data_type());
            self.bad.push((
                row,
                format!(
                    "`{name}` should be `{wanted}`, but the value is not finite or cannot be read"
                ),
            ));
            self.push_null();
        }
    }

    /// Appends the value; `None` if there is no such value in Arrow.
    fn try_push(&mut self, bytes: &[u8]) -> Option<()> {
        match &mut self.values {
            Values::Bool(builder) => builder.append_value(*bytes.first()? != 0),
            Values::Int2(builder) => builder.append_value(i16::from_be_bytes(fixed(bytes)?)),
            Values::Int4(builder) => builder.append_value(i32::from_be_bytes(fixed(bytes)?)),
            Values::Int8(builder) => builder.append_value(i64::from_be_bytes(fixed(bytes)?)),
            Values::Float4(builder) => builder.append_value(f32::from_be_bytes(fixed(bytes)?)),
            Values::Float8(builder) => builder.append_value(f64::from_be_bytes(fixed(bytes)?)),
            Values::Date(builder) => {
                let days = i32::from_be_bytes(fixed(bytes)?);
                let is_finite = days != i32::MAX && days != i32::MIN;
                builder.append_value(days.checked_add(EPOCH_DAYS).filter(|_| is_finite)?);
            }
            Values::Timestamp(builder) => {
                let micros = i64::from_be_bytes(fixed(bytes)?);
                let is_finite = micros != i64::MAX && micros != i64::MIN;
                builder.append_value(micros.checked_add(EPOCH_MICROS).filter(|_| is_finite)?);
            }
            Values::Text(column) => column.push(bytes),
            Values::Uuid(column) => column.push(&uuid_text(fixed(bytes)?)),
            // The first byte is the version of the format.
            Values::Jsonb(column) => column.push(bytes.get(1..)?),
        }
        Some(())
    }

    fn push_null(&mut self) {
        match &mut self.values {
            Values::Bool(builder) => builder.append_null(),
            Values::Int2(builder) => builder.append_null(),
            Values::Int4(builder) => builder.append_null(),
            Values::Int8(builder) => builder.append_null(),
            Values::Float4(builder) => builder.append_null(),
            Values::Float8(builder) => builder.append_null(),
            Values::Date(builder) => builder.append_null(),
            Values::Timestamp(builder) => builder.append_null(),
            Values::Text(it) | Values::Uuid(it) | Values::Jsonb(it) => it.push_null(),
        }
    }

    /// Returns the values in the declared type, and the rows whose value does not fit.
    fn finish(self) -> Result<(ArrayRef, Vec<(usize, String)>), TaskError> {
        let natural: ArrayRef = match self.values {
            Values::Bool(mut builder) => Arc::new(builder.finish()),
            Values::Int2(mut builder) => Arc::new(builder.finish()),
            Values::Int4(mut builder) => Arc::new(builder.finish()),
            Values::Int8(mut builder) => Arc::new(builder.finish()),
            Values::Float4(mut builder) => Arc::new(builder.finish()),
            Values::Float8(mut builder) => Arc::new(builder.finish()),
            Values::Date(mut builder) => Arc::new(builder.finish()),
            // Both kinds of timestamps are sent in UTC.
            Values::Timestamp(mut builder) => match self.field.data_type() {
                DataType::Timestamp(_, zone) => {
                    Arc::new(builder.finish().with_timezone_opt(zone.clone()))
                }
                _ => Arc::new(builder.finish()),
            },
            Values::Text(column) | Values::Uuid(column) | Values::Jsonb(column) => {
                let parsed = column.finish()?;
                let mut bad = self.bad;
                bad.extend(parsed.bad);
                return Ok((parsed.array, bad));
            }
        };
        let wanted = self.field.data_type();
        if natural.data_type() == wanted {
            return Ok((natural, self.bad));
        }
        let describe =
            |what: &str| format!("`{}` should be `{wanted}`, but {what}", self.field.name());
        let array = cast_with_options(&natural, wanted, &CAST)
            .map_err(|error| TaskError::Internal(describe(&error.to_string())))?;
        let mut bad = self.bad;
        if array.null_count() != natural.null_count() {
            let lost = (0..array.len()).filter(|row| array.is_null(*row) && natural.is_valid(*row));
            bad.extend(lost.map(|row| (row, describe("the value does not fit"))));
        }
        Ok((array, bad))
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
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
}
