// SPDX-License-Identifier: Apache-2.0
//! Tests of rows out of JSON documents.

use arrow::array::record_batch;
use arrow::datatypes::{Field, Fields, Int64Type};

use super::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ]))
}

fn decode(reader: &JsonRows, documents: &[&str]) -> Decoded {
    let documents: Vec<&[u8]> = documents.iter().map(|it| it.as_bytes()).collect();
    reader.decode(&documents).unwrap()
}

fn counts(decoded: &Decoded) -> Vec<Option<u32>> {
    decoded.documents.iter().map(|document| document.as_ref().ok().copied()).collect()
}

#[test]
fn members_are_columns_and_missing_ones_are_null() {
    let reader = JsonRows::new(schema(), None, &[]).unwrap();

    let decoded = decode(&reader, &[r#"{"id": 1, "name": "a", "more": [1]}"#, r#"{"name": null}"#]);

    assert_eq!(counts(&decoded), [Some(1), Some(1)]);
    let expected =
        record_batch!(("id", Int64, [Some(1), None]), ("name", Utf8, [Some("a"), None])).unwrap();
    assert_eq!(decoded.batch, expected);
}

#[test]
fn a_bad_document_spoils_no_other() {
    let reader = JsonRows::new(schema(), None, &[]).unwrap();
    let documents = [
        r#"{"id": 1}"#,
        r#"{"id": {"x": 1}}"#,
        r#"{"id": 2"#,
        "no json",
        "5",
        "",
        r#"{"id": 3}{"id": 4}"#,
        r#"{"id": 5}"#,
    ];

    let decoded = decode(&reader, &documents);

    assert_eq!(counts(&decoded), [Some(1), None, None, None, None, None, None, Some(1)]);
    let ids = decoded.batch.column(0).as_primitive::<Int64Type>();
    assert_eq!(ids.values(), &[1, 5]);
    let message = decoded.documents[1].as_ref().unwrap_err();
    assert_eq!(message, "`id` should be `Int64`, but the value in the document is not");
}

#[test]
fn an_array_has_a_row_for_each_element() {
    let reader = JsonRows::new(schema(), None, &[]).unwrap();

    let decoded = decode(&reader, &[r#"[{"id": 1}, {"id": 2}]"#, "[]", r#"[{"id": 3}]"#]);

    assert_eq!(counts(&decoded), [Some(2), Some(0), Some(1)]);
    assert_eq!(decoded.batch.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
}

#[test]
fn rows_and_columns_are_found_by_path() {
    let paths = [("id".to_owned(), "$.key[0]".to_owned())];
    let reader = JsonRows::new(schema(), Some("$.data.items"), &paths).unwrap();

    let document = r#"{"data": {"items": [{"key": [7, 8], "name": "a"}, {"name": "b"}]}}"#;
    let decoded = decode(&reader, &[document, "{}", r#"{"data": {"items": 5}}"#]);

    assert_eq!(counts(&decoded), [Some(2), Some(0), None]);
    let expected =
        record_batch!(("id", Int64, [Some(7), None]), ("name", Utf8, [Some("a"), Some("b")]))
            .unwrap();
    assert_eq!(decoded.batch, expected);
}

#[test]
fn a_missing_value_of_a_column_without_nulls_is_named() {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let reader = JsonRows::new(schema, None, &[]).unwrap();

    let decoded = decode(&reader, &["{}"]);

    assert_eq!(
        decoded.documents[0].as_ref().unwrap_err(),
        "`id` should be `Int64` that is not null, but the value in the document is not"
    );
}

#[test]
fn nested_types_and_long_decimals_are_read_exactly() {
    let city = Fields::from(vec![Field::new("city", DataType::Utf8, true)]);
    let schema = Arc::new(Schema::new(vec![
        Field::new("address", DataType::Struct(city), true),
        Field::new("price", DataType::Decimal128(38, 18), true),
    ]));
    let paths = [("price".to_owned(), "$.p.q".to_owned())];
    for (paths, document) in [
        (
            &paths[..],
            r#"{"address": {"city": "x"}, "p": {"q": 12345678901234567.123456789012345678}}"#,
        ),
        (&[], r#"{"address": {"city": "x"}, "price": 12345678901234567.123456789012345678}"#),
    ] {
        let decoded =
            decode(&JsonRows::new(SchemaRef::clone(&schema), None, paths).unwrap(), &[document]);

        let price = decoded.batch.column(1);
        assert_eq!(
            arrow::util::display::array_value_to_string(price, 0).unwrap(),
            "12345678901234567.123456789012345678"
        );
    }
}

#[test]
fn a_path_for_an_unknown_column_is_refused() {
    let paths = [("nope".to_owned(), "$.a".to_owned())];

    let error = JsonRows::new(schema(), None, &paths).unwrap_err();

    assert_eq!(error.message, "`paths` names column `nope`, which the schema does not have");
}
