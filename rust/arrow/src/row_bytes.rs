// SPDX-License-Identifier: Apache-2.0
//! How many bytes rows take, whatever buffers they share with others.
//!
//! The size of a run of rows is the sum of the sizes of its rows, so that a bound can be searched
//! for. Every value counts for at least one byte: within 2 GiB so are no more elements than the
//! 32 bits of an offset count. No state.

use arrow::{
    array::{Array, AsArray, ByteView, GenericListArray, OffsetSizeTrait, RecordBatch},
    datatypes::{ArrowNativeType, DataType, Schema, UnionMode},
};

/// The most bytes that a column of 32-bit offsets can hold.
pub const MOST_COLUMN_BYTES: usize = i32::MAX as usize;

/// What rows of a schema take, as far as their types tell.
#[derive(Debug)]
pub(crate) struct RowBytes {
    /// Of a row, in columns whose values are all of one size.
    fixed: usize,
    /// Columns of text, the most frequent of the others: their size is looked up without a detour.
    texts: Vec<usize>,
    /// The other columns.
    varying: Vec<usize>,
}

impl RowBytes {
    pub(crate) fn of(schema: &Schema) -> Self {
        let (mut fixed, mut texts, mut varying) = (0, Vec::new(), Vec::new());
        for (index, field) in schema.fields().iter().enumerate() {
            match (fixed_width(field.data_type()), field.data_type()) {
                (Some(width), _) => fixed += width,
                (None, DataType::Utf8) => texts.push(index),
                (None, _) => varying.push(index),
            }
        }
        Self { fixed, texts, varying }
    }

    /// Returns the bytes of all rows of a batch of the schema.
    #[inline]
    pub(crate) fn of_batch(&self, batch: &RecordBatch) -> usize {
        let (columns, rows) = (batch.columns(), batch.num_rows());
        let mut bytes = self.fixed * rows;
        for index in &self.texts {
            bytes += of_offsets(columns[*index].as_string::<i32>().value_offsets(), 0, rows);
        }
        for index in &self.varying {
            bytes += bytes_of_values(columns[*index].as_ref(), 0, rows);
        }
        bytes
    }
}

/// Returns what each value of a type takes, if all take as much.
fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean | DataType::Null => Some(1),
        plain => plain.primitive_width(),
    }
}

/// Returns the bytes of `len` rows of all columns of `batch`, from row `start` on.
pub fn bytes_of_rows(batch: &RecordBatch, start: usize, len: usize) -> usize {
    batch.columns().iter().map(|column| bytes_of_values(column.as_ref(), start, len)).sum()
}

/// Returns the bytes of `len` values, from `start` on.
///
/// Takes time per value only for views and unions.
pub fn bytes_of_values(array: &dyn Array, start: usize, len: usize) -> usize {
    let of = |child: &dyn Array, start, len| bytes_of_values(child, start, len);
    match array.data_type() {
        DataType::Utf8 => of_offsets(array.as_string::<i32>().value_offsets(), start, len),
        DataType::Binary => of_offsets(array.as_binary::<i32>().value_offsets(), start, len),
        DataType::LargeUtf8 => of_offsets(array.as_string::<i64>().value_offsets(), start, len),
        DataType::LargeBinary => of_offsets(array.as_binary::<i64>().value_offsets(), start, len),
        DataType::Utf8View => of_views(&array.as_string_view().views()[start..start + len]),
        DataType::BinaryView => of_views(&array.as_binary_view().views()[start..start + len]),
        DataType::List(_) => of_list(array.as_list::<i32>(), start, len),
        DataType::LargeList(_) => of_list(array.as_list::<i64>(), start, len),
        DataType::Map(..) => {
            let map = array.as_map();
            let (first, last) = (map.value_offsets()[start], map.value_offsets()[start + len]);
            len * 4 + of(map.entries(), first.as_usize(), (last - first).as_usize())
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.map(|column| of(column.as_ref(), start, len)).sum::<usize>().max(len)
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            of(array.as_fixed_size_list().values().as_ref(), start * size, len * size).max(len)
        }
        DataType::FixedSizeBinary(size) => len * usize::try_from(*size).unwrap_or(0).max(1),
        DataType::Dictionary(key, _) => len * key.primitive_width().unwrap_or(1),
        DataType::Union(_, UnionMode::Dense | UnionMode::Sparse)
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => of_shared(array, len),
        plain => len * plain.primitive_width().unwrap_or(1),
    }
}

