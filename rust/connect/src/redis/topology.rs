// SPDX-License-Identifier: Apache-2.0
//! Which nodes a cluster has, and what each of them is for: the answer to `CLUSTER SLOTS`, and errors that
//! say which node has a key.

use std::ops::RangeInclusive;
use std::str::from_utf8;

use super::resp::{Array, Reply};
use super::slots::SLOTS;

/// Asks a node for all nodes; any version of the server knows it.
pub(super) const QUESTION: &[u8] = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";

/// Slots, and the nodes that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) slots: RangeInclusive<u16>,
    /// The primary, and its replicas, as redirections name them: without a host, it is that of who
    /// was asked.
    pub(crate) addresses: Vec<String>,
}

/// Reads the answer.
pub(crate) fn shards(reply: Reply<'_>) -> Option<Vec<Shard>> {
    let Reply::Array(ranges) = reply else { return None };
    ranges
        .elements()
        .map(|range| {
            let Reply::Array(range) = range else { return None };
            let mut elements = range.elements();
            let (first, last) = (slot(elements.next()?)?, slot(elements.next()?)?);
            let addresses = elements.map(address).collect::<Option<Vec<_>>>()?;
            (!addresses.is_empty()).then_some(Shard { slots: first..=last, addresses })
        })
        .collect()
}

fn slot(reply: Reply<'_>) -> Option<u16> {
    text(reply)?.parse().ok().filter(|slot| *slot < SLOTS)
}

/// Reads a node: host, port and what else there is.
fn address(reply: Reply<'_>) -> Option<String> {
    let Reply::Array(node) = reply else { return None };
    let mut elements = Array::elements(node);
    let host = match elements.next()? {
        // It does not know its own address: that of who was asked.
        Reply::Nil | Reply::Text(b"?") => "",
        host => text(host)?,
    };
    Some(format!("{host}:{}", text(elements.next()?)?))
}

fn text(reply: Reply<'_>) -> Option<&str> {
    match reply {
        Reply::Text(text) => from_utf8(text).ok(),
        _ => None,
    }
}

/// What `MOVED` and `ASK` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Redirection<'a> {
    pub(crate) slot: u16,
    /// Host and port; without a host, it is that of who was asked.
    pub(crate) address: &'a str,
    /// Whether the slot is on its way to the node, which must be told so.
    pub(crate) is_asking: bool,
}

impl<'a> Redirection<'a> {
    /// Reads the words of an error; `None` if they are not a redirection.
    pub(crate) fn parse(words: &'a [u8]) -> Option<Self> {
        let mut words = from_utf8(words).ok()?.split(' ');
        let is_asking = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        Some(Self { slot, address: words.next()?, is_asking })
    }
}

/// Returns host and port of a node that the node at `asked` named `address`.
pub(crate) fn host_and_port<'a>(address: &'a str, asked: &'a str) -> Option<(&'a str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    // It does not know the name that it was reached by.
    let host = if host.is_empty() { asked.rsplit_once(':')?.0 } else { host };
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::resp::parse;
    use super::*;

    fn read(bytes: &[u8]) -> Option<Vec<Shard>> {
        shards(parse(bytes).unwrap().unwrap().0)
    }

    #[test]
    fn primaries_come_before_their_replicas() {
        let answer = b"*1\r\n*4\r\n:0\r\n:5460\r\n\
            *3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n\
            *4\r\n$4\r\nhost\r\n:7003\r\n$2\r\nid\r\n*0\r\n";
        let addresses = vec!["127.0.0.1:7000".to_owned(), "host:7003".to_owned()];
        assert_eq!(read(answer), Some(vec![Shard { slots: 0..=5460, addresses }]));
    }

    #[test]
    fn a_node_that_does_not_know_its_host_has_none() {
        let answer = b"*1\r\n*3\r\n:1\r\n:1\r\n*2\r\n$-1\r\n:7000\r\n";
        assert_eq!(read(answer).unwrap()[0].addresses, [":7000"]);
    }

    #[test]
    fn what_is_no_answer_is_not_believed() {
        for bytes in [
            b"-NOPERM no\r\n".as_slice(),
            b"*1\r\n:1\r\n",
            b"*1\r\n*2\r\n:0\r\n:1\r\n",
            b"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
