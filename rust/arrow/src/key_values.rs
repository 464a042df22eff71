// SPDX-License-Identifier: Apache-2.0
//! Values as parts of a key: two are equal here where Spark's `GROUP BY` takes them for equal.
//!
//! `-0.0` is `0.0`, and one NaN is any other, inside of structs and arrays too. All else is compared
//! as stored: a null in a struct is a value like any other. Pure functions, for any thread.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};

use crate::invalid_texts::{bytes_of_leaf, bytes_type};
use crate::leaves::Leaves;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// Tells whether values of this type can be compared; maps cannot, in any depth.
pub fn is_key_type(data_type: &DataType) -> bool {
    let field = SortField::new(data_type.clone());
    RowConverter::supports_fields(&[field]) && is_comparable(data_type)
}

fn is_comparable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) | DataType::Union(..) => false,
        // No engine sends them, so nothing is written to look into them.
        DataType::RunEndEncoded(_, values) => {
            is_comparable(values.data_type()) && !has_floats(values.data_type())
        }
        DataType::ListView(item) | DataType::LargeListView(item) => {
            is_comparable(item.data_type()) && !has_floats(item.data_type())
        }
        DataType::Dictionary(_, values) => is_comparable(values),
        DataType::Struct(fields) => fields.iter().all(|it| is_comparable(it.data_type())),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_comparable(item.data_type())
        }
        _ => true,
    }
}

/// Tells whether columns of this type have floats in them.
fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::Dictionary(_, values) => has_floats(values),
        DataType::Struct(fields) => fields.iter().any(|it| has_floats(it.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::RunEndEncoded(_, item) => has_floats(item.data_type()),
        _ => false,
    }
}

/// Returns the type that [`normalized`] columns of a type have.
pub fn key_type(data_type: &DataType) -> DataType {
    bytes_type(data_type)
}

/// Returns `column` with one form of zero, one of NaN, and bytes instead of texts. Keys are
/// compared as bytes, and not all of Spark's texts are UTF-8.
///
/// # Errors
///
/// Only if Arrow refuses to build what it took apart.
pub fn normalized(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let leaves = Leaves {
        concern: |from, to| from != to || has_floats(from),
        make: |leaf, _| Ok(comparable(leaf)),
    };
    leaves.rebuild(column, &key_type(column.data_type()))
}

fn comparable(leaf: &ArrayRef) -> ArrayRef {
    match leaf.data_type() {
        DataType::Float16 => unary::<Float16Type>(leaf, |it| {
            let it = if it.is_nan() { Half::NAN } else { it };
            if it == Half::ZERO { Half::ZERO } else { it }
        }),
        DataType::Float32 => {
            unary::<Float32Type>(leaf, |it| if it.is_nan() { f32::NAN } else { it + 0.0 })
        }
        DataType::Float64 => {
            unary::<Float64Type>(leaf, |it| if it.is_nan() { f64::NAN } else { it + 0.0 })
        }
        _ => bytes_of_leaf(leaf),
    }
}

fn unary<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    normalize: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let array: PrimitiveArray<T> = column.as_primitive::<T>().unary(normalize);
    Arc::new(array)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Float64Array, Int64Array, ListArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    const OTHER_NAN: u64 = 0xfff8_0000_0000_0001;

    fn floats() -> ArrayRef {
        let other = f64::from_bits(OTHER_NAN);
        let values = [Some(0.0), Some(-0.0), Some(f64::NAN), Some(other), None, Some(1.5)];
        Arc::new(Float64Array::from_iter(values))
    }

    fn bits(column: &ArrayRef) -> Vec<Option<u64>> {
        column.as_primitive::<Float64Type>().iter().map(|it| it.map(f64::to_bits)).collect()
    }

    #[test]
    fn zeros_are_one_value_and_nans_another() {
        let bits = bits(&normalized(&floats()).unwrap());

        assert_eq!(bits[0], bits[1]);
        assert_eq!(bits[2], bits[3]);
        assert_eq!((bits[4], bits[5]), (None, Some(1.5_f64.to_bits())));
    }

    #[test]
    fn floats_of_other_widths_are_normalized_too() {
        for wanted in [DataType::Float16, DataType::Float32] {
            let column = arrow::compute::cast(&floats().slice(0, 2), &wanted).unwrap();

            let back = arrow::compute::cast(&normalized(&column).unwrap(), &DataType::Float64);

            assert_eq!(bits(&back.unwrap()), [Some(0); 2]);
        }
    }

    #[test]
    fn floats_inside_of_a_slice_of_lists_of_structs_are_normalized() {
        let fields = vec![Field::new("x", DataType::Float64, true)];
        let item = Arc::new(Field::new("item", DataType::Struct(fields.clone().into()), true));
        let structs = StructArray::new(fields.into(), vec![floats()], None);
        let offsets = OffsetBuffer::from_lengths([1, 1, 2, 0, 2]);
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(structs), None));

        let found = normalized(&lists.slice(1, 2)).unwrap();

        assert_eq!(found.len(), 2);
        let values = found.as_list::<i32>().values().as_struct().column(0);
        assert_eq!(bits(values), [Some(0), bits(values)[1], bits(values)[1]]);
        assert_eq!(found.data_type(), lists.data_type());
    }

    #[test]
    fn other_columns_are_left_as_they_are() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));

        assert!(Arc::ptr_eq(&normalized(&column).unwrap(), &column));
    }

    #[test]
    fn maps_are_no_keys_in_any_depth() {
        let text = || Arc::new(Field::new("item", DataType::Utf8, true));
        let names = vec![Field::new("key", DataType::Utf8, false), text().as_ref().clone()];
        let entries = Field::new("entries", DataType::Struct(names.into()), false);
        let map = DataType::Map(Arc::new(entries), false);
        let list = DataType::List(Arc::new(Field::new("item", map.clone(), true)));

        assert!(!is_key_type(&map));
        assert!(!is_key_type(&list));
        assert!(is_key_type(&DataType::List(text())));
    }
}
