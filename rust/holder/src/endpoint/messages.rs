// SPDX-License-Identifier: Apache-2.0
//! What both ends of a connection know.

use std::time::Duration;

use bytes::{Buf, Bytes};
use sparkawait_wire::ChannelKey;
use sparkawait_wire::event::FIRST_CODE;

use crate::reader::{array, put_bytes, text};
use crate::state::TaskId;

/// How often somebody who waits looks for something else.
pub(super) const TURN: Duration = Duration::from_millis(100);

/// How long the other end may take for its first answer.
pub(super) const ANSWER: Duration = Duration::from_secs(4);

/// The task is not there, elsewhere with its input, or has other rows.
pub(super) const NOT_HERE: u16 = FIRST_CODE;

/// The task has failed.
pub(super) const FAILED: u16 = FIRST_CODE + 1;

/// The step goes no further.
pub(super) const GIVEN_UP: u16 = FIRST_CODE + 2;

/// Nobody uses the connection.
pub(super) const UNUSED: u16 = FIRST_CODE + 3;

/// What a message is about: its first byte.
pub(super) mod about {
    pub(crate) const ROWS: u8 = 0;
    pub(crate) const PATIENCE: u8 = 1;
    pub(crate) const OUTPUT: u8 = 2;
    pub(crate) const OPERATOR: u8 = 3;
    pub(crate) const NUMBERS: u8 = 4;
}

/// Where a process takes steps of others.
#[derive(Clone)]
pub struct Address {
    /// The path of its socket.
    pub path: String,
    /// What it wants to be told.
    pub token: [u8; 16],
}

// Shows nothing of the token, which is a secret.
sparkawait_core::opaque_debug!(Address, path: path);

/// What a channel is opened for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// What a part of a task comes to.
    Part {
        /// The task.
        task: TaskId,
        /// Whose it is.
        owner: String,
        /// Parts before it.
        part: u64,
    },
    /// The rows of the part that was asked for on another channel.
    Rows(ChannelKey),
}

impl Subject {
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Part { task, owner, part } => {
                out.push(0);
                out.extend(task.0);
                out.extend(part.to_le_bytes());
                put_bytes(&mut out, owner.as_bytes());
            }
            Self::Rows(ChannelKey { index, generation }) => {
                out.push(1);
                out.extend(index.to_le_bytes());
                out.extend(generation.to_le_bytes());
            }
        }
        Bytes::from(out)
    }

    pub(super) fn read(subject: &[u8]) -> Option<Self> {
        let (kind, mut rest) = subject.split_first()?;
        let read = match kind {
            0 => {
                let (task, part) = (TaskId(array(&mut rest)?), rest.try_get_u64_le().ok()?);
                let owner = text(&mut rest)?;
                Self::Part { task, owner, part }
            }
            1 => {
                let (index, generation) = (rest.try_get_u32_le(), rest.try_get_u32_le());
                Self::Rows(ChannelKey { index: index.ok()?, generation: generation.ok()? })
            }
            _ => return None,
        };
        rest.is_empty().then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_that_was_written_is_read_whole_or_not_at_all() {
        let owner = "run".to_owned();
        for subject in [
            Subject::Part { task: TaskId([3; 16]), owner, part: 7 },
            Subject::Rows(ChannelKey { index: 1, generation: 2 }),
        ] {
            let bytes = subject.to_bytes();
            assert_eq!(Subject::read(&bytes), Some(subject));
            assert!((0..bytes.len()).all(|end| Subject::read(&bytes[..end]).is_none()));
        }
        assert_eq!(Subject::read(&[9]), None);
    }
}
