// SPDX-License-Identifier: Apache-2.0
//! The calls that a native function gets, and the replies that it gives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use sparkawait_arrow::InputBatch;
use sparkawait_core::Key;
use sparkawait_core::operator::{AttemptId, Begins, Retry};
use sparkawait_core::policy::{CallSign, LimitLeft};

use crate::cause::Cause;
use crate::error::{CallFailure, TaskError};

/// What the results of a burst may come to before they leave in a reply of their own: enough that a
/// reply costs little, and so little that none comes near what a column can hold.
pub const GROUP_BYTES: usize = 16 << 20;

/// Where the replies of a function go: to its task, or to a layer on the way there.
///
/// Used once per burst, from any thread. A function owns its sink, and a layer its function: the
/// sink that a layer gives to its function holds what belongs to the layer weakly.
pub trait ReplySink: fmt::Debug + Send + Sync {
    /// Takes the outcomes of some calls; returns false if the task has ended.
    fn send(&self, group: ReplyGroup) -> bool;

    /// Takes calls that begin, see [`Replies::started`]; returns false if the task has ended.
    fn started(&self, attempts: Vec<AttemptId>) -> bool;

    /// Fails the task; returns false if it has ended.
    fn fail(&self, error: TaskError) -> bool;
}

/// The way of a function's replies to its task.
///
/// Cheap to clone; to be used on any thread.
#[derive(Clone, Debug)]
pub struct Replies {
    sink: Arc<dyn ReplySink>,
    wants: Wants,
}

/// What somebody looks at beside the outcomes of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// When calls begin, for one who may have to say so.
    pub(crate) begins: Begins,
    /// What replies say of the limits of their services.
    pub(crate) limits: bool,
    /// Whether limits count requests, and so look at when these are made.
    pub(crate) requests: bool,
    /// What services answer to calls that do not fail, as statuses.
    pub(crate) statuses: bool,
}

impl Replies {
    /// Makes a way that leads to `sink`.
    pub fn to(sink: impl ReplySink + 'static) -> Self {
        Self { sink: Arc::new(sink), wants: Wants::default() }
    }

    /// Returns the same way, on which more is told.
    pub(crate) fn wanting(self, wants: Wants) -> Self {
        Self { wants, ..self }
    }

    /// Makes a way that leads to `sink`, on which the same is told as on this one: for a layer that
    /// looks on.
    #[must_use]
    pub fn through(&self, sink: impl ReplySink + 'static) -> Self {
        Self::to(sink).wanting(self.wants)
    }

    pub(crate) const fn wants(&self) -> Wants {
        self.wants
    }

    /// Sends the outcomes of some calls; returns false if the task has ended.
    pub fn send(&self, group: ReplyGroup) -> bool {
        self.sink.send(group)
    }

    /// Says that calls begin, before they are made, which waited for a connection or for others to go
    /// with: from now on they are attempts of their rows, see [`Begins`]. Returns false if the task has
    /// ended, which will not count them: they are not to be made.
    ///
    /// For functions whose [`Concurrency`](crate::concurrency::Concurrency) says that their calls
    /// begin when that is said.
    pub fn started(&self, attempts: &[AttemptId]) -> bool {
        self.begins() == Begins::AtOnce || self.sink.started(attempts.to_vec())
    }

    /// Returns whether somebody wants to be told when calls begin, see [`started`](Self::started).
    pub const fn begins(&self) -> Begins {
        self.wants.begins
    }

    /// Returns whether there are limits that replies may tell of, see [`tell`](Self::tell).
    pub const fn wants_limits(&self) -> bool {
        self.wants.limits
    }

    /// Says what is left of limits of the service, before the outcomes of the calls whose replies
    /// said so.
    pub fn tell(&self, told: Vec<ToldLimit>) {
        if self.wants.limits {
            self.sink.send(ReplyGroup { told, ..ReplyGroup::default() });
        }
    }

    /// Returns whether somebody wants to know the statuses of calls, see [`answered`](Self::answered).
    pub const fn wants_statuses(&self) -> bool {
        self.wants.statuses
    }

    /// Says what a service has answered to calls, as statuses of HTTP, before the outcomes of these
    /// calls. That of a call that fails is in its failure, too.
    pub fn answered(&self, statuses: Vec<(AttemptId, u16)>) {
        if self.wants.statuses {
            self.sink.send(ReplyGroup { statuses, ..ReplyGroup::default() });
        }
    }

    /// Says that a request is made which begins with this call, of a function that makes one for many
    /// calls: limits may count requests.
    pub fn requested(&self, attempt: AttemptId) {
        if self.wants.requests {
            self.sink.send(ReplyGroup { requests: vec![attempt], ..ReplyGroup::default() });
        }
    }

    /// Fails the task, because the function cannot go on at all.
    pub fn fail(&self, error: TaskError) -> bool {
        self.sink.fail(error)
    }
}

/// The function of a task, as the driver sees it.
pub type TaskFunction = Box<dyn sparkawait_runtime::AsyncFunction<Calls>>;

/// A burst of calls.
#[derive(Debug)]
pub struct Calls {
    /// The input batches that the rows are in.
    pub batches: Vec<Arc<InputBatch>>,
    /// One for each row, in the order of admission.
    pub calls: Vec<Call>,
}

impl Calls {
    /// Returns the position of a call's row in its task.
    pub fn ordinal(&self, call: &Call) -> u64 {
        self.batches[call.batch as usize].ordinal(call.row as usize)
    }

    /// Returns the channel of a call's row; `None` without channels, too.
    #[inline]
    pub fn channel(&self, call: &Call) -> Option<Key> {
        let channels = &self.batches[call.batch as usize].channels;
        channels.get(call.row as usize).copied().flatten()
    }
}

