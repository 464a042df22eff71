// SPDX-License-Identifier: Apache-2.0
//! A row that no operator has a place for is the codec's again.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_arrow::{RowRef, WatermarkStrategy};
use sparkawait_core::element::{StreamElement, StreamRecord};
use sparkawait_core::operator::{Begins, OutputMode};
use sparkawait_runtime::BatchCodec;
use sparkawait_task::task_codec::TaskCodec;

use crate::support::{input, task_config};

/// A codec of keys and of watermarks behind each two rows.
fn codec() -> TaskCodec {
    let mut rows = task_config(OutputMode::KeyOrdered, 7).rows;
    rows.watermark = Some(WatermarkStrategy {
        column: "row".to_owned(),
        delay: Duration::ZERO,
        every: NonZeroUsize::new(2),
    });
    TaskCodec::new(rows, Begins::AtOnce).unwrap()
}

/// Takes all elements of two batches; each record is refused so many times before.
fn elements(refusals: usize) -> Vec<String> {
    let (mut codec, mut elements) = (codec(), Vec::new());
    for rows in [0..5, 5..8] {
        codec.accept(input(rows)).unwrap();
        for _ in 0..refusals {
            if let Some(StreamElement::Record(it)) = codec.next_element() {
                codec.put_back(it.record).unwrap();
            }
        }
        while codec.has_element() {
            let mut element = codec.next_element().unwrap();
            for _ in 0..refusals {
                if let StreamElement::Record(it) = element {
                    codec.put_back(it.record).unwrap();
                    assert!(codec.has_element());
                    element = codec.next_element().unwrap();
                }
            }
            elements.push(format!("{element:?}"));
        }
    }
    elements
}

#[test]
fn a_row_that_was_refused_comes_next_with_its_key_and_before_its_watermark() {
    assert_eq!(elements(0).len(), 8 + 5);
    assert_eq!(elements(1), elements(0));
    assert_eq!(elements(3), elements(0));
}

#[test]
fn another_row_is_not_taken_back() {
    let mut codec = codec();
    codec.accept(input(0..3)).unwrap();
    let Some(StreamElement::Record(first)) = codec.next_element() else { panic!("no row") };
    let first = first.record;
    let other = RowRef { row: first.value.row + 1, ..first.value };

    assert!(codec.put_back(StreamRecord::new(other, None)).is_err());
    assert!(codec.put_back(first).is_ok());
    assert!(codec.put_back(first).is_err(), "it is there already");
}
