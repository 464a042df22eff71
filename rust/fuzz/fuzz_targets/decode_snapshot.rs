// SPDX-License-Identifier: Apache-2.0
//! Decoding a snapshot never panics, and what it decodes survives another round.

#![no_main]

#[path = "../../core/tests/support/snapshot_check.rs"]
mod snapshot_check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| snapshot_check::decode(data));
