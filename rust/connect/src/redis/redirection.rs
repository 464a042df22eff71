// SPDX-License-Identifier: Apache-2.0
//! An error that says which node has a key, and where that node is.

use super::slots::SLOTS;

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
        let mut words = std::str::from_utf8(words).ok()?.split(' ');
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
