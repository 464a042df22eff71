// SPDX-License-Identifier: Apache-2.0
//! Lists as PostgreSQL writes arrays: `{"a","b",NULL}`.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, DurationMicrosecondType};
use tokio_postgres::types::Type;

use crate::postgres::arguments::DAY_MICROS;
use crate::postgres::failure::Fault;
use crate::postgres::types::{Wire, base};

/// The first and the last character of a date of four digits for the year.
const YEAR: std::ops::RangeInclusive<&str> = "0001"..="9999";

/// Writes lists, whose elements are of the type `of` and are sent as `wire` says, once `convert` has
/// turned them into what can be sent; null where a list is, and where an element does not fit.
pub(super) fn array_literals(
    column: &ArrayRef,
    wire: Wire,
    of: &Type,
    convert: impl Fn(&ArrayRef) -> Result<ArrayRef, Fault>,
) -> Result<ArrayRef, Fault> {
    let column = match column.data_type() {
        DataType::LargeList(field) => cast(column, &DataType::List(Arc::clone(field)))
            .map_err(|_| Fault::permanent("a list is too long to be sent"))?,
        _ => ArrayRef::clone(column),
    };
    let lists = column.as_list::<i32>();
    let given = lists.values();
    let elements = convert(given)?;
    let elements = Elements::new(wire, of, &elements)?;
    let mut texts = StringBuilder::with_capacity(lists.len(), 0);
    let mut text = String::new();
    for (row, bounds) in lists.offsets().windows(2).enumerate() {
        let bounds = usize::try_from(bounds[0]).ok().zip(usize::try_from(bounds[1]).ok());
        let (first, end) = bounds.filter(|_| lists.is_valid(row)).unwrap_or_default();
        text.clear();
        text.push('{');
        let is_written = (first..end).all(|index| {
            if index > first {
                text.push(',');
            }
            if elements.values.is_valid(index) {
                return elements.write(index, &mut text).is_ok();
            }
            text.push_str("NULL");
            given.logical_nulls().is_some_and(|nulls| nulls.is_null(index))
        });
        text.push('}');
        texts.append_option((lists.is_valid(row) && is_written).then_some(&text));
    }
    Ok(Arc::new(texts.finish()))
}

/// The elements of all lists, sent singly or as their texts.
struct Elements {
    wire: Wire,
    values: ArrayRef,
    /// What follows each text.
    suffix: &'static str,
}

impl Elements {
    fn new(wire: Wire, of: &Type, values: &ArrayRef) -> Result<Self, Fault> {
        let values = match wire {
            Wire::Bytea | Wire::Interval => ArrayRef::clone(values),
            // Without time zone, in UTC.
            _ => cast(values, &DataType::Utf8)
                .map_err(|error| Fault::permanent(error.to_string()))?,
        };
        let suffix = if *base(of) == Type::TIMESTAMPTZ { "+00" } else { "" };
        Ok(Self { wire, values, suffix })
    }

    /// Writes an element; an error if PostgreSQL reads another value.
    fn write(&self, index: usize, out: &mut String) -> fmt::Result {
        match self.wire {
            Wire::Bytea => {
                out.push_str("\"\\\\x");
                for byte in self.values.as_binary::<i32>().value(index) {
                    write!(out, "{byte:02x}")?;
                }
                out.push('"');
            }
            Wire::Interval => {
                let micros = self.values.as_primitive::<DurationMicrosecondType>().value(index);
                let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
                let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
                write!(out, "\"{days} days {seconds}.{micros:06} seconds\"")?;
            }
            wire => {
                let text = self.values.as_string::<i32>().value(index);
                if matches!(wire, Wire::Date | Wire::Timestamp)
                    && !text.get(..4).is_some_and(|year| YEAR.contains(&year))
                {
                    return Err(fmt::Error);
                }
                out.push('"');
                for character in text.chars() {
                    if matches!(character, '"' | '\\') {
                        out.push('\\');
                    }
                    out.push(character);
                }
                out.push_str(self.suffix);
                out.push('"');
            }
        }
        Ok(())
    }
}
