// SPDX-License-Identifier: Apache-2.0
//! JSON documents as rows, against what `serde_json` reads.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int32Type, Int64Type, Schema};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::json::JsonRows;

/// A document is what `serde_json` reads of it, and spoils nothing beside it.
///
/// The first byte says whether columns and rows are found by paths.
pub fn json(data: &[u8]) {
    let [kind, document @ ..] = data else { return };
    let paths = [("id", "$.id"), ("all", "$"), ("deep", "s.b[1]['id']")];
    let (rows, columns) = match kind % 3 {
        0 => (None, &paths[..0]),
        1 => (None, &paths[..]),
        _ => (Some("$.s.b"), &paths[..1]),
    };
    let columns: Vec<_> = columns.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
    let reader = JsonRows::new(Arc::new(schema()), rows, &columns).unwrap();

    let alone = reader.decode(&[document]).unwrap();
    let good = br#"{"id": 1, "s": {"b": [{"id": 2}]}}"#.as_slice();
    let together = reader.decode(&[good, document, good]).unwrap();
    assert_eq!(alone.documents[0], together.documents[1]);
    assert_eq!((&together.documents[0], &together.documents[2]), (&Ok(1), &Ok(1)));
    let found = alone.batch.num_rows();
    assert_eq!(together.batch.num_rows(), found + 2);
    assert_eq!(together.batch.slice(1, found), alone.batch);
    match &alone.documents[0] {
        Ok(rows) => assert_eq!(usize::try_from(*rows), Ok(found)),
        Err(_) => assert_eq!(found, 0),
    }

    // The names of numbers, those beyond doubles and deep nesting are known to one of both alone.
    let is_beyond = [b"NaN".as_slice(), b"Infinity"].iter().any(|it| contains(document, it));
    let is_read = alone.documents[0].is_ok();
    match serde_json::from_slice::<Value>(document) {
        Ok(value) => {
            let rows = rows_of(&value, rows.is_some());
            let expected = rows.and_then(|rows| {
                let rows = rows.into_iter();
                rows.map(|row| row_of(row, kind % 3)).collect::<Option<Vec<_>>>()
            });
            match expected {
                // One of equal members does not fit, and another one does.
                Some(_) if !is_read && repeats(document) => {}
                Some(rows) => compare(&alone.batch, &rows, document),
                None => assert!(!is_read, "{}", String::from_utf8_lossy(document)),
            }
        }
        Err(error) => {
            let is_deep = error.to_string().contains("recursion limit");
            let is_large = error.to_string().contains("number out of range");
            // Halves of characters that are in no column are read here.
            let has_half = [b"\\ud".as_slice(), b"\\uD"].iter().any(|it| contains(document, it));
            assert!(!is_read || is_beyond || is_deep || is_large || has_half, "{error}");
        }
    }
}

fn contains(document: &[u8], words: &[u8]) -> bool {
    document.windows(words.len()).any(|it| it == words)
}

/// Whether an object of a document has equal members.
fn repeats(document: &[u8]) -> bool {
    serde_json::from_slice(document).is_ok_and(|Repeats(repeats)| repeats)
}

struct Repeats(bool);

impl<'de> Deserialize<'de> for Repeats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Numbers beyond doubles have been refused by now.
        deserializer.deserialize_any(Repeated)
    }
}

struct Repeated;

impl<'de> Visitor<'de> for Repeated {
    type Value = Repeats;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Repeats, A::Error> {
        let (mut names, mut repeats) = (HashSet::new(), false);
        while let Some((name, Repeats(inside))) = members.next_entry::<String, Repeats>()? {
            repeats |= inside | !names.insert(name);
        }
        Ok(Repeats(repeats))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Repeats, A::Error> {
        let mut repeats = false;
        while let Some(Repeats(inside)) = elements.next_element()? {
            repeats |= inside;
        }
        Ok(Repeats(repeats))
    }

    fn visit_unit<E>(self) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_str<E>(self, _: &str) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }
}

