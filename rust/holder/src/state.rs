// SPDX-License-Identifier: Apache-2.0
//! What a stream keeps of a task between two micro-batches.
//!
//! ```text
//!   "SAWC"  version: u16  checksum: u64 of all behind it
//!   written at: i64 (microseconds since 1970)  shard: i32  shards: u32
//!   task: 16 bytes  part: u64  redone: u64  token: 16 bytes  address: bytes  by: bytes
//!   schema: bytes                     of the input, as Arrow IPC
//!   completed: rows u64, count, bytes*   Arrow IPC, in the order in which they leave
//!   operators: count, bytes*           what each holds: one batch as Arrow IPC, see `SavedOperator`
//!   count = u64      bytes = length: u64 byte*                         all little endian
//! ```

use std::fmt;

use arrow::error::ArrowError;
use bytes::Buf;
use sparkawait_core::ErrorKind;
use sparkawait_task::error::TaskError;
use sparkawait_task::saved::SavedOperator;

use crate::ipc;
use crate::reader::{array, bytes, count, put_bytes, put_count, text};

const MAGIC: [u8; 4] = *b"SAWC";
const VERSION: u16 = 2;

/// Names a task among all of all processes; a process that knows the name may take the task up.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TaskId(pub [u8; 16]);

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// The state of a shard.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// When it was written, in microseconds since 1970.
    pub written_at: i64,
    /// The key of the shard.
    pub shard: i32,
    /// Over how many shards the rows of the query are spread.
    pub shards: u32,
    /// The columns of the key, if its rows keep their order.
    pub by: String,
    /// The task that has the calls in flight.
    pub task: TaskId,
    /// Parts that the task had worked off.
    pub part: u64,
    /// Calls that were made again, in all tasks that the shard has had.
    pub redone: u64,
    /// What the process of the task wants to be told.
    pub token: [u8; 16],
    /// Where that process listens.
    pub address: String,
    /// The columns of the input, as Arrow IPC.
    pub schema: Vec<u8>,
    /// Rows in `completed`.
    pub completed_rows: u64,
    /// What was completed and has not left, as Arrow IPC.
    pub completed: Vec<Vec<u8>>,
    /// What each operator holds, see [`write_operators`].
    pub operators: Vec<Vec<u8>>,
}

// Shows sizes only: row contents and the token do not belong in logs.
sparkawait_core::opaque_debug!(
    Carried, shard: shard, task: task, part: part, completed_rows: completed_rows
);

impl Carried {
    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let batches = self.completed.iter().chain(&self.operators).map(|it| it.len() + 8);
        let size = batches.sum::<usize>() + self.schema.len() + self.address.len() + self.by.len();
        let mut out = Vec::with_capacity(size + 128);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 8]);
        out.extend(self.written_at.to_le_bytes());
        out.extend(self.shard.to_le_bytes());
        out.extend(self.shards.to_le_bytes());
        out.extend(self.task.0);
        out.extend(self.part.to_le_bytes());
        out.extend(self.redone.to_le_bytes());
        out.extend(self.token);
        put_bytes(&mut out, self.address.as_bytes());
        put_bytes(&mut out, self.by.as_bytes());
        put_bytes(&mut out, &self.schema);
        out.extend(self.completed_rows.to_le_bytes());
        put_all(&mut out, &self.completed);
        put_all(&mut out, &self.operators);
        let sum = checksum(&out[14..]);
        out[6..14].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// Written by another version, or damaged.
    pub fn decode(payload: &[u8]) -> Result<Self, TaskError> {
        let mut rest = payload;
        let magic = array(&mut rest).filter(|it| *it == MAGIC);
        let version = magic.and_then(|_| rest.try_get_u16_le().ok());
        match version {
            Some(VERSION) => {}
            None => return Err(damaged()),
            Some(version) => {
                let message = format!(
                    "they have format {version}, this version of sparkawait reads {VERSION}; go on \
                     with the version that wrote them"
                );
                return Err(TaskError::Saved { kind: ErrorKind::SnapshotVersionUnknown, message });
            }
        }
        let sum = rest.try_get_u64_le();
        if sum != Ok(checksum(rest)) {
            return Err(damaged());
        }
        Self::read(rest).ok_or_else(damaged)
    }

    fn read(mut rest: &[u8]) -> Option<Self> {
        let written_at = rest.try_get_i64_le().ok()?;
        let (shard, shards) = (rest.try_get_i32_le().ok()?, rest.try_get_u32_le().ok()?);
        let (task, part) = (TaskId(array(&mut rest)?), rest.try_get_u64_le().ok()?);
        let (redone, token) = (rest.try_get_u64_le().ok()?, array(&mut rest)?);
        let (address, by) = (text(&mut rest)?, text(&mut rest)?);
        let schema = bytes(&mut rest)?.to_vec();
        let completed_rows = rest.try_get_u64_le().ok()?;
        let (completed, operators) = (all(&mut rest)?, all(&mut rest)?);
        rest.is_empty().then_some(Self {
            written_at,
            shard,
            shards,
            by,
            task,
            part,
            redone,
            token,
            address,
            schema,
            completed_rows,
            completed,
            operators,
        })
    }
}

