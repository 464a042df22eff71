// SPDX-License-Identifier: Apache-2.0
//! Which JSON schemas services of models refuse, as they say it.

use serde_json::{Map, Value};

/// What stands in any schema of an answer.
const OF_ALL: [&str; 12] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "type",
];
/// What the service of the first dialect knows beside it.
const OF_CHAT: [&str; 8] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
];

/// Returns an error where a service would refuse a schema.
pub(super) fn check(schema: &Value, is_messages: bool) -> Result<(), String> {
    let Some(given) = schema.as_object() else {
        return Err("a schema must be an object".to_owned());
    };
    if given.contains_key("$ref") && given.len() > 1 {
        return Err("$ref cannot have keywords beside it".to_owned());
    }
    let is_known = |word: &str| OF_ALL.contains(&word) || (!is_messages && OF_CHAT.contains(&word));
    if let Some(word) = given.keys().find(|it| !is_known(it)) {
        return Err(format!("'{word}' is not permitted"));
    }
    let kind = given.get("type").and_then(Value::as_str);
    if kind == Some("object") {
        check_members(given)?;
    }
    if kind == Some("array") && !given.contains_key("items") {
        return Err("array schema missing items".to_owned());
    }
    let named = ["properties", "$defs"].into_iter().filter_map(|it| given.get(it));
    let named = named.filter_map(Value::as_object).flat_map(Map::values);
    let others = given.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    named.chain(others).chain(given.get("items")).try_for_each(|it| check(it, is_messages))
}

fn check_members(given: &Map<String, Value>) -> Result<(), String> {
    if given.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err("'additionalProperties' is required to be supplied and to be false".to_owned());
    }
    let members = given.get("properties").and_then(Value::as_object);
    let required = given.get("required").and_then(Value::as_array);
    let names = |it: &str| required.is_some_and(|all| all.iter().any(|one| one == it));
    match members.into_iter().flat_map(Map::keys).find(|it| !names(it)) {
        Some(missing) => Err(format!("'required' must name every member; '{missing}' is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(member: &Value) -> Value {
        json!({
            "type": "object",
            "properties": {"a": member},
            "required": ["a"],
            "additionalProperties": false
        })
    }

    #[test]
    fn what_one_service_knows_another_refuses() {
        let bounded = of(&json!({"type": "integer", "minimum": 1}));
        assert_eq!(check(&bounded, false), Ok(()));
        assert_eq!(check(&bounded, true), Err("'minimum' is not permitted".to_owned()));
        for refused in [
            json!({"$ref": "#/$defs/A", "description": "a"}),
            json!({"type": "string", "minLength": 1}),
            json!({"oneOf": [{"type": "string"}]}),
            json!({"type": "object", "properties": {}}),
            json!({"type": "array"}),
            json!({"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}]}),
        ] {
            assert!(check(&of(&refused), false).is_err(), "{refused}");
        }
        let open =
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false});
        assert!(check(&open, false).unwrap_err().ends_with("'a' is missing"));
    }
}