fn schema() -> Schema {
    let inner = Fields::from(vec![
        Field::new("a", DataType::Boolean, true),
        Field::new("b", DataType::Utf8, true),
    ]);
    let tags = Arc::new(Field::new("element", DataType::Int32, false));
    let entry = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Float64, true),
    ]);
    let entries = Arc::new(Field::new("entries", DataType::Struct(entry), false));
    Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("s", DataType::Struct(inner), true),
        Field::new("tags", DataType::List(tags), true),
        Field::new("m", DataType::Map(entries, false), true),
        Field::new("all", DataType::Utf8, true),
        Field::new("deep", DataType::Int64, true),
    ])
}

/// Returns the values that are rows; `None` if the document is refused.
fn rows_of(document: &Value, has_path: bool) -> Option<Vec<&Value>> {
    let value = if has_path {
        match document.get("s").and_then(|it| it.get("b")) {
            None => return Some(Vec::new()),
            Some(rows @ (Value::Array(_) | Value::Null)) => rows,
            Some(_) => return None,
        }
    } else {
        document
    };
    Some(match value {
        Value::Array(rows) => rows.iter().collect(),
        Value::Null => Vec::new(),
        row => vec![row],
    })
}

/// What a row has in its columns.
#[derive(Debug, Default)]
struct Row {
    id: Option<i64>,
    s: Option<(Option<bool>, Option<Value>)>,
    tags: Option<Vec<i32>>,
    m: Option<Vec<(String, Option<f64>)>>,
    all: Option<Value>,
    deep: Option<i64>,
}

/// Reads a row by the rules; the inner `None` is a null, the outer one a refusal.
fn row_of(row: &Value, kind: u8) -> Option<Row> {
    if kind == 0 && !row.is_object() {
        return None;
    }
    let member = |name: &str| row.get(name).filter(|it| !it.is_null());
    let integer = |value: Option<&Value>| match value {
        None => Some(None),
        Some(value) => whole(value).map(Some),
    };
    let mut read = Row { id: integer(member("id"))?, ..Row::default() };
    if let Some(s) = member("s") {
        let s = s.as_object()?;
        let a = s.get("a").filter(|it| !it.is_null());
        let a = a.map(|it| it.as_bool().ok_or(())).transpose().ok()?;
        read.s = Some((a, s.get("b").filter(|it| !it.is_null()).cloned()));
    }
    if let Some(tags) = member("tags") {
        let tag = |tag: &Value| whole(tag).and_then(|it| i32::try_from(it).ok());
        read.tags = Some(tags.as_array()?.iter().map(tag).collect::<Option<_>>()?);
    }
    if let Some(m) = member("m") {
        let value = |value: &Value| match value {
            Value::Null => Some(None),
            Value::Number(number) => Some(number.as_f64()),
            Value::String(text) => match text.as_str() {
                "NaN" => Some(Some(f64::NAN)),
                "Infinity" | "+Infinity" | "+INF" => Some(Some(f64::INFINITY)),
                "-Infinity" | "-INF" => Some(Some(f64::NEG_INFINITY)),
                _ => None,
            },
            _ => None,
        };
        let entry = |(name, it): (&String, &Value)| Some((name.clone(), value(it)?));
        read.m = Some(m.as_object()?.iter().map(entry).collect::<Option<_>>()?);
    }
    (read.all, read.deep) = match kind {
        1 => {
            let second = row.get("s").and_then(|it| it.get("b")).filter(|it| it.is_array());
            let deep = second.and_then(|it| it.get(1)).and_then(|it| it.get("id"));
            (
                Some(row).filter(|it| !it.is_null()).cloned(),
                integer(deep.filter(|it| !it.is_null()))?,
            )
        }
        _ => (member("all").cloned(), integer(member("deep"))?),
    };
    Some(read)
}

/// Reads a whole number, which has neither fraction nor exponent.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) && number.is_f64() => {
            // `-0`, which is read as a double, or `0.0`.
            None
        }
        value => value.as_i64(),
    }
}

