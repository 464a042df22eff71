// SPDX-License-Identifier: Apache-2.0
//! Snapshots out of any bytes: those that fuzzing found, and those that are nearly one.

#[path = "support/snapshot_check.rs"]
mod snapshot_check;

use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sparkawait_core::element::{StreamElement, StreamRecord, Timestamp, Watermark};
use sparkawait_core::operator::{
    Failure, NotCalled, Refusal, Snapshot, SnapshotRecord, SnapshotState, TooLate, Unavailable,
    decode_snapshot, encode_snapshot,
};

type Bytes = Vec<u8>;

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20)
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..=i64::MAX.unsigned_abs()).prop_map(Duration::from_nanos)
}

fn failures() -> impl Strategy<Value = Failure<Bytes>> {
    let last = || option::of(bytes());
    let unavailable = (duration(), any::<bool>());
    let reasons = prop_oneof![
        (duration(), duration())
            .prop_map(|(delay, left)| NotCalled::TooLate(TooLate::Retry { delay, left })),
        duration().prop_map(|rest| NotCalled::Refused(Refusal::Paused(rest))),
        unavailable.prop_map(|(waited, is_paused)| {
            NotCalled::Unavailable(Unavailable { waited, is_paused })
        }),
    ];
    prop_oneof![
        bytes().prop_map(Failure::Function),
        bytes().prop_map(Failure::RetriesExhausted),
        last().prop_map(Failure::TimedOut),
        last().prop_map(Failure::AttemptTimedOut),
        (reasons, last()).prop_map(|(reason, last)| Failure::not_called(reason, last)),
    ]
}

fn states() -> impl Strategy<Value = SnapshotState<Bytes, Bytes>> {
    let pending = (option::of(duration()), option::of(duration()), any::<bool>());
    prop_oneof![
        (pending, option::of(bytes())).prop_map(
            |((time_left, backoff_left, was_running), last_failure)| {
                SnapshotState::Pending { time_left, backoff_left, was_running, last_failure }
            }
        ),
        bytes().prop_map(|results| SnapshotState::Completed(Ok(results))),
        failures().prop_map(|failure| SnapshotState::Completed(Err(failure))),
    ]
}

fn snapshots() -> impl Strategy<Value = Snapshot<Bytes, Bytes, Bytes>> {
    let timestamp = || any::<i64>().prop_map(Timestamp);
    let record = (bytes(), option::of(timestamp()), any::<u32>(), states()).prop_map(
        |(value, timestamp, attempts, state)| {
            let record = StreamRecord::new(value, timestamp);
            StreamElement::Record(SnapshotRecord { record, attempts, state })
        },
    );
    let watermark = timestamp().prop_map(|it| StreamElement::Watermark(Watermark(it)));
    vec(prop_oneof![4 => record, 1 => watermark], 0..12)
}

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
    fn decoding_gives_back_what_was_encoded(snapshot in snapshots()) {
        prop_assert_eq!(decode_snapshot(&encode_snapshot(&snapshot)), Ok(snapshot));
    }

    #[test]
    fn what_is_nearly_a_snapshot_is_decoded_or_refused(
        count in 0..4_u32,
        body in vec(prop_oneof![4 => 0..9_u8, 1 => any::<u8>()], 0..80),
    ) {
        snapshot_check::decode(&[count.to_le_bytes().as_slice(), &body].concat());
        snapshot_check::decode(&body);
    }
}
