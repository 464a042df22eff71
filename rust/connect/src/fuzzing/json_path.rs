// SPDX-License-Identifier: Apache-2.0
//! JSON paths against a reader of RFC 9535's singular queries.

use crate::json_path::{JsonPath, Step};

/// A path has the steps that the grammar gives it, and what it has no words for is refused.
pub fn json_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = JsonPath::parse(text, "paths").ok();
    let expected = reference(text);
    assert_eq!(read.map(|it| it.steps().to_vec()), expected, "{text:?}");
}

/// Reads a path by characters: `$`, and then `.name`, `['name']`, `["name"]` or `[0]`.
///
/// Besides, `$` and the dot behind it may be left out, and a `[*]` at the end; names without
/// quotes may have any characters that mean nothing in a path.
fn reference(text: &str) -> Option<Vec<Step>> {
    let mut rest: Vec<char> = text.trim().chars().rev().collect();
    let mut steps = Vec::new();
    let mut needs_dot = rest.last() == Some(&'$');
    if needs_dot {
        rest.pop();
    }
    if rest.starts_with(&[']', '*', '[']) {
        rest.drain(..3);
    }
    while let Some(next) = rest.pop() {
        match next {
            '[' => {
                let quote = *rest.last()?;
                if quote == '\'' || quote == '"' {
                    rest.pop();
                    steps.push(Step::Member(quoted(&mut rest, quote)?));
                    if rest.pop()? != ']' {
                        return None;
                    }
                } else {
                    let mut digits = String::new();
                    loop {
                        match rest.pop()? {
                            ']' => break,
                            digit => digits.push(digit),
                        }
                    }
                    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
                    if !is_number || (digits.len() > 1 && digits.starts_with('0')) {
                        return None;
                    }
                    steps.push(Step::Element(digits.parse().ok()?));
                }
            }
            first => {
                let mut name = String::new();
                if first != '.' {
                    if needs_dot {
                        return None;
                    }
                    name.push(first);
                }
                while let Some(next) = rest.pop_if(|it| !matches!(it, '.' | '[')) {
                    name.push(next);
                }
                if name.is_empty() || name == "*" {
                    return None;
                }
                steps.push(Step::Member(name));
            }
        }
        needs_dot = true;
    }
    Some(steps)
}

/// Reads the rest of a name in quotes, whose escapes are those of JSON, and of the quote itself.
fn quoted(rest: &mut Vec<char>, quote: char) -> Option<String> {
    let mut name = String::new();
    loop {
        match rest.pop()? {
            '\\' => name.push(match rest.pop()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                it @ ('/' | '\\') => it,
                it if it == quote => it,
                'u' => {
                    let mut units = vec![unit(rest)?];
                    if (0xD800..0xDC00).contains(&units[0]) {
                        if rest.pop()? != '\\' || rest.pop()? != 'u' {
                            return None;
                        }
                        units.push(unit(rest)?);
                    }
                    name.push_str(&String::from_utf16(&units).ok()?);
                    continue;
                }
                _ => return None,
            }),
            it if it == quote => return Some(name),
            it => name.push(it),
        }
    }
}

fn unit(rest: &mut Vec<char>) -> Option<u16> {
    let digits: String = (0..4).map_while(|_| rest.pop()).collect();
    let is_hex = digits.len() == 4 && digits.bytes().all(|it| it.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(&digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn paths() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "\\.[a-zé_]{1,3}",
            2 => "\\[[0-9]{1,2}\\]",
            2 => "\\['[a-z. \"\\]]{0,3}'\\]",
            1 => "\\[\"[a-z\\\\nu0']{0,3}\"\\]",
            1 => prop::sample::select(vec![
                "$", ".", "[", "]", "'", "*", "[*]", "\\", "+", "-1", "[+1]", "[-0]", "a", " ",
                "['\\u00e9']", "['\\ud83d\\ude00']", "['\\ud83d']", "['\\'']", "[\"\\'\"]",
            ]).prop_map(str::to_owned),
        ];
        let rest = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
        ("\\$?", rest).prop_map(|(root, rest)| root + &rest)
    }

    proptest! {
        #[test]
        fn a_path_has_the_steps_that_the_grammar_gives_it(path in paths()) {
            super::json_path(path.as_bytes());
        }
    }
}
