// SPDX-License-Identifier: Apache-2.0
//! One round of the operator: what both the criterion bench and the count of instructions run.

use std::hint::black_box;

use sparkawait_core::operator::{Completion, Retry};
use sparkawait_core::{AsyncWaitOperator, ProcessingTime, StreamRecord};

/// Admits as many records as fit, completes them with a stride, empties the output.
pub(crate) fn round(operator: &mut AsyncWaitOperator<u64, u64, ()>, now: ProcessingTime) {
    for value in 0..operator.free_slots() as u64 {
        let _ = operator.process_element(StreamRecord::new(value, None), None, now);
    }
    let calls = std::mem::take(&mut operator.actions().invoke);
    for offset in 0..7 {
        for call in calls.iter().skip(offset).step_by(7) {
            let completion = Completion { outcome: Ok(1), retry: Retry::No };
            black_box(operator.handle_completion(call.attempt, completion, now));
        }
    }
    while let Some(element) = operator.pop_output() {
        black_box(element);
    }
    black_box(operator.poll_timeout());
}
