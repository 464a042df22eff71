// SPDX-License-Identifier: Apache-2.0
//! Arguments of statements, as they are sent.

use std::error::Error as StdError;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    Date32Type, DurationMicrosecondType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::postgres::types::Wire;

type ToSqlResult = Result<IsNull, Box<dyn StdError + Sync + Send>>;

/// Days from 1970-01-01 to PostgreSQL's first day, 2000-01-01.
pub(crate) const EPOCH_DAYS: i32 = 10_957;

/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// Microseconds of a day.
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;

/// All values of a column, as one array.
pub(crate) struct ArrayArgument {
    pub(crate) wire: Wire,
    pub(crate) values: ArrayRef,
    /// Type of the elements.
    pub(crate) element: Type,
}

// Shows no values: the client writes its arguments to a log for debugging.
sparkawait_core::opaque_debug!(ArrayArgument, of: element);

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
pub(crate) struct ValueArgument<'a> {
    pub(crate) wire: Wire,
    pub(crate) values: &'a ArrayRef,
    pub(crate) row: usize,
}

// Shows no value.
sparkawait_core::opaque_debug!(ValueArgument<'_>, row: row);

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
        Wire::Time => out.put_i64(values.as_primitive::<Time64MicrosecondType>().value(row)),
        Wire::Interval => {
            let micros = values.as_primitive::<DurationMicrosecondType>().value(row);
            let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
            out.put_i64(rest);
            out.put_i32(i32::try_from(days)?);
            // No months.
            out.put_i32(0);
        }
        Wire::Text | Wire::Numeric | Wire::Uuid | Wire::Jsonb | Wire::ByText => {
            out.put_slice(values.as_string::<i32>().value(row).as_bytes());
        }
    }
    Ok(())
}
