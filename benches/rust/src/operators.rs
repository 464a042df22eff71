// SPDX-License-Identifier: Apache-2.0
//! Rounds of records through the operator of the core.

use std::hint::black_box;
use std::time::Duration;

use sparkawait_core::element::Key;
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{Completion, Config, OutputMode, Retry};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime, StreamRecord};

use crate::queues::capacity;

/// Records in flight.
pub const IN_FLIGHT: usize = 1_000;

/// Keys of the records, where they have one.
const KEYS: u64 = 500;

/// Returns settings for [`IN_FLIGHT`] records; `is_armed`: with timeouts and retries that never fire.
pub fn config(mode: OutputMode, is_armed: bool) -> Config {
    let mut config = Config::new(mode, capacity(IN_FLIGHT));
    if is_armed {
        config.timeout = Some(Duration::from_secs(60));
        config.retry = Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_secs(1)));
    }
    config
}

/// Returns settings where `channels` channels have two credits each and share the others.
pub fn config_with_channels(mode: OutputMode, channels: usize) -> Config {
    let mut config = config(mode, false);
    config.timeout = Some(Duration::from_secs(60));
    let in_flight = u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX);
    let channels = u32::try_from(channels).unwrap_or(u32::MAX);
    config.channels = (channels > 0).then(|| {
        let exclusive = (in_flight / channels).min(2) * u32::from(channels < 500);
        let floating = in_flight - exclusive * channels;
        ChannelConfig { exclusive, floating, ..ChannelConfig::floating(in_flight, 10_000) }
    });
    config
}

/// Admits as many records as fit, completes them with a stride, empties the output.
pub fn round(operator: &mut AsyncWaitOperator<u64, u64, ()>, now: ProcessingTime) {
    for value in 0..operator.free_slots() as u64 {
        let key = Some(Key::new(value % KEYS));
        #[expect(
            clippy::let_underscore_must_use,
            reason = "the benches put no more than there are slots"
        )]
        let _ = operator.process_element(StreamRecord::new(value, None), key, now);
    }
    complete_and_empty(operator, now);
}

/// Does as [`round`], with records to `channels` channels in turn.
pub fn round_on(
    operator: &mut AsyncWaitOperator<u64, u64, ()>,
    channels: u64,
    now: ProcessingTime,
) {
    for value in 0..(IN_FLIGHT as u64).min(operator.free_slots() as u64) {
        // Keys are hashes.
        let channel = Key::new((value % channels).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let record = StreamRecord::new(value, None);
        #[expect(
            clippy::let_underscore_must_use,
            reason = "the benches put no more than there are slots"
        )]
        let _ = operator.process_element_on(Some(channel), record, None, now);
    }
    complete_and_empty(operator, now);
}

fn complete_and_empty(operator: &mut AsyncWaitOperator<u64, u64, ()>, now: ProcessingTime) {
    // Records behind others of their key start when those are completed.
    loop {
        let calls = std::mem::take(&mut operator.actions().invoke);
        if calls.is_empty() {
            break;
        }
        for offset in 0..7 {
            for call in calls.iter().skip(offset).step_by(7) {
                let completion = Completion::answered(1, Retry::No);
                black_box(operator.handle_completion(call.attempt, completion, now));
            }
        }
    }
    while let Some(element) = operator.pop_output() {
        black_box(element);
    }
    black_box(operator.poll_timeout());
}
