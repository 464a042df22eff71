// SPDX-License-Identifier: Apache-2.0
//! Columns in which not all texts are UTF-8.
//!
//! Spark's strings may hold any bytes, Arrow's must not. A column of strings that are not all UTF-8
//! comes with bytes instead of texts, and leaves as it came. A reader in between finds texts, and
//! learns in which rows they are not those that came. A batch without a column like that costs a
//! look at the types of those that have texts.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, GenericBinaryArray, GenericStringArray,
    LargeBinaryArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StringViewArray,
};
use arrow::datatypes::{ArrowNativeType, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::conform::fits;
use crate::leaves::Leaves;

/// The columns of a batch in which not all texts are UTF-8.
pub struct InvalidTexts {
    /// The batch as it came, with bytes instead of the texts of these columns.
    original: RecordBatch,
    /// For each of these columns its position, and whether a row has a text that is not UTF-8.
    columns: Vec<(usize, Vec<bool>)>,
}

impl InvalidTexts {
    /// Tells which rows of the column at `position` have a text that is not UTF-8; `None`: none.
    pub fn rows(&self, position: usize) -> Option<&[bool]> {
        let mut columns = self.columns.iter();
        columns.find(|(it, _)| *it == position).map(|(_, rows)| rows.as_slice())
    }

    /// Returns the first of the columns at `positions` that has one in `row`.
    pub fn column_in_row(&self, positions: &[usize], row: usize) -> Option<usize> {
        positions.iter().copied().find(|it| self.rows(*it).is_some_and(|rows| rows[row]))
    }

    /// The batch as it came.
    pub(crate) fn original(&self) -> &RecordBatch {
        &self.original
    }
}

/// Shows positions only: row contents do not belong in logs.
impl fmt::Debug for InvalidTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.columns.iter().map(|(position, _)| position)).finish()
    }
}

/// The columns of a schema that have texts.
#[derive(Debug)]
pub(crate) struct TextColumns {
    schema: SchemaRef,
    positions: Vec<usize>,
}

impl TextColumns {
    pub(crate) fn of(schema: &SchemaRef) -> Self {
        let has_texts = |it: &usize| has_texts(schema.field(*it).data_type());
        let positions = (0..schema.fields().len()).filter(has_texts).collect();
        Self { schema: Arc::clone(schema), positions }
    }

    /// Returns the batch with texts where `batch` has bytes for them, and which of them are not
    /// what came.
    ///
    /// # Errors
    ///
    /// Only if Arrow refuses to build what was taken apart.
    pub(crate) fn read(
        &self,
        batch: RecordBatch,
    ) -> Result<(RecordBatch, Option<Box<InvalidTexts>>), ArrowError> {
        let of_column = |position: &usize| {
            let declared = self.schema.field(*position).data_type();
            let came = batch.schema_ref().fields().get(*position)?.data_type();
            has_bytes_for_texts(came, declared).then_some((*position, declared))
        };
        let found: Vec<_> = self.positions.iter().filter_map(of_column).collect();
        if found.is_empty() {
            return Ok((batch, None));
        }
        let mut columns = Vec::new();
        let readable = with_columns(&batch, found, |position, column, declared| {
            columns.push((position, invalid_rows(column, declared)));
            texts_of(column, declared)
        })?;
        Ok((readable, Some(Box::new(InvalidTexts { original: batch, columns }))))
    }
}

