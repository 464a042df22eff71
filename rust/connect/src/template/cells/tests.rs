// SPDX-License-Identifier: Apache-2.0
//! Tests of values as texts.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, DurationMicrosecondArray,
    Float64Array, Int8Array, Int32Array, IntervalMonthDayNanoArray, NullArray, StringArray,
    Time64NanosecondArray, TimestampMicrosecondArray, TimestampSecondArray, new_null_array,
};
use arrow::datatypes::Int32Type;

use super::*;

fn texts(array: &dyn Array) -> Vec<Option<String>> {
    let cells = Cells::new(array).unwrap();
    let text = |row| {
        let mut out = Vec::new();
        cells.write(row, &mut out).then(|| String::from_utf8(out).unwrap())
    };
    (0..array.len()).map(text).collect()
}

fn text(array: impl Array) -> String {
    texts(&array).remove(0).unwrap()
}

#[test]
fn plain_values_are_written_as_spark_casts_them() {
    assert_eq!(text(BooleanArray::from(vec![true])), "true");
    assert_eq!(text(Int8Array::from(vec![-128])), "-128");
    assert_eq!(text(Float64Array::from(vec![1e7])), "1.0E7");
    let decimal = Decimal128Array::from(vec![120]).with_precision_and_scale(10, 2).unwrap();
    assert_eq!(text(decimal), "1.20");
    let interval = DurationMicrosecondArray::from(vec![93_784_000_005]);
    assert_eq!(text(interval), "INTERVAL '1 02:03:04.000005' DAY TO SECOND");
    assert_eq!(text(Time64NanosecondArray::from(vec![45_296_000_001_000])), "12:34:56.000001");
}

#[test]
fn a_timestamp_is_what_clocks_show_in_the_zone_of_its_type() {
    // Half past one in New York, twice: in summer time, then in standard time.
    let instants = vec![1_730_611_800_000_000, 1_730_615_400_500_000];
    for (zone, expected) in [
        (None, ["2024-11-03 05:30:00", "2024-11-03 06:30:00.5"]),
        (Some("America/New_York"), ["2024-11-03 01:30:00", "2024-11-03 01:30:00.5"]),
        (Some("Asia/Kolkata"), ["2024-11-03 11:00:00", "2024-11-03 12:00:00.5"]),
        (Some("+02:00"), ["2024-11-03 07:30:00", "2024-11-03 08:30:00.5"]),
    ] {
        let array = TimestampMicrosecondArray::from(instants.clone()).with_timezone_opt(zone);
        assert_eq!(texts(&array), expected.map(|text| Some(text.to_owned())));
    }
}

#[test]
fn a_zone_that_does_not_exist_is_refused_before_any_row() {
    let data_type = DataType::Timestamp(TimeUnit::Microsecond, Some("Mars/Olympus".into()));

    let error = Cells::check(&data_type).unwrap_err();

    assert!(error.message.contains("`Mars/Olympus` is not a time zone"), "{error}");
}

#[test]
fn all_rows_of_a_column_without_a_type_are_null() {
    assert_eq!(texts(&NullArray::new(2)), [None, None]);
}

#[test]
fn a_dictionary_is_read_through_and_its_nulls_are_nulls() {
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let keys = Int32Array::from(vec![Some(0), Some(1), None]);
    let array = DictionaryArray::<Int32Type>::try_new(keys, values).unwrap();

    assert_eq!(texts(&array), [Some("a".to_owned()), None, None]);
}

#[test]
fn a_dictionary_may_have_no_values() {
    let kind = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    assert!(Cells::check(&kind).is_ok());
    let nested = DataType::Dictionary(Box::new(DataType::Int32), Box::new(kind.clone()));
    assert!(Cells::check(&nested).is_ok());

    assert_eq!(texts(&new_null_array(&kind, 3)), [const { None }; 3]);
    let none: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
    let array = DictionaryArray::<Int32Type>::try_new(Int32Array::new_null(2), none).unwrap();
    assert_eq!(texts(&array), [None, None]);
}

#[test]
fn what_is_far_away_is_still_written() {
    let array = TimestampSecondArray::from(vec![i64::MAX / 1_000_000]).with_timezone("UTC");
    assert_eq!(text(array), "+294247-01-10 04:00:54");
}

#[test]
fn a_type_without_a_text_is_refused() {
    let array = IntervalMonthDayNanoArray::new_null(1);

    let error = Cells::new(&array).unwrap_err();

    assert!(error.message.contains("has no text"), "{error}");
}
