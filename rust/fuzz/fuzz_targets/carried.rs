// SPDX-License-Identifier: Apache-2.0
//! Reading the state of a stream never panics, and what it reads survives another round.

#![no_main]

#[path = "../../holder/tests/support/state_check.rs"]
mod state_check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| state_check::read(data));
