// SPDX-License-Identifier: Apache-2.0
//! The state of a stream out of any bytes: those that fuzzing found, and those that are nearly one.

#[path = "support/state_check.rs"]
mod state_check;

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use sparkawait_core::ErrorKind;
use sparkawait_holder::{Carried, TaskId};
use sparkawait_task::error::TaskError;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn states() -> impl Strategy<Value = Carried> {
    let rows = (any::<u64>(), any::<u64>());
    let numbers = (any::<i64>(), any::<i32>(), any::<u32>(), any::<u64>(), rows);
    let names = (any::<[u8; 16]>(), any::<[u8; 16]>(), "[a-z/]{0,20}", "[a-z,]{0,7}");
    (numbers, names, bytes(), vec(bytes(), 0..4), vec(bytes(), 0..4)).prop_map(
        |(
            (written_at, shard, shards, part, (redone, completed_rows)),
            (task, token, address, by),
            schema,
            completed,
            operators,
        )| {
            let task = TaskId(task);
            Carried {
                written_at,
                shard,
                shards,
                by,
                task,
                part,
                redone,
                token,
                address,
                schema,
                completed_rows,
                completed,
                operators,
            }
        },
    )
}

/// Returns the kind of the error and what it says.
fn refusal(bytes: &[u8]) -> Option<(ErrorKind, String)> {
    match Carried::decode(bytes) {
        Err(TaskError::Saved { kind, message }) => Some((kind, message)),
        _ => None,
    }
}

#[test]
fn what_fuzzing_found_is_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/carried");
    let files = fs::read_dir(corpus).unwrap();
    let checked = files.map(|file| state_check::read(&fs::read(file.unwrap().path()).unwrap()));
    assert!(checked.count() > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(state in states()) {
        let bytes = state.encode();
        prop_assert_eq!(&state_check::sealed(&bytes[state_check::HEADER..]), &bytes);
        prop_assert_eq!(Carried::decode(&bytes).unwrap(), state);
    }

    #[test]
    fn what_is_cut_off_or_longer_is_damaged(state in states(), cut in any::<prop::sample::Index>()) {
        let bytes = state.encode();
        let longer = [&bytes[..], &[0]].concat();
        for damaged in [&bytes[..cut.index(bytes.len())], &longer] {
            prop_assert_eq!(refusal(damaged).map(|it| it.0), Some(ErrorKind::SnapshotDamaged));
        }
        // Also where the cut was sealed.
        let body = &bytes[state_check::HEADER..];
        let sealed = state_check::sealed(&body[..cut.index(body.len())]);
        prop_assert_eq!(refusal(&sealed).map(|it| it.0), Some(ErrorKind::SnapshotDamaged));
    }

    #[test]
    fn bit_that_is_flipped_is_noticed(state in states(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = state.encode();
        bytes[at.index(state.encode().len())] ^= 1_u8 << bit;
        prop_assert!(refusal(&bytes).is_some());
    }

    #[test]
    fn another_version_says_so(state in states(), version in prop_oneof![0..2_u16, 3..=u16::MAX]) {
        let mut bytes = state.encode();
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let (kind, message) = refusal(&bytes).unwrap();
        prop_assert_eq!(kind, ErrorKind::SnapshotVersionUnknown);
        prop_assert!(message.contains(&format!("format {version}")), "{}", message);
    }

    #[test]
    fn what_is_nearly_a_state_is_read_or_refused(
        body in vec(prop_oneof![6 => Just(0), 2 => 1..9_u8, 1 => any::<u8>()], 0..200),
    ) {
        state_check::read(&body);
    }
}
