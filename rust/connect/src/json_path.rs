// SPDX-License-Identifier: Apache-2.0
//! Paths into JSON documents: `$.address.city`, `items[0]['odd name']`.
//!
//! A subset of RFC 9535 that finds at most one value.

use crate::native::StartError;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To a member of an object.
    Member(String),
    /// To an element of an array, from 0.
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

    /// The steps, from the document.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_steps_to_members_and_elements() {
        let member = |name: &str| Step::Member(name.to_owned());
        for (path, steps) in [
            (
                "$.a.b[1]['odd.name']",
                vec![member("a"), member("b"), Step::Element(1), member("odd.name")],
            ),
            ("a.b[*]", vec![member("a"), member("b")]),
            ("$", vec![]),
            ("[0]", vec![Step::Element(0)]),
        ] {
            assert_eq!(JsonPath::parse(path, "paths").unwrap().steps(), steps, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["$..a", "$.a[", "$['a'", "$.a[x]", "$a.", "$.", "a..b", "$x"] {
            assert!(JsonPath::parse(path, "paths").is_err(), "{path}");
        }
    }
}
