// SPDX-License-Identifier: Apache-2.0
//! What decoding a snapshot keeps to, whatever bytes it is given.

use sparkawait_core::operator::{decode_snapshot, encode_snapshot};

/// The bytes in front of the elements: magic and version, of every version that is read.
const HEADERS: [&[u8]; 2] = [b"SAWS\x01\x00", b"SAWS\x02\x00"];

/// The checksum of the format, FNV-1a. Without it no mutated input would come past the check.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// What is decoded survives another round, of the bytes and of a snapshot that they are inside of.
pub(crate) fn decode(data: &[u8]) {
    round_trip(data);
    for header in HEADERS {
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
