// SPDX-License-Identifier: Apache-2.0
//! A column of maps out of arrays of names and values, as `HGETALL` answers them.

use std::str::from_utf8;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MapArray, NullBufferBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef};
use sparkawait_task::error::{StartError, TaskError};

use crate::text::{ParsedColumn, TextColumn};

use super::resp::{Array as Elements, Reply};

/// Entries that a map is expected to have; more only costs a reallocation.
const EXPECTED_ENTRIES: usize = 8;

/// Collects maps: their names as they are, their values parsed by the schema.
pub(super) struct MapColumn {
    /// The entries' own field, as the schema has it.
    entries: FieldRef,
    is_sorted: bool,
    /// Whether names must be UTF-8.
    has_text_names: bool,
    names: TextColumn,
    values: TextColumn,
    /// Number of entries of each map.
    lengths: Vec<usize>,
    nulls: NullBufferBuilder,
}

impl MapColumn {
    /// Makes an empty column of the type of `field`, with room for `rows` maps.
    ///
    /// # Errors
    ///
    /// The type is not a map from text or bytes to something that may be null.
    pub(super) fn new(field: &FieldRef, rows: usize) -> Result<Self, StartError> {
        let refuse = || {
            StartError::option(format!(
                "`schema`: column `{}` must be a map from string or binary to nullable values to \
                 take all fields of a hash, got `{}`",
                field.name(),
                field.data_type()
            ))
        };
        let DataType::Map(entries, is_sorted) = field.data_type() else { return Err(refuse()) };
        let DataType::Struct(fields) = entries.data_type() else { return Err(refuse()) };
        let [name, value] = fields.as_ref() else { return Err(refuse()) };
        let has_text_names = name.data_type().is_string();
        if !(has_text_names || name.data_type().is_binary()) || !value.is_nullable() {
            return Err(refuse());
        }
        Ok(Self {
            entries: FieldRef::clone(entries),
            is_sorted: *is_sorted,
            has_text_names,
            names: TextColumn::new(name, rows * EXPECTED_ENTRIES),
            values: TextColumn::new(value, rows * EXPECTED_ENTRIES),
            lengths: Vec::with_capacity(rows),
            nulls: NullBufferBuilder::new(rows),
        })
    }

    /// Appends a map; if its elements are not valid, says why and appends nothing.
    pub(super) fn push(&mut self, elements: Elements<'_>) -> Result<(), &'static str> {
        if !elements.len().is_multiple_of(2) {
            return Err("an array of names without values");
        }
        for (index, element) in elements.elements().enumerate() {
            match element {
                Reply::Text(name) if index % 2 == 0 => {
                    if self.has_text_names && from_utf8(name).is_err() {
                        return Err("a name that is not UTF-8");
                    }
                }
                Reply::Text(_) => {}
                Reply::Nil if index % 2 == 1 => {}
                _ => return Err("an array of something else than names and values"),
            }
        }
        for (index, element) in elements.elements().enumerate() {
            let column = if index % 2 == 0 { &mut self.names } else { &mut self.values };
            match element {
                Reply::Text(text) => column.push(text),
                _ => column.push_null(),
            }
        }
        self.lengths.push(elements.len() / 2);
        self.nulls.append_non_null();
        Ok(())
    }

    /// Appends a null.
    pub(super) fn push_null(&mut self) {
        self.lengths.push(0);
        self.nulls.append_null();
    }

    /// Parses all values; a map with one that does not parse is bad.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if the parts do not fit the type.
    pub(super) fn finish(mut self) -> Result<ParsedColumn, TaskError> {
        let misfit = |error| TaskError::Internal(format!("maps do not fit the schema: {error}"));
        let (names, values) = (self.names.finish()?, self.values.finish()?);
        let offsets = OffsetBuffer::<i32>::from_lengths(self.lengths);
        let row_of = |entry: usize| {
            offsets.partition_point(|offset| usize::try_from(*offset).is_ok_and(|it| it <= entry))
        };
        let mut bad: Vec<(usize, String)> =
            values.bad.into_iter().map(|(entry, message)| (row_of(entry) - 1, message)).collect();
        bad.dedup_by_key(|(row, _)| *row);
        let DataType::Struct(fields) = self.entries.data_type() else {
            return Err(TaskError::Internal("a map whose entries are not a struct".to_owned()));
        };
        let entries = StructArray::try_new(fields.clone(), vec![names.array, values.array], None);
        let entries = entries.map_err(misfit)?;
        let (field, nulls) = (self.entries, self.nulls.finish());
        let array = MapArray::try_new(field, offsets, entries, nulls, self.is_sorted);
        let array: ArrayRef = Arc::new(array.map_err(misfit)?);
        debug_assert!(bad.last().is_none_or(|(row, _)| *row < array.len()));
        Ok(ParsedColumn { array, bad })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::{Field, Int64Type};

    use super::super::resp::parse;
    use super::*;

    fn column(value: DataType) -> Result<MapColumn, StartError> {
        let entries =
            vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)];
        let entries = Field::new("entries", DataType::Struct(entries.into()), false);
        MapColumn::new(&Arc::new(Field::new("m", DataType::Map(Arc::new(entries), false), true)), 4)
    }

    fn push(column: &mut MapColumn, bytes: &[u8]) -> Result<(), &'static str> {
        let Some((Reply::Array(elements), _)) = parse(bytes).unwrap() else { panic!() };
        column.push(elements)
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
        let field = Arc::new(Field::new("m", DataType::Utf8, true));
        let error = MapColumn::new(&field, 1).err().unwrap();
        assert!(error.message.contains("column `m` must be a map"), "{}", error.message);
    }
}
