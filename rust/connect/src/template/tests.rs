// SPDX-License-Identifier: Apache-2.0
//! Tests of templates.

use arrow::array::record_batch;
use arrow::datatypes::{DataType, Field, Fields};
use sparkawait_core::ErrorKind;

use super::*;

fn text(template: &str, batch: &RecordBatch, row: usize, escape: Escape) -> Option<String> {
    let bound = Template::parse(template, "key").unwrap().bind(batch.schema_ref()).unwrap();
    let mut out = b">".to_vec();
    let written = bound.rows(batch).unwrap().write(row, escape, &mut out);
    assert!(written || out == b">", "a null leaves the text as it was");
    written.then(|| String::from_utf8(out.split_off(1)).unwrap())
}

#[test]
fn columns_are_written_between_the_texts() {
    let batch = record_batch!(("id", Int64, [-7]), ("name", Utf8, ["ä/b"])).unwrap();

    assert_eq!(text("a{id}:{name}{{}}", &batch, 0, Escape::None).unwrap(), "a-7:ä/b{}");
}

#[test]
fn values_are_percent_encoded_and_the_text_around_them_is_not() {
    let batch = record_batch!(("name", Utf8, ["ä/b c?&~"])).unwrap();

    assert_eq!(
        text("/x/{name}?y", &batch, 0, Escape::Percent).unwrap(),
        "/x/%C3%A4%2Fb%20c%3F%26~?y"
    );
}

#[test]
fn a_null_in_any_column_writes_nothing() {
    let batch = record_batch!(("a", Int64, [Some(1)]), ("b", Float64, [None::<f64>])).unwrap();

    assert_eq!(text("{a}{b}", &batch, 0, Escape::None), None);
}

#[test]
fn a_template_without_columns_is_a_literal() {
    assert_eq!(Template::parse("a{{b", "key").unwrap().as_literal(), Some("a{b"));
    assert_eq!(Template::parse("", "key").unwrap().as_literal(), Some(""));
    assert_eq!(Template::parse("{a}", "key").unwrap().as_literal(), None);
}

#[test]
fn braces_that_do_not_match_are_refused_with_their_place() {
    for (template, message) in [
        ("ab{c", "`key`: `{` without `}` at character 2"),
        ("ab}", "`key`: `}` without `{` at character 2"),
        ("{}", "`key`: braces without a column name at character 0"),
    ] {
        let error = Template::parse(template, "key").unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn an_unknown_column_is_refused_by_name() {
    let batch = record_batch!(("id", Int64, [1])).unwrap();

    let error = Template::parse("{nope}", "key").unwrap().bind(batch.schema_ref()).unwrap_err();

    assert_eq!(error.kind, ErrorKind::ColumnMissing);
    assert_eq!(
        error.message,
        "`key` names column `nope`, which the input does not have; it has `id`"
    );
}

#[test]
fn a_nested_column_is_refused() {
    let fields = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
    let schema = Schema::new(vec![Field::new("s", DataType::Struct(fields), true)]);

    let error = Template::parse("{s}", "key").unwrap().bind(&schema).unwrap_err();

    assert_eq!(
        error.message,
        "`key` names column `s`, which is `struct<x:bigint>`; a template takes plain values"
    );
}

#[test]
fn debug_shows_columns_only() {
    let template = Template::parse("token=abc&id={id}", "url").unwrap();

    assert_eq!(format!("{template:?}"), r#"["id"]"#);
}

#[test]
fn debug_of_a_bound_template_shows_no_text() {
    let batch = record_batch!(("id", Int64, [1])).unwrap();
    let bound = Template::parse("token=abc&id={id}", "url").unwrap().bind(batch.schema_ref());

    assert_eq!(format!("{:?}", bound.unwrap()), "[0]");
}

#[test]
fn a_template_is_divided_at_characters_of_its_texts_only() {
    let template = Template::parse("a/{b/c}d//{{/}}", "url").unwrap();

    let parts = template.divide(&['/']);

    let texts: Vec<String> = parts.iter().map(|it| it.texts().collect()).collect();
    assert_eq!(texts, ["a", "/", "d", "/", "/", "{", "/", "}"]);
    assert_eq!(parts[2].columns().collect::<Vec<_>>(), ["b/c"]);
}
