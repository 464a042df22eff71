// SPDX-License-Identifier: Apache-2.0
//! Halves of characters: an escape such as `\ud83d` that its other half does not follow.
//!
//! JSON allows them (RFC 8259, 8.2), and services write them where a text was cut within a character. No
//! text of Arrow or Spark can hold one. The reader of JSON gives a document up that has one anywhere, also
//! in a member that nobody reads. So a document that it gave up is read again, with each half replaced by a
//! mark: a text with the mark does not fit its column, and all others are as they were.

/// Code points that no text has for a meaning of its own (Unicode, 23.7).
const MARKS: std::ops::RangeInclusive<u16> = 0xfdd0..=0xfdef;

/// What an escape of UTF-16 has: `\u` and four digits.
const ESCAPE: usize = 6;

/// A document whose halves of characters are marked, as long as it was.
#[derive(Debug)]
pub(super) struct Marked {
    pub(super) text: Vec<u8>,
    pub(super) mark: char,
}

impl Marked {
    /// Marks the halves of characters in a document; `None` if it has none, or has all of the marks.
    pub(super) fn of(document: &[u8]) -> Option<Self> {
        let (halves, used) = look(document);
        if halves.is_empty() {
            return None;
        }
        let mark = MARKS.into_iter().find(|it| !used.contains(it))?;
        let (escape, mut text) = (format!("\\u{mark:04x}"), document.to_vec());
        for at in halves {
            text[at..at + ESCAPE].copy_from_slice(escape.as_bytes());
        }
        Some(Self { text, mark: char::from_u32(mark.into())? })
    }
}

/// Returns where halves of characters are, and the marks that a document has already. In what is JSON there
/// are backslashes in texts alone.
fn look(document: &[u8]) -> (Vec<usize>, Vec<u16>) {
    let (mut halves, mut used, mut at) = (Vec::new(), Vec::new(), 0);
    while at < document.len() {
        if document[at] != b'\\' {
            let mark = document.get(at..at + 3).and_then(|it| std::str::from_utf8(it).ok());
            let mark = mark.and_then(|it| u16::try_from(u32::from(it.chars().next()?)).ok());
            used.extend(mark.filter(|it| MARKS.contains(it)));
            at += 1;
            continue;
        }
        let Some(unit) = unit(document, at) else {
            at += 2;
            continue;
        };
        let next = || unit_of_low(document, at + ESCAPE);
        match unit {
            0xd800..=0xdbff if next() => at += ESCAPE,
            0xd800..=0xdfff => halves.push(at),
            _ => used.extend(Some(unit).filter(|it| MARKS.contains(it))),
        }
        at += ESCAPE;
    }
    (halves, used)
}

/// Returns what an escape of UTF-16 stands for that begins there.
fn unit(document: &[u8], at: usize) -> Option<u16> {
    let digits = document.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u16::from_str_radix(digits, 16).ok()
}

/// Whether the second half of a character begins there.
fn unit_of_low(document: &[u8], at: usize) -> bool {
    unit(document, at).is_some_and(|it| (0xdc00..=0xdfff).contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(document: &str) -> Option<String> {
        Marked::of(document.as_bytes()).map(|it| String::from_utf8(it.text).unwrap())
    }

    #[test]
    fn halves_are_marked_and_characters_are_not() {
        let cases = [
            (r#""\ud83d""#, Some(r#""\ufdd0""#)),
            (r#""\udE00 a""#, Some(r#""\ufdd0 a""#)),
            (r#""\ud83d\ude00""#, None),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufdd0\ud83d\ude00""#)),
            (r#""\\ud83d""#, None),
            (r#""\\\ud83d""#, Some(r#""\\\ufdd0""#)),
            (r#""\ud83d\n\u00e4""#, Some(r#""\ufdd0\n\u00e4""#)),
            (r#""\ud83""#, None),
            (r#""\ud83d\"#, Some(r#""\ufdd0\"#)),
            (r#""\uFDD0 \ud83d""#, Some(r#""\uFDD0 \ufdd1""#)),
            ("\"\u{fdd0}\\ud83d\"", Some("\"\u{fdd0}\\ufdd1\"")),
        ];
        for (document, expected) in cases {
            assert_eq!(marked(document).as_deref(), expected, "{document}");
        }
    }
}