/// Writes what the operators of a task hold.
///
/// # Errors
///
/// A type that Arrow does not write.
pub fn write_operators(operators: &[SavedOperator]) -> Result<Vec<Vec<u8>>, ArrowError> {
    operators.iter().map(|it| ipc::write(it.batch())).collect()
}

/// Reads what [`write_operators`] has written.
///
/// # Errors
///
/// The bytes are damaged.
pub fn read_operators(operators: &[impl AsRef<[u8]>]) -> Result<Vec<SavedOperator>, TaskError> {
    let read = |bytes| SavedOperator::read(ipc::read_one(bytes).map_err(|_| damaged())?);
    operators.iter().map(AsRef::as_ref).map(read).collect()
}

/// The rows that the operators of a task hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Rows without an outcome.
    pub pending: u64,
    /// Those of them that were called at that moment.
    pub called: u64,
    /// Rows that have an outcome, and wait for others.
    pub completed: u64,
    /// Rows of the input that the first operator holds.
    pub input: u64,
}

impl Held {
    /// Counts them.
    pub fn by(operators: &[SavedOperator]) -> Self {
        let count =
            |of: fn(&SavedOperator) -> usize| operators.iter().map(of).sum::<usize>() as u64;
        Self {
            pending: count(SavedOperator::pending),
            called: count(SavedOperator::called),
            completed: count(SavedOperator::completed),
            input: operators.first().map_or(0, |it| it.rows() as u64),
        }
    }
}

fn put_all(out: &mut Vec<u8>, items: &[Vec<u8>]) {
    put_count(out, items.len());
    for item in items {
        put_bytes(out, item);
    }
}

fn all(from: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
    let count = count(from)?;
    (0..count).map(|_| bytes(from).map(<[u8]>::to_vec)).collect()
}

fn damaged() -> TaskError {
    let message = "the state of the stream is damaged or cut off".to_owned();
    TaskError::Saved { kind: ErrorKind::SnapshotDamaged, message }
}

/// FNV-1a over words of eight bytes, the last one filled up with zeros.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        sum ^= sum >> 29;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried() -> Carried {
        Carried {
            written_at: -7,
            shard: -3,
            shards: 8,
            by: "key".to_owned(),
            task: TaskId([3; 16]),
            part: 5,
            redone: 6,
            token: [9; 16],
            address: "/tmp/a.sock".to_owned(),
            schema: vec![7; 3],
            completed_rows: 2,
            completed: vec![vec![1, 2, 3], Vec::new()],
            operators: vec![vec![4; 100], vec![5]],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(Carried::decode(&carried().encode()).unwrap(), carried());
    }

    #[test]
    fn every_byte_that_is_changed_or_missing_is_noticed() {
        let bytes = carried().encode();
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 0x20;
            assert!(Carried::decode(&changed).is_err(), "byte {position}");
            assert!(Carried::decode(&bytes[..position]).is_err(), "cut off at {position}");
        }
    }

    #[test]
    fn another_version_is_named() {
        for version in [1, 3] {
            let mut bytes = carried().encode();
            bytes[4] = version;

            let error = Carried::decode(&bytes).unwrap_err();

            assert!(
                matches!(error, TaskError::Saved { kind: ErrorKind::SnapshotVersionUnknown, .. }),
                "{error}"
            );
            assert!(error.to_string().contains(&format!("format {version}")), "{error}");
        }
    }

    #[test]
    fn what_is_shown_has_neither_rows_nor_the_token() {
        let shown = format!("{:?}", carried());

        assert!(shown.contains("completed_rows: 2"), "{shown}");
        assert!(!shown.contains('9'), "{shown}");
    }
}
