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
    /// What responses say about limits; their calls are answered next.
    pub(super) left: Vec<ToldLimit>,
    /// The statuses of responses, if somebody wants to know; their calls are answered next.
    pub(super) statuses: Vec<(AttemptId, u16)>,
}

impl Answers {
    /// Notes what the response to a call says of limits.
    pub(super) fn note_left(&mut self, attempt: AttemptId, left: Vec<LimitLeft>) {
        let is_of_channel = self.are_of_channel;
        let told = left.into_iter().map(|left| ToldLimit { attempt, left, is_of_channel });
        self.left.extend(told);
    }

    /// Notes the status of the response to a call.
    pub(super) fn note_status(&mut self, attempt: AttemptId, status: Option<u16>) {
        if self.replies.wants_statuses() {
            self.statuses.extend(status.map(|it| (attempt, it)));
        }
    }

    /// Answers the calls that have ended; fails if one of them ends its task.
    pub(super) fn send(&mut self, ended: Vec<(AttemptId, Outcome)>) -> Result<(), TaskError> {
        ends_task(&ended)?;
        if !self.left.is_empty() {
            self.replies.tell(std::mem::take(&mut self.left));
        }
        if !self.statuses.is_empty() {
            self.replies.answered(std::mem::take(&mut self.statuses));
        }
        if ended.is_empty() {
            return Ok(());
        }
        let (mut group, mut bytes) = (Vec::with_capacity(ended.len()), 0);
        for (attempt, outcome) in ended {
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
