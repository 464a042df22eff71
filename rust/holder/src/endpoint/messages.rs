// SPDX-License-Identifier: Apache-2.0
//! What both ends of a connection know.

use std::fmt;
use std::time::Duration;

use crate::reader::{Reader, put_bytes};
use crate::state::TaskId;

/// How often somebody who waits looks for something else.
pub(super) const TURN: Duration = Duration::from_millis(100);

/// Codes of [`Frame::Reset`].
pub(super) const NOT_HERE: u16 = 1;
pub(super) const FAILED: u16 = 2;

/// What a message is about: its first byte.
pub(super) mod about {
    pub(crate) const ROWS: u8 = 0;
    pub(crate) const PATIENCE: u8 = 1;
    pub(crate) const OUTPUT: u8 = 2;
    pub(crate) const OPERATORS: u8 = 3;
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

/// Shows nothing of the token, which is a secret.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Writes what a connection is opened for.
pub(super) fn write_subject(id: TaskId, run: &str, part: u64) -> Vec<u8> {
    let mut out = id.0.to_vec();
    out.extend(part.to_le_bytes());
    put_bytes(&mut out, run.as_bytes());
    out
}

/// Reads it.
pub(super) fn read_subject(subject: &[u8]) -> Option<(TaskId, String, u64)> {
    let mut reader = Reader::new(subject);
    let (id, part) = (TaskId(reader.array()?), reader.u64()?);
    Some((id, String::from_utf8(reader.bytes()?.to_vec()).ok()?, part))
}
