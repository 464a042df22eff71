// SPDX-License-Identifier: Apache-2.0
//! Replies of RESP 2 out of the bytes that a server sent.
//!
//! Nothing is copied: a reply borrows from the buffer that it was read into.
//! A reply is read when it is complete; `scanner` finds out when.

/// Arrays in arrays, as deep as is believed.
pub(crate) const DEEPEST: usize = 32;

/// The longest text and the largest array that are believed; values have at most 512 MiB unless a
/// server is told otherwise.
const LONGEST: usize = u32::MAX as usize;

/// What a server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// There is no such thing.
    Nil,
    /// A value, a number or a status.
    Text(&'a [u8]),
    /// The words of an error.
    Error(&'a [u8]),
    /// Several replies.
    Array(Array<'a>),
    /// More bytes than so many, which were let go.
    TooLong(usize),
}

/// The bytes of some replies, which are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array<'a> {
    count: usize,
    body: &'a [u8],
}

/// The bytes are not a reply: the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

impl<'a> Array<'a> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The elements, first to last.
    pub(crate) fn elements(self) -> impl Iterator<Item = Reply<'a>> {
        let mut rest = self.body;
        (0..self.count).map_while(move |_| {
            let (reply, used) = parse(rest).ok().flatten()?;
            rest = &rest[used..];
            Some(reply)
        })
    }
}

/// Reads the first reply of `bytes`, and how many bytes it has; `None` if its end is missing.
#[inline]
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Garbage> {
    parse_at(bytes, 0)
}

fn parse_at(bytes: &[u8], depth: usize) -> Result<Option<(Reply<'_>, usize)>, Garbage> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    match kind {
        b'$' => bulk(rest),
        b'+' | b':' => Ok(line(rest)?.map(|(text, used)| (Reply::Text(text), used + 1))),
        b'-' => Ok(line(rest)?.map(|(text, used)| (Reply::Error(text), used + 1))),
        b'*' => array(rest, depth),
        _ => Err(Garbage),
    }
}

/// Reads what follows a `$`.
#[inline]
fn bulk(rest: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Garbage> {
    let Some((length, start)) = length(rest)? else { return Ok(None) };
    let Some(length) = length else { return Ok(Some((Reply::Nil, start + 1))) };
    let end = start + length;
    match rest.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some((Reply::Text(&rest[start..end]), end + 3))),
        Some(_) => Err(Garbage),
        None => Ok(None),
    }
}

/// Reads what follows a `*`.
fn array(rest: &[u8], depth: usize) -> Result<Option<(Reply<'_>, usize)>, Garbage> {
    if depth == DEEPEST {
        return Err(Garbage);
    }
    let Some((count, start)) = length(rest)? else { return Ok(None) };
    let Some(count) = count else { return Ok(Some((Reply::Nil, start + 1))) };
    let mut end = start;
    for _ in 0..count {
        let Some((_, used)) = parse_at(&rest[end..], depth + 1)? else { return Ok(None) };
        end += used;
    }
    Ok(Some((Reply::Array(Array { count, body: &rest[start..end] }), end + 1)))
}

/// Reads a length and the end of its line; the inner `None` is a length of -1.
#[inline]
pub(crate) fn length(rest: &[u8]) -> Result<Option<(Option<usize>, usize)>, Garbage> {
    let mut value = 0_usize;
    for (index, &byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + usize::from(byte - b'0'),
            b'\r' if index > 0 => {
                return Ok(end_of_line(rest, index)?.map(|end| (Some(value), end)));
            }
            b'-' if index == 0 => return minus_one(rest),
            _ => return Err(Garbage),
        }
        if value > LONGEST {
            return Err(Garbage);
        }
    }
    Ok(None)
}

fn minus_one(rest: &[u8]) -> Result<Option<(Option<usize>, usize)>, Garbage> {
    let wanted = b"-1\r\n";
    if rest.len() < wanted.len() {
        return if wanted.starts_with(rest) { Ok(None) } else { Err(Garbage) };
    }
    if rest.starts_with(wanted) { Ok(Some((None, wanted.len()))) } else { Err(Garbage) }
}

/// Returns the position after the line whose `\r` is at `index`.
#[inline]
fn end_of_line(rest: &[u8], index: usize) -> Result<Option<usize>, Garbage> {
    match rest.get(index + 1) {
        Some(b'\n') => Ok(Some(index + 2)),
        Some(_) => Err(Garbage),
        None => Ok(None),
    }
}

/// Returns where the text of a line ends: at `\r`, or at a `\n` that should not be there.
pub(crate) fn end_of_text(rest: &[u8]) -> Option<usize> {
    rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Reads a line, and how many bytes it has with its end.
fn line(rest: &[u8]) -> Result<Option<(&[u8], usize)>, Garbage> {
    let Some(index) = end_of_text(rest) else {
        return if rest.len() > LONGEST { Err(Garbage) } else { Ok(None) };
    };
    if rest[index] == b'\n' {
        return Err(Garbage);
    }
    Ok(end_of_line(rest, index)?.map(|end| (&rest[..index], end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Reply<'_> {
        let (reply, used) = parse(bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        reply
    }

    #[test]
    fn each_kind_of_reply_is_read() {
        assert_eq!(whole(b"$5\r\nhello\r\n"), Reply::Text(b"hello"));
        assert_eq!(whole(b"$0\r\n\r\n"), Reply::Text(b""));
        assert_eq!(whole(b"$-1\r\n"), Reply::Nil);
        assert_eq!(whole(b"*-1\r\n"), Reply::Nil);
        assert_eq!(whole(b"+OK\r\n"), Reply::Text(b"OK"));
        assert_eq!(whole(b":-7\r\n"), Reply::Text(b"-7"));
        assert_eq!(whole(b"-ERR no\r\n"), Reply::Error(b"ERR no"));
    }

    #[test]
    fn arrays_hold_replies() {
        let Reply::Array(array) = whole(b"*3\r\n$1\r\na\r\n*1\r\n:2\r\n$-1\r\n") else { panic!() };
        let elements: Vec<_> = array.elements().collect();
        assert_eq!((array.len(), elements.len()), (3, 3));
        assert_eq!((elements[0], elements[2]), (Reply::Text(b"a"), Reply::Nil));
        assert!(matches!(elements[1], Reply::Array(_)));
    }

    #[test]
    fn a_reply_without_its_end_is_awaited_wherever_it_is_cut() {
        for reply in [b"*2\r\n$2\r\nab\r\n$-1\r\n".as_slice(), b"-ERR x\r\n", b":12\r\n"] {
            for end in 0..reply.len() {
                assert_eq!(parse(&reply[..end]), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_garbage() {
        for bytes in [b"HTTP/1.1".as_slice(), b"$x\r\n", b"$2\r\nabc\r\n", b"$-2\r\n", b"$\r\n"] {
            assert_eq!(parse(bytes), Err(Garbage), "{bytes:?}");
        }
        assert_eq!(parse(b"+a\n\r\n"), Err(Garbage));
        assert_eq!(parse(b"$99999999999999999999\r\n"), Err(Garbage));
        assert_eq!(parse("*1\r\n".repeat(40).as_bytes()), Err(Garbage));
    }
}
