// SPDX-License-Identifier: Apache-2.0
//! Reading frames never panics, says little of its own, and what it reads survives another round.

#![no_main]

#[path = "../../wire/tests/support/frames_check.rs"]
mod frames_check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frames_check::read(data));