fn of_offsets<O: OffsetSizeTrait>(offsets: &[O], start: usize, len: usize) -> usize {
    (offsets[start + len] - offsets[start]).as_usize() + len * size_of::<O>()
}

fn of_list<O: OffsetSizeTrait>(lists: &GenericListArray<O>, start: usize, len: usize) -> usize {
    let (first, last) = (lists.value_offsets()[start], lists.value_offsets()[start + len]);
    let elements =
        bytes_of_values(lists.values().as_ref(), first.as_usize(), (last - first).as_usize());
    elements + len * size_of::<O>()
}

fn of_views(views: &[u128]) -> usize {
    let of = |view: &u128| ByteView::from(*view).length as usize + size_of::<u128>();
    views.iter().map(of).sum()
}

/// A share of the whole: these types are not what Spark sends.
fn of_shared(array: &dyn Array, len: usize) -> usize {
    array.get_buffer_memory_size().div_ceil(array.len().max(1)).max(1) * len
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            ArrayRef, BinaryViewArray, BooleanArray, Int32Array, ListArray, NullArray, StringArray,
            StructArray,
        },
        datatypes::{Field, Int32Type},
    };

    use super::*;

    #[test]
    fn a_batch_is_as_large_by_its_schema_as_by_its_columns() {
        let columns: [(&str, ArrayRef); 5] = [
            ("number", Arc::new(Int32Array::from(vec![1, 2, 3]))),
            ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some("four")]))),
            ("bytes", Arc::new(BinaryViewArray::from_iter_values([&b"12"[..], b"", b"1"]))),
            ("flag", Arc::new(BooleanArray::from(vec![true; 3]))),
            ("nothing", Arc::new(NullArray::new(3))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let sizes = RowBytes::of(batch.schema_ref());

        assert_eq!(sizes.of_batch(&batch), 3 * (4 + 4 + 16 + 1 + 1) + 5 + 3);
        for (start, len) in [(0, 3), (1, 2), (2, 0)] {
            let part = batch.slice(start, len);
            assert_eq!(sizes.of_batch(&part), bytes_of_rows(&batch, start, len));
        }
    }

    #[test]
    fn a_run_is_as_large_as_its_rows() {
        let texts = StringArray::from(vec![Some("a"), None, Some("four"), Some("")]).slice(1, 3);
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![Some(1); 5]),
        ]);
        let views = BinaryViewArray::from_iter_values([&b"1"[..], &[7; 40], b""]);
        let fields = vec![Arc::new(Field::new("x", DataType::Int32, true))];
        let number: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let structs = StructArray::new(fields.into(), vec![number], None);
        let expected: [(ArrayRef, [usize; 3]); 6] = [
            (Arc::new(texts), [4, 8, 4]),
            (Arc::new(lists), [4 + 8, 4, 4 + 20]),
            (Arc::new(views), [17, 56, 16]),
            (Arc::new(structs), [4; 3]),
            (Arc::new(BooleanArray::from(vec![true; 3])), [1; 3]),
            (Arc::new(NullArray::new(3)), [1; 3]),
        ];
        for (array, sizes) in expected {
            let each = [0, 1, 2].map(|row| bytes_of_values(array.as_ref(), row, 1));
            assert_eq!(each, sizes, "{}", array.data_type());
            let all = bytes_of_values(array.as_ref(), 0, 3);
            assert_eq!(all, sizes.iter().sum::<usize>(), "{}", array.data_type());
        }
    }
}
