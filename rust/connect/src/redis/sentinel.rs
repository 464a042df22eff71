// SPDX-License-Identifier: Apache-2.0
//! Sentinels, who know which server is the primary of a name.

use std::str::from_utf8;

use super::login::Packed;
use super::resp::Reply;

/// Asks a server what it is.
pub(super) fn role() -> Packed {
    Packed::of(&["ROLE"])
}

/// Reads the address of a primary; none where there is none.
pub(super) fn address(reply: Reply<'_>) -> Option<(String, u16)> {
    let Reply::Array(array) = reply else { return None };
    let mut elements = array.elements();
    let (Reply::Text(host), Reply::Text(port)) = (elements.next()?, elements.next()?) else {
        return None;
    };
    Some((from_utf8(host).ok()?.to_owned(), from_utf8(port).ok()?.parse().ok()?))
}

/// Reads whether a server is a primary.
pub(super) fn is_primary(reply: Reply<'_>) -> bool {
    let Reply::Array(array) = reply else { return false };
    array.elements().next() == Some(Reply::Text(b"master"))
}

#[cfg(test)]
mod tests {
    use super::super::resp::parse;
    use super::*;

    fn read(bytes: &[u8]) -> Reply<'_> {
        parse(bytes).unwrap().unwrap().0
    }

    #[test]
    fn only_an_address_is_one() {
        let found = address(read(b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6390\r\n"));
        assert_eq!(found, Some(("127.0.0.1".to_owned(), 6390)));
        for other in [b"*-1\r\n".as_slice(), b"*1\r\n$1\r\na\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"]
        {
            assert_eq!(address(read(other)), None);
        }
    }

    #[test]
    fn a_role_says_whether_a_server_is_the_primary() {
        assert!(is_primary(read(b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n")));
        assert!(!is_primary(read(b"*2\r\n$5\r\nslave\r\n$1\r\na\r\n")));
        assert!(!is_primary(read(b"+master\r\n")));
    }
}
