// SPDX-License-Identifier: Apache-2.0
//! Rows of record batches as elements of the operator.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use sparkawait_arrow::{
    BatchRows, EventTime, KeyColumns, OnError, OutputColumns, ResultRows, RowExchange, RowFailure,
    RowRef,
};
use sparkawait_core::ErrorKind;
use sparkawait_core::element::{Key, StreamElement, StreamRecord, Watermark};
use sparkawait_core::operator::{
    AttemptId, Completion, Emitted, Failure, Handled, Invocation, Retry,
};
use sparkawait_runtime::Exchange;
use sparkawait_runtime::exchange::InputElement;

use crate::error::{CallFailure, TaskError};
use crate::function::{Call, Calls, ReplyGroup, ResultGroup};

/// What the rows of a task look like, and whose they are.
#[derive(Clone, Debug)]
pub struct RowConfig {
    /// Schema of the input.
    pub input: SchemaRef,
    /// Schema of the function's results.
    pub results: SchemaRef,
    /// Which columns an output row has.
    pub output: OutputColumns,
    /// What the final failure of a row does.
    pub on_error: OnError,
    /// Columns of the key, in key-ordered mode.
    pub key: Option<Vec<String>>,
    /// Event-time column and how far out of order its rows may be.
    pub watermark: Option<(String, Duration)>,
    /// Names the function in errors.
    pub function: String,
    /// Names the task in errors.
    pub partition: u32,
    /// Named in the error of a row whose time has passed.
    pub timeout: Duration,
}

/// Turns input batches into elements and emitted elements into output batches.
///
/// A watermark follows each input batch that raised the highest event time.
#[derive(Debug)]
pub struct TaskExchange {
    config: RowConfig,
    rows: RowExchange,
    /// Rows of the last input batch that were not handed out.
    pending: Option<BatchRows>,
    /// Their keys.
    pending_keys: std::vec::IntoIter<Option<Key>>,
    /// Follows the pending rows.
    pending_watermark: Option<Watermark>,
    keys: Option<KeyColumns>,
    event_time: Option<(EventTime, Duration)>,
    /// Records that left without a result row although their call returned.
    dropped: u64,
}

impl TaskExchange {
    /// Makes an exchange that holds nothing.
    ///
    /// # Errors
    ///
    /// Columns that do not exist, clash, or have an unfit type.
    pub fn new(config: RowConfig) -> Result<Self, TaskError> {
        let (input, results) = (SchemaRef::clone(&config.input), SchemaRef::clone(&config.results));
        let keys = config.key.as_ref().map(|names| KeyColumns::new(&input, names)).transpose()?;
        let event_time = match &config.watermark {
            Some((column, delay)) => Some((EventTime::new(&input, column)?, *delay)),
            None => None,
        };
        let rows = RowExchange::new(input, results, config.output, config.on_error)?;
        Ok(Self {
            config,
            rows,
            pending: None,
            pending_keys: Vec::new().into_iter(),
            pending_watermark: None,
            keys,
            event_time,
            dropped: 0,
        })
    }

    /// Hands the results of some calls to the operator.
    fn accept_results(
        &mut self,
        group: ResultGroup,
        complete: &mut impl FnMut(AttemptId, Completion<ResultRows, Box<CallFailure>>) -> Handled,
    ) -> Result<(), TaskError> {
        group.check()?;
        let mut rest = self.rows.accept_results(group.rows)?;
        for (index, attempt) in group.attempts.into_iter().enumerate() {
            let count = group.counts.as_ref().map_or(1, |counts| counts[index]);
            let asks_for_retry = group.retries.as_ref().is_some_and(|retries| retries[index]);
            let retry = if asks_for_retry { Retry::Yes } else { Retry::No };
            let results = rest.split_front(count);
            let handled = complete(attempt, Completion { outcome: Ok(results), retry });
            if matches!(handled, Handled::Ignored | Handled::Retried(_)) {
                self.rows.discard(results);
            }
        }
        Ok(())
    }

    /// Describes the final failure of a record.
    fn row_failure(&self, failure: Failure<Box<CallFailure>>, attempts: u32) -> RowFailure {
        let (kind, message) = match failure {
            Failure::Function(failure) => (failure.kind, failure.message),
            Failure::RetriesExhausted(failure) => (exhausted(failure.kind), failure.message),
            Failure::TimedOut => (
                ErrorKind::ElementTimedOut,
                format!("no attempt finished within {:?}", self.config.timeout),
            ),
        };
        RowFailure { kind: Cow::Borrowed(kind.as_str()), message, attempts }
    }
}

