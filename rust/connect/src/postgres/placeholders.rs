// SPDX-License-Identifier: Apache-2.0
//! Finds `$1`, `$2`, .. in a statement, and nothing in its strings, names and comments.

/// A statement cut at its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholders<'a> {
    /// Texts and numbers, in their order.
    pieces: Vec<Piece<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    /// The number behind the dollar sign.
    Placeholder(usize),
}

impl<'a> Placeholders<'a> {
    /// Cuts `statement`.
    pub(crate) fn find(statement: &'a str) -> Self {
        let bytes = statement.as_bytes();
        let (mut pieces, mut start, mut at) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            let end = skip(statement, at);
            if let Some(number) = placeholder(&statement[at..end]) {
                pieces.push(Piece::Text(&statement[start..at]));
                pieces.push(Piece::Placeholder(number));
                start = end;
            }
            at = end;
        }
        pieces.push(Piece::Text(&statement[start..]));
        Self { pieces }
    }

    /// Returns the statement with what `write` returns for each number.
    pub(crate) fn replace(&self, write: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Placeholder(number) => text.push_str(&write(*number)),
            }
        }
        text
    }
}

/// Returns the number of a token `$1`.
fn placeholder(token: &str) -> Option<usize> {
    token.strip_prefix('$').filter(|rest| !rest.is_empty())?.parse().ok()
}

/// Returns where the token at `at` ends; anything that is not told apart is one character long.
fn skip(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let length = match rest.as_bytes()[0] {
        b'\'' => quoted(rest, '\'', is_escape_string(text, at)),
        b'"' => quoted(rest, '"', false),
        b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
        b'/' if rest.starts_with("/*") => comment(rest),
        b'$' => dollar(rest),
        it if it.is_ascii_alphabetic() || it == b'_' || !it.is_ascii() => word(rest),
        _ => 1,
    };
    at + length
}

/// Returns the length of a name; a dollar sign inside of it starts nothing.
fn word(rest: &str) -> usize {
    rest.find(|it: char| !(is_of_name(it) || it == '$')).unwrap_or(rest.len())
}

/// Tells whether a character may be in a name, as every one beyond ASCII may.
fn is_of_name(it: char) -> bool {
    it.is_ascii_alphanumeric() || it == '_' || !it.is_ascii()
}

/// Tells whether the quote at `at` follows a lone `E`, which makes backslashes escape.
fn is_escape_string(text: &str, at: usize) -> bool {
    let mut before = text[..at].chars().rev();
    matches!(before.next(), Some('e' | 'E'))
        && !before.next().is_some_and(|it| is_of_name(it) || it == '$')
}

fn quoted(rest: &str, quote: char, escapes: bool) -> usize {
    // A doubled quote ends one string and starts the next, which comes to the same.
    let mut characters = rest.char_indices().skip(1);
    while let Some((index, character)) = characters.next() {
        if character == quote {
            return index + 1;
        }
        if escapes && character == '\\' {
            characters.next();
        }
    }
    rest.len()
}

/// Returns the length of a comment; they nest.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if tail.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length of a placeholder, of a dollar-quoted string, or 1.
fn dollar(rest: &str) -> usize {
    let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 {
        return 1 + digits;
    }
    let tag =
        rest[1..].find(|it: char| !is_of_name(it)).filter(|end| rest[1 + end..].starts_with('$'));
    let Some(end) = tag else { return 1 };
    let tag = &rest[..end + 2];
    rest[tag.len()..].find(tag).map_or(rest.len(), |found| found + 2 * tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(statement: &str) -> String {
        Placeholders::find(statement).replace(|number| format!("<{number}>"))
    }

    #[test]
    fn placeholders_are_found() {
        assert_eq!(replaced("select $1, $12+$2"), "select <1>, <12>+<2>");
    }

    #[test]
    fn strings_names_and_comments_are_left_alone() {
        for text in [
            "'$1'",
            "'it''s $1'",
            r"E'\'$1'",
            "\"$1\"",
            "$$ $1 $$",
            "$tag$ $1 $$ $tag$",
            "-- $1\n",
            "/* $1 /* $1 */ $1 */",
            "a$1",
            "é$1",
            "°$1",
            "x°$1",
            "$°$ $1 $°$",
            "'$1' °",
            "'never closed $1",
            "/* never closed $1",
        ] {
            assert_eq!(replaced(text), text);
        }
        assert_eq!(replaced(r"'\' $1"), r"'\' <1>");
        assert_eq!(replaced(r"x°E'\' $1"), r"x°E'\' <1>");
        assert_eq!(replaced("/* */ $1 -- x\n$2"), "/* */ <1> -- x\n<2>");
    }
}
