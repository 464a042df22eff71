// SPDX-License-Identifier: Apache-2.0
//! Paths into JSON documents: `$.address.city`, `items[0]['odd name']`.
//!
//! A subset of RFC 9535 that finds at most one value.

use sparkawait_task::error::StartError;

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
    /// It is not a path of this kind.
    pub fn parse(text: &str, option: &str) -> Result<Self, StartError> {
        let refuse = || {
            StartError::option(format!(
                "`{option}`: `{text}` is not a JSON path; write `$.name`, `$['odd name']` \
                 or `$.items[0]`"
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
                    let (name, after) = quoted(&after[1..], quote).ok_or_else(refuse)?;
                    steps.push(Step::Member(name));
                    rest = after.strip_prefix(']').ok_or_else(refuse)?;
                } else {
                    let (index, tail) = after.split_once(']').ok_or_else(refuse)?;
                    steps.push(Step::Element(element(index).ok_or_else(refuse)?));
                    rest = tail;
                }
            } else {
                let after = match rest.strip_prefix('.') {
                    Some(after) => after,
                    None if is_first => rest,
                    None => return Err(refuse()),
                };
                let end = after.find(['.', '[']).unwrap_or(after.len());
                // A star means all members, and there may be several.
                if matches!(&after[..end], "" | "*") {
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

/// Reads an index, which is written in one way only.
fn element(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|it| it.is_ascii_digit());
    let is_shortest = text.len() == 1 || !text.starts_with('0');
    text.parse().ok().filter(|_| is_number && is_shortest)
}

/// Reads a name up to its quote, and returns what is behind that; escapes are those of JSON.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let special = rest.find([quote, '\\'])?;
        name.push_str(&rest[..special]);
        rest = &rest[special..];
        if let Some(behind) = rest.strip_prefix(quote) {
            return Some((name, behind));
        }
        let (character, used) = escaped(&rest[1..], quote)?;
        name.push(character);
        rest = &rest[1 + used..];
    }
}

/// Reads what follows a backslash: a character, and the bytes that it is written in.
fn escaped(text: &str, quote: char) -> Option<(char, usize)> {
    let first = text.chars().next()?;
    let character = match first {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '\\' | '/' => first,
        _ if first == quote => first,
        'u' => {
            // Two of them are one character beyond the first 65 536.
            let high = unit(&text[1..])?;
            let low = text[5..].strip_prefix("\\u").and_then(unit);
            let is_pair = (0xD800..0xDC00).contains(&high);
            let units = [high, low.unwrap_or_default()];
            let units = &units[..if is_pair { 2 } else { 1 }];
            let character = char::decode_utf16(units.iter().copied()).next()?.ok()?;
            return Some((character, if is_pair { 11 } else { 5 }));
        }
        _ => return None,
    };
    Some((character, 1))
}

/// Reads four hexadecimal digits.
fn unit(text: &str) -> Option<u16> {
    let digits = text.get(..4).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
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
            (r"$['it\'s']['a\\b']", vec![member("it's"), member(r"a\b")]),
            (r#"["\u00e9\ud83d\ude00"]"#, vec![member("é😀")]),
        ] {
            assert_eq!(JsonPath::parse(path, "paths").unwrap().steps(), steps, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in
            ["$..a", "$.a[", "$['a'", "$.a[x]", "$a.", "$.", "a..b", "$x", "$.*", "$[+1]", "$[01]"]
        {
            assert!(JsonPath::parse(path, "paths").is_err(), "{path}");
        }
    }
}
