// SPDX-License-Identifier: Apache-2.0
//! What a task publishes about itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use sparkawait_core::operator::Metrics;
use sparkawait_core::policy::LimitMetrics;

use crate::channel_recorder::NamedChannels;

/// Two significant digits: a percentile is off by 1 % at most.
const SIGNIFICANT_DIGITS: u8 = 2;

/// The operator's counters with the latencies of its calls.
#[derive(Clone, Debug)]
pub struct OperatorMetrics {
    /// Counters and levels of the operator.
    pub operator: Metrics,
    /// Records that left without a result although their call returned.
    pub dropped: u64,
    /// Records that left as failed, by what went wrong.
    pub failures: Arc<[(String, u64)]>,
    /// What the last calls brought each, in bytes; `None` if none has ended.
    pub result_bytes: Option<usize>,
    /// Durations of attempts that counted, as (upper bound, number) of each bucket.
    pub call_latency: Vec<(Duration, u64)>,
    /// Destinations that wait most, and the others; `None` without channels.
    pub channels: Option<Arc<NamedChannels>>,
    /// What limits in time have let pass; `None` where nothing bounds calls.
    pub limits: Option<LimitMetrics>,
}

/// Records call latencies; attempts that ended together are one recording.
pub(crate) struct LatencyRecorder {
    /// In microseconds.
    histogram: Option<Histogram<u64>>,
    /// Latency in nanoseconds and number of the attempts not recorded yet.
    run: (u64, u64),
}

impl LatencyRecorder {
    pub(crate) fn new() -> Self {
        Self { histogram: Histogram::new(SIGNIFICANT_DIGITS).ok(), run: (0, 0) }
    }

    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        if nanos != self.run.0 {
            self.flush();
            self.run.0 = nanos;
        }
        self.run.1 += 1;
    }

    #[inline(never)]
    fn flush(&mut self) {
        let (nanos, count) = std::mem::take(&mut self.run);
        if let Some(histogram) = self.histogram.as_mut().filter(|_| count > 0) {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "an auto-resizing histogram refuses nothing below 2^64"
            )]
            let _ = histogram.record_n(nanos / 1_000, count);
        }
    }

    pub(crate) fn buckets(&mut self) -> Vec<(Duration, u64)> {
        self.flush();
        let recorded = self.histogram.iter().flat_map(Histogram::iter_recorded);
        recorded
            .map(|it| (Duration::from_micros(it.value_iterated_to()), it.count_at_value()))
            .collect()
    }
}

sparkawait_core::opaque_debug!(LatencyRecorder);

/// Reads the metrics that a task published last, from any thread.
#[derive(Clone, Debug, Default)]
pub struct MetricsReader {
    published: Arc<Mutex<Vec<OperatorMetrics>>>,
}

impl MetricsReader {
    /// Returns the metrics of each operator of the chain as of the end of the task's last turn;
    /// nothing before the first.
    pub fn read(&self) -> Vec<OperatorMetrics> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn publish(&self, metrics: Vec<OperatorMetrics>) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_latencies_of_a_burst_are_counted_together() {
        let mut recorder = LatencyRecorder::new();
        for nanos in [10_000, 10_000, 20_000, 10_999] {
            recorder.record(nanos);
        }

        let buckets = recorder.buckets();

        let expected = [(10, 3), (20, 1)].map(|(us, n)| (Duration::from_micros(us), n));
        assert_eq!(buckets, expected);
    }
}
