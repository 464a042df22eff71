// SPDX-License-Identifier: Apache-2.0
//! Checksums of snapshots: they find damage, and do not resist forgery.

const START: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 0x0100_0000_01B3;

/// Returns the checksum of `bytes` in a snapshot of `version`.
pub(super) fn checksum(version: u16, bytes: &[u8]) -> u64 {
    if version < 3 { by_bytes(bytes) } else { by_words(bytes) }
}

/// FNV-1a.
fn by_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(START, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The same over eight bytes at a time, little endian. A product carries upwards only, so its upper
/// half is laid over the lower one: otherwise two words whose highest bits flip would make up for
/// one another.
fn by_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|byte| u64::from(*byte));
    rest.fold(words.fold(START, step), step)
}

#[inline]
const fn step(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(PRIME);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_bits_that_flip_are_found() {
        let bytes: Vec<u8> = (0..43).collect();
        let flipped = |bits: &[usize]| {
            let mut bytes = bytes.clone();
            for bit in bits {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            checksum(3, &bytes)
        };
        let whole = checksum(3, &bytes);

        for first in 0..8 * bytes.len() {
            assert_ne!(flipped(&[first]), whole, "bit {first}");
            for second in 0..first {
                assert_ne!(flipped(&[first, second]), whole, "bits {second} and {first}");
            }
        }
    }

    #[test]
    fn the_sum_of_earlier_versions_is_that_of_fnv() {
        // As its authors give it for this text.
        assert_eq!(checksum(2, b"foobar"), 0x8594_4171_F739_67E8);
        assert_ne!(checksum(3, b"foobar"), checksum(2, b"foobar"));
    }
}
