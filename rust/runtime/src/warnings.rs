// SPDX-License-Identifier: Apache-2.0
//! What the log is told of rows that wait for long.

use std::time::Duration;

use sparkawait_core::operator::AsyncWaitOperator;
use sparkawait_core::policy::LimitMetrics;
use sparkawait_core::time::ProcessingTime;

use crate::batch_codec::BatchCodec;

/// Time between two looks at the channels, which cost a few steps for each of them.
const PERIOD: Duration = Duration::from_secs(1);

/// Tells the log, once per task, that the backlog of the channels is full, and names the channel.
///
/// Then the rows of all channels wait, because no more are taken from the input. A channel is
/// blamed for that if more than half of what waits is its.
#[derive(Debug, Default)]
pub(crate) struct BacklogWarning {
    /// When the first rows were admitted.
    since: Option<ProcessingTime>,
    /// When the channels were looked at last.
    looked_at: Option<ProcessingTime>,
    is_given: bool,
}

impl BacklogWarning {
    /// Notes that rows are taken from the input.
    pub(crate) fn admitted(&mut self, now: ProcessingTime) {
        self.since.get_or_insert(now);
    }

    /// Looks at an operator that takes no more rows although there are some.
    pub(crate) fn check<X: BatchCodec>(
        &mut self,
        operator: &AsyncWaitOperator<X::Element, X::Results, X::Failure>,
        codec: &X,
        now: ProcessingTime,
    ) {
        if self.is_given || !operator.is_backlog_full() {
            return;
        }
        if self.looked_at.is_some_and(|last| now < last + PERIOD) {
            return;
        }
        self.looked_at = Some(now);
        let Some((report, samples)) = operator.channel_report(1, now) else { return };
        let (Some(slowest), Some(sample)) = (report.top.first(), samples.first()) else { return };
        if u64::from(slowest.backlog) <= report.rest_backlog {
            return;
        }
        self.is_given = true;
        let name = slowest.key.map(|key| codec.channel_name(key, sample.as_ref()));
        let name = name.map_or_else(|| "null".to_owned(), |it| it.unwrap_or("unknown".to_owned()));
        let seconds = now.saturating_since(self.since.unwrap_or(now)).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate is for people")]
        let rate = slowest.totals.calls as f64 / seconds.max(1e-9);
        let all = u64::from(slowest.backlog) + report.rest_backlog;
        tracing::warn!(
            channel = %name,
            rows_waiting = slowest.backlog,
            calls_in_flight = slowest.in_flight,
            limit = slowest.limit,
            calls_per_second = %format_args!("{rate:.1}"),
            "the input stands still: {all} rows fill `max_backlog`, most of them of one channel, \
             which is slower than its share of the input; if its destination bears more calls, \
             raise `max_per_channel`, if it catches up later, `max_backlog`, and else a shorter \
             `timeout` lets its rows go"
        );
    }
}

/// A micro-batch whose rows wait for longer looks like a query that hangs: Spark reports no progress.
const LONG_WITHOUT_ROOM: Duration = Duration::from_secs(30);

/// Tells the log, once for each such time, that input has waited for long while rows that are held
/// leave no room for it.
#[derive(Debug, Default)]
pub(crate) struct RoomWarning {
    /// Since when input waits.
    since: Option<ProcessingTime>,
    is_given: bool,
}

impl RoomWarning {
    /// Looks at an operator that takes no more rows, if it `waits` with some that there are.
    pub(crate) fn check<X: BatchCodec>(
        &mut self,
        waits: bool,
        operator: &mut AsyncWaitOperator<X::Element, X::Results, X::Failure>,
        now: ProcessingTime,
    ) {
        if !waits {
            *self = Self::default();
            return;
        }
        let waited = now.saturating_since(*self.since.get_or_insert(now));
        if waited < LONG_WITHOUT_ROOM || std::mem::replace(&mut self.is_given, true) {
            return;
        }
        let metrics = operator.metrics(now);
        tracing::warn!(
            rows_held = metrics.queue_size,
            calls_in_flight = metrics.in_flight,
            oldest_seconds = metrics.oldest_age.as_secs(),
            "a micro-batch has waited for {} s for room for its rows, and its query with it: rows in \
             flight fill `capacity`, or their results fill the memory for them. Raise `capacity` \
             above rows per second and shard x seconds of a call, or shorten `timeout`",
            waited.as_secs()
        );
    }
}

/// Calls that are held for longer look like a task that hangs.
const LONG: Duration = Duration::from_secs(60);

/// Tells the log, once per operator, that a limit holds calls for long, and that a call has cost more
/// than one may.
#[derive(Debug, Default)]
pub(crate) struct LimitWarning {
    has_told_hold: bool,
    has_told_cost: bool,
}

impl LimitWarning {
    /// Looks at what limits have let pass.
    pub(crate) fn check(&mut self, limits: &LimitMetrics) {
        let hold = limits.longest_hold;
        if hold > LONG && !std::mem::replace(&mut self.has_told_hold, true) {
            tracing::warn!(
                seconds = hold.as_secs(),
                "a rate limit, or a pause that a service has asked for, lets no call start for so \
                 long; rows that wait for it do not time out: look at the `rate`, at the `cost` of \
                 rows and at what replies say"
            );
        }
        if limits.cut_costs > 0 && !std::mem::replace(&mut self.has_told_cost, true) {
            tracing::warn!(
                "a call has cost more of its rate limit than one call may, by `result_cost` or \
                 `context.settle`; it pays what comes in an hour, or the permits of the rate or ten \
                 bursts where these are more"
            );
        }
    }
}
