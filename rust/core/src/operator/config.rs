// SPDX-License-Identifier: Apache-2.0
//! The settings of an operator.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::{AttemptId, Tolerance};
use crate::flow::{ChannelConfig, ChannelTable, WaitBound};
use crate::policy::{HedgeConfig, Ledgers, PolicyConfig, RetryBudgetConfig};
use crate::retry::AsyncRetryStrategy;

/// In which order results leave. Counterpart of Flink's `OutputMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// The order of arrival.
    Ordered,
    /// The order of completion; no record crosses a watermark.
    Unordered,
    /// As unordered, with one call at a time per key and order kept per key.
    KeyOrdered,
}

/// What the final failure of a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Fails the operator: what may leave before the record leaves, calls in
    /// flight are cancelled, nothing else happens.
    FailTask,
    /// The record is emitted in its place, with the failure as its outcome.
    Emit,
}

/// What the end of input does to retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfInput {
    /// Each record in back-off gets one immediate attempt, and every outcome is
    /// final. Flink's behaviour: a job that is being drained shall end soon.
    LastAttempt,
    /// Retries go on as before. For finite inputs: the last rows of a partition
    /// are as worth retrying as its first.
    KeepRetrying,
}

/// What was handed over to a function, as long as that has not seen it.
pub trait Recall: fmt::Debug + Send + Sync {
    /// Takes a call back, which is not made then; returns false if the function has seen it.
    fn take_back(&self, call: AttemptId) -> bool;
}

/// When the call begins that a record was handed to the function for.
///
/// Only a call that has begun is an attempt: it has `attempt_timeout`, may get a second one beside
/// it, costs tokens when it is tried again, tells of its destination when it takes too long, and is
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begins {
    /// At once: the function calls for each record that it gets.
    #[default]
    AtOnce,
    /// When that is said, with
    /// [`handle_started`](super::AsyncWaitOperator::handle_started). Before that the record waits for
    /// something of the function: a connection, a thread, others to go with, or the call of another
    /// record, whose answer it gets without a call of its own. So some never begin.
    WhenSaid,
}

/// The settings of an [`AsyncWaitOperator`](super::AsyncWaitOperator).
#[derive(Clone, Debug)]
pub struct Config {
    /// In which order results leave.
    pub mode: OutputMode,
    /// Records admitted and not yet emitted, at most; the driver may let in fewer.
    pub capacity: NonZeroUsize,
    /// Whether completed records take slots of `capacity`, too; else the driver bounds what they
    /// hold.
    pub completed_take_slots: bool,
    /// Calls in flight at once.
    pub max_concurrency: NonZeroUsize,
    /// Time for a record from its first call on, all attempts together.
    pub timeout: Option<Duration>,
    /// Time for one attempt; an attempt beyond it is cancelled and may be retried.
    pub attempt_timeout: Option<Duration>,
    /// For how long a record waits for a destination that is not there: one that is paused, or has not
    /// answered for `timeout`. `None`: for `timeout`, and as long as its destination asks it to.
    pub max_wait: Option<Duration>,
    /// When calls begin.
    pub begins: Begins,
    /// Whether a call that may have been carried out may be made again: one that took too long, or
    /// ended with [`Retry::IfRepeatable`](super::action::Retry::IfRepeatable).
    pub is_repeatable: bool,
    /// `None`: the first outcome is final.
    pub retry: Option<AsyncRetryStrategy>,
    /// How many retries the calls of each channel earn; `None`: as many as `retry` allows. Where
    /// nothing else bounds calls this costs nothing before the first of them.
    pub retry_budget: Option<RetryBudgetConfig>,
    /// Whether a timed-out record asks the function what to emit instead of failing.
    pub asks_on_timeout: bool,
    /// What a final failure does.
    pub on_failure: FailurePolicy,
    /// When that ends; `None`: never.
    pub fail_after: Option<Arc<Tolerance>>,
    /// What the end of input does to retries.
    pub at_end_of_input: EndOfInput,
    /// Varies the jitter of the back-off.
    pub seed: u64,
    /// When a call that is slow gets another one beside it; `None`: never.
    pub hedge: Option<HedgeConfig>,
    /// How the permits are spread over destinations; `None`: first come, first served.
    pub channels: Option<ChannelConfig>,
    /// Permits of those limits in time that others share.
    pub ledgers: Option<Arc<dyn Ledgers>>,
    /// Where calls wait that the function has not seen; `None`: it sees them at once.
    pub recall: Option<Arc<dyn Recall>>,
}

impl Config {
    /// Makes settings with Flink's defaults: no timeout, no retry, a failure fails the task.
    pub fn new(mode: OutputMode, capacity: NonZeroUsize) -> Self {
        Self {
            mode,
            capacity,
            completed_take_slots: true,
            max_concurrency: capacity,
            timeout: None,
            attempt_timeout: None,
            max_wait: None,
            begins: Begins::AtOnce,
            is_repeatable: true,
            retry: None,
            retry_budget: None,
            asks_on_timeout: false,
            on_failure: FailurePolicy::FailTask,
            fail_after: None,
            at_end_of_input: EndOfInput::LastAttempt,
            seed: 0,
            hedge: None,
            channels: None,
            ledgers: None,
            recall: None,
        }
    }

    /// Returns for how long a record waits for a destination that is not there, if not for ever.
    pub(super) fn max_wait(&self) -> Option<Duration> {
        self.max_wait.or(self.timeout)
    }

    fn wait_bound(&self) -> Option<WaitBound> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.max_wait().map(|most| WaitBound {
            silence: self.timeout.map_or(u64::MAX, nanos),
            most: nanos(most),
            counts_asked: self.max_wait.is_some(),
        })
    }

    /// Returns what the queue has to hold: the capacity, and with channels the backlog.
    pub(super) fn queue_capacity(&self) -> NonZeroUsize {
        if !self.completed_take_slots {
            return NonZeroUsize::MAX;
        }
        let spread = self.channels.filter(|channels| !channels.is_single);
        let backlog = spread.map_or(0, |channels| channels.max_backlog.max(1));
        self.capacity.saturating_add(backlog)
    }

    /// Makes the channels, if it has any.
    pub(super) fn channel_table(&self) -> Option<Box<ChannelTable>> {
        self.channels.map(|it| self.table_of(it))
    }

    /// Makes the channel that all records get where there are none, once something bounds their calls
    /// beside their number.
    pub(super) fn single_channel(&self) -> Box<ChannelTable> {
        self.table_of(ChannelConfig::single(PolicyConfig::NONE))
    }

    fn table_of(&self, mut channels: ChannelConfig) -> Box<ChannelTable> {
        let max_concurrency = u32::try_from(self.max_concurrency.get()).unwrap_or(u32::MAX);
        let sources = self.ledgers.clone();
        channels.policy.retry_budget = self.retry_budget.or(channels.policy.retry_budget);
        let mut table = ChannelTable::with_sources(channels, max_concurrency, sources);
        table.bound_waits(self.wait_bound());
        Box::new(table)
    }
}
