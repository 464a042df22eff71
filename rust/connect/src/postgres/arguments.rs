// SPDX-License-Identifier: Apache-2.0
//! Arguments of statements out of Arrow columns.

use std::error::Error as StdError;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow::util::display::FormatOptions;
use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::postgres::failure::Failure;
use crate::postgres::types::Wire;

type ToSqlResult = Result<IsNull, Box<dyn StdError + Sync + Send>>;

/// What does not fit becomes null, and is found by that.
const CAST: CastOptions<'static> = CastOptions { safe: true, format_options: FormatOptions::new() };

/// Days from 1970-01-01 to PostgreSQL's first day, 2000-01-01.
pub(crate) const EPOCH_DAYS: i32 = 10_957;

/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Turns a column into one that can be sent as `wire`; null where it is, and where a value does not fit.
pub(crate) fn convert(column: &ArrayRef, wire: Wire, name: &str) -> Result<ArrayRef, Failure> {
    let (from, to) = (column.data_type(), wire.natural());
    if *from == to {
        return Ok(ArrayRef::clone(column));
    }
    if wire == Wire::ByText && matches!(from, DataType::List(_) | DataType::LargeList(_)) {
        return array_literals(column, name);
    }
    let refused = || {
        Failure::permanent(format!(
            "argument column `{name}` is `{from}`, which cannot be sent as `{to}`; cast the column"
        ))
    };
    if (from.is_floating() && to.is_integer()) || from.is_nested() {
        return Err(refused());
    }
    cast_with_options(column, &to, &CAST).map_err(|_| refused())
}

/// Writes lists as PostgreSQL writes arrays: `{"a","b",NULL}`.
fn array_literals(column: &ArrayRef, name: &str) -> Result<ArrayRef, Failure> {
    let refused = || {
        Failure::permanent(format!(
            "argument column `{name}` is `{}`, and only lists of plain values can be sent as arrays",
            column.data_type()
        ))
    };
    let element = Arc::new(arrow::datatypes::Field::new("element", DataType::Utf8, true));
    if let DataType::List(field) | DataType::LargeList(field) = column.data_type()
        && field.data_type().is_nested()
    {
        return Err(refused());
    }
    let lists =
        cast_with_options(column, &DataType::List(element), &CAST).map_err(|_| refused())?;
    let lists = lists.as_list::<i32>();
    let texts = (0..lists.len()).map(|row| {
        if lists.is_null(row) {
            return None;
        }
        let values = lists.value(row);
        let parts = values.as_string::<i32>().iter().map(|value| {
            value.map_or_else(
                || "NULL".to_owned(),
                |value| format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
            )
        });
        Some(format!("{{{}}}", parts.collect::<Vec<_>>().join(",")))
    });
    Ok(Arc::new(StringArray::from(texts.collect::<Vec<_>>())))
}

/// All values of a column, as one array.
#[derive(Debug)]
pub(crate) struct ArrayArgument {
    pub(crate) wire: Wire,
    pub(crate) values: ArrayRef,
    /// Type of the elements.
    pub(crate) element: Type,
}

impl ToSql for ArrayArgument {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> ToSqlResult {
        out.reserve(20 + self.values.len() * 12);
        out.put_i32(1);
        out.put_i32(i32::from(self.values.null_count() > 0));
        out.put_u32(self.element.oid());
        out.put_i32(i32::try_from(self.values.len())?);
        out.put_i32(1);
        for row in 0..self.values.len() {
            if self.values.is_null(row) {
                out.put_i32(-1);
                continue;
            }
            let at = out.len();
            out.put_i32(0);
            write_value(self.wire, &self.values, row, out)?;
            let length = i32::try_from(out.len() - at - 4)?;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// One value of a column.
#[derive(Debug)]
pub(crate) struct ValueArgument<'a> {
    pub(crate) wire: Wire,
    pub(crate) values: &'a ArrayRef,
    pub(crate) row: usize,
}

impl ToSql for ValueArgument<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> ToSqlResult {
        if self.values.is_null(self.row) {
            return Ok(IsNull::Yes);
        }
        write_value(self.wire, self.values, self.row, out)?;
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        if self.wire == Wire::ByText { Format::Text } else { Format::Binary }
    }

    to_sql_checked!();
}

fn write_value(
    wire: Wire,
    values: &ArrayRef,
    row: usize,
    out: &mut BytesMut,
) -> Result<(), Box<dyn StdError + Sync + Send>> {
    let out_of_range = "the value is out of PostgreSQL's range";
    match wire {
        Wire::Bool => out.put_u8(u8::from(values.as_boolean().value(row))),
        Wire::Int2 => out.put_i16(values.as_primitive::<Int16Type>().value(row)),
        Wire::Int4 => out.put_i32(values.as_primitive::<Int32Type>().value(row)),
        Wire::Int8 => out.put_i64(values.as_primitive::<Int64Type>().value(row)),
        Wire::Float4 => out.put_f32(values.as_primitive::<Float32Type>().value(row)),
        Wire::Float8 => out.put_f64(values.as_primitive::<Float64Type>().value(row)),
        Wire::Bytea => out.put_slice(values.as_binary::<i32>().value(row)),
        Wire::Date => {
            let days = values.as_primitive::<Date32Type>().value(row);
            out.put_i32(days.checked_sub(EPOCH_DAYS).ok_or(out_of_range)?);
        }
        Wire::Timestamp => {
            let micros = values.as_primitive::<TimestampMicrosecondType>().value(row);
            out.put_i64(micros.checked_sub(EPOCH_MICROS).ok_or(out_of_range)?);
        }
        Wire::Text | Wire::Uuid | Wire::Jsonb | Wire::ByText => {
            out.put_slice(values.as_string::<i32>().value(row).as_bytes());
        }
    }
    Ok(())
}
