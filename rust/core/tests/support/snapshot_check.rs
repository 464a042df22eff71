// SPDX-License-Identifier: Apache-2.0
//! What decoding a snapshot keeps to, whatever bytes it is given.

use sparkawait_core::operator::{decode_snapshot, encode_snapshot};

type Checksum = fn(&[u8]) -> u64;

/// The bytes in front of the elements, magic and version, of every version that is read, with the
/// checksum of that version. Without it no mutated input would come past the check.
const VERSIONS: [(&[u8], Checksum); 4] = [
    (b"SAWS\x01\x00", checksum_of_bytes),
    (b"SAWS\x02\x00", checksum_of_bytes),
    (b"SAWS\x03\x00", checksum_of_words),
    (b"SAWS\x04\x00", checksum_of_words),
];

const START: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 0x0100_0000_01B3;

fn checksum_of_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(START, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

fn checksum_of_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|byte| u64::from(*byte));
    words.chain(rest).fold(START, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(PRIME);
        hash ^ hash >> 32
    })
}

/// What is decoded survives another round, of the bytes and of a snapshot that they are inside of.
pub(crate) fn decode(data: &[u8]) {
    round_trip(data);
    for (header, checksum) in VERSIONS {
        let mut framed = [header, data].concat();
        framed.extend(checksum(&framed).to_le_bytes());
        round_trip(&framed);
    }
}

fn round_trip(bytes: &[u8]) {
    if let Ok(snapshot) = decode_snapshot(bytes) {
        assert_eq!(decode_snapshot(&encode_snapshot(&snapshot)), Ok(snapshot));
    }
}
