// SPDX-License-Identifier: Apache-2.0
//! Tests of bodies.

use arrow::array::{BinaryArray, record_batch};
use arrow::datatypes::{DataType, Field};

use super::*;

fn json(text: &str) -> Body {
    Body::Json(RawValue::from_string(text.to_owned()).unwrap())
}

fn written(body: &Body, batch: &RecordBatch, row: usize) -> Option<String> {
    let bound = body.bind(batch.schema_ref()).unwrap();
    let body = bound.rows(batch).unwrap().write(row).unwrap_or_else(|_| panic!("no body"));
    body.map(|body| String::from_utf8(body).unwrap())
}

#[test]
fn a_body_keeps_its_order_and_all_digits_of_its_numbers() {
    let text = r#"{"z":18446744073709551617,"a":[0.1000000000000000055511,"{id}",null],"b":{}}"#;
    let batch = record_batch!(("id", Int64, [7])).unwrap();

    let body = written(&json(text), &batch, 0).unwrap();

    assert_eq!(body, text.replace(r#""{id}""#, "7"));
}

#[test]
fn a_null_in_an_object_is_null_and_a_null_alone_is_no_body() {
    let batch = record_batch!(("id", Int64, [None::<i64>])).unwrap();

    assert_eq!(written(&json(r#"{"a":"{id}"}"#), &batch, 0).unwrap(), r#"{"a":null}"#);
    assert_eq!(written(&json(r#"{"a":"x{id}"}"#), &batch, 0).unwrap(), r#"{"a":null}"#);
    assert_eq!(written(&json(r#""{id}""#), &batch, 0), None);
    assert_eq!(written(&Body::Raw("<{id}>".to_owned()), &batch, 0), None);
}

#[test]
fn bytes_that_are_no_text_fail_the_row_within_a_text_alone() {
    let column = std::sync::Arc::new(BinaryArray::from(vec![b"\xff".as_slice()]));
    let schema = Schema::new(vec![Field::new("b", DataType::Binary, true)]);
    let batch = RecordBatch::try_new(std::sync::Arc::new(schema), vec![column]).unwrap();

    assert_eq!(written(&json(r#""{b}""#), &batch, 0).unwrap(), r#""/w==""#);
    let bound = json(r#""<{b}>""#).bind(batch.schema_ref()).unwrap();
    let failure = bound.rows(&batch).unwrap().write(0).unwrap_err().call;
    assert!(failure.message.contains("not UTF-8"), "{}", failure.message);
}

#[test]
fn what_stands_around_items_is_divided_at_their_place() {
    let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    let batch = record_batch!(("m", Utf8, ["a"]), ("t", Utf8, ["b"])).unwrap();
    let around = raw(r#"{"model":"{m}","input":"{}","n":1}"#);

    let bound = BoundBody::around_items(&around, batch.schema_ref()).unwrap();
    let (before, behind) = bound.rows(&batch).unwrap().around_items(0).unwrap();

    assert_eq!(bound.columns().collect::<Vec<_>>(), [0]);
    assert_eq!(String::from_utf8(before).unwrap(), r#"{"model":"a","input":"#);
    assert_eq!(String::from_utf8(behind).unwrap(), r#","n":1}"#);
    assert!(BoundBody::around_items(&raw("[1]"), batch.schema_ref()).is_err());
    assert!(BoundBody::around_items(&raw(r#"["{}","{}"]"#), batch.schema_ref()).is_err());
    assert!(json(r#"["{}"]"#).bind(batch.schema_ref()).is_err());
}
