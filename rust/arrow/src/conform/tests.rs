// SPDX-License-Identifier: Apache-2.0
use arrow::{
    array::{
        AsArray, Int64Array, ListArray, MapBuilder, StringBuilder, StructArray, UInt8Array,
        record_batch,
    },
    compute::cast,
    datatypes::{DataType, Field, Int32Type, TimeUnit},
};

use super::*;

fn declared(data_type: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("y", data_type, true)]))
}

fn batch_of(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("y", column, true)]).unwrap()
}

fn as_result(column: ArrayRef, data_type: DataType) -> Result<ArrayRef, Error> {
    let mut conform = Conform::new(Side::Result, declared(data_type));
    conform.conform(batch_of(column)).map(|batch| ArrayRef::clone(batch.column(0)))
}

fn small_ints() -> ArrayRef {
    Arc::new(UInt8Array::from(vec![Some(1), None, Some(255)]))
}

fn dictionary_of(values: DataType) -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(values))
}

fn list_of(name: &str, data_type: DataType, nullable: bool) -> DataType {
    DataType::List(Arc::new(Field::new(name, data_type, nullable)))
}

#[test]
fn other_representation_of_the_declared_type_is_cast() {
    use DataType::*;
    let utc = |unit| Timestamp(unit, Some("UTC".into()));
    for (got, expected) in [
        (Utf8, LargeUtf8),
        (Utf8View, Utf8),
        (LargeUtf8, Utf8View),
        (dictionary_of(Utf8), Utf8),
        (Binary, BinaryView),
        (LargeBinary, Binary),
        (Int64, Int16),
        (UInt64, Int32),
        (Int32, Float64),
        (Float64, Float32),
        (Decimal128(10, 2), Decimal128(20, 4)),
        (Timestamp(TimeUnit::Millisecond, None), Timestamp(TimeUnit::Microsecond, None)),
        (utc(TimeUnit::Nanosecond), Timestamp(TimeUnit::Microsecond, Some("Europe/Paris".into()))),
        (Date32, Date64),
        (Duration(TimeUnit::Second), Duration(TimeUnit::Microsecond)),
    ] {
        // Date64 and timestamps come from Int64 only.
        let wide = cast(&small_ints(), &Int32).unwrap();
        let wide = cast(&wide, if got == Date32 { &Int32 } else { &Int64 }).unwrap();
        let text = matches!(got, Binary | LargeBinary).then_some(Utf8);
        let wide = text.map_or(ArrayRef::clone(&wide), |text| cast(&wide, &text).unwrap());
        let column = cast(&wide, &got).unwrap();

        let result = as_result(column, expected.clone()).unwrap();

        assert_eq!((result.data_type(), result.logical_null_count()), (&expected, 1), "{got}");
    }
}

#[test]
fn type_that_would_need_a_guess_is_refused() {
    use DataType::*;
    for (got, expected) in [
        (Int64, Utf8),
        (Utf8, Int64),
        (Utf8, Binary),
        (Float64, Int64),
        (Int64, Boolean),
        (Decimal128(10, 4), Decimal128(10, 2)),
        (
            Timestamp(TimeUnit::Microsecond, None),
            Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        (Int64, Timestamp(TimeUnit::Microsecond, None)),
        (list_of("item", Int64, true), Int64),
    ] {
        let error = as_result(new_empty(&got), expected.clone()).unwrap_err();

        let message = format!(
            "result column `y`: the declared schema says `{expected}`, the batch has `{got}`"
        );
        assert_eq!(error.to_string(), message);
    }
}

fn new_empty(data_type: &DataType) -> ArrayRef {
    arrow::array::new_empty_array(data_type)
}

#[test]
fn value_out_of_range_is_refused_and_not_made_null() {
    let error = as_result(small_ints(), DataType::Int8).unwrap_err();

    assert_eq!(error.to_string(), "result column `y`: a value of type `UInt8` does not fit `Int8`");
}

#[test]
fn nested_types_are_cast_inside() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let inner = Field::new("list", list.data_type().clone(), true);
    let column = StructArray::from(vec![(Arc::new(inner), Arc::new(list) as ArrayRef)]);
    let expected = DataType::Struct(
        vec![Field::new("list", list_of("element", DataType::Int64, true), true)].into(),
    );

    let result = as_result(Arc::new(column), expected.clone()).unwrap();

    assert_eq!(result.data_type(), &expected);
}

#[test]
fn null_inside_of_a_list_declared_without_nulls_is_refused() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);

    let result = as_result(Arc::new(list), list_of("item", DataType::Int32, false));

    assert!(matches!(result, Err(Error::Cast { .. })), "{result:?}");
}

#[test]
fn struct_with_other_names_is_refused() {
    let field = |name| Field::new(name, DataType::Int64, true);
    let column = new_empty(&DataType::Struct(vec![field("a")].into()));

    assert!(as_result(column, DataType::Struct(vec![field("b")].into())).is_err());
}

#[test]
fn result_columns_are_found_by_name() {
    let schema = record_batch!(("a", Int64, [0]), ("b", Utf8, [""])).unwrap().schema();
    let mut conform = Conform::new(Side::Result, schema);

    let batch = conform.conform(record_batch!(("b", Utf8, ["x"]), ("a", Int64, [7])).unwrap());

    assert_eq!(batch.unwrap().column(1).as_string::<i32>().value(0), "x");
    let error = conform.conform(record_batch!(("b", Utf8, ["x"]), ("c", Int64, [7])).unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "result column `a` is declared, but the batch does not have it"
    );
    let error = conform.conform(record_batch!(("b", Utf8, ["x"])).unwrap());
    assert_eq!(error.unwrap_err().to_string(), "result has 1 columns, the declared schema has 2");
}

#[test]
fn names_inside_of_input_lists_and_maps_are_set_right() {
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    map.keys().append_value("k");
    map.values().append_value("v");
    map.append(true).unwrap();
    let map = map.finish();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]);
    let entries = Field::new("key", DataType::Utf8, false);
    let entries = vec![entries, Field::new("value", DataType::Utf8, true)];
    let entries = Field::new("key_value", DataType::Struct(entries.into()), false);
    for (column, expected) in [
        (Arc::new(map) as ArrayRef, DataType::Map(Arc::new(entries), false)),
        (Arc::new(list), list_of("element", DataType::Int32, true)),
    ] {
        assert_ne!(column.data_type(), &expected);
        let mut conform = Conform::new(Side::Input, declared(expected.clone()));

        let batch = conform.conform(batch_of(column)).unwrap();

        assert_eq!(batch.column(0).data_type(), &expected);
    }
}

#[test]
fn input_of_another_width_is_refused() {
    let mut conform = Conform::new(Side::Input, declared(DataType::Int32));

    assert!(conform.conform(batch_of(Arc::new(Int64Array::from(vec![1])))).is_err());
}

#[test]
fn batch_of_the_declared_types_is_not_copied() {
    let column = small_ints();

    let result = as_result(ArrayRef::clone(&column), DataType::UInt8).unwrap();

    assert!(Arc::ptr_eq(&column, &result));
}
