// SPDX-License-Identifier: Apache-2.0
//! Snapshots out of any bytes: those that fuzzing found, and those that are nearly one.

#[path = "support/snapshot_check.rs"]
mod snapshot_check;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[test]
fn what_fuzzing_found_is_decoded_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/decode_snapshot");
    let files = fs::read_dir(corpus).unwrap();
    let checked =
        files.map(|file| snapshot_check::decode(&fs::read(file.unwrap().path()).unwrap()));
    assert!(checked.count() > 0);
}

proptest! {
    #[test]
    fn what_is_nearly_a_snapshot_is_decoded_or_refused(
        count in 0..4_u32,
        body in prop::collection::vec(prop_oneof![4 => 0..5_u8, 1 => any::<u8>()], 0..80),
    ) {
        snapshot_check::decode(&[count.to_le_bytes().as_slice(), &body].concat());
        snapshot_check::decode(&body);
    }
}
