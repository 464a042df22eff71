// SPDX-License-Identifier: Apache-2.0
//! The hash of keys that are hashes already.

use std::hash::Hasher;

/// Spreads 64-bit keys over the table with one multiplication.
///
/// A [`Key`](crate::Key) is a hash or a small number already; `SipHash` would cost more than
/// the rest of a put.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let mixed = (self.0 ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
