// SPDX-License-Identifier: Apache-2.0
//! Tests of values as JSON.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array, Int32Array,
    Int64Array, ListArray, MapArray, NullArray, StringArray, StructArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Fields, Int32Type};

use super::*;

fn written(array: &dyn Array) -> Vec<String> {
    let cells = JsonCells::new(array).unwrap();
    let text = |row| {
        let mut out = Vec::new();
        cells.write(row, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    (0..array.len()).map(text).collect()
}

#[test]
fn numbers_are_exact_and_what_is_none_is_a_text() {
    let doubles = Float64Array::from(vec![1e7, -0.5, f64::NAN, f64::NEG_INFINITY]);
    assert_eq!(written(&doubles), ["1.0E7", "-0.5", r#""NaN""#, r#""-Infinity""#]);
    let decimals = Decimal128Array::from(vec![120, -1]).with_precision_and_scale(10, 2).unwrap();
    assert_eq!(written(&decimals), ["1.20", "-0.01"]);
}

#[test]
fn texts_are_escaped_and_bytes_are_base64() {
    let texts = StringArray::from(vec!["a\"\\\n\0é"]);
    assert_eq!(written(&texts), [r#""a\"\\\n\u0000é""#]);
    assert_eq!(written(&BinaryArray::from(vec![b"\0\xffA".as_slice()])), [r#""AP9B""#]);
    assert_eq!(written(&NullArray::new(1)), ["null"]);
}

#[test]
fn timestamps_have_the_offset_of_their_zone() {
    let array =
        |micros, zone| TimestampMicrosecondArray::from(vec![micros]).with_timezone_opt(zone);
    let summer = 1_719_835_200_000_000;
    assert_eq!(written(&array(summer, Some("UTC"))), [r#""2024-07-01T12:00:00.000Z""#]);
    let new_york = Some("America/New_York");
    assert_eq!(written(&array(summer + 1, new_york)), [r#""2024-07-01T08:00:00.000001-04:00""#]);
    assert_eq!(written(&array(summer, None::<&str>)), [r#""2024-07-01T12:00:00.000""#]);
    // The offset had seconds then, which JSON's readers do not know.
    let past = -2_717_712_000_000_000;
    assert_eq!(written(&array(past, new_york)), [r#""1883-11-18T00:00:00.000Z""#]);
}

#[test]
fn keys_of_the_hour_that_is_there_twice_are_two() {
    let first = 1_730_611_800_000_000_i64;
    let keys = TimestampMicrosecondArray::from(vec![first, first + 3_600_000_000])
        .with_timezone("America/New_York");
    let kind = keys.data_type().clone();
    let fields = Fields::from(vec![
        Field::new("key", kind, false),
        Field::new("value", DataType::Int32, true),
    ]);
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let entries = StructArray::try_new(fields.clone(), vec![Arc::new(keys), values], None).unwrap();
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let offsets = OffsetBuffer::new(vec![0, 2].into());
    let map = MapArray::try_new(field, offsets, entries, None, false).unwrap();
    let expected = r#"{"2024-11-03T01:30:00.000-04:00":1,"2024-11-03T01:30:00.000-05:00":2}"#;
    assert_eq!(written(&map), [expected]);
}

#[test]
fn lists_structs_and_maps_keep_their_nulls() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(3)]),
    ]);
    assert_eq!(written(&list.slice(1, 3)), ["null", "[]", "[3]"]);

    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(0), None]));
    let fields = Fields::from(vec![Field::new("d\"", DataType::Date32, true)]);
    let structs = StructArray::try_new(fields, vec![days], None).unwrap();
    assert_eq!(written(&structs), [r#"{"d\"":"1970-01-01"}"#, r#"{"d\"":null}"#]);

    let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1 << 53), None, Some(3)]));
    let fields = Fields::from(vec![
        Field::new("key", DataType::Int32, false),
        Field::new("value", DataType::Int64, true),
    ]);
    let entries = StructArray::try_new(fields.clone(), vec![keys, values], None).unwrap();
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let maps =
        MapArray::try_new(field, OffsetBuffer::new(vec![0, 2, 3].into()), entries, None, false);
    let maps = maps.unwrap();
    assert_eq!(written(&maps), [r#"{"1":9007199254740992,"2":null}"#, r#"{"3":3}"#]);
}

#[test]
fn a_dictionary_is_read_through() {
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let keys = Int32Array::from(vec![Some(0), Some(1), None]);
    let array = DictionaryArray::<Int32Type>::try_new(keys, values).unwrap();

    assert_eq!(written(&array), [r#""a""#, "null", "null"]);
}

#[test]
fn a_dictionary_may_have_no_values_wherever_it_stands() {
    let kind = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let field = Arc::new(Field::new("x", kind.clone(), true));
    let kinds = [
        kind,
        DataType::List(Arc::clone(&field)),
        DataType::LargeList(Arc::clone(&field)),
        DataType::FixedSizeList(Arc::clone(&field), 2),
        DataType::Struct(Fields::from(vec![field])),
    ];
    for kind in kinds {
        assert!(JsonCells::check(&kind).is_ok(), "{kind}");
        assert_eq!(written(&new_null_array(&kind, 2)), ["null", "null"], "{kind}");
    }
    let none: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
    let array = DictionaryArray::<Int32Type>::try_new(Int32Array::new_null(2), none).unwrap();
    assert_eq!(written(&array), ["null", "null"]);
}

#[test]
fn a_variant_is_its_json_and_a_struct_that_looks_like_one_is_not() {
    let columns = || -> Vec<ArrayRef> {
        let value = BinaryArray::from(vec![&[3 << 2, 7][..], &[0], &[63 << 2]]);
        let metadata = BinaryArray::from(vec![&[1, 0, 0][..]; 3]);
        vec![Arc::new(value), Arc::new(metadata)]
    };
    let fields = |metadata: &[(&str, &str)]| {
        let metadata = metadata.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let metadata: HashMap<String, String> = metadata.collect();
        Fields::from(vec![
            Field::new("value", DataType::Binary, false),
            Field::new("metadata", DataType::Binary, false).with_metadata(metadata),
        ])
    };
    let variants = StructArray::try_new(fields(&[(VARIANT, "true")]), columns(), None).unwrap();
    assert_eq!(written(&variants.slice(0, 2)), ["7", "null"]);
    assert_eq!(JsonCells::new(&variants).unwrap().write(2, &mut Vec::new()), None);

    let structs = StructArray::try_new(fields(&[]), columns(), None).unwrap();
    assert_eq!(written(&structs)[1], r#"{"value":"AA==","metadata":"AQAA"}"#);
}
