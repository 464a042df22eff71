// SPDX-License-Identifier: Apache-2.0
//! One round of a queue: what both the criterion bench and the count of instructions run.

use std::hint::black_box;

use sparkawait_core::element::{Timestamp, Watermark};
use sparkawait_core::queue::{EntryId, StreamElementQueue};

/// A permutation of `0..count` from a fixed seed.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, usize::try_from(state >> 33).unwrap_or(0) % (last + 1));
    }
    order
}

/// Fills the queue, completes all in `order`, empties it; a watermark every `watermark_every`.
pub(crate) fn round(
    queue: &mut impl StreamElementQueue<u64, u64>,
    ids: &mut Vec<EntryId>,
    order: &[usize],
    watermark_every: usize,
) {
    ids.clear();
    for value in 0..order.len() {
        ids.extend(queue.try_put(value as u64));
        if (value + 1) % watermark_every == 0 {
            queue.put_watermark(Watermark(Timestamp(i64::try_from(value).unwrap_or(0))));
        }
    }
    for &index in order {
        let _ = queue.complete(ids[index], 1);
    }
    while let Some(element) = queue.pop_completed() {
        black_box(element);
    }
}
