// SPDX-License-Identifier: Apache-2.0
//! Rounds of elements through a queue.

use std::hint::black_box;
use std::num::NonZeroUsize;

use sparkawait_core::element::{Key, Timestamp, Watermark};
use sparkawait_core::queue::{EntryId, KeyOrderedStreamElementQueue, StreamElementQueue};

/// Returns the capacity of a queue that `count` elements fill.
pub fn capacity(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
}

/// Fills the queue, completes all in `order`, empties it; a watermark every `watermark_every`.
pub fn round(
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
        #[expect(clippy::let_underscore_must_use, reason = "each element is completed once")]
        let _ = queue.complete(ids[index], 1);
    }
    empty(queue);
}

/// Fills the queue with elements of `keys` keys, completes each as soon as it may start.
pub fn keyed_round(
    queue: &mut KeyOrderedStreamElementQueue<u64, u64>,
    ids: &mut Vec<EntryId>,
    order: &[usize],
    keys: u64,
) {
    ids.clear();
    for value in 0..order.len() as u64 {
        ids.extend(queue.try_put_keyed(value, Some(Key::new(value % keys))).map(|(id, _)| id));
    }
    for &index in order {
        #[expect(
            clippy::let_underscore_must_use,
            reason = "a blocked element is completed early, and leaves behind its predecessors"
        )]
        let _ = black_box(queue.complete_keyed(ids[index], 1));
    }
    empty(queue);
}

fn empty(queue: &mut impl StreamElementQueue<u64, u64>) {
    while let Some(element) = queue.pop_completed() {
        black_box(element);
    }
}
