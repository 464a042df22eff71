// SPDX-License-Identifier: Apache-2.0
//! The elements of an array in a document, as they are written.

use jiter::{Jiter, Peek};

use super::places::{each_element, each_member, skip};
use super::value::{Misfit, Read, json_text};
use crate::json_path::{JsonPath, Step};

/// Returns the elements of the array at the end of `path`, or of the document, which is one then;
/// says what is wrong with the document otherwise, without its contents.
pub(crate) fn elements<'a>(
    document: &'a [u8],
    path: Option<&JsonPath>,
) -> Result<Vec<&'a [u8]>, String> {
    let read = || {
        let document = json_text(document)?;
        let mut jiter = Jiter::new(document).with_allow_inf_nan();
        let peek = jiter.peek().map_err(|error| Misfit::syntax(&jiter, &error))?;
        let mut found = None;
        let steps = path.map_or(&[][..], JsonPath::steps);
        find(&mut jiter, document, peek, steps, &mut found)?;
        jiter.finish().map_err(|error| Misfit::syntax(&jiter, &error))?;
        found.ok_or_else(|| match path {
            None => {
                Misfit::document("the document is not an array; `rows` says where there is one")
            }
            Some(_) => Misfit::document("there is no array at `rows`"),
        })
    };
    read().map_err(Misfit::message)
}

fn find<'a>(
    jiter: &mut Jiter<'_>,
    document: &'a [u8],
    peek: Peek,
    steps: &[Step],
    found: &mut Option<Vec<&'a [u8]>>,
) -> Read {
    match (steps, peek) {
        ([], Peek::Array) => {
            let mut elements = Vec::new();
            each_element(jiter, |jiter, _, peek| {
                let start = jiter.current_index();
                skip(jiter, peek)?;
                elements.push(&document[start..jiter.current_index()]);
                Ok(())
            })?;
            *found = Some(elements);
            Ok(())
        }
        ([Step::Member(wanted), rest @ ..], Peek::Object) => each_member(
            jiter,
            |name| name == wanted,
            |jiter, is_wanted, peek| {
                if !is_wanted {
                    return skip(jiter, peek);
                }
                // Of equal members the last one counts.
                *found = None;
                find(jiter, document, peek, rest, found)
            },
        ),
        ([Step::Element(wanted), rest @ ..], Peek::Array) => {
            each_element(jiter, |jiter, index, peek| {
                if index == *wanted {
                    find(jiter, document, peek, rest, found)
                } else {
                    skip(jiter, peek)
                }
            })
        }
        _ => skip(jiter, peek),
    }
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
