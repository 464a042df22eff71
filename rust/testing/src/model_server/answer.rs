// SPDX-License-Identifier: Apache-2.0
//! Answers that nobody has written: a text, or what a JSON schema asks for.
//!
//! They depend on the hash of the prompt alone, and have it in them.

use std::str::FromStr;

use serde_json::{Map, Value, json};

/// Levels of a schema that are followed.
const MOST_LEVELS: usize = 16;

/// Returns a text of about so many tokens.
pub(super) fn text(hash: u64, tokens: u64) -> String {
    let mut text = format!("{hash:016x}");
    for _ in 0..tokens.saturating_sub(9) {
        text.push_str(" word");
    }
    text
}

/// Returns a value that a schema describes.
pub(super) fn value(schema: &Value, hash: u64) -> Value {
    made(schema, schema, hash, MOST_LEVELS)
}

fn made(schema: &Value, root: &Value, hash: u64, levels: usize) -> Value {
    if levels == 0 {
        return Value::Null;
    }
    let inner = |it: &Value| made(it, root, hash, levels - 1);
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return root.pointer(name.trim_start_matches('#')).map_or(Value::Null, inner);
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array)
        && !values.is_empty()
    {
        return values[below(hash, values.len() as u64)].clone();
    }
    for several in ["anyOf", "oneOf", "allOf"] {
        if let Some(schemas) = schema.get(several).and_then(Value::as_array) {
            let is_null = |it: &&Value| it.get("type").and_then(Value::as_str) == Some("null");
            return schemas.iter().find(|it| !is_null(it)).map_or(Value::Null, inner);
        }
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().find(|it| it.as_str() != Some("null")),
        kind => kind,
    };
    let number = |name: &str, or: i64| bound(schema, name).unwrap_or(or);
    match kind.and_then(Value::as_str).unwrap_or("object") {
        "object" => {
            let mut members = Map::new();
            for (name, of) in
                schema.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                members.insert(name.clone(), inner(of));
            }
            Value::Object(members)
        }
        "array" => {
            let count = usize::try_from(number("minItems", 1)).unwrap_or(1).clamp(1, 16);
            let items = schema.get("items").unwrap_or(&Value::Null);
            Value::Array((0..count).map(|_| inner(items)).collect())
        }
        "integer" => {
            let (least, most) = (number("minimum", 0), number("maximum", 99));
            let span = u64::try_from(most - least).unwrap_or(0) + 1;
            json!(least + i64::try_from(hash % span).unwrap_or(0))
        }
        "number" => fraction(schema, hash),
        "boolean" => json!(hash & 1 == 1),
        "null" => Value::Null,
        _ => match schema.get("format").and_then(Value::as_str) {
            Some("date") => json!(format!("2026-01-{:02}", 1 + hash % 28)),
            Some("date-time") => json!(format!("2026-01-{:02}T00:00:00Z", 1 + hash % 28)),
            _ => json!(format!("{hash:016x}")),
        },
    }
}

fn fraction(schema: &Value, hash: u64) -> Value {
    let of = |name: &str, or: f64| bound(schema, name).unwrap_or(or);
    let (least, most) = (of("minimum", 0.0), of("maximum", 1.0));
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let share = (hash % 1_000) as f64 / 1_000.0;
    json!((most - least).mul_add(share, least))
}

/// Returns a bound of a value, also one that is only described, which models read, too.
fn bound<T: FromStr>(schema: &Value, name: &str) -> Option<T> {
    if let Some(bound) = schema.get(name) {
        return bound.to_string().parse().ok();
    }
    let described = schema.get("description")?.as_str()?;
    let behind = described.split_once(name)?.1.trim_start_matches([':', ' ']);
    let ends = |it: char| !it.is_ascii_digit() && it != '.' && it != '-';
    behind.split(ends).next()?.parse().ok()
}

fn below(hash: u64, count: u64) -> usize {
    usize::try_from(hash % count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_has_what_its_schema_asks_for() {
        let schema = json!({
            "type": "object",
            "$defs": {"Mood": {"enum": ["good", "bad"]}},
            "properties": {
                "mood": {"$ref": "#/$defs/Mood"},
                "stars": {"type": "integer", "minimum": 3, "maximum": 3},
                "rated": {"type": "integer", "description": "of five: minimum 5, maximum: 5}"},
                "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
                "tags": {"type": "array", "items": {"type": ["boolean", "null"]}, "minItems": 2},
            },
        });

        let value = value(&schema, 7);

        let hash = "0000000000000007";
        let expected =
            json!({"mood": "bad", "stars": 3, "rated": 5, "note": hash, "tags": [true, true]});
        assert_eq!(value, expected);
    }

    #[test]
    fn schema_that_names_itself_ends() {
        let schema = json!({"properties": {"a": {"$ref": "#"}}});

        assert!(value(&schema, 1).is_object());
    }
}
