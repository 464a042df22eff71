// SPDX-License-Identifier: Apache-2.0
//! Columns of any type out of the texts that a service returned.
//!
//! A text becomes what Spark's `cast(.. as ..)` makes of it with ANSI rules, or it is refused.

pub(crate) mod date_time;
pub(crate) mod interval;
pub(crate) mod number;
pub(crate) mod times;

use std::str::from_utf8;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use sparkawait_arrow::simple_string::simple_string;
use sparkawait_task::error::TaskError;

use crate::column::{Column, Full, Values};
use crate::json;

/// Turns the texts of one column into values of its type, one after the other.
///
/// Nested types are read as JSON; binary columns take the bytes as they are.
#[derive(Debug)]
pub struct TextColumn {
    field: FieldRef,
    /// Or the type that cannot be read, which is known on the driver.
    column: Result<Column, String>,
    /// The rows whose text did not parse, ascending, and what is wrong with each.
    bad: Vec<(usize, String)>,
}

/// A finished column.
#[derive(Debug)]
pub struct ParsedColumn {
    /// The values; null where nothing was, and where a text did not parse.
    pub array: ArrayRef,
    /// The rows whose text did not parse, ascending, and what is wrong with each: without the text.
    pub bad: Vec<(usize, String)>,
}

impl TextColumn {
    /// Makes an empty column of the type of `field`, with room for `rows` rows.
    pub fn new(field: &FieldRef, rows: usize) -> Self {
        Self::of(field, Column::new(field.data_type(), rows))
    }

    /// Makes a column of one that is empty, or of why that cannot be read.
    pub(crate) fn of(field: &FieldRef, column: Result<Column, String>) -> Self {
        Self { field: FieldRef::clone(field), column, bad: Vec::new() }
    }

    /// Returns what the column is.
    pub(crate) fn field(&self) -> &Field {
        &self.field
    }

    /// Appends a value as the service wrote it.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        let Ok(column) = &mut self.column else { return };
        // Texts are looked at when all are there.
        if let Values::Text(values) | Values::Binary(values) = &mut column.values
            && values.push(value).is_ok()
        {
            column.advance();
            return;
        }
        self.push_parsed(value);
    }

    /// Appends a value that must be read. Apart, so that the loop over texts has the registers.
    #[inline(never)]
    fn push_parsed(&mut self, value: &[u8]) {
        if let Ok(column) = &mut self.column
            && push_integer(column, value)
        {
            return;
        }
        self.push_read(value);
    }

    /// Appends a value that is not a plain integer. Apart for the same reason.
    #[inline(never)]
    fn push_read(&mut self, value: &[u8]) {
        self.push_with(|field, column| {
            push(column, value).map_err(|what| misfit(field.name(), field.data_type(), &what))
        });
    }

    /// Appends the value that `append` appends, or a null if it says what is wrong; it may have appended
    /// parts of the value then.
    pub(crate) fn push_with(
        &mut self,
        append: impl FnOnce(&Field, &mut Column) -> Result<(), String>,
    ) {
        let Ok(column) = &mut self.column else { return };
        let row = column.len();
        if let Err(message) = append(&self.field, column) {
            column.truncate(row);
            column.push_null();
            self.bad.push((row, message));
        }
    }

    /// Appends a null.
    #[inline]
    pub fn push_null(&mut self) {
        if let Ok(column) = &mut self.column {
            column.push_null();
        }
    }

    /// Returns the values.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if texts cannot become values of the type at all.
    pub fn finish(mut self) -> Result<ParsedColumn, TaskError> {
        if let Ok(column) = &mut self.column
            && let Some(without) = column.without_broken_texts()
        {
            let message = misfit(self.field.name(), self.field.data_type(), NOT_UTF8);
            self.bad.extend(without.into_iter().map(|row| (row, message.clone())));
            self.bad.sort_by_key(|(row, _)| *row);
        }
        let name = self.field.name();
        let internal = |what: &str| TaskError::Internal(format!("`{name}` cannot be read: {what}"));
        let column = self.column.map_err(|what| internal(&what))?;
        let array = column.finish().map_err(|error| internal(&error.to_string()))?;
        Ok(ParsedColumn { array, bad: self.bad })
    }
}

/// What is wrong with a value for which there is no place.
pub(crate) const TOO_LONG: &str = "the rows that were answered together have more than 2 GiB of it";

/// What is wrong with a text that is not one.
const NOT_UTF8: &str = "its bytes are not UTF-8";

/// Says what is wrong with a value of the column `name`.
pub(crate) fn misfit(name: &str, data_type: &DataType, what: &str) -> String {
    format!("`{name}` should be `{}`, but {what}", simple_string(data_type))
}

/// Appends an integer to a column of integers; returns false, and appends nothing, unless both are so.
#[inline]
fn push_integer(column: &mut Column, value: &[u8]) -> bool {
    if let Values::Integer { values, least, most } = &mut column.values
        && let Some(value) = number::integer(value).filter(|it| (*least..=*most).contains(it))
    {
        values.push(value);
        column.advance();
        return true;
    }
    false
}

/// Appends a value; says what is wrong, having appended parts of it perhaps.
pub(crate) fn push(column: &mut Column, value: &[u8]) -> Result<(), String> {
    if push_integer(column, value) {
        return Ok(());
    }
    if let Values::Binary(values) = &mut column.values {
        values.push(value).map_err(|Full| TOO_LONG)?;
        column.advance();
        return Ok(());
    }
    let text = from_utf8(value).map_err(|_| NOT_UTF8)?;
    let pushed = match &mut column.values {
        Values::Text(values) => Some(values.push(value).map_err(|Full| TOO_LONG)?),
        // It was not read above.
        Values::Integer { .. } => None,
        Values::Unsigned(values) => number::trim(text).parse().ok().map(|value| values.push(value)),
        Values::Boolean(values) => number::boolean(text).map(|value| values.append(value)),
        Values::Float(values) => number::float(text).map(|value| values.push(value)),
        Values::Double(values) => number::float(text).map(|value| values.push(value)),
        Values::Decimal { values, precision, scale } => {
            number::decimal(text, *precision, *scale).map(|value| values.push(value))
        }
        Values::List { .. } | Values::Struct { .. } | Values::Map { .. } | Values::Void => {
            return json::push_value(column, text);
        }
        values => times::push_time(values, text, true),
    };
    pushed.ok_or_else(|| "the text does not parse as one".to_owned())?;
    column.advance();
    Ok(())
}

#[cfg(test)]
mod tests;
