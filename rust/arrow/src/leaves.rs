// SPDX-License-Identifier: Apache-2.0
//! Nested columns built again around other leaves.
//!
//! Pure functions, for any thread.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;

/// What happens to the leaves of columns: to everything except lists, maps, structs and
/// dictionaries.
pub(crate) struct Leaves {
    /// Whether a column of the first type must change to have the second one; others are left as
    /// they are.
    pub(crate) concern: fn(&DataType, &DataType) -> bool,
    /// Makes a leaf of a type.
    pub(crate) make: fn(&ArrayRef, &DataType) -> Result<ArrayRef, ArrowError>,
}

impl Leaves {
    /// Returns `column` as one of type `to`, which is nested alike.
    ///
    /// # Errors
    ///
    /// What a leaf fails with, or Arrow refuses to build what it took apart.
    pub(crate) fn rebuild(&self, column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
        if !(self.concern)(column.data_type(), to) {
            return Ok(Arc::clone(column));
        }
        match (column.data_type(), to) {
            (DataType::Struct(_), DataType::Struct(fields)) => {
                let array = column.as_struct();
                let members = array.columns().iter().zip(fields);
                let members =
                    members.map(|(member, field)| self.rebuild(member, field.data_type()));
                let (members, nulls) = (members.collect::<Result<_, _>>()?, array.nulls().cloned());
                let array =
                    StructArray::try_new_with_length(fields.clone(), members, nulls, array.len())?;
                Ok(Arc::new(array))
            }
            (DataType::List(_), DataType::List(item)) => self.list::<i32>(column, item),
            (DataType::LargeList(_), DataType::LargeList(item)) => self.list::<i64>(column, item),
            (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
                let array = column.as_fixed_size_list();
                let values = self.rebuild(array.values(), item.data_type())?;
                let nulls = array.nulls().cloned();
                let array = FixedSizeListArray::try_new(Arc::clone(item), *size, values, nulls)?;
                Ok(Arc::new(array))
            }
            (DataType::Map(..), DataType::Map(field, is_sorted)) => {
                let array = column.as_map();
                let (offsets, seen) = offsets_and_range(array.value_offsets());
                let entries: ArrayRef = Arc::new(array.entries().slice(seen.0, seen.1));
                let entries = self.rebuild(&entries, field.data_type())?;
                let (entries, nulls) = (entries.as_struct().clone(), array.nulls().cloned());
                let array =
                    MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *is_sorted)?;
                Ok(Arc::new(array))
            }
            (DataType::Dictionary(..), DataType::Dictionary(_, values)) => {
                let array = column.as_any_dictionary();
                Ok(array.with_values(self.rebuild(array.values(), values)?))
            }
            _ => (self.make)(column, to),
        }
    }

    fn list<O: OffsetSizeTrait>(
        &self,
        column: &ArrayRef,
        item: &FieldRef,
    ) -> Result<ArrayRef, ArrowError> {
        let array = column.as_list::<O>();
        let (offsets, seen) = offsets_and_range(array.value_offsets());
        let values = array.values().slice(seen.0, seen.1);
        let values = self.rebuild(&values, item.data_type())?;
        let nulls = array.nulls().cloned();
        let array = GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls)?;
        Ok(Arc::new(array))
    }
}

/// Returns offsets that begin at 0, and where the elements are that they are about: those of the
/// rows that a column has, which may be a slice.
fn offsets_and_range<O: OffsetSizeTrait>(offsets: &[O]) -> (OffsetBuffer<O>, (usize, usize)) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let moved: Vec<O> = offsets.iter().map(|it| *it - first).collect();
    (OffsetBuffer::new(moved.into()), (first.as_usize(), (last - first).as_usize()))
}
