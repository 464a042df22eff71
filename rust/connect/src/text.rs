// SPDX-License-Identifier: Apache-2.0
//! Columns of any type out of the texts that a service returned.

use std::str::from_utf8;

use arrow::array::{Array, ArrayBuilder, ArrayRef, BinaryBuilder, StringBuilder};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use arrow::util::display::FormatOptions;

use crate::error::TaskError;
use crate::json::JsonRows;

/// What does not parse becomes null, and is found by that.
const CAST: CastOptions<'static> = CastOptions { safe: true, format_options: FormatOptions::new() };

/// Collects the texts of one column and turns them into values of its type.
///
/// Numbers, booleans, dates and timestamps are parsed, for a whole column at
/// once; nested types are read as JSON; binary columns take the bytes as they are.
#[derive(Debug)]
pub struct TextColumn {
    field: FieldRef,
    texts: Texts,
    /// Rows whose bytes are no UTF-8, ascending.
    not_utf8: Vec<usize>,
}

#[derive(Debug)]
enum Texts {
    Binary(BinaryBuilder),
    Text(StringBuilder),
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
        let texts = match field.data_type() {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                Texts::Binary(BinaryBuilder::with_capacity(rows, rows * 16))
            }
            _ => Texts::Text(StringBuilder::with_capacity(rows, rows * 16)),
        };
        Self { field: FieldRef::clone(field), texts, not_utf8: Vec::new() }
    }

    /// Appends a value as the service wrote it.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        match &mut self.texts {
            Texts::Binary(builder) => builder.append_value(value),
            Texts::Text(builder) => {
                if let Ok(text) = from_utf8(value) {
                    builder.append_value(text);
                } else {
                    self.not_utf8.push(builder.len());
                    builder.append_null();
                }
            }
        }
    }

    /// Appends a null.
    #[inline]
    pub fn push_null(&mut self) {
        match &mut self.texts {
            Texts::Binary(builder) => builder.append_null(),
            Texts::Text(builder) => builder.append_null(),
        }
    }

    /// Parses all texts.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if texts cannot become values of the type at all.
    pub fn finish(self) -> Result<ParsedColumn, TaskError> {
        let (name, wanted) = (self.field.name(), self.field.data_type());
        let describe = |what: &str| format!("`{name}` should be `{wanted}`, but {what}");
        let texts: ArrayRef = match self.texts {
            Texts::Binary(mut builder) => std::sync::Arc::new(builder.finish()),
            Texts::Text(mut builder) => std::sync::Arc::new(builder.finish()),
        };
        let mut bad: Vec<(usize, String)> =
            self.not_utf8.iter().map(|row| (*row, describe("its bytes are no UTF-8"))).collect();
        let (array, rest) = if wanted.is_nested() {
            JsonRows::parse_values(&self.field, &texts)?
        } else {
            let array = if texts.data_type() == wanted {
                ArrayRef::clone(&texts)
            } else {
                cast_with_options(&texts, wanted, &CAST)
                    .map_err(|error| TaskError::Internal(describe(&error.to_string())))?
            };
            let is_bad = |row: &usize| array.is_null(*row) && !texts.is_null(*row);
            let rest = if array.null_count() == texts.null_count() {
                Vec::new()
            } else {
                (0..array.len())
                    .filter(is_bad)
                    .map(|row| (row, describe("the text does not parse as one")))
                    .collect()
            };
            (array, rest)
        };
        bad.extend(rest);
        bad.sort_by_key(|(row, _)| *row);
        Ok(ParsedColumn { array, bad })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::AsArray;
    use arrow::datatypes::{Field, Fields, Int64Type};

    use super::*;

    fn parsed(data_type: DataType, texts: &[Option<&[u8]>]) -> ParsedColumn {
        let field: FieldRef = Arc::new(Field::new("c", data_type, true));
        let mut column = TextColumn::new(&field, texts.len());
        for text in texts {
            match text {
                Some(text) => column.push(text),
                None => column.push_null(),
            }
        }
        column.finish().unwrap()
    }

    #[test]
    fn numbers_are_parsed_and_what_is_none_is_named_without_its_text() {
        let column = parsed(DataType::Int64, &[Some(b"7"), None, Some(b"secret"), Some(b"-1")]);

        let values = column.array.as_primitive::<Int64Type>();
        assert_eq!(values.iter().collect::<Vec<_>>(), [Some(7), None, None, Some(-1)]);
        let message = "`c` should be `Int64`, but the text does not parse as one".to_owned();
        assert_eq!(column.bad, [(2, message)]);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_in_a_text_column_only() {
        let text = parsed(DataType::Utf8, &[Some(b"a"), Some(b"\xff"), Some(b"c")]);
        assert_eq!(text.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
        assert_eq!(text.array.as_string::<i32>().value(2), "c");

        let binary = parsed(DataType::Binary, &[Some(b"a"), Some(b"\xff")]);
        assert!(binary.bad.is_empty());
        assert_eq!(binary.array.as_binary::<i32>().value(1), b"\xff");
    }

    #[test]
    fn nested_values_are_read_as_json() {
        let fields = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
        let column =
            parsed(DataType::Struct(fields), &[Some(br#"{"x": 3}"#), None, Some(b"{"), Some(b"5")]);

        assert_eq!(column.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2, 3]);
        let values = column.array.as_struct();
        assert_eq!(values.column(0).as_primitive::<Int64Type>().value(0), 3);
        assert!(values.is_null(1));
    }

    #[test]
    fn dates_and_decimals_and_booleans_are_parsed() {
        assert!(parsed(DataType::Date32, &[Some(b"2026-11-21")]).bad.is_empty());
        assert!(parsed(DataType::Decimal128(10, 2), &[Some(b"12.34")]).bad.is_empty());
        assert!(parsed(DataType::Boolean, &[Some(b"true"), Some(b"0")]).bad.is_empty());
        assert_eq!(parsed(DataType::Boolean, &[Some(b"perhaps")]).bad.len(), 1);
    }
}
