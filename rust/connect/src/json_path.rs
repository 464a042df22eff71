// SPDX-License-Identifier: Apache-2.0
//! Paths into JSON documents: `$.address.city`, `items[0]['odd name']`.
//!
//! A subset of RFC 9535 that finds at most one value. Values are found as slices
//! of the document, so that numbers keep all of their digits and nothing is copied.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::native::StartError;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Element(usize),
}

/// A path to one value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Reads a path, which was given for `option`.
    ///
    /// `$` at the start and `[*]` at the end may be left out.
    ///
    /// # Errors
    ///
    /// It is no such path.
    pub fn parse(text: &str, option: &str) -> Result<Self, StartError> {
        let refuse = || {
            StartError::option(format!(
                "`{option}`: `{text}` is no JSON path; write `$.name`, `$['odd name']` or `$.items[0]`"
            ))
        };
        let path = text.trim();
        let mut rest = path.strip_prefix('$').unwrap_or(path);
        rest = rest.strip_suffix("[*]").unwrap_or(rest);
        let mut steps = Vec::new();
        let mut is_first = !path.starts_with('$');
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let quote = after.chars().next().filter(|it| matches!(it, '\'' | '"'));
                if let Some(quote) = quote {
                    let end = after[1..].find(quote).ok_or_else(refuse)? + 1;
                    steps.push(Step::Member(after[1..end].to_owned()));
                    rest = after[end + 1..].strip_prefix(']').ok_or_else(refuse)?;
                } else {
                    let (index, tail) = after.split_once(']').ok_or_else(refuse)?;
                    steps.push(Step::Element(index.parse().map_err(|_| refuse())?));
                    rest = tail;
                }
            } else {
                let after = match rest.strip_prefix('.') {
                    Some(after) => after,
                    None if is_first => rest,
                    None => return Err(refuse()),
                };
                let end = after.find(['.', '[']).unwrap_or(after.len());
                if end == 0 {
                    return Err(refuse());
                }
                steps.push(Step::Member(after[..end].to_owned()));
                rest = &after[end..];
            }
            is_first = false;
        }
        Ok(Self { steps })
    }

    /// The path of a member of the document itself.
    pub fn member(name: &str) -> Self {
        Self { steps: vec![Step::Member(name.to_owned())] }
    }

    /// Finds the text of the value in `document`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The document is no JSON; says where, without its contents.
    pub fn find<'a>(&self, document: &'a str) -> Result<Option<&'a str>, String> {
        if self.steps.is_empty() {
            Self::check(document)?;
            return Ok(Some(document));
        }
        let mut value = document;
        for step in &self.steps {
            match step_into(value, step)? {
                Some(found) => value = found.get().trim(),
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }

    /// Returns the texts of the elements of the array that `document` is.
    ///
    /// # Errors
    ///
    /// It is no JSON array.
    pub fn elements(document: &str) -> Result<Vec<&str>, String> {
        let elements: Vec<&RawValue> = serde_json::from_str(document).map_err(no_json)?;
        Ok(elements.into_iter().map(RawValue::get).collect())
    }

    /// Checks that `document` is JSON.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn check(document: &str) -> Result<(), String> {
        serde_json::from_str::<IgnoredAny>(document).map(drop).map_err(no_json)
    }
}

/// Finds one member or element of a value.
fn step_into<'a>(value: &'a str, step: &Step) -> Result<Option<&'a RawValue>, String> {
    let mut deserializer = serde_json::Deserializer::from_str(value);
    let found = StepSeed(step).deserialize(&mut deserializer).map_err(no_json)?;
    deserializer.end().map_err(no_json)?;
    Ok(found)
}

/// Names the place of a syntax error; the message of the parser quotes no contents.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn no_json(error: serde_json::Error) -> String {
    format!("the document is no JSON: {error}")
}

/// Takes one step while the rest of the value is skipped.
struct StepSeed<'s>(&'s Step);

impl<'de> DeserializeSeed<'de> for StepSeed<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StepSeed<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if matches!(self.0, Step::Member(wanted) if *wanted == name) {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<Self::Value, S::Error> {
        let wanted = match self.0 {
            Step::Element(index) => Some(*index),
            Step::Member(_) => None,
        };
        let (mut found, mut index) = (None, 0);
        loop {
            if wanted == Some(index) {
                found = elements.next_element()?;
                if found.is_none() {
                    return Ok(None);
                }
            } else if elements.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(path: &str, document: &'a str) -> Option<&'a str> {
        JsonPath::parse(path, "paths").unwrap().find(document).unwrap()
    }

    #[test]
    fn a_value_is_found_as_it_is_written() {
        let document = r#"{"a": {"b": [1, {"odd.name": 0.10000000000000000001}]}, "c": "x"}"#;

        assert_eq!(find("$.a.b[1]['odd.name']", document), Some("0.10000000000000000001"));
        assert_eq!(find("a.b[0]", document), Some("1"));
        assert_eq!(find("$.c", document), Some(r#""x""#));
        assert_eq!(find("$", document), Some(document));
        assert_eq!(find("$.a.b[*]", document), find("a.b", document));
    }

    #[test]
    fn what_is_not_there_is_none() {
        for path in ["$.x", "$.c.x", "$.a[0]", "$.a.b[7]", "$.c[0]"] {
            assert_eq!(find(path, r#"{"a": {"b": [1]}, "c": 5}"#), None, "{path}");
        }
    }

    #[test]
    fn a_document_that_is_cut_off_is_an_error_wherever_the_cut_is() {
        let path = JsonPath::parse("$.a", "paths").unwrap();
        for document in ["", "{", r#"{"a": 1"#, r#"{"a": 1, "b""#, r#"{"a": 1} {}"#] {
            assert!(path.find(document).is_err(), "{document}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["$..a", "$.a[", "$['a'", "$.a[x]", "$a.", "$.", "a..b", "$x"] {
            assert!(JsonPath::parse(path, "paths").is_err(), "{path}");
        }
    }
}
