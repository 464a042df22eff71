// SPDX-License-Identifier: Apache-2.0
//! Placeholders of PostgreSQL against a lexer that goes by characters, as the server's does.

use crate::postgres::placeholders::Placeholders;

/// Placeholders are those that the server's rules find, and all other text is left as it is.
pub fn placeholders(data: &[u8]) {
    let Ok(statement) = std::str::from_utf8(data) else { return };
    let found = Placeholders::find(statement);
    assert_eq!(found.replace(|number| format!("\0{number}\0")), reference(statement));
}

/// What the text is in that the next character belongs to.
enum State {
    Plain,
    /// In a name, or in a number behind a dollar sign, which end where something else begins.
    Word,
    /// In quotes, with backslashes that escape.
    Quoted {
        quote: char,
        escapes: bool,
    },
    Line,
    Comment(usize),
    /// In a string that this ends.
    Dollar(String),
}

/// Replaces each placeholder by its number between zeros.
#[expect(clippy::too_many_lines, reason = "a state machine is best seen as a whole")]
fn reference(statement: &str) -> String {
    let text: Vec<char> = statement.chars().collect();
    let at = |index: usize| text.get(index).copied().unwrap_or('\0');
    let starts_name = |it: char| it.is_ascii_alphabetic() || it == '_' || !it.is_ascii();
    let is_of_name = |it: char| starts_name(it) || it.is_ascii_digit();
    let (mut state, mut next, mut out) = (State::Plain, 0, String::new());
    while next < text.len() {
        let (mut taken, character) = (1, text[next]);
        let two = (character, at(next + 1));
        state = match state {
            State::Word if is_of_name(character) || character == '$' => State::Word,
            State::Plain | State::Word => match two {
                ('e' | 'E', '\'') => {
                    taken = 2;
                    State::Quoted { quote: '\'', escapes: true }
                }
                ('\'' | '"', _) => State::Quoted { quote: character, escapes: false },
                ('-', '-') => State::Line,
                ('/', '*') => {
                    taken = 2;
                    State::Comment(1)
                }
                ('$', digit) if digit.is_ascii_digit() => {
                    let digits =
                        text[next + 1..].iter().take_while(|it| it.is_ascii_digit()).count();
                    let number: String = text[next + 1..=next + digits].iter().collect();
                    next += digits + 1;
                    match number.parse::<usize>() {
                        Ok(number) => out.extend(["\0", &number.to_string(), "\0"]),
                        Err(_) => out.extend(["$", &number]),
                    }
                    state = State::Plain;
                    continue;
                }
                ('$', _) => {
                    let tag: String =
                        text[next + 1..].iter().take_while(|it| is_of_name(**it)).collect();
                    let length = tag.chars().count();
                    if at(next + 1 + length) == '$' && next + 1 + length < text.len() {
                        taken = length + 2;
                        State::Dollar(format!("${tag}$"))
                    } else {
                        State::Plain
                    }
                }
                _ if starts_name(character) => State::Word,
                _ => State::Plain,
            },
            State::Quoted { quote, escapes } => {
                if escapes && character == '\\' {
                    taken = 2;
                    State::Quoted { quote, escapes }
                } else if character != quote {
                    State::Quoted { quote, escapes }
                } else if at(next + 1) == quote {
                    taken = 2;
                    State::Quoted { quote, escapes }
                } else {
                    // A string goes on behind white space with the end of a line in it.
                    let space =
                        text[next + 1..].iter().take_while(|it| " \t\n\r\x0b\x0c".contains(**it));
                    let space: String = space.collect();
                    let length = space.chars().count();
                    if quote == '\''
                        && space.contains(['\n', '\r'])
                        && at(next + 1 + length) == '\''
                    {
                        taken = length + 2;
                        State::Quoted { quote, escapes }
                    } else {
                        State::Plain
                    }
                }
            }
            State::Line if character == '\n' || character == '\r' => State::Plain,
            State::Line => State::Line,
            State::Comment(depth) => match two {
                ('/', '*') => {
                    taken = 2;
                    State::Comment(depth + 1)
                }
                ('*', '/') => {
                    taken = 2;
                    if depth == 1 { State::Plain } else { State::Comment(depth - 1) }
                }
                _ => State::Comment(depth),
            },
            State::Dollar(end) => {
                if text[next..].starts_with(&end.chars().collect::<Vec<_>>()) {
                    taken = end.chars().count();
                    State::Plain
                } else {
                    State::Dollar(end)
                }
            }
        };
        out.extend(&text[next..text.len().min(next + taken)]);
        next += taken;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Pieces that mean something to the lexer, in any order.
    fn statements() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "\\$[0-9]{1,2}",
            4 => prop::sample::select(vec![
                "'", "''", "\"", "E'", "e'", "U&'", "\\", "\\'", "--", "/*", "*/", "\n", "\r", " ",
                "$", "$$", "$a$", "$é$", "$1", "a", "E", "_", "é", "°", "1", "::int", "->>", "?",
            ]).prop_map(str::to_owned),
            1 => any::<String>(),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn placeholders_are_those_that_the_server_finds(statement in statements()) {
            super::placeholders(statement.as_bytes());
        }
    }
}