/// Returns `batch` with the columns at some positions built again, in these types.
fn with_columns<'a>(
    batch: &RecordBatch,
    changed: impl IntoIterator<Item = (usize, &'a DataType)>,
    mut make: impl FnMut(usize, &ArrayRef, &DataType) -> Result<ArrayRef, ArrowError>,
) -> Result<RecordBatch, ArrowError> {
    let mut fields: Vec<FieldRef> = batch.schema_ref().fields().iter().cloned().collect();
    let mut columns = batch.columns().to_vec();
    for (position, data_type) in changed {
        columns[position] = make(position, &columns[position], data_type)?;
        let field = fields[position].as_ref().clone().with_data_type(data_type.clone());
        fields[position] = Arc::new(field);
    }
    let schema = Schema::new_with_metadata(fields, batch.schema_ref().metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
}

/// Returns `batch` with bytes for the texts of the columns at `positions`.
pub(crate) fn with_bytes(
    batch: &RecordBatch,
    positions: &[usize],
) -> Result<RecordBatch, ArrowError> {
    let types: Vec<_> =
        positions.iter().map(|it| bytes_type(batch.schema_ref().field(*it).data_type())).collect();
    let changed = positions.iter().copied().zip(&types);
    with_columns(batch, changed, |_, column, to| bytes_of(column, to))
}

/// Returns `batch` with bytes for all texts; the batch itself if it has none.
pub(crate) fn without_texts(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let fields = batch.schema_ref().fields().iter().enumerate();
    let texts = fields.filter(|(_, field)| has_texts(field.data_type()));
    let positions: Vec<usize> = texts.map(|(position, _)| position).collect();
    if positions.is_empty() { Ok(batch) } else { with_bytes(&batch, &positions) }
}

/// Returns the positions of columns that have bytes for texts in one of the batches.
pub(crate) fn columns_of_bytes<'a>(invalid: impl Iterator<Item = &'a InvalidTexts>) -> Vec<usize> {
    let mut positions: Vec<usize> =
        invalid.flat_map(|it| it.columns.iter().map(|(position, _)| *position)).collect();
    positions.sort_unstable();
    positions.dedup();
    positions
}

/// Whether a column that came is the declared one with bytes instead of texts.
pub fn has_bytes_for_texts(came: &DataType, declared: &DataType) -> bool {
    came != declared
        && !fits(came, declared, PartialEq::eq)
        && fits(came, declared, |came, declared| came == declared || *came == bytes_type(declared))
}

fn has_texts(data_type: &DataType) -> bool {
    bytes_type(data_type) != *data_type
}

/// Returns fields that have bytes instead of texts.
pub(crate) fn bytes_fields(fields: &Fields) -> Fields {
    let inside = |field: &FieldRef| -> FieldRef {
        let data_type = bytes_type(field.data_type());
        Arc::new(Field::clone(field).with_data_type(data_type))
    };
    fields.iter().map(inside).collect()
}

