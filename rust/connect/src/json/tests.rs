// SPDX-License-Identifier: Apache-2.0
//! Tests of rows out of JSON documents.

use std::sync::Arc;

use arrow::array::{Array, AsArray, record_batch};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};

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
    assert_eq!(message, "`id` should be `bigint`, but the document has an object");
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

/// Reads an answer whose struct and list may be JSON in texts; returns both.
fn answer(content: &str, all: &str) -> Result<String, String> {
    let mood = Fields::from(vec![
        Field::new("mood", DataType::Utf8, true),
        Field::new("stars", DataType::Int32, false),
    ]);
    let stars = DataType::List(Arc::new(Field::new("element", DataType::Int32, true)));
    let schema = Arc::new(Schema::new(vec![
        Field::new("answer", DataType::Struct(mood), true),
        Field::new("all", stars, true),
        Field::new("raw", DataType::Utf8, true),
    ]));
    let paths = [("answer", "$.m.content"), ("raw", "$.m.content"), ("all", "$.all")];
    let paths = paths.map(|(column, path)| (column.to_owned(), path.to_owned()));
    let reader = JsonRows::new(schema, None, &paths).unwrap();
    let document = format!(r#"{{"m": {{"content": {content}}}, "all": {all}}}"#);
    let Decoded { batch, documents, .. } = decode(&reader, &[&document]);
    documents.into_iter().next().unwrap().map(|_| {
        let value =
            |column| arrow::util::display::array_value_to_string(batch.column(column), 0).unwrap();
        [value(0), value(1)].join(" ")
    })
}

#[test]
fn a_nested_column_reads_the_json_in_a_text() {
    assert_eq!(
        answer(r#"" {\"stars\": 3, \"mood\": \"g\\u00f6d\", \"x\": [{}]}\n""#, r#""[3, null]""#)
            .unwrap(),
        "{mood: göd, stars: 3} [3, ]"
    );
    assert_eq!(answer(r#"{"stars": 7}"#, "[13]").unwrap(), "{mood: , stars: 7} [13]");
    assert_eq!(answer(r#""null""#, r#""null""#).unwrap(), " ");
    // Of a model's text a half of a character may be escaped twice; it is wrong only where it is read.
    assert_eq!(
        answer(r#""{\"stars\": 3, \"x\": \"\\ud83d\"}""#, "null").unwrap(),
        "{mood: , stars: 3} "
    );
}

#[test]
fn what_is_wrong_with_json_in_a_text_is_laid_to_its_column() {
    for (content, all, told) in [
        (
            r#""Sure! {""#,
            "null",
            "`answer` should be `struct<mood:string,stars:int>`, but the document has a text that is not JSON",
        ),
        (r#""""#, "null", "`answer` should be"),
        (r#""{\"stars\": 3} {}""#, "null", "not JSON"),
        (
            r#""\"{}\"""#,
            "null",
            "`answer` should be `struct<mood:string,stars:int>`, but the document has a text",
        ),
        (
            r#""[]""#,
            "null",
            "`answer` should be `struct<mood:string,stars:int>`, but the document has an array",
        ),
        (
            r#""{\"mood\": \"secret\"}""#,
            "null",
            "`answer.stars` should be `int`, but is declared as not null",
        ),
        (
            r#""{\"stars\": 3, \"mood\": \"\\ud83d\"}""#,
            "null",
            "`answer.mood` should be `string`, but the document has a text with half",
        ),
        (
            r#""{\"stars\": 3, \"mood\": \"\ud83d\"}""#,
            "null",
            "`answer` should be `struct<mood:string,stars:int>`, but the document has a text with half",
        ),
        ("null", r#""[\"secret\"]""#, "`all` should be `int`, but the document has a text"),
        ("null", r#""7""#, "`all` should be `array<int>`, but the document has a number"),
    ] {
        let message = answer(content, all).unwrap_err();
        assert!(message.starts_with(told) || message.ends_with(told), "{content} {all}: {message}");
        assert!(!message.contains("secret") && !message.contains("Sure"), "{message}");
    }
}

#[test]
fn what_is_made_of_json_in_a_text_is_bounded_too() {
    let list = DataType::List(Arc::new(Field::new("element", DataType::Int64, true)));
    let schema = Arc::new(Schema::new(vec![Field::new("v", list, true)]));
    let reader = JsonRows::new(schema, None, &[]).unwrap().making_at_most(1000);
    let document = |elements: usize| format!(r#"{{"v": "[{}1]"}}"#, "1,".repeat(elements));
    assert_eq!(counts(&decode(&reader, &[&document(93)])), [Some(1)]);
    assert_eq!(counts(&decode(&reader, &[&document(93), &document(93)])), [Some(1), None]);
    assert_eq!(decode(&reader, &[&document(130)]).too_large, [0]);
}

#[test]
fn a_missing_value_of_a_column_without_nulls_is_named() {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let reader = JsonRows::new(schema, None, &[]).unwrap();

    let decoded = decode(&reader, &["{}"]);

    assert_eq!(
        decoded.documents[0].as_ref().unwrap_err(),
        "`id` should be `bigint`, but is declared as not null, and the document has none"
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

#[test]
fn of_equal_members_the_last_one_counts() {
    let pair = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("s", DataType::Struct(pair), true),
    ]));
    let reader = JsonRows::new(schema, None, &[]).unwrap();
    let documents = [
        r#"{"id": 1, "id": 2, "s": {"x": 3, "x": 4}, "s": {"x": 5, "x": null}}"#,
        r#"{"s": {"x": 6}, "id": 7, "s": null, "id": null}"#,
    ];

    let decoded = decode(&reader, &documents);

    assert_eq!(counts(&decoded), [Some(1), Some(1)]);
    let ids: Vec<_> = decoded.batch.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ids, [Some(2), None]);
    let structs = decoded.batch.column(1).as_struct();
    assert!(structs.column(0).is_null(0) && structs.is_valid(0) && structs.is_null(1));
}

#[test]
fn paths_may_lead_into_values_that_are_columns_themselves() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("all", DataType::Utf8, true),
        Field::new("user", DataType::Utf8, true),
        Field::new("id", DataType::Int64, true),
        Field::new("second", DataType::Utf8, true),
    ]));
    let paths = [("all", "$"), ("user", "$.user"), ("id", "$.user.id"), ("second", "$.user.l[1]")];
    let paths = paths.map(|(column, path)| (column.to_owned(), path.to_owned()));
    let reader = JsonRows::new(schema, Some("$.rows"), &paths).unwrap();
    let row = r#"{"user": {"id": 7, "l": [1, {"a": 2}]}}"#;

    let decoded = decode(&reader, &[&format!(r#"{{"rows": [0], "rows": [{row}, 5]}}"#)]);

    assert_eq!(counts(&decoded), [Some(2)]);
    let texts = |column: usize| {
        let texts = decoded.batch.column(column).as_string::<i32>();
        texts.iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(texts(0), [Some(row.to_owned()), Some("5".to_owned())]);
    assert_eq!(texts(1), [Some(r#"{"id": 7, "l": [1, {"a": 2}]}"#.to_owned()), None]);
    assert_eq!(texts(3), [Some(r#"{"a": 2}"#.to_owned()), None]);
    let ids: Vec<_> = decoded.batch.column(2).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ids, [Some(7), None]);
}

#[test]
fn a_document_that_is_nested_too_deep_fails_alone() {
    let reader = JsonRows::new(schema(), None, &[]).unwrap();
    let deep = |depth: usize| format!("{{\"more\": {}{}}}", "[".repeat(depth), "]".repeat(depth));

    let decoded = decode(&reader, &[&deep(100), &deep(1_000_000), r#"{"id": 1}"#]);

    assert_eq!(counts(&decoded), [Some(1), None, Some(1)]);
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_document() {
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int32, true)]));
    let reader = JsonRows::new(schema, None, &[]).unwrap();

    let decoded = decode(&reader, &["\u{feff}{\"x\": 1}", "{\"x\": \u{feff}1}"]);

    assert!(decoded.documents[0].is_ok());
    assert!(decoded.documents[1].is_err());
}

#[test]
fn what_is_wrong_is_named_without_the_contents() {
    let item = Fields::from(vec![Field::new("x", DataType::Int32, false)]);
    let list = DataType::List(Arc::new(Field::new("element", DataType::Struct(item), false)));
    let schema = Arc::new(Schema::new(vec![Field::new("items", list, true)]));
    let reader = JsonRows::new(schema, None, &[]).unwrap();
    for (document, message) in [
        (
            r#"{"items": [{"x": "secret"}]}"#,
            "`items.x` should be `int`, but the document has a text",
        ),
        (
            r#"{"items": [{"x": 1.5}]}"#,
            "`items.x` should be `int`, but the document has a number that does not fit",
        ),
        (
            r#"{"items": [{}]}"#,
            "`items.x` should be `int`, but is declared as not null, and the document has none",
        ),
        (
            r#"{"items": [{"x": 1}"#,
            "the document is not JSON: EOF while parsing a list at line 1 column 19",
        ),
        ("[5]", "a row must be a JSON object"),
        (
            "\n<!DOCTYPE html><html>secret</html>",
            "the document is not JSON: it begins with `<`, as the page of a login or of a proxy does",
        ),
    ] {
        let decoded = decode(&reader, &[document]);
        assert_eq!(decoded.documents[0].as_ref().unwrap_err(), message, "{document}");
        assert_eq!(decoded.batch.num_rows(), 0);
    }
}

#[test]
fn half_of_a_character_is_wrong_with_the_column_that_has_it_and_with_no_other() {
    let reader = JsonRows::new(schema(), None, &[]).unwrap();
    let documents = [
        r#"{"id": 1, "name": "a", "x": "\ud800", "\udc00": [{"y": "\ud83d"}]}"#,
        r#"{"id": 2, "name": "\ud83d"}"#,
        r#"{"id": 3, "name": {"z": "\uD800\ud83d\ude00"}}"#,
        r#"{"id": 4, "name": "\ud83d\ude00\n", "x": "\ud83d"}"#,
        r#"{"id": 5, "name": "\ud800"#,
        r#"{"id": 6, "name": "\\ud800"}"#,
    ];

    let decoded = decode(&reader, &documents);

    assert_eq!(counts(&decoded), [Some(1), None, Some(1), Some(1), None, Some(1)]);
    let names: Vec<_> = decoded.batch.column(1).as_string::<i32>().iter().flatten().collect();
    assert_eq!(names, ["a", r#"{"z": "\uD800\ud83d\ude00"}"#, "\u{1f600}\n", r"\ud800"]);
    let message = |index: usize| decoded.documents[index].as_ref().unwrap_err();
    assert_eq!(
        message(1),
        "`name` should be `string`, but the document has a text with half of a character"
    );
    assert!(message(4).contains("not JSON"), "{}", message(4));
}

#[test]
fn halves_of_characters_are_named_wherever_they_are_read() {
    let list = DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)));
    let entries = DataType::Struct(Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
    ]));
    let map = DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
    let fields = [("all", DataType::Utf8), ("list", list), ("map", map), ("n", DataType::Int64)];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let paths = [("all".to_owned(), "$".to_owned())];
    let reader = JsonRows::new(schema, None, &paths).unwrap();
    let read = |document: &str| decode(&reader, &[document]);

    let ok = r#"{"list": ["a"], "map": {"b": 1}, "n": 7, "x": "\ud800"}"#;
    assert_eq!(read(ok).batch.column(0).as_string::<i32>().value(0), ok);
    for (document, column) in [
        (r#"{"list": ["a", "\ud800"]}"#, "`list`"),
        (r#"{"map": {"b": 1, "\ud800": 2}}"#, "`map`"),
        (r#"{"n": "\ud800"}"#, "`n`"),
    ] {
        let decoded = read(document);
        let message = decoded.documents[0].as_ref().unwrap_err();
        assert!(message.starts_with(column) && message.contains("half"), "{message}");
    }
    let found = elements::elements(br#"[1, {"v": "\ud800"}, "b"]"#, None).unwrap();
    assert_eq!(found, [b"1".as_slice(), br#"{"v": "\ud800"}"#, br#""b""#]);
    let mut column = Column::new(&DataType::Utf8, 1).unwrap();
    assert!(push_value(&mut column, r#""\ud800""#).unwrap_err().contains("half"));
}

#[test]
fn what_is_made_of_a_document_is_bounded_wherever_it_is() {
    let doubles = |count: usize| {
        let field = |it| Field::new(format!("d{it}"), DataType::Float64, true);
        DataType::Struct((0..count).map(field).collect())
    };
    let list = |element: DataType| DataType::List(Arc::new(Field::new("element", element, true)));
    let entries = DataType::Struct(Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", doubles(7), true),
    ]));
    let map = DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
    let many = |text: &str| vec![text; 331].join(",");
    let documents = [
        (doubles(7), format!("[{}]", many("{}"))),
        (list(doubles(7)), format!(r#"{{"c": [{}]}}"#, many("{}"))),
        (list(list(DataType::Float64)), format!(r#"{{"c": [[{}]]}}"#, many("1"))),
        (list(list(list(doubles(7)))), format!(r#"{{"c": [[[],[{}]]]}}"#, many("{}"))),
        (map, format!(r#"{{"c": {{{}}}}}"#, many(r#""k": {}"#))),
    ];
    for (data_type, document) in documents {
        let schema = Arc::new(Schema::new(vec![Field::new("c", data_type.clone(), true)]));
        let reader =
            |most| JsonRows::new(Arc::clone(&schema), None, &[]).unwrap().making_at_most(most);
        let small = r#"{"c": null}"#;

        let read = decode(&reader(331 * 75), &[&document]);
        assert!(read.documents[0].is_ok() && read.too_large.is_empty(), "{data_type}");
        let decoded = decode(&reader(331 * 9 - 1), &[small, &document, small]);
        assert_eq!(counts(&decoded), [Some(1), None, Some(1)], "{data_type}");
        assert_eq!(decoded.too_large, [1]);
        // Who comes first is told; others may have room alone.
        let texts = [small.as_bytes(), document.as_bytes(), small.as_bytes()];
        assert_eq!(reader(331 * 9 - 1).decode_some(&texts).unwrap().documents, [Ok(1)]);
    }
}

#[test]
fn a_type_that_no_json_has_is_refused_at_once() {
    let entries =
        vec![Field::new("key", DataType::Int32, false), Field::new("value", DataType::Utf8, true)];
    let entries = Arc::new(Field::new("entries", DataType::Struct(entries.into()), false));
    let list = Field::new("element", DataType::Map(entries, false), true);
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::List(Arc::new(list)), true)]));

    let error = JsonRows::new(schema, None, &[]).unwrap_err();

    assert!(error.message.contains("column `v` cannot be read from JSON"), "{}", error.message);
}

mod bursts {
    use proptest::prelude::*;

    use super::*;

    fn any_schema() -> SchemaRef {
        let inner = Fields::from(vec![
            Field::new("x", DataType::Int32, false),
            Field::new("t", DataType::Utf8, true),
        ]);
        let list = Arc::new(Field::new("element", DataType::Struct(inner), true));
        Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Float64, true),
            Field::new("c", DataType::List(list), true),
            Field::new("d", DataType::Boolean, false),
        ]))
    }

    fn documents() -> impl Strategy<Value = Vec<String>> {
        let plain = prop_oneof![
            Just("1"),
            Just("01"),
            Just("1.5"),
            Just("true"),
            Just("null"),
            Just("\"5\""),
            Just("[]"),
            Just("[{\"x\": 1}, null, {\"x\": 2, \"t\": [1]}]"),
            Just("[{\"t\": 1}]"),
            Just("{}"),
            Just("NaN"),
            Just("[1"),
            Just("x"),
        ];
        let member = (prop_oneof![Just("a"), Just("b"), Just("c"), Just("d"), Just("e")], plain);
        let object = prop::collection::vec(member, 0..6).prop_map(|members| {
            let members = members.iter().map(|(name, value)| format!("\"{name}\":{value}"));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        });
        let document = prop_oneof![
            4 => object.clone(),
            1 => prop::collection::vec(object, 0..3).prop_map(|it| format!("[{}]", it.join(","))),
            1 => Just("null".to_owned()),
            1 => Just(String::new()),
        ];
        prop::collection::vec(document, 0..12)
    }

    proptest! {
        #[test]
        fn a_burst_is_read_as_each_document_alone(documents in documents()) {
            let paths = [("a".to_owned(), "$.a".to_owned())];
            for paths in [&[][..], &paths[..]] {
                let reader = JsonRows::new(any_schema(), None, paths).unwrap();
                let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
                let together = decode(&reader, &texts);
                let mut start = 0;
                for (text, outcome) in texts.iter().zip(&together.documents) {
                    let alone = decode(&reader, &[text]);
                    prop_assert_eq!(&alone.documents[0], outcome);
                    let rows = together.batch.slice(start, alone.batch.num_rows());
                    prop_assert_eq!(&rows, &alone.batch);
                    start += alone.batch.num_rows();
                }
                prop_assert_eq!(start, together.batch.num_rows());
            }
        }
    }
}
