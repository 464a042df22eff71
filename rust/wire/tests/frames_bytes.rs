// SPDX-License-Identifier: Apache-2.0
//! Frames out of any bytes: those that fuzzing found, and those that are nearly some.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[path = "support/frames_check.rs"]
mod frames_check;

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

/// Something that is nearly a frame of one of the first channels.
fn nearly_frames() -> impl Strategy<Value = Vec<u8>> {
    let body = vec(prop_oneof![4 => 0..4_u8, 1 => any::<u8>()], 0..24);
    (any::<bool>(), 0..14_u8, 0..3_u8, 0..2_u8, body).prop_map(
        |(is_whole, kind, index, generation, body)| {
            let length = u8::try_from(body.len()).unwrap() + u8::from(!is_whole);
            let channel = [index, 0, 0, 0, generation, 0, 0, 0];
            [&[length, 0, 0, 0, kind, 0, 0, 0], &channel[..], &body].concat()
        },
    )
}

#[test]
fn what_fuzzing_found_is_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/frames");
    let files = fs::read_dir(corpus).unwrap();
    let checked = files.map(|file| frames_check::read(&fs::read(file.unwrap().path()).unwrap()));
    assert!(checked.count() > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_nearly_frames_is_read_or_refused(frames in vec(nearly_frames(), 0..12)) {
        frames_check::read(&frames.concat());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..80)) {
        frames_check::read(&bytes);
    }
}