fn compare(batch: &RecordBatch, rows: &[Row], document: &[u8]) {
    let shown = String::from_utf8_lossy(document);
    assert_eq!(batch.num_rows(), rows.len(), "{shown}");
    let texts = |column: &dyn Array, row: usize| {
        let text = column.as_string::<i32>();
        text.is_valid(row).then(|| text.value(row).to_owned())
    };
    for (at, row) in rows.iter().enumerate() {
        let integer = |column: usize| {
            let values = batch.column(column).as_primitive::<Int64Type>();
            values.is_valid(at).then(|| values.value(at))
        };
        assert_eq!((integer(0), integer(5)), (row.id, row.deep), "{shown}");
        let s = batch.column(1).as_struct();
        assert_eq!(s.is_valid(at), row.s.is_some(), "{shown}");
        if let Some((a, b)) = &row.s {
            let flags = s.column(0).as_boolean();
            assert_eq!(flags.is_valid(at).then(|| flags.value(at)), *a, "{shown}");
            check_text(texts(s.column(1), at), b.as_ref(), &shown);
        }
        let tags = batch.column(2).as_list::<i32>();
        let found = tags.is_valid(at).then(|| tags.value(at));
        let found = found.map(|it| it.as_primitive::<Int32Type>().values().to_vec());
        assert_eq!(found, row.tags, "{shown}");
        let m = batch.column(3).as_map();
        assert_eq!(m.is_valid(at), row.m.is_some(), "{shown}");
        if let Some(entries) = &row.m {
            check_map(m, at, entries, &shown);
        }
        check_text(texts(batch.column(4), at), row.all.as_ref(), &shown);
    }
}

/// A text is itself, and anything else is as it was written.
fn check_text(found: Option<String>, expected: Option<&Value>, shown: &str) {
    match (found, expected) {
        (None, None) => {}
        (Some(text), Some(Value::String(expected))) => assert_eq!(&text, expected, "{shown}"),
        (Some(text), Some(expected)) => {
            assert_eq!(
                serde_json::from_str::<Value>(&text).ok().as_ref(),
                Some(expected),
                "{shown}"
            );
        }
        (found, expected) => panic!("{found:?} is not {expected:?} of {shown}"),
    }
}

/// Of equal names the last one counts for `serde_json`; a map keeps them all, as Spark does.
fn check_map(
    m: &arrow::array::MapArray,
    row: usize,
    entries: &[(String, Option<f64>)],
    shown: &str,
) {
    let found = m.value(row);
    let (names, values) =
        (found.column(0).as_string::<i32>(), found.column(1).as_primitive::<Float64Type>());
    assert!(names.len() >= entries.len(), "{shown}");
    for (name, value) in entries {
        let last = (0..names.len()).rev().find(|it| names.value(*it) == name);
        let last = last.unwrap_or_else(|| panic!("{name:?} is missing of {shown}"));
        let found = values.is_valid(last).then(|| values.value(last));
        assert_eq!(found.map(f64::to_bits), value.map(f64::to_bits), "{shown}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn documents() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec!["id", "s", "a", "b", "tags", "m", "all", "deep", "é"]);
        let leaf = prop_oneof![
            any::<i64>().prop_map(|it| it.to_string()),
            any::<f64>().prop_map(|it| format!("{it:?}")),
            "-?[0-9]{1,3}(\\.[0-9]{1,2})?(e[0-9])?",
            Just("true".to_owned()),
            Just("null".to_owned()),
            "[a-zé\\\\\"\u{1}]{0,4}".prop_map(|it| serde_json::to_string(&it).unwrap()),
            Just("\"\\ud83d\\ude00\"".to_owned()),
            Just("\"\\ud83d\"".to_owned()),
        ];
        leaf.prop_recursive(5, 48, 5, move |inner| {
            let member = (name.clone(), inner.clone());
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(|it| format!("[{}]", it.join(" , "))),
                prop::collection::vec(member, 0..6).prop_map(|members| {
                    let members = members.iter().map(|(name, it)| format!("\"{name}\": {it}"));
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    #[test]
    fn a_double_is_the_nearest_to_its_digits() {
        for kind in 0..3_u8 {
            super::json(
                &[&[kind], br#"{"b": 1, "m": {"a": 6.649700131614263e-223}}"#.as_slice()].concat(),
            );
        }
    }

    proptest! {
        #[test]
        fn a_document_is_what_another_reader_reads(kind in 0..3_u8, document in documents()) {
            super::json(&[&[kind], document.as_bytes()].concat());
        }

        #[test]
        fn damage_is_seen(
            kind in 0..3_u8,
            document in documents(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = [&[kind], document.as_bytes()].concat();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            super::json(&bytes);
        }
    }
}
