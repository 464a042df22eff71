// SPDX-License-Identifier: Apache-2.0
//! What second calls do to a service that takes a second for one call in a hundred.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::element::StreamRecord;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, Metrics, OutputMode, Retry,
};
use sparkawait_core::policy::{HedgeAfter, HedgeConfig};
use sparkawait_core::retry::mix;
use sparkawait_core::time::ProcessingTime;

const CALLS: usize = 100;
const ROWS: u64 = 50_000;

/// What a run came to.
struct Run {
    /// From the admission of each row to its answer, ascending.
    latencies: Vec<Duration>,
    metrics: Metrics,
}

impl Run {
    fn percentile(&self, share: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place among the rows"
        )]
        let place = (self.latencies.len() as f64 * share) as usize;
        self.latencies[place.min(self.latencies.len() - 1)]
    }
}

/// Calls for rows as fast as they are taken; `latency` is that of each call, by its number.
fn run(after: Option<HedgeAfter>, latency: impl Fn(u64) -> Duration) -> Run {
    let calls = NonZeroUsize::new(CALLS).unwrap();
    let hedge = after.map(|after| HedgeConfig { after, max_extra: 0.05 });
    let config = Config { hedge, ..Config::new(OutputMode::Unordered, calls) };
    let mut operator = AsyncWaitOperator::<u64, (), ()>::new(config);
    let mut now = ProcessingTime::ZERO;
    let mut ends: BinaryHeap<Reverse<(ProcessingTime, u64, AttemptId, u64)>> = BinaryHeap::new();
    let mut admitted = Vec::new();
    let mut latencies = Vec::new();
    let mut cancelled = HashSet::new();
    let mut started = 0;
    while latencies.len() < usize::try_from(ROWS).unwrap() {
        while operator.has_capacity() && (admitted.len() as u64) < ROWS {
            let row = admitted.len() as u64;
            operator.process_element(StreamRecord::new(row, None), None, now).unwrap();
            admitted.push(now);
        }
        let actions = std::mem::take(operator.actions());
        for it in actions.invoke {
            ends.push(Reverse((now + latency(started), started, it.attempt, it.value)));
            started += 1;
        }
        cancelled.extend(actions.cancel);
        let next = ends.peek().map(|Reverse((at, ..))| *at);
        let due = operator.poll_timeout();
        now = now.max(next.into_iter().chain(due).min().unwrap());
        operator.handle_time(now);
        while ends.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Reverse((_, _, attempt, row)) = ends.pop().unwrap();
            if cancelled.remove(&attempt) {
                continue;
            }
            operator.handle_completion(attempt, Completion::answered((), Retry::No), now);
            latencies.push(now.saturating_since(admitted[usize::try_from(row).unwrap()]));
        }
        while operator.pop_output().is_some() {}
    }
    latencies.sort_unstable();
    Run { latencies, metrics: operator.metrics(now) }
}

/// One call in a hundred takes a second, the others about 20 ms.
fn bimodal(call: u64) -> Duration {
    let random = mix(1, call, 1);
    if random.is_multiple_of(100) {
        Duration::from_secs(1)
    } else {
        Duration::from_micros(15_000 + random % 10_000)
    }
}

#[test]
fn the_tail_of_a_busy_job_falls_to_a_fifth_for_a_twentieth_more_calls() {
    let plain = run(None, bimodal);
    assert_eq!(plain.percentile(0.999), Duration::from_secs(1));
    for after in [HedgeAfter::Percentile(0.95), HedgeAfter::Time(Duration::from_millis(50))] {
        let hedged = run(Some(after), bimodal);

        let tail = hedged.percentile(0.999);
        assert!(tail <= Duration::from_millis(200), "{after:?}: {tail:?}");
        assert!(hedged.metrics.attempts * 100 <= ROWS * 105, "{:?}", hedged.metrics);
        assert_eq!(hedged.metrics.attempts, ROWS + hedged.metrics.hedged);
        assert!(hedged.metrics.hedges_won * 2 > hedged.metrics.hedged / 10);
    }
}

#[test]
fn a_service_all_of_whose_calls_are_slow_gets_a_twentieth_more_of_them() {
    let slow = |_| Duration::from_secs(1);
    let hedged = run(Some(HedgeAfter::Time(Duration::from_millis(50))), slow);

    assert!(hedged.metrics.hedged * 100 <= ROWS * 5, "{:?}", hedged.metrics);
    assert_eq!(hedged.metrics.attempts, ROWS + hedged.metrics.hedged);
}
