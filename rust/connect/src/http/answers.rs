// SPDX-License-Identifier: Apache-2.0
//! The way of what calls came to, to their task.

use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::LimitLeft;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{GROUP_BYTES, Replies, ToldLimit};

use super::call::{Outcome, ends_task};
use super::results::ResponseColumns;

/// Answers calls, as many as possible at a time.
pub(super) struct Answers {
    pub(super) columns: ResponseColumns,
    /// The server in messages.
    pub(super) host: String,
    pub(super) replies: Replies,
    /// Whether responses tell of their channel alone.
    pub(super) are_of_channel: bool,
}

/// Calls that have ended and were not answered.
#[derive(Default)]
pub(crate) struct Ended {
    pub(super) outcomes: Vec<(AttemptId, Outcome)>,
    /// What their responses say about limits.
    left: Vec<ToldLimit>,
    /// The statuses of their responses, if somebody wants to know.
    statuses: Vec<(AttemptId, u16)>,
}

impl Ended {
    /// Adds what has ended after that.
    pub(super) fn extend(&mut self, after: Self) {
        self.outcomes.extend(after.outcomes);
        self.left.extend(after.left);
        self.statuses.extend(after.statuses);
    }
}

impl Answers {
    /// Notes what the response to a call says of limits.
    pub(super) fn note_left(&self, attempt: AttemptId, left: Vec<LimitLeft>, ended: &mut Ended) {
        let is_of_channel = self.are_of_channel;
        let told = left.into_iter().map(|left| ToldLimit { attempt, left, is_of_channel });
        ended.left.extend(told);
    }

    /// Notes the status of the response to a call.
    pub(super) fn note_status(&self, attempt: AttemptId, status: Option<u16>, ended: &mut Ended) {
        if self.replies.wants_statuses() {
            ended.statuses.extend(status.map(|it| (attempt, it)));
        }
    }

    /// Answers calls that have ended; fails if one of them ends its task.
    pub(super) fn send(&self, Ended { outcomes, left, statuses }: Ended) -> Result<(), TaskError> {
        ends_task(&outcomes)?;
        if !left.is_empty() {
            self.replies.tell(left);
        }
        if !statuses.is_empty() {
            self.replies.answered(statuses);
        }
        if outcomes.is_empty() {
            return Ok(());
        }
        let (mut group, mut bytes) = (Vec::with_capacity(outcomes.len()), 0);
        for (attempt, outcome) in outcomes {
            let size = outcome.bytes();
            if bytes > 0 && bytes + size > GROUP_BYTES {
                let ended = std::mem::take(&mut group);
                self.send_group(ended)?;
                bytes = 0;
            }
            bytes += size;
            group.push((attempt, outcome));
        }
        self.send_group(group)
    }

    fn send_group(&self, ended: Vec<(AttemptId, Outcome)>) -> Result<(), TaskError> {
        self.columns.reply(&self.host, ended, |group| {
            self.replies.send(group);
        })
    }
}
