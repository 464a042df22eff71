// SPDX-License-Identifier: Apache-2.0
//! See `retry_after` in the module `fuzzing` of the crate.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sparkawait_connect::fuzzing::retry_after(data));
