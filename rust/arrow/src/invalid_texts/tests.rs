// SPDX-License-Identifier: Apache-2.0

use arrow::array::{Int64Array, ListArray, MapArray, StringArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::Fields;

use super::*;

const NOT_UTF8: &[u8] = &[0xFF, b'A'];

fn texts_of_utf8() -> ArrayRef {
    Arc::new(StringArray::from(vec![Some("a"), None, Some("ä"), Some("")]))
}

fn bytes() -> ArrayRef {
    Arc::new(BinaryArray::from(vec![Some(b"a".as_slice()), None, Some(NOT_UTF8), Some(b"")]))
}

fn texts_left() -> ArrayRef {
    Arc::new(StringArray::from(vec![Some("a"), None, Some("?A"), Some("")]))
}

fn list(values: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new("element", values.data_type().clone(), true));
    let nulls = NullBuffer::from(vec![true, false, true]);
    // What is under a null is not part of the column.
    let offsets = OffsetBuffer::from_lengths([2, 1, 1]);
    Arc::new(ListArray::new(item, offsets, values, Some(nulls)))
}

fn of_struct(values: ArrayRef) -> ArrayRef {
    let number: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let fields = vec![
        Field::new("t", values.data_type().clone(), true),
        Field::new("n", DataType::Int64, true),
    ];
    Arc::new(StructArray::new(fields.into(), vec![values, number], None))
}

fn map(values: ArrayRef) -> ArrayRef {
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let fields = Fields::from(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("value", values.data_type().clone(), true),
    ]);
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    Arc::new(MapArray::new(field, OffsetBuffer::from_lengths([2, 2]), entries, None, false))
}

fn batch(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap()
}

#[test]
fn texts_that_are_not_utf8_are_told_by_rows_and_leave_as_they_came() {
    type Nest = fn(ArrayRef) -> ArrayRef;
    let cases: [(Nest, &[bool]); 4] = [
        (|it| it, &[false, false, true, false]),
        (list, &[false, false, false]),
        (of_struct, &[false, false, true, false]),
        (map, &[false, true]),
    ];
    for (nest, expected) in cases {
        let declared = batch(nest(texts_of_utf8())).schema();
        let columns = TextColumns::of(&declared);
        let came = batch(nest(bytes()));

        let (readable, invalid) = columns.read(came.clone()).unwrap();

        let invalid = invalid.unwrap();
        assert_eq!(invalid.rows(0), Some(expected), "{}", declared.field(0));
        assert_eq!(readable, batch(nest(texts_left())));
        assert_eq!(invalid.original(), &came);
        assert_eq!(with_bytes(&readable, &[0]).unwrap().schema(), came.schema());
    }
}

#[test]
fn a_slice_is_told_by_its_own_rows() {
    let columns = TextColumns::of(&batch(of_struct(texts_of_utf8())).schema());

    let (_, invalid) = columns.read(batch(of_struct(bytes())).slice(1, 2)).unwrap();

    let invalid = invalid.unwrap();
    assert_eq!(invalid.rows(0), Some([false, true].as_slice()));
    assert_eq!(invalid.column_in_row(&[0], 1), Some(0));
    assert_eq!((invalid.column_in_row(&[0], 0), invalid.column_in_row(&[1], 1)), (None, None));
}

#[test]
fn columns_that_are_what_they_should_be_are_left_alone() {
    for column in [texts_of_utf8(), bytes(), list(texts_of_utf8()), map(bytes())] {
        let came = batch(column);

        let (readable, invalid) = TextColumns::of(&came.schema()).read(came.clone()).unwrap();

        assert!(invalid.is_none());
        assert!(Arc::ptr_eq(readable.column(0), came.column(0)));
    }
}

#[test]
fn texts_have_the_bytes_that_they_are() {
    for column in [texts_of_utf8(), list(texts_of_utf8()), map(texts_of_utf8())] {
        let to = bytes_type(column.data_type());

        let bytes = bytes_of(&column, &to).unwrap();

        assert_eq!(bytes.data_type(), &to);
        assert_eq!(&texts_of(&bytes, column.data_type()).unwrap(), &column);
    }
}

#[test]
fn what_is_left_of_a_text_is_no_longer_than_it_was() {
    for bytes in [NOT_UTF8, b"\xE2\x82", b"a\xF0\x9Fb", b"\x80\x80\x80", b""] {
        assert!(readable(bytes).len() <= bytes.len(), "{bytes:?}");
    }
}

#[test]
fn what_is_shown_has_no_values() {
    let columns = TextColumns::of(&batch(texts_of_utf8()).schema());
    let (_, invalid) = columns.read(batch(bytes())).unwrap();

    assert_eq!(format!("{:?}", invalid.unwrap()), "{0}");
}
