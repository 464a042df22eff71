// SPDX-License-Identifier: Apache-2.0
//! Templates against the texts that they are written as.

use crate::template::Template;

/// A template is what its text says, and parts of it are whole again when they are joined.
pub fn template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = Template::parse(text, "text").ok();
    let pieces = reference(text);
    assert_eq!(read.is_some(), pieces.is_some());
    let (Some(read), Some(pieces)) = (read, pieces) else { return };
    let columns: Vec<&str> = pieces.iter().filter(|it| it.0).map(|it| it.1.as_str()).collect();
    let texts: Vec<&str> = pieces.iter().filter(|it| !it.0).map(|it| it.1.as_str()).collect();
    assert_eq!(read.columns().collect::<Vec<_>>(), columns);
    assert_eq!(read.texts().collect::<Vec<_>>(), texts);
    assert_eq!(read.as_literal().is_some(), columns.is_empty());
    assert_eq!(read.starts_with_column(), pieces.first().is_some_and(|it| it.0));
    // Cut at some characters, nothing is lost, and they stand alone.
    let ends = ['/', '?', '#', '&', '='];
    let parts = read.divide(&ends);
    assert_eq!(parts.iter().flat_map(Template::columns).collect::<Vec<_>>(), columns);
    assert_eq!(parts.iter().flat_map(Template::texts).collect::<String>(), texts.concat());
    for part in &parts {
        assert!(
            part.as_literal().is_some_and(|it| it.len() == 1)
                || !part.texts().any(|it| it.contains(ends))
        );
    }
    let (first, rest) = read.split_first();
    assert_eq!(first.join(rest), read);
}

/// Reads texts and columns, which are those with true; `None` if braces do not match.
fn reference(text: &str) -> Option<Vec<(bool, String)>> {
    let (mut pieces, mut rest) = (Vec::<(bool, String)>::new(), text);
    while let Some(first) = rest.chars().next() {
        let (literal, used) = if rest.starts_with("{{") || rest.starts_with("}}") {
            (&rest[..1], 2)
        } else if let Some(inside) = rest.strip_prefix('{') {
            let (name, _) = inside.split_once('}')?;
            if name.is_empty() || name.contains('{') {
                return None;
            }
            pieces.push((true, name.to_owned()));
            rest = &rest[name.len() + 2..];
            continue;
        } else if first == '}' {
            return None;
        } else {
            (&rest[..first.len_utf8()], first.len_utf8())
        };
        match pieces.last_mut() {
            Some((false, last)) => last.push_str(literal),
            _ => pieces.push((false, literal.to_owned())),
        }
        rest = &rest[used..];
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_template_is_what_its_text_says(text in "([{}/?&=aé]|\\{[a-cé]{1,2}\\}|\\{\\{|\\}\\}){0,16}") {
            super::template(text.as_bytes());
        }
    }
}
