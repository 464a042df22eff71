// SPDX-License-Identifier: Apache-2.0
//! A column of maps out of arrays of names and values, as `HGETALL` answers them.

use std::str::from_utf8;

use arrow::datatypes::{DataType, Field, SchemaRef};
use sparkawait_task::error::StartError;

use crate::column::{Column, Values, push_end};
use crate::text::{self, TOO_LONG, TextColumn, misfit};

use super::resp::{Array, Reply};

/// Makes the only column of the results, with room for `rows` maps: their names are taken as they are, and
/// their values parsed by the schema.
///
/// # Errors
///
/// There are others, or the type is not a map from text or bytes to something that may be null.
pub(super) fn map_column(results: &SchemaRef, rows: usize) -> Result<TextColumn, StartError> {
    let [field] = results.fields().as_ref() else {
        return Err(StartError::option(format!(
            "`schema` must have one column to take all fields of a hash, got {}",
            results.fields().len()
        )));
    };
    let is_name = |of: &DataType| of.is_string() || of.is_binary();
    match names_and_values(field) {
        Some((name, value)) if is_name(name.data_type()) && value.is_nullable() => {
            Ok(TextColumn::of(field, Column::of_maps(field.data_type(), value, rows)))
        }
        _ => Err(StartError::option(format!(
            "`schema`: column `{}` must be a map from string or binary to nullable values to \
             take all fields of a hash, got `{}`",
            field.name(),
            field.data_type()
        ))),
    }
}

fn names_and_values(field: &Field) -> Option<(&Field, &Field)> {
    let DataType::Map(entries, _) = field.data_type() else { return None };
    let DataType::Struct(entry) = entries.data_type() else { return None };
    let [name, value] = entry.as_ref() else { return None };
    Some((name, value))
}

/// Appends a map; if its elements are not valid, says why and appends nothing.
pub(super) fn push_map(column: &mut TextColumn, elements: Array<'_>) -> Result<(), &'static str> {
    if !elements.len().is_multiple_of(2) {
        return Err("an array of names without values");
    }
    let names = names_and_values(column.field());
    let has_text_names = names.is_some_and(|(name, _)| name.data_type().is_string());
    for (index, element) in elements.elements().enumerate() {
        match element {
            Reply::Text(name) if index % 2 == 0 => {
                if has_text_names && from_utf8(name).is_err() {
                    return Err("a name that is not UTF-8");
                }
            }
            Reply::Text(_) => {}
            Reply::Nil if index % 2 == 1 => {}
            _ => return Err("an array of something else than names and values"),
        }
    }
    column.push_with(|field, column| push(field, column, elements));
    Ok(())
}

fn push(field: &Field, column: &mut Column, elements: Array<'_>) -> Result<(), String> {
    let Values::Map { offsets, keys, value } = &mut column.values else { return Ok(()) };
    let too_long = |_| misfit(field.name(), field.data_type(), TOO_LONG);
    for (index, element) in elements.elements().enumerate() {
        match element {
            Reply::Text(name) if index % 2 == 0 => keys.push(name).map_err(too_long)?,
            Reply::Text(text) => {
                text::push(&mut value.column, text)
                    .map_err(|what| misfit(&value.name, value.column.data_type(), &what))?;
            }
            _ => value.column.push_null(),
        }
    }
    push_end(offsets, value.column.len()).map_err(too_long)?;
    column.advance();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array as _, AsArray};
    use arrow::datatypes::{Int64Type, Schema};

    use super::super::resp::parse;
    use super::*;

    fn column(value: DataType) -> Result<TextColumn, StartError> {
        let entries =
            vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)];
        let entries = Field::new("entries", DataType::Struct(entries.into()), false);
        let map = Field::new("m", DataType::Map(Arc::new(entries), false), true);
        map_column(&Arc::new(Schema::new(vec![map])), 4)
    }

    fn push(column: &mut TextColumn, bytes: &[u8]) -> Result<(), &'static str> {
        let Some((Reply::Array(elements), _)) = parse(bytes).unwrap() else { panic!() };
        push_map(column, elements)
    }

    #[test]
    fn names_and_values_become_maps() {
        let mut column = column(DataType::Int64).unwrap();
        push(&mut column, b"*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$-1\r\n").unwrap();
        column.push_null();
        push(&mut column, b"*2\r\n$1\r\nc\r\n$1\r\n3\r\n").unwrap();

        let parsed = column.finish().unwrap();

        assert!(parsed.bad.is_empty());
        let maps = parsed.array.as_map();
        assert_eq!((maps.len(), maps.is_null(1), maps.value_length(0)), (3, true, 2));
        assert_eq!(maps.keys().as_string::<i32>().value(2), "c");
        let values: Vec<_> = maps.values().as_primitive::<Int64Type>().iter().collect();
        assert_eq!(values, [Some(1), None, Some(3)]);
    }

    #[test]
    fn a_value_that_does_not_parse_makes_its_map_bad_once() {
        let mut column = column(DataType::Int64).unwrap();
        column.push_null();
        push(&mut column, b"*2\r\n$1\r\na\r\n$1\r\n1\r\n").unwrap();
        push(&mut column, b"*4\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\nb\r\n$1\r\ny\r\n").unwrap();

        let rows: Vec<usize> = column.finish().unwrap().bad.iter().map(|(row, _)| *row).collect();

        assert_eq!(rows, [2]);
    }

    #[test]
    fn what_is_no_map_leaves_the_column_as_it_was() {
        let mut column = column(DataType::Utf8).unwrap();
        for bytes in [
            b"*1\r\n$1\r\na\r\n".as_slice(),
            b"*2\r\n$1\r\n\xff\r\n$1\r\nb\r\n",
            b"*2\r\n$-1\r\n$1\r\nb\r\n",
            b"*2\r\n$1\r\na\r\n*0\r\n",
        ] {
            assert!(push(&mut column, bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(column.finish().unwrap().array.len(), 0);
    }

    #[test]
    fn a_column_of_another_type_is_refused() {
        let schema = Schema::new(vec![Field::new("m", DataType::Utf8, true)]);
        let error = map_column(&Arc::new(schema), 1).unwrap_err();
        assert!(error.message.contains("column `m` must be a map"), "{}", error.message);
    }
}