/// One attempt to call the function for one row.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Names the call in its reply.
    pub attempt: AttemptId,
    /// Index into [`Calls::batches`].
    pub batch: u32,
    /// Index into the rows of that batch.
    pub row: u32,
}

/// The outcomes of some calls; as many as possible at a time.
#[derive(Debug, Default)]
pub struct ReplyGroup {
    /// Calls that returned.
    pub results: Option<ResultGroup>,
    /// Calls that failed.
    pub failures: Vec<FailedCall>,
    /// Calls that requests begin with, which have been made for many calls each.
    pub requests: Vec<AttemptId>,
    /// What calls have cost that end with this group, or soon after it.
    pub settled: Vec<SettledCall>,
    /// What replies say of limits whose calls end with this group, or soon after it.
    pub told: Vec<ToldLimit>,
    /// What services answered to calls that end soon after this group, as statuses.
    pub statuses: Vec<(AttemptId, u16)>,
}

/// What the reply to a call says of a limit of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldLimit {
    /// The call.
    pub attempt: AttemptId,
    /// How much is left.
    pub left: LimitLeft,
    /// Whether that tells nothing of the destinations of other channels.
    pub is_of_channel: bool,
}

/// What a call has cost of a limit in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledCall {
    /// The call.
    pub attempt: AttemptId,
    /// The number of the limit.
    pub limit: usize,
    /// What it has cost.
    pub cost: u64,
}

impl From<ResultGroup> for ReplyGroup {
    fn from(results: ResultGroup) -> Self {
        Self { results: Some(results), ..Self::default() }
    }
}

/// The results of some calls, concatenated in the order of `attempts`.
pub struct ResultGroup {
    /// The calls.
    pub attempts: Vec<AttemptId>,
    /// Result rows of each call; `None`: one each.
    pub counts: Option<Vec<u32>>,
    /// Whether the results of a call ask for another attempt; `None`: none do.
    pub retries: Option<Vec<bool>>,
    /// Whether a call found nothing; `None`: those without result rows.
    pub misses: Option<Vec<bool>>,
    /// For which calls nobody was called.
    pub known: Known,
    /// The result rows, in the task's result schema.
    pub rows: RecordBatch,
}

/// For which calls of a group nobody was called: the answers were known, or another call brought
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// For none.
    #[default]
    None,
    /// For all: a cache has answered, or the calls of other rows.
    All,
    /// For each or not: some rows have nothing to call for.
    Each(Vec<bool>),
}

impl Known {
    /// Returns what the answer to call number `index` says of its destination.
    #[inline]
    pub fn sign(&self, index: usize) -> CallSign {
        let is_known = match self {
            Self::None => false,
            Self::All => true,
            Self::Each(known) => known[index],
        };
        if is_known { CallSign::NotCalled } else { CallSign::Good }
    }
}

// Shows the size only: row contents do not belong in logs.
sparkawait_core::opaque_debug!(ResultGroup, calls: attempts.len(), rows: rows.num_rows());

impl ResultGroup {
    /// Makes the results of calls that have brought one row each and have nothing more to report.
    pub fn one_each(attempts: Vec<AttemptId>, rows: RecordBatch) -> Self {
        Self { attempts, counts: None, retries: None, misses: None, known: Known::None, rows }
    }

    /// Returns whether no call has more to report, as with [`one_each`](Self::one_each).
    pub(crate) fn is_one_each(&self) -> bool {
        self.counts.is_none() && self.retries.is_none() && self.known == Known::None
    }

    /// Checks that each call has a count and each result row a call.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`]: rows would be given to the wrong calls.
    pub(crate) fn check(&self) -> Result<(), TaskError> {
        let calls = self.attempts.len();
        let rows = match &self.counts {
            Some(counts) if counts.len() == calls => counts.iter().map(|it| *it as usize).sum(),
            Some(_) => usize::MAX,
            None => calls,
        };
        let fits = |flags: &Option<Vec<bool>>| flags.as_ref().is_none_or(|it| it.len() == calls);
        let fits_known = !matches!(&self.known, Known::Each(known) if known.len() != calls);
        let fit = fits(&self.retries) && fits(&self.misses) && fits_known;
        if fit && rows == self.rows.num_rows() {
            return Ok(());
        }
        let rows = self.rows.num_rows();
        Err(TaskError::Internal(format!(
            "a reply to {calls} calls has {rows} rows that do not fit"
        )))
    }
}

/// A call that failed.
#[derive(Debug)]
pub struct FailedCall {
    /// The call.
    pub attempt: AttemptId,
    /// Why.
    pub failure: Box<CallFailure>,
    /// Whether it was carried out.
    pub cause: Cause,
    /// Whether it is worth another attempt.
    pub retry: Retry,
    /// What it says of its destination.
    pub sign: CallSign,
    /// For how long that asks not to be called for any row of its channel.
    pub pause: Option<Duration>,
}

impl FailedCall {
    /// Makes the failure of a call that reports only whether it is worth another attempt, see
    /// [`Retry::sign`]; it may have been carried out.
    pub fn new(attempt: AttemptId, failure: Box<CallFailure>, retry: Retry) -> Self {
        let (cause, sign) = (Cause::Unknown, retry.sign());
        Self { attempt, failure, cause, retry, sign, pause: None }
    }

    /// Makes the failures of calls that were one with others, and are made again together, in a part of
    /// it.
    pub fn in_part(attempts: &[AttemptId], failure: &CallFailure) -> Vec<Self> {
        let records = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let all = attempts.iter().zip(std::iter::once(records).chain(std::iter::repeat(0)));
        let failed = |(attempt, records): (&AttemptId, u32)| {
            Self::new(*attempt, Box::new(failure.clone()), Retry::InPart { records })
        };
        all.map(failed).collect()
    }
}
