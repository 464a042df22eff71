// SPDX-License-Identifier: Apache-2.0
//! The bytes of a command, as RESP has them, out of the columns of a row.

use std::cell::RefCell;
use std::ops::Range;

use arrow::datatypes::Schema;
use sparkawait_core::Key;
use sparkawait_task::error::{StartError, TaskError};
use sparkawait_task::function::{Call, Calls};

use crate::template::{BoundTemplate, Escape, Template, TemplateRows};

/// Bytes that a value of a column is expected to have; more only costs a reallocation.
const EXPECTED_VALUE: usize = 24;

/// A command whose arguments were bound to the columns of a task.
///
/// Has no `Debug`: a fixed argument may be secret.
pub(super) struct Command {
    pieces: Vec<Piece<BoundTemplate>>,
    /// The packed name, if the other arguments are keys that may be asked for apart; then each
    /// has a piece of its own.
    split: Option<Vec<u8>>,
}

/// A part of the command; arguments without columns are written once.
enum Piece<T> {
    Bytes(Vec<u8>),
    Argument(T),
}

impl Command {
    /// Reads and binds the arguments; `options` says what each was given for.
    pub(super) fn new(
        arguments: &[String],
        options: &[String],
        input: &Schema,
        is_split: bool,
    ) -> Result<Self, StartError> {
        if arguments.is_empty() || arguments.len() != options.len() {
            return Err(StartError::option("`command` must have a name and options for it"));
        }
        let mut fixed = format!("*{}\r\n", arguments.len()).into_bytes();
        let mut pieces = Vec::new();
        for (argument, option) in arguments.iter().zip(options) {
            let template = Template::parse(argument, option)?;
            if let Some(text) = template.as_literal() {
                write_argument(text.as_bytes(), &mut fixed);
            } else {
                if !fixed.is_empty() {
                    pieces.push(Piece::Bytes(std::mem::take(&mut fixed)));
                }
                pieces.push(Piece::Argument(template.bind(input)?));
            }
            if is_split && !fixed.is_empty() {
                pieces.push(Piece::Bytes(std::mem::take(&mut fixed)));
            }
        }
        if !fixed.is_empty() {
            pieces.push(Piece::Bytes(fixed));
        }
        let split = is_split.then(|| {
            let mut name = Vec::new();
            write_argument(arguments[0].as_bytes(), &mut name);
            name
        });
        Ok(Self { pieces, split })
    }

    /// About how many bytes a row's command has.
    pub(super) fn size_hint(&self) -> usize {
        let size = |piece: &Piece<_>| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Argument(_) => EXPECTED_VALUE + 8,
        };
        self.pieces.iter().map(size).sum()
    }

    /// Opens the columns of a burst.
    pub(super) fn rows<'a>(&'a self, calls: &'a Calls) -> Result<CommandRows<'a>, TaskError> {
        let open = |batch| {
            self.pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Bytes(bytes) => Ok(Piece::Bytes(bytes.clone())),
                    Piece::Argument(bound) => bound.rows(batch).map(Piece::Argument),
                })
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| TaskError::Internal(error.message))
        };
        let batches = calls.batches.iter().map(|it| open(&it.batch)).collect::<Result<_, _>>()?;
        Ok(CommandRows { calls, batches, value: RefCell::default() })
    }

    /// Returns the packed name, if the other arguments are keys that may be asked for apart.
    pub(super) fn split(&self) -> Option<&[u8]> {
        self.split.as_deref()
    }
}

/// A command over the rows of a burst.
pub(super) struct CommandRows<'a> {
    calls: &'a Calls,
    batches: Vec<Vec<Piece<TemplateRows<'a>>>>,
    /// An argument whose length must be known before it is written.
    value: RefCell<Vec<u8>>,
}

impl CommandRows<'_> {
    /// Returns the channel of a call.
    #[inline]
    pub(super) fn channel(&self, call: &Call) -> Option<Key> {
        self.calls.channel(call)
    }

    /// Appends the command of a call.
    ///
    /// Returns false, and leaves `out` as it was, if one of the columns is null.
    #[inline]
    pub(super) fn write(&self, call: &Call, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut value = self.value.borrow_mut();
        for piece in &self.batches[call.batch as usize] {
            if !piece.write(call.row as usize, &mut value, out) {
                out.truncate(start);
                return false;
            }
        }
        true
    }

    /// Appends those keys of a call that are not null, and tells where each of them is.
    pub(super) fn write_keys(&self, call: &Call, out: &mut Vec<u8>) -> Vec<(usize, Range<usize>)> {
        let mut value = self.value.borrow_mut();
        let mut keys = Vec::new();
        for (column, piece) in self.batches[call.batch as usize].iter().skip(1).enumerate() {
            let start = out.len();
            if piece.write(call.row as usize, &mut value, out) {
                keys.push((column, start..out.len()));
            }
        }
        keys
    }
}

impl Piece<TemplateRows<'_>> {
    /// Appends the part of a row, whose `value` is written before its length is known; returns false if
    /// it is null.
    #[inline]
    fn write(&self, row: usize, value: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Argument(rows) => {
                value.clear();
                if !rows.write(row, Escape::None, value) {
                    return false;
                }
                write_argument(value, out);
            }
        }
        true
    }
}

/// Appends one argument: its length, and its bytes.
#[inline]
pub(super) fn write_argument(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Returns where each of the commands ends that are whole in `bytes`.
pub(super) fn ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut start = 0;
    std::iter::from_fn(move || {
        start = end_of_command(bytes, start)?;
        Some(start)
    })
}

fn end_of_command(bytes: &[u8], start: usize) -> Option<usize> {
    let (arguments, mut end) = number(bytes, start)?;
    for _ in 0..arguments {
        let (length, start) = number(bytes, end)?;
        end = start + length + 2;
    }
    (end <= bytes.len()).then_some(end)
}

/// Reads the number of a line behind its first byte; returns where the next one begins, too.
fn number(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let line = bytes.get(start + 1..)?;
    let length = line.windows(2).position(|it| it == b"\r\n")?;
    let number = std::str::from_utf8(&line[..length]).ok()?.parse().ok()?;
    Some((number, start + 1 + length + 2))
}

#[cfg(test)]
mod tests {
    use super::ends;

    #[test]
    fn a_command_ends_with_its_last_byte() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nb*\r\n*1\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n";
        let whole: Vec<usize> = ends(bytes).collect();
        assert_eq!(whole, [24, 34, 48]);
        for cut in 0..bytes.len() {
            let expected: Vec<usize> = whole.iter().copied().filter(|it| *it <= cut).collect();
            assert_eq!(ends(&bytes[..cut]).collect::<Vec<_>>(), expected, "{cut}");
        }
    }
}