/// Returns the kind of a function's failure after its last permitted attempt.
fn exhausted(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::UserFunctionFailed => ErrorKind::RetriesExhausted,
        kind => kind,
    }
}

impl Exchange for TaskExchange {
    type Element = RowRef;
    type Results = ResultRows;
    type Failure = Box<CallFailure>;
    type Input = RecordBatch;
    type Calls = Calls;
    type Reply = ReplyGroup;
    type Output = RecordBatch;
    type Error = TaskError;

    fn accept(&mut self, input: RecordBatch) -> Result<(), TaskError> {
        if let Some((event_time, delay)) = &mut self.event_time {
            let before = event_time.max();
            event_time.observe(&input);
            if event_time.max() > before {
                self.pending_watermark = event_time.watermark(*delay);
            }
        }
        if let Some(keys) = &mut self.keys {
            self.pending_keys = keys.keys(&input)?.into_iter();
        }
        self.pending = Some(self.rows.accept_input(input)?);
        Ok(())
    }

    #[inline]
    fn next_element(&mut self) -> Option<InputElement<RowRef>> {
        if let Some(row) = self.pending.as_mut().and_then(Iterator::next) {
            let key = self.pending_keys.next().flatten();
            return Some(StreamElement::Record((StreamRecord::new(row, None), key)));
        }
        self.pending_watermark.take().map(StreamElement::Watermark)
    }

    #[inline]
    fn has_element(&self) -> bool {
        self.pending.as_ref().is_some_and(|rows| !rows.is_empty())
            || self.pending_watermark.is_some()
    }

    fn calls(&mut self, invocations: Vec<Invocation<RowRef>>) -> Calls {
        let mut batches = Vec::new();
        // Slab handle and index of each batch; rows in a row are of one batch.
        let mut known: Vec<u32> = Vec::new();
        let mut last = 0;
        let calls = invocations
            .into_iter()
            .map(|Invocation { attempt, value }| {
                if known.get(last) != Some(&value.batch) {
                    last = known.iter().position(|&it| it == value.batch).unwrap_or_else(|| {
                        known.push(value.batch);
                        batches.push(Arc::clone(self.rows.inputs().batch(value.batch)));
                        known.len() - 1
                    });
                }
                #[expect(clippy::cast_possible_truncation, reason = "fewer than the calls")]
                Call { attempt, batch: last as u32, row: value.row }
            })
            .collect();
        Calls { batches, calls }
    }

    fn accept_reply(
        &mut self,
        reply: ReplyGroup,
        mut complete: impl FnMut(AttemptId, Completion<ResultRows, Box<CallFailure>>) -> Handled,
    ) -> Result<(), TaskError> {
        if let Some(group) = reply.results {
            self.accept_results(group, &mut complete)?;
        }
        for failed in reply.failures {
            let completion = Completion { outcome: Err(failed.failure), retry: failed.retry };
            complete(failed.attempt, completion);
        }
        Ok(())
    }

    #[inline]
    fn emit(&mut self, element: StreamElement<Emitted<RowRef, ResultRows, Box<CallFailure>>>) {
        let StreamElement::Record(emitted) = element else { return };
        match emitted.outcome {
            Ok(results) => {
                self.dropped += u64::from(results.is_empty());
                self.rows.push(emitted.record.value, results);
            }
            Err(failure) => {
                let failure = self.row_failure(failure, emitted.attempts);
                // Only the policy "fail" gives it back, and then none is emitted.
                let _ = self.rows.push_failure(emitted.record.value, failure);
            }
        }
    }

    fn output_rows(&self) -> usize {
        self.rows.row_count()
    }

    fn take_output(&mut self, max_rows: usize) -> Result<Option<RecordBatch>, TaskError> {
        Ok(self.rows.take(max_rows)?)
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }

    fn failure(&mut self, failed: Emitted<RowRef, (), Box<CallFailure>>) -> TaskError {
        let function = self.config.function.clone();
        let row = self.rows.inputs().ordinal(failed.record.value);
        let (partition, attempts) = (self.config.partition, failed.attempts);
        let failure = match failed.outcome {
            Err(Failure::Function(failure)) => failure,
            Err(Failure::RetriesExhausted(mut failure)) => {
                failure.kind = exhausted(failure.kind);
                failure
            }
            Err(Failure::TimedOut) | Ok(()) => {
                let timeout = self.config.timeout;
                return TaskError::TimedOut { function, row, partition, attempts, timeout };
            }
        };
        TaskError::Row { function, row, partition, attempts, failure }
    }
}
