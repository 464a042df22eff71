// SPDX-License-Identifier: Apache-2.0
//! Replies out of bytes that come piece by piece, each looked at once.
//!
//! ```text
//!   *3 $1 a $90 bbbbbbbbb | not here yet
//!            ^ scanned: the next read goes on here, with 2 of 3 elements missing
//! ```
//!
//! A reply that is longer than it may be is let go as it comes, so that neither
//! the memory nor the connection is lost to it.

use super::resp::{DEEPEST, Garbage, Reply, end_of_text, length, parse};

/// Finds the ends of replies, over as many reads as it takes.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// The most bytes of one reply.
    most: usize,
    /// Bytes of this reply that were let go.
    dropped: usize,
    /// Bytes of the others that are known; the last of them may not have come.
    scanned: usize,
    /// What comes after them.
    part: Part,
    /// Elements that are missing of each array that is open, outermost first.
    missing: Vec<usize>,
    /// Pieces that were looked at: what the work of a reply is.
    #[cfg(test)]
    looks: usize,
}

/// What a piece of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The kind of an element, and its length.
    Head,
    /// The text of a line.
    Line,
    /// The two bytes that end a text or a line.
    End,
}

impl Scanner {
    /// Reads replies of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            dropped: 0,
            scanned: 0,
            part: Part::Head,
            missing: Vec::new(),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Reads the first reply of `bytes`; `None` if its end is missing.
    ///
    /// Also returns how many bytes are done with. The others must come again, with more behind
    /// them.
    #[inline]
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(Option<Reply<'a>>, usize), Garbage> {
        if self.scanned == 0
            && self.dropped == 0
            && let Some((reply, used)) = parse(bytes)?
            && used <= self.most
        {
            return Ok((Some(reply), used));
        }
        self.go_on(bytes)
    }

