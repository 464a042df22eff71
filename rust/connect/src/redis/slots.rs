// SPDX-License-Identifier: Apache-2.0
//! The slots of a cluster: which of them a key, and a command, belongs to.

use super::resp::{Array, Reply, parse};

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// Returns the slot of the first argument of a packed command, which is its key in most.
pub(crate) fn slot_of_command(command: &[u8]) -> Option<u16> {
    keys_of(command).next().map(slot_of)
}

/// Returns the arguments of a packed command; the first one is its key in most.
fn keys_of(command: &[u8]) -> impl Iterator<Item = &[u8]> {
    let arguments = match parse(command) {
        Ok(Some((Reply::Array(arguments), _))) => Some(arguments),
        _ => None,
    };
    let texts = arguments.into_iter().flat_map(Array::elements).filter_map(|it| match it {
        Reply::Text(text) => Some(text),
        _ => None,
    });
    texts.skip(1)
}

/// Whether all arguments of a packed command are of one slot.
pub(crate) fn is_of_one_slot(command: &[u8]) -> bool {
    let mut slots = keys_of(command).map(slot_of);
    slots.next().is_none_or(|first| slots.all(|slot| slot == first))
}

/// Returns the slot of a packed argument.
pub(crate) fn slot_of_argument(argument: &[u8]) -> Option<u16> {
    match parse(argument) {
        Ok(Some((Reply::Text(key), _))) => Some(slot_of(key)),
        _ => None,
    }
}

/// Returns the slot of a key: of its hash tag, if it has one.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, as clusters hash.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC_TABLE: [u16; 256] = crc_table();

const fn crc_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }

    #[test]
    fn the_key_of_a_command_is_its_first_argument() {
        let command = b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n";
        assert_eq!(keys_of(command).next(), Some(b"abc".as_slice()));
        assert_eq!(keys_of(b"*1\r\n$4\r\nPING\r\n").next(), None);
        assert_eq!(slot_of_argument(b"$3\r\nfoo\r\n"), Some(12182));
    }

    #[test]
    fn keys_are_of_one_slot_by_their_tags() {
        assert!(is_of_one_slot(b"*3\r\n$4\r\nMGET\r\n$4\r\n{a}b\r\n$4\r\n{a}c\r\n"));
        assert!(!is_of_one_slot(b"*3\r\n$4\r\nMGET\r\n$1\r\nb\r\n$1\r\nc\r\n"));
    }
}