/// Returns the type of columns that have bytes instead of texts.
pub(crate) fn bytes_type(data_type: &DataType) -> DataType {
    let inside = |field: &FieldRef| -> FieldRef {
        let data_type = bytes_type(field.data_type());
        Arc::new(Field::clone(field).with_data_type(data_type))
    };
    match data_type {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        DataType::Utf8View => DataType::BinaryView,
        DataType::List(item) => DataType::List(inside(item)),
        DataType::LargeList(item) => DataType::LargeList(inside(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(inside(item), *size),
        DataType::Map(entries, is_sorted) => DataType::Map(inside(entries), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(bytes_fields(fields)),
        other => other.clone(),
    }
}

/// Returns a column with bytes instead of texts, as type `to`; takes time per value only inside of
/// nested ones.
pub(crate) fn bytes_of(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let make = |leaf: &ArrayRef, _: &DataType| Ok(bytes_of_leaf(leaf));
    Leaves { concern: |from, to| from != to, make }.rebuild(column, to)
}

/// Returns a column of texts as one of bytes, and any other as it is.
pub(crate) fn bytes_of_leaf(leaf: &ArrayRef) -> ArrayRef {
    match leaf.data_type() {
        DataType::Utf8 => Arc::new(BinaryArray::from(leaf.as_string::<i32>().clone())),
        DataType::LargeUtf8 => Arc::new(LargeBinaryArray::from(leaf.as_string::<i64>().clone())),
        DataType::Utf8View => Arc::new(leaf.as_string_view().clone().to_binary_view()),
        _ => Arc::clone(leaf),
    }
}

/// Returns the texts of a column that has bytes in their place, as type `to`; of one that is not
/// UTF-8 what is left of it.
pub(crate) fn texts_of(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let make = |leaf: &ArrayRef, to: &DataType| -> Result<ArrayRef, ArrowError> {
        Ok(match (leaf.data_type(), to) {
            (DataType::Binary, DataType::Utf8) => Arc::new(texts(leaf.as_binary::<i32>())),
            (DataType::LargeBinary, DataType::LargeUtf8) => {
                Arc::new(texts(leaf.as_binary::<i64>()))
            }
            (DataType::BinaryView, DataType::Utf8View) => {
                let values = leaf.as_binary_view().iter();
                Arc::new(values.map(|it| it.map(readable)).collect::<StringViewArray>())
            }
            _ => Arc::clone(leaf),
        })
    };
    Leaves { concern: |from, to| from != to, make }.rebuild(column, to)
}

fn texts<O: OffsetSizeTrait>(values: &GenericBinaryArray<O>) -> GenericStringArray<O> {
    GenericStringArray::try_from_binary(values.clone())
        .unwrap_or_else(|_| values.iter().map(|it| it.map(readable)).collect())
}

/// Returns what is left of a text: no more bytes than it has, so that no column outgrows its
/// offsets.
fn readable(bytes: &[u8]) -> String {
    let chunk = |it: std::str::Utf8Chunk<'_>| {
        let rest = if it.invalid().is_empty() { "" } else { "?" };
        [it.valid(), rest].concat()
    };
    bytes.utf8_chunks().map(chunk).collect()
}

/// Tells for each row whether it has a text that is not UTF-8.
fn invalid_rows(column: &ArrayRef, declared: &DataType) -> Vec<bool> {
    let rows = 0..column.len();
    let in_range = |inside: Vec<bool>, range: &dyn Fn(usize) -> std::ops::Range<usize>| {
        rows.clone().map(|row| column.is_valid(row) && inside[range(row)].contains(&true)).collect()
    };
    match (column.data_type(), declared) {
        (DataType::Binary, DataType::Utf8) => are_invalid(column.as_binary::<i32>().iter()),
        (DataType::LargeBinary, DataType::LargeUtf8) => {
            are_invalid(column.as_binary::<i64>().iter())
        }
        (DataType::BinaryView, DataType::Utf8View) => are_invalid(column.as_binary_view().iter()),
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let members = column.as_struct().columns().iter().zip(fields);
            let members: Vec<_> =
                members.map(|(member, field)| invalid_rows(member, field.data_type())).collect();
            let is_invalid = |row| column.is_valid(row) && members.iter().any(|it| it[row]);
            rows.map(is_invalid).collect()
        }
        (DataType::List(_), DataType::List(item)) => {
            let array = column.as_list::<i32>();
            in_range(invalid_rows(array.values(), item.data_type()), &of(array.value_offsets()))
        }
        (DataType::LargeList(_), DataType::LargeList(item)) => {
            let array = column.as_list::<i64>();
            in_range(invalid_rows(array.values(), item.data_type()), &of(array.value_offsets()))
        }
        (DataType::FixedSizeList(_, size), DataType::FixedSizeList(item, _)) => {
            let (array, size) = (column.as_fixed_size_list(), size.as_usize());
            let first = |row| array.value_offset_at(row);
            let inside = invalid_rows(array.values(), item.data_type());
            in_range(inside, &|row| first(row)..first(row) + size)
        }
        (DataType::Map(..), DataType::Map(entries, _)) => {
            let array = column.as_map();
            let inside: ArrayRef = Arc::new(array.entries().clone());
            in_range(invalid_rows(&inside, entries.data_type()), &of(array.value_offsets()))
        }
        _ => vec![false; column.len()],
    }
}

fn of<O: ArrowNativeType>(offsets: &[O]) -> impl Fn(usize) -> std::ops::Range<usize> + '_ {
    |row| offsets[row].as_usize()..offsets[row + 1].as_usize()
}

fn are_invalid<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<bool> {
    values.map(|it| it.is_some_and(|it| std::str::from_utf8(it).is_err())).collect()
}

#[cfg(test)]
mod tests;
