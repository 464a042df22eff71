// SPDX-License-Identifier: Apache-2.0
//! What the failures of records say, in their rows and of their task.

use std::borrow::Cow;

use arrow::util::display::array_value_to_string;
use sparkawait_arrow::{RowFailure, RowRef, RowsLeft};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{Emitted, Ended, Failure};

use super::first_failures::ROWS;
use super::{TaskCodec, is_uncalled};
use crate::error::{CallFailure, RowName, TaskError, TimedOut};
use crate::function::ResultGroup;

/// Characters of a value that an error shows at most.
const MOST_OF_A_NAME: usize = 100;

/// How a record ran out of time, and the failure of its last call before that.
type TimePassed = (Ended, Option<Box<CallFailure>>);

impl TaskCodec {
    /// Describes how a record ran out of time.
    fn timed_out(&self, why: Ended, attempts: u32, last: Option<Box<CallFailure>>) -> TimedOut {
        let is_of_attempt = why == Ended::AttemptTimedOut;
        let after = if is_of_attempt { self.config.attempt_timeout } else { self.config.timeout };
        let not_repeated = self.config.not_repeated.as_ref().filter(|_| is_of_attempt).cloned();
        TimedOut { why, after, attempts, not_repeated, last }
    }

    /// Whether a record with this kind of failure was not called.
    pub(super) fn is_uncalled(&self, kind: ErrorKind) -> bool {
        is_uncalled(kind, !self.config.reads.is_empty())
    }

    /// Describes the final failure of a record.
    pub(super) fn row_failure(
        &self,
        failure: Failure<Box<CallFailure>>,
        attempts: u32,
    ) -> RowFailure {
        let (kind, message, status) = match self.cause_of(failure) {
            Ok(failure) if self.is_uncalled(failure.kind) => {
                let kind = Cow::Borrowed(failure.kind.as_str());
                let message = failure.message;
                return RowFailure { kind, message, attempts: 0, status: None };
            }
            Ok(failure) => (failure.kind, failure.message, failure.status),
            Err((why, last)) => {
                let timed_out = self.timed_out(why, attempts, last);
                (timed_out.kind(), timed_out.message(), timed_out.status())
            }
        };
        RowFailure { kind: Cow::Borrowed(kind.as_str()), message, attempts, status }
    }

    /// Tells the log, once, that all calls so far have found nothing.
    pub(super) fn note_misses(&mut self, group: &ResultGroup) {
        if self.first_misses.add(group) {
            let (function, partition) = (&self.config.function, self.config.partition);
            tracing::warn!(
                "the first {ROWS} calls of `{function}` in partition {partition} have all found \
                 nothing; look at what is asked for: the address, the key and the columns in them"
            );
        }
    }

    /// Tells the log, once, that all rows so far have failed for good, and alike.
    pub(super) fn note_failure(&mut self, failure: &Failure<Box<CallFailure>>) {
        let Failure::Function(failure) = failure else { return self.first_failures.end() };
        let RowsLeft { put_out, without_result, dropped, .. } = self.rows.left();
        let left = put_out + without_result + dropped + self.rows.row_count() as u64;
        if self.first_failures.add(failure, left) {
            let (function, partition) = (&self.config.function, self.config.partition);
            let (kind, summary) = (failure.kind.as_str(), &failure.summary);
            let status = failure.status.map(|it| format!(", status {it}")).unwrap_or_default();
            tracing::warn!(
                "all of the first {} rows of `{function}` in partition {partition} have failed for \
                 good, and alike ({kind}{status}): {summary}; a call is made for each of the others \
                 all the same, so stop the job if this is not what you expect",
                left + 1
            );
        }
    }

    /// Returns what names a row for those who look for it, beside its place in the task.
    fn name_of(&self, row: RowRef) -> RowName {
        let batch = &self.rows.inputs().batch(row.batch).batch;
        let named = self.config.names_of_rows.iter().filter_map(|name| {
            let value =
                array_value_to_string(batch.column_by_name(name)?, row.row as usize).ok()?;
            Some((name.clone(), value.chars().take(MOST_OF_A_NAME).collect()))
        });
        RowName(named.collect())
    }

    /// Returns the failure of a call, or how its record ran out of time and the failure of the last call
    /// before.
    fn cause_of(&self, failure: Failure<Box<CallFailure>>) -> Result<Box<CallFailure>, TimePassed> {
        match failure {
            Failure::Function(failure) => Ok(failure),
            Failure::RetriesExhausted(mut failure) => {
                failure.kind = exhausted(failure.kind);
                Ok(failure)
            }
            Failure::Ended(ended) => match *ended {
                (Ended::Refused { rest }, last) => Ok(Box::new(CallFailure::refused(rest, last))),
                (Ended::Spent(spent), last) => {
                    let names = &self.config.prices.labels;
                    let name = names.get(spent.limit).map_or("", String::as_str);
                    Ok(Box::new(CallFailure::spent(spent, name, last)))
                }
                passed => Err(passed),
            },
        }
    }

    /// Describes the failure of a record that fails the task.
    pub(super) fn task_failure(&self, failed: Emitted<RowRef, (), Box<CallFailure>>) -> TaskError {
        let function = self.config.function.clone();
        let row = self.rows.inputs().ordinal(failed.record.value);
        let (partition, attempts) = (self.config.partition, failed.attempts);
        let named = self.name_of(failed.record.value);
        // Only what has failed is asked about.
        let failure = failed.outcome.err().unwrap_or_else(|| Failure::ended(Ended::TimedOut, None));
        match self.cause_of(failure) {
            Ok(mut failure) => {
                if self.journal.as_ref().is_some_and(|it| it.has_failed_before(row)) {
                    failure.add(
                        "its journal has this of an earlier run, and `again=\"none\"` keeps it",
                    );
                }
                TaskError::Row { function, row, partition, named, attempts, failure }
            }
            Err((why, last)) => {
                let timed_out = Box::new(self.timed_out(why, attempts, last));
                TaskError::TimedOut { function, row, partition, named, timed_out }
            }
        }
    }
}

/// Returns the kind of a function's failure after its last permitted attempt.
fn exhausted(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::UserFunctionFailed => ErrorKind::RetriesExhausted,
        kind => kind,
    }
}
