// SPDX-License-Identifier: Apache-2.0
//! The elements of an array in a document, as they are written.

use std::ops::Range;

use jiter::Peek;

use super::places::at_path;
use super::reader::Reader;
use super::value::{Misfit, Read, each_element, json_text, read_json, read_value, skip};
use crate::json_path::JsonPath;

/// Returns the elements of the array at the end of `path`, or of the document, which is one then;
/// says what is wrong with the document otherwise, without its contents.
pub(crate) fn elements<'a>(
    document: &'a [u8],
    path: Option<&JsonPath>,
) -> Result<Vec<&'a [u8]>, String> {
    let read = || {
        let document = json_text(document)?;
        let found = read_json(document, usize::MAX, |jiter| find(jiter, path))?;
        Ok(found.into_iter().map(|it| &document[it]).collect())
    };
    read().map_err(Misfit::message)
}

/// Returns where the elements are.
fn find(jiter: Reader<'_>, path: Option<&JsonPath>) -> Read<Vec<Range<usize>>> {
    let (steps, mut found) = (path.map_or(&[][..], JsonPath::steps), None);
    let mut take = |jiter: &mut Reader<'_>, at| match at {
        None => {
            found = None;
            Ok(())
        }
        Some(Peek::Array) => {
            let elements = found.insert(Vec::new());
            each_element(jiter, |jiter, _, peek| {
                let start = jiter.current_index();
                skip(jiter, peek)?;
                elements.push(start..jiter.current_index());
                Ok(())
            })
        }
        Some(peek) => skip(jiter, peek),
    };
    read_value(jiter, |jiter, peek| at_path(jiter, peek, steps, &mut take))?;
    found.ok_or_else(|| match path {
        None => Misfit::document("the document is not an array; `rows` says where there is one"),
        Some(_) => Misfit::document("there is no array at `rows`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(document: &'a str, path: &str) -> Result<Vec<&'a str>, String> {
        let path = JsonPath::parse(path, "rows").unwrap();
        let found = elements(document.as_bytes(), Some(&path))?;
        Ok(found.into_iter().map(|it| std::str::from_utf8(it).unwrap()).collect())
    }

    #[test]
    fn elements_are_as_they_were_written() {
        let document = r#"{"n": 3, "data": [ {"a" : 1} , [2,3],"x", null ], "z": []}"#;

        assert_eq!(
            found(document, "$.data[*]").unwrap(),
            [r#"{"a" : 1}"#, "[2,3]", "\"x\"", "null"]
        );
        assert_eq!(found(document, "z").unwrap(), Vec::<&str>::new());
        assert_eq!(found("[[1],[2]]", "$[1]").unwrap(), ["2"]);
        assert_eq!(elements(b" [1] ", None).unwrap(), [b"1"]);
    }

    #[test]
    fn of_equal_members_the_last_one_counts() {
        assert_eq!(found(r#"{"a":[1],"a":[2]}"#, "a").unwrap(), ["2"]);
        assert!(found(r#"{"a":[1],"a":2}"#, "a").is_err());
    }

    #[test]
    fn what_has_no_array_there_is_refused_without_its_contents() {
        for document in
            [r#"{"a":{"b":"secret"}}"#, "{}", "null", "[secret", "[1]]", "", r#"{"a":7}"#]
        {
            let message = found(document, "$.a").unwrap_err();
            assert!(!message.contains("secret"), "{message}");
        }
        assert!(elements(b"{}", None).unwrap_err().contains("`rows`"));
        assert!(elements(b"[\xff]", None).unwrap_err().contains("UTF-8"));
    }
}