    /// Reads a reply that did not come at once.
    fn go_on<'a>(&mut self, bytes: &'a [u8]) -> Result<(Option<Reply<'a>>, usize), Garbage> {
        let is_whole = self.scan(bytes)?;
        let is_too_long = self.dropped + self.scanned > self.most;
        if is_too_long {
            let used = self.scanned.min(bytes.len());
            self.scanned -= used;
            self.dropped += used;
            if is_whole {
                self.dropped = 0;
            }
            return Ok((is_whole.then_some(Reply::TooLong(self.most)), used));
        }
        if !is_whole {
            return Ok((None, 0));
        }
        let end = std::mem::take(&mut self.scanned);
        match parse(&bytes[..end])? {
            Some((reply, used)) if used == end => Ok((Some(reply), used)),
            _ => Err(Garbage),
        }
    }

    /// Looks at what came; returns whether the reply ends in it.
    fn scan(&mut self, bytes: &[u8]) -> Result<bool, Garbage> {
        loop {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let rest = bytes.get(self.scanned..).unwrap_or_default();
            let Some((&kind, line)) = rest.split_first() else { return Ok(false) };
            let is_element = match self.part {
                Part::Head => match self.head(kind, line)? {
                    Some(is_element) => is_element,
                    None => return Ok(false),
                },
                Part::Line => {
                    let end = end_of_text(rest);
                    self.scanned += end.unwrap_or(rest.len());
                    if end.is_none() {
                        return Ok(false);
                    }
                    self.part = Part::End;
                    false
                }
                Part::End if !b"\r\n".starts_with(&rest[..rest.len().min(2)]) => {
                    return Err(Garbage);
                }
                Part::End if rest.len() < 2 => return Ok(false),
                Part::End => {
                    self.scanned += 2;
                    true
                }
            };
            if is_element {
                self.part = Part::Head;
                if self.close() {
                    return Ok(true);
                }
            }
        }
    }

    /// Reads the kind and the length of an element; returns whether that is all of it.
    fn head(&mut self, kind: u8, line: &[u8]) -> Result<Option<bool>, Garbage> {
        match kind {
            b'+' | b'-' | b':' => {
                self.scanned += 1;
                self.part = Part::Line;
                return Ok(Some(false));
            }
            b'*' if self.missing.len() == DEEPEST => return Err(Garbage),
            b'$' | b'*' => {}
            _ => return Err(Garbage),
        }
        let Some((length, used)) = length(line)? else { return Ok(None) };
        self.scanned += used + 1;
        match length {
            Some(length) if kind == b'$' => {
                self.scanned += length;
                self.part = Part::End;
            }
            None | Some(0) => return Ok(Some(true)),
            Some(count) => self.missing.push(count),
        }
        Ok(Some(false))
    }

    /// Counts an element; returns whether the reply ends with it.
    fn close(&mut self) -> bool {
        while let Some(missing) = self.missing.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.missing.pop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: [&[u8]; 6] = [
        b"*3\r\n$1\r\na\r\n*2\r\n:2\r\n*0\r\n$-1\r\n",
        b"$5\r\nhello\r\n",
        b"+a status\r\n",
        b"*-1\r\n",
        b"*2\r\n*1\r\n-ERR x\r\n$0\r\n\r\n",
        b"-ERR no\r\n",
    ];

    /// Feeds pieces of so many bytes, as reads would; returns each reply as it is shown.
    fn fed(scanner: &mut Scanner, bytes: &[u8], piece: usize) -> Vec<String> {
        let (mut unread, mut replies) = (Vec::new(), Vec::new());
        for part in bytes.chunks(piece) {
            unread.extend_from_slice(part);
            loop {
                let (reply, used) = scanner.next(&unread).unwrap();
                let shown = reply.map(|it| format!("{it:?}"));
                unread.drain(..used);
                let Some(shown) = shown else { break };
                replies.push(shown);
            }
        }
        assert!(unread.is_empty());
        replies
    }

    fn list(elements: usize) -> Vec<u8> {
        let mut bytes = format!("*{elements}\r\n").into_bytes();
        for _ in 0..elements {
            bytes.extend_from_slice(b"$8\r\n12345678\r\n");
        }
        bytes
    }

    #[test]
    fn replies_are_the_same_wherever_they_are_cut() {
        let all = REPLIES.concat();
        let whole = fed(&mut Scanner::new(1 << 20), &all, all.len());
        assert_eq!(whole.len(), REPLIES.len());
        for piece in 1..all.len() {
            assert_eq!(fed(&mut Scanner::new(1 << 20), &all, piece), whole, "{piece}");
        }
    }

    #[test]
    fn a_huge_array_in_small_pieces_is_looked_at_once() {
        let (elements, piece) = (20_000, 512);
        let bytes = list(elements);
        let mut scanner = Scanner::new(1 << 20);

        assert_eq!(fed(&mut scanner, &bytes, piece).len(), 1);

        // Two looks an element, at its length and at its end, and one or two for each read.
        let reads = bytes.len() / piece + 1;
        assert!(scanner.looks <= 2 * elements + 2 * reads + 1, "{}", scanner.looks);
    }

    #[test]
    fn a_reply_that_is_too_long_is_let_go_and_the_next_one_is_read() {
        let text = [b"$300\r\n".as_slice(), &[b'x'; 300], b"\r\n"].concat();
        let line = [b"+".as_slice(), &[b'x'; 300], b"\r\n"].concat();
        for too_long in [text, line, list(50), [b"*2\r\n:1\r\n".as_slice(), &list(50)].concat()] {
            let bytes = [b"$1\r\na\r\n", too_long.as_slice(), b"$1\r\nb\r\n"].concat();
            for piece in [1, 2, 7, 64, bytes.len()] {
                let replies = fed(&mut Scanner::new(100), &bytes, piece);
                assert_eq!(replies, ["Text([97])", "TooLong(100)", "Text([98])"], "{piece}");
            }
        }
    }

    #[test]
    fn a_reply_that_is_too_long_keeps_no_bytes() {
        let mut scanner = Scanner::new(100);
        let bytes = list(1000);
        let mut kept = Vec::new();
        for part in bytes.chunks(10) {
            kept.extend_from_slice(part);
            let (_, used) = scanner.next(&kept).unwrap();
            kept.drain(..used);
            assert!(kept.len() <= 100);
        }
    }

    #[test]
    fn garbage_is_found_in_what_came_later() {
        for bytes in [b"*2\r\n:1\r\nX".as_slice(), b"*1\r\n$2\r\nabc\r\n", b"*1\r\n+a\n"] {
            let mut scanner = Scanner::new(100);
            assert_eq!(scanner.next(&bytes[..5]), Ok((None, 0)));
            assert_eq!(scanner.next(bytes), Err(Garbage), "{bytes:?}");
        }
        let deep = "*1\r\n".repeat(40);
        let mut scanner = Scanner::new(1 << 20);
        let ends = (1..deep.len()).map(|end| scanner.next(&deep.as_bytes()[..end]));
        assert!(ends.into_iter().any(|result| result.is_err()));
    }
}
