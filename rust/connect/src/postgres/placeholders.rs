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

    /// How many arguments it takes.
    pub(crate) fn count(&self) -> usize {
        let number = |piece: &Piece<'_>| match piece {
            Piece::Text(_) => 0,
            Piece::Placeholder(number) => *number,
        };
        self.pieces.iter().map(number).max().unwrap_or_default()
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
        b'\'' => string(rest, false),
        // A lone `E`, since a name that ends with it is a token as a whole.
        b'e' | b'E' if rest[1..].starts_with('\'') => 1 + string(&rest[1..], true),
        b'"' => quoted(rest, '"', false),
        b'-' if rest.starts_with("--") => rest.find(['\n', '\r']).unwrap_or(rest.len()),
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

/// Returns the length of a string, which goes on behind white space with the end of a line in it.
fn string(rest: &str, escapes: bool) -> usize {
    let mut length = quoted(rest, '\'', escapes);
    loop {
        let behind = &rest[length..];
        let next = behind.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let space = &behind[..behind.len() - next.len()];
        if !next.starts_with('\'') || !space.contains(['\n', '\r']) {
            return length;
        }
        length += space.len() + quoted(next, '\'', escapes);
    }
}

/// Returns the length of what is in quotes, in which two quotes are one, and backslashes may escape.
fn quoted(rest: &str, quote: char, escapes: bool) -> usize {
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((index, character)) = characters.next() {
        if character == quote && characters.next_if(|(_, next)| *next == quote).is_none() {
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
            r"E'it''s \' $1'",
            "E'a' \n 'b\\' $1'",
            r"$$a$$E'\' $1'",
        ] {
            assert_eq!(replaced(text), text);
        }
        assert_eq!(replaced(r"'\' $1"), r"'\' <1>");
        assert_eq!(replaced("-- x\r$1"), "-- x\r<1>");
        assert_eq!(replaced(r"E'a' '\' $1"), r"E'a' '\' <1>");
        assert_eq!(replaced(r"x°E'\' $1"), r"x°E'\' <1>");
        assert_eq!(replaced("/* */ $1 -- x\n$2"), "/* */ <1> -- x\n<2>");
    }
}
