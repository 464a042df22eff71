// SPDX-License-Identifier: Apache-2.0
//! Every type that Spark sends passes through untouched, in slices and in
//! gathered rows, as input column and as result column.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, FixedSizeBinaryArray,
        FixedSizeListArray, Int32Array, Int64Array, IntervalDayTimeArray,
        IntervalMonthDayNanoArray, LargeBinaryArray, LargeListArray, ListArray, MapArray,
        NullArray, RecordBatch, StringArray, StringViewArray, StructArray,
    },
    buffer::{NullBuffer, OffsetBuffer},
    compute::cast,
    datatypes::{
        DataType, Field, Int32Type, IntervalDayTime, IntervalMonthDayNano, IntervalUnit, Schema,
        SchemaRef, TimeUnit, i256,
    },
};
use sparkawait_arrow::{OnError, OutputColumns, RowFailure, RowStore};

/// Rows of the whole column; the batches are slices of it.
const ROWS: usize = 512;
/// Offset of the batches in the whole column: neither 0 nor a multiple of 8.
const OFFSET: usize = 3;

fn present(i: usize) -> bool {
    i % 5 != 1
}

fn each<T>(value: impl Fn(usize) -> T) -> Vec<Option<T>> {
    (0..ROWS).map(|i| present(i).then(|| value(i))).collect()
}

fn number(i: usize) -> i64 {
    i64::try_from(i).unwrap()
}

fn text(i: usize) -> String {
    // Longer than the 12 bytes that a view holds, for every other row.
    if i.is_multiple_of(2) { format!("row {i} of a longer text") } else { format!("row {i}") }
}

fn nulls() -> NullBuffer {
    (0..ROWS).map(present).collect()
}

fn numbers() -> ArrayRef {
    Arc::new(Int64Array::from(each(number)))
}

fn texts() -> ArrayRef {
    Arc::new(StringArray::from(each(text)))
}

fn converted() -> impl Iterator<Item = ArrayRef> {
    use DataType::*;
    let zone = |zone: &str| Some(Arc::from(zone));
    [
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt64,
        Float32,
        Float64,
        Decimal128(38, 10),
        Decimal128(5, 0),
        Decimal256(50, 3),
        Date64,
        Timestamp(TimeUnit::Microsecond, None),
        Timestamp(TimeUnit::Microsecond, zone("UTC")),
        Timestamp(TimeUnit::Nanosecond, zone("Europe/Paris")),
        Time64(TimeUnit::Microsecond),
        Duration(TimeUnit::Microsecond),
        LargeUtf8,
    ]
    .into_iter()
    .map(|data_type| cast(&numbers(), &data_type).unwrap())
    .chain(
        [Date32, Interval(IntervalUnit::YearMonth)]
            .map(|data_type| cast(&cast(&numbers(), &Int32).unwrap(), &data_type).unwrap()),
    )
}

fn bytes_and_intervals() -> Vec<ArrayRef> {
    let bytes: Vec<_> = each(|i| text(i).into_bytes());
    let bytes: Vec<_> = bytes.iter().map(|b| b.as_deref()).collect();
    let fixed = each(|i| i128::from(number(i)).to_le_bytes());
    let day_time = each(|i| IntervalDayTime::new(1, i32::try_from(i).unwrap()));
    let month_day_nano = each(|i| IntervalMonthDayNano::new(1, 2, number(i)));
    vec![
        Arc::new(NullArray::new(ROWS)),
        texts(),
        Arc::new(StringViewArray::from(each(text))),
        Arc::new(BinaryArray::from(bytes.clone())),
        Arc::new(LargeBinaryArray::from(bytes.clone())),
        Arc::new(BinaryViewArray::from(bytes)),
        Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 16).unwrap(),
        ),
        Arc::new(IntervalDayTimeArray::from(day_time)),
        Arc::new(IntervalMonthDayNanoArray::from(month_day_nano)),
    ]
}

/// Lists of 0, 1 or 2 texts, with nulls in and between them.
fn offsets(child: &ArrayRef) -> OffsetBuffer<i32> {
    let offsets = OffsetBuffer::<i32>::from_lengths((0..ROWS).map(|i| i % 3));
    assert!(usize::try_from(offsets.last()).unwrap() <= child.len());
    offsets
}

fn nested() -> Vec<ArrayRef> {
    let metadata = HashMap::from([("inner".to_owned(), "kept".to_owned())]);
    let field = |name: &str, column: &ArrayRef| Field::new(name, column.data_type().clone(), true);
    let element = Arc::new(field("element", &texts()).with_metadata(metadata));
    let list: ArrayRef =
        Arc::new(ListArray::new(element, offsets(&texts()), texts(), Some(nulls())));
    let columns = vec![numbers(), ArrayRef::clone(&list)];
    let fields = vec![field("a", &columns[0]), field("b", &columns[1])];
    let structs: ArrayRef = Arc::new(StructArray::new(fields.into(), columns, Some(nulls())));
    let item = Arc::new(field("item", &structs));
    let long = OffsetBuffer::from_lengths((0..ROWS).map(|i| i % 2));
    let large: ArrayRef =
        Arc::new(LargeListArray::new(item, long, ArrayRef::clone(&structs), Some(nulls())));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        each(|i| vec![i32::try_from(i).ok(), None]),
        2,
    );
    let keys: ArrayRef = Arc::new((0..ROWS).map(|i| Some(text(i))).collect::<StringArray>());
    let entries = vec![Field::new("key", DataType::Utf8, false), field("value", &structs)];
    let entries = StructArray::new(entries.into(), vec![keys, ArrayRef::clone(&structs)], None);
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let maps = MapArray::new(entry, offsets(&list), entries, Some(nulls()), false);
    vec![list, structs, large, Arc::new(fixed), Arc::new(maps)]
}

