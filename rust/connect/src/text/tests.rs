// SPDX-License-Identifier: Apache-2.0
//! Tests of columns out of texts.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, TimeUnit, TimestampMicrosecondType};

use super::*;
use crate::column::check_columns;

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
    let message = "`c` should be `bigint`, but the text does not parse as one".to_owned();
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

#[test]
fn a_timestamp_without_a_zone_is_in_that_of_its_type() {
    let zoned = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let text: &[Option<&[u8]>] = &[Some(b"2024-11-03 01:30:00"), Some(b"2024-11-03T05:30:00Z")];
    for (zone, instants) in [
        ("UTC", [1_730_597_400_000_000, 1_730_611_800_000_000]),
        ("America/New_York", [1_730_611_800_000_000, 1_730_611_800_000_000]),
        ("GMT+8", [1_730_568_600_000_000, 1_730_611_800_000_000]),
    ] {
        let column = parsed(zoned(zone), text);
        assert!(column.bad.is_empty());
        assert_eq!(column.array.data_type(), &zoned(zone));
        let values = column.array.as_primitive::<TimestampMicrosecondType>();
        assert_eq!(values.values(), &instants, "{zone}");
    }
}

#[test]
fn what_a_coarser_unit_does_not_hold_is_refused() {
    let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
    let texts: &[Option<&[u8]>] =
        &[Some(b"2024-01-31 23:00:00.001"), Some(b"2024-01-31 23:00:00.0001")];
    let column = parsed(milliseconds, texts);
    assert_eq!(column.bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
}

#[test]
fn types_of_other_widths_are_read_too() {
    for data_type in [
        DataType::UInt8,
        DataType::UInt64,
        DataType::Int16,
        DataType::Float32,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::LargeBinary,
        DataType::Date64,
        DataType::Decimal128(5, 0),
    ] {
        let text: &[u8] = if data_type == DataType::Date64 { b"2024-01-31" } else { b"7" };
        let column = parsed(data_type.clone(), &[Some(text), None]);
        assert!(column.bad.is_empty(), "{data_type}");
        assert_eq!((column.array.data_type(), column.array.null_count()), (&data_type, 1));
    }
}

#[test]
fn a_type_that_no_text_has_is_refused_on_the_driver() {
    let fields = Fields::from(vec![Field::new("v", DataType::Float16, true)]);
    let error = check_columns(&fields, "text").unwrap_err();
    assert!(error.message.starts_with("`schema`: column `v` cannot be read"), "{}", error.message);
}
