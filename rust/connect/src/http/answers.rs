// SPDX-License-Identifier: Apache-2.0
//! The way of what calls came to, to their task.

use sparkawait_core::operator::AttemptId;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{GROUP_BYTES, Replies};

use super::call::Outcome;
use super::results::ResponseColumns;

/// Answers calls, as many as possible at a time.
pub(super) struct Answers {
    pub(super) columns: ResponseColumns,
    /// The server in messages.
    pub(super) host: String,
    pub(super) replies: Replies,
}

impl Answers {
    /// Answers the calls that have ended.
    pub(super) fn send(&self, ended: Vec<(AttemptId, Outcome)>) -> Result<(), TaskError> {
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