/// Two dictionaries of other values in one test: their keys must be rewritten.
fn dictionary() -> ArrayRef {
    let keys: Int32Array = each(|i| i32::try_from(i % 7).unwrap()).into_iter().collect();
    let values = Arc::new(StringArray::from_iter_values((0..7).map(text)));
    Arc::new(DictionaryArray::new(keys, values))
}

fn every_column() -> Vec<ArrayRef> {
    let decimal =
        arrow::array::Decimal256Array::from(each(|i| i256::from_i128(i128::from(number(i)))));
    converted()
        .chain(bytes_and_intervals())
        .chain(nested())
        .chain([dictionary(), Arc::new(decimal) as ArrayRef])
        .collect()
}

fn schema(name: &str, column: &ArrayRef) -> SchemaRef {
    let metadata = HashMap::from([("ARROW:extension:name".to_owned(), "test.type".to_owned())]);
    let field = Field::new(name, column.data_type().clone(), true).with_metadata(metadata);
    Arc::new(Schema::new(vec![field]))
}

/// How the rows of the column, in slices, come out.
struct Route {
    name: &'static str,
    /// Rows of each batch and chunk.
    batch_rows: usize,
    /// Row that is put out as the n-th.
    order: fn(usize, usize) -> usize,
    /// Every so many rows fail.
    failures: Option<usize>,
}

const ROUTES: [Route; 5] = [
    Route { name: "slice", batch_rows: ROWS, order: |i, _| i, failures: None },
    Route { name: "concat", batch_rows: 200, order: |i, _| i, failures: None },
    Route { name: "concat with nulls", batch_rows: 200, order: |i, _| i, failures: Some(300) },
    Route { name: "interleave", batch_rows: 50, order: |i, n| i * 7 % n, failures: None },
    Route {
        name: "interleave with nulls",
        batch_rows: 50,
        order: |i, n| i * 7 % n,
        failures: Some(4),
    },
];

fn check(column: &ArrayRef, route: &Route) {
    let column = column.slice(OFFSET, ROWS - 2 * OFFSET);
    let (input, result) = (schema("x", &column), schema("y", &column));
    let whole = |schema: &SchemaRef| {
        RecordBatch::try_new(Arc::clone(schema), vec![ArrayRef::clone(&column)]).unwrap()
    };
    let mut store = RowStore::new(
        Arc::clone(&input),
        Arc::clone(&result),
        OutputColumns::Append,
        OnError::Null,
    )
    .unwrap();
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for start in (0..column.len()).step_by(route.batch_rows) {
        let len = route.batch_rows.min(column.len() - start);
        rows.extend(store.accept_input(whole(&input).slice(start, len)).unwrap());
        let mut chunk = store.accept_results(whole(&result).slice(start, len)).unwrap();
        results.extend((0..len).map(|_| chunk.split_front(1)));
    }
    let order: Vec<usize> = (0..rows.len()).map(|i| (route.order)(i, rows.len())).collect();
    let failed = |row: usize| route.failures.is_some_and(|every| row.is_multiple_of(every));
    for &row in &order {
        if failed(row) {
            store.discard(results[row]);
            let failure =
                RowFailure { kind: "k".into(), message: String::new(), attempts: 1, status: None };
            store.push_failure(rows[row], failure).unwrap();
        } else {
            store.push(rows[row], results[row]);
        }
    }

    let output = store.take(usize::MAX, usize::MAX).unwrap().unwrap();

    let name = format!("{} by {}", column.data_type(), route.name);
    assert_eq!(output.schema().field(0), input.field(0), "{name}");
    assert_eq!(output.schema().field(1), result.field(0), "{name}");
    for (i, &row) in order.iter().enumerate() {
        let expected = column.slice(row, 1);
        assert_eq!(&output.column(0).slice(i, 1), &expected, "input row {row} of {name}");
        if failed(row) {
            assert_eq!(output.column(1).slice(i, 1).logical_null_count(), 1, "row {row} of {name}");
        } else {
            assert_eq!(&output.column(1).slice(i, 1), &expected, "result row {row} of {name}");
        }
    }
    for column in output.columns() {
        column.to_data().validate_full().unwrap();
    }
}

#[test]
fn every_type_passes_through_untouched() {
    for column in every_column() {
        for route in &ROUTES {
            check(&column, route);
        }
    }
}

#[test]
fn dictionaries_of_different_batches_are_merged() {
    let first = dictionary();
    let keys = Int32Array::from(vec![1, 0]);
    let values = Arc::new(StringArray::from(vec!["other", "text"]));
    let second: ArrayRef = Arc::new(DictionaryArray::new(keys, values));
    let (input, result) = (schema("x", &first), Arc::new(Schema::empty()));
    let mut store =
        RowStore::new(Arc::clone(&input), result, OutputColumns::Append, OnError::Null).unwrap();
    let mut rows = Vec::new();
    for column in [first, second] {
        let batch = RecordBatch::try_new(Arc::clone(&input), vec![column]).unwrap();
        rows.extend(store.accept_input(batch).unwrap());
    }
    for row in [ROWS + 1, 0, ROWS, 2] {
        let failure =
            RowFailure { kind: "k".into(), message: String::new(), attempts: 1, status: None };
        store.push_failure(rows[row], failure).unwrap();
    }

    let output = store.take(10, usize::MAX).unwrap().unwrap();

    let texts = cast(output.column(0), &DataType::Utf8).unwrap();
    let expected: ArrayRef = Arc::new(StringArray::from(vec!["other", &text(0), "text", &text(2)]));
    assert_eq!(&texts, &expected);
}
