// SPDX-License-Identifier: Apache-2.0
//! Replies of Redis, whole against cut into pieces.

use crate::redis::resp::Reply;
use crate::redis::scanner::Scanner;

/// Replies are the same wherever the bytes are cut; their ends are found in what came.
///
/// The first byte says how long a reply may be, the second one how the others are cut.
pub fn resp(data: &[u8]) {
    let [most, piece, bytes @ ..] = data else { return };
    let most = if *most == 0 { usize::MAX } else { usize::from(*most) };
    let whole = read(bytes, most, bytes.len());
    for piece in [1, 2, 3, usize::from(*piece)] {
        assert_eq!(read(bytes, most, piece), whole, "in pieces of {piece}");
    }
}

/// Reads replies out of bytes that come in pieces; returns them, and whether garbage followed.
fn read(bytes: &[u8], most: usize, piece: usize) -> (Vec<String>, bool) {
    let (mut scanner, mut unread, mut replies) = (Scanner::new(most), Vec::new(), Vec::new());
    for part in bytes.chunks(piece.max(1)) {
        unread.extend_from_slice(part);
        loop {
            let Ok((reply, used)) = scanner.next(&unread) else { return (replies, true) };
            assert!(used <= unread.len());
            let shown = reply.map(shown);
            unread.drain(..used);
            let Some(shown) = shown else { break };
            replies.push(shown);
        }
    }
    (replies, false)
}

/// Shows a reply with all that is in it.
fn shown(reply: Reply<'_>) -> String {
    let Reply::Array(array) = reply else { return format!("{reply:?}") };
    let elements: Vec<String> = array.elements().map(shown).collect();
    assert_eq!(elements.len(), array.len());
    format!("[{}]", elements.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn replies() -> impl Strategy<Value = Vec<u8>> {
        let line = "[ -~]{0,12}";
        let leaf = prop_oneof![
            line.prop_map(|text| format!("+{text}\r\n").into_bytes()),
            line.prop_map(|text| format!("-ERR {text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|text| {
                [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()
            }),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop::collection::vec(inner, 0..6)
                .prop_map(|all| [format!("*{}\r\n", all.len()).into_bytes(), all.concat()].concat())
        })
    }

    proptest! {
        #[test]
        fn replies_are_the_same_wherever_they_are_cut(
            most in any::<u8>(),
            piece in any::<u8>(),
            replies in prop::collection::vec(replies(), 1..5),
        ) {
            super::resp(&[&[most, piece], replies.concat().as_slice()].concat());
        }

        #[test]
        fn damage_is_found_wherever_the_bytes_are_cut(
            most in any::<u8>(),
            reply in replies(),
            at in any::<prop::sample::Index>(),
            byte in prop::sample::select(b"\r\n0129-+:$*x".to_vec()),
        ) {
            let mut bytes = [&[most, 7], reply.as_slice(), b"+OK\r\n"].concat();
            let at = 2 + at.index(bytes.len() - 2);
            bytes[at] = byte;
            super::resp(&bytes);
        }
    }
}
