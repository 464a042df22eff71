// SPDX-License-Identifier: Apache-2.0
//! What reading the state of a stream keeps to, whatever bytes it is given.

use sparkawait_holder::Carried;

/// Magic, version and checksum, which everything else is behind.
pub(crate) const HEADER: usize = 14;

/// What is read survives another round, also where the checksum is made to fit: without it no
/// mutated input would come past the check.
pub(crate) fn read(data: &[u8]) {
    round_trip(data);
    round_trip(&sealed(data));
}

/// Puts a header in front of anything.
pub(crate) fn sealed(body: &[u8]) -> Vec<u8> {
    let start = 0xCBF2_9CE4_8422_2325 ^ body.len() as u64;
    let sum = body.chunks(8).fold(start, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01B3);
        sum ^ sum >> 29
    });
    [b"SAWC\x02\x00", &sum.to_le_bytes()[..], body].concat()
}

fn round_trip(bytes: &[u8]) {
    if let Ok(carried) = Carried::decode(bytes) {
        assert_eq!(carried.encode(), bytes);
    }
}
