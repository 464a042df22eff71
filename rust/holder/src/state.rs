// SPDX-License-Identifier: Apache-2.0
//! What a stream keeps of a task between two micro-batches.
//!
//! ```text
//!   "SAWC"  version: u16  checksum: u64 of all behind it
//!   written at: i64 (microseconds since 1970)  shard: i32  shards: u32
//!   task: 16 bytes  part: u64  token: 16 bytes  address: bytes
//!   schema: bytes                                of the input, as Arrow IPC
//!   completed: rows u64, count, bytes*           Arrow IPC, in the order in which they leave
//!   operators: bytes = count, operator*
//!   operator  = pending u64  completed u64  snapshot: bytes
//!               count, (restarts u32, rows: bytes)*   count, results: bytes*   count, inputs: bytes*
//!   count     = u64           bytes = length: u64 byte*           all little endian
//! ```

use std::fmt;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use sparkawait_core::ErrorKind;
use sparkawait_task::error::TaskError;
use sparkawait_task::saved::{SavedBatch, SavedOperator, SavedRows};

use crate::ipc;
use crate::reader::{Reader, put_bytes, put_count};

const MAGIC: [u8; 4] = *b"SAWC";
const VERSION: u16 = 2;

/// Names a task among all of all processes; whoever knows it may take it up.
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
    /// The task that has the calls in flight.
    pub task: TaskId,
    /// Parts that the task had worked off.
    pub part: u64,
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
    /// What the operators hold, see [`write_operators`].
    pub operators: Vec<u8>,
}

/// Shows sizes only: row contents and the token do not belong in logs.
impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried")
            .field("shard", &self.shard)
            .field("task", &self.task)
            .field("part", &self.part)
            .field("completed_rows", &self.completed_rows)
            .finish_non_exhaustive()
    }
}

impl Carried {
    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let size = self.completed.iter().map(Vec::len).sum::<usize>() + self.operators.len();
        let mut out = Vec::with_capacity(size + 256);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 8]);
        out.extend(self.written_at.to_le_bytes());
        out.extend(self.shard.to_le_bytes());
        out.extend(self.shards.to_le_bytes());
        out.extend(self.task.0);
        out.extend(self.part.to_le_bytes());
        out.extend(self.token);
        put_bytes(&mut out, self.address.as_bytes());
        put_bytes(&mut out, &self.schema);
        out.extend(self.completed_rows.to_le_bytes());
        put_all(&mut out, self.completed.iter().map(Vec::as_slice));
        put_bytes(&mut out, &self.operators);
        let sum = checksum(&out[14..]);
        out[6..14].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// Written by another version, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, TaskError> {
        let mut reader = Reader::new(bytes);
        let version = reader.array::<4>().filter(|it| *it == MAGIC).and_then(|_| reader.u16());
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
        let sum = reader.u64();
        if sum != Some(checksum(bytes.get(14..).unwrap_or_default())) {
            return Err(damaged());
        }
        Self::read(&mut reader).ok_or_else(damaged)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let written_at = reader.array().map(i64::from_le_bytes)?;
        let (shard, shards) = (reader.array().map(i32::from_le_bytes)?, reader.u32()?);
        let (task, part) = (TaskId(reader.array()?), reader.u64()?);
        let token = reader.array()?;
        let address = String::from_utf8(reader.bytes()?.to_vec()).ok()?;
        let schema = reader.bytes()?.to_vec();
        let completed_rows = reader.u64()?;
        let completed = all(reader)?.into_iter().map(<[u8]>::to_vec).collect();
        let operators = reader.bytes()?.to_vec();
        reader.is_empty().then_some(Self {
            written_at,
            shard,
            shards,
            task,
            part,
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
pub fn write_operators(operators: &[SavedOperator]) -> Result<Vec<u8>, ArrowError> {
    let mut out = Vec::new();
    put_count(&mut out, operators.len());
    for operator in operators {
        put_count(&mut out, operator.pending);
        put_count(&mut out, operator.completed);
        put_bytes(&mut out, &operator.snapshot);
        put_count(&mut out, operator.rows.len());
        for SavedRows { restarts, batch } in &operator.rows {
            out.extend(restarts.to_le_bytes());
            put_bytes(&mut out, &ipc::write(&batch.0)?);
        }
        for batches in [operator.results.as_slice(), &operator.inputs] {
            put_count(&mut out, batches.len());
            for batch in batches {
                put_bytes(&mut out, &ipc::write(&batch.0)?);
            }
        }
    }
    Ok(out)
}

/// Reads what [`write_operators`] has written.
///
/// # Errors
///
/// The bytes are damaged.
pub fn read_operators(bytes: &[u8]) -> Result<Vec<SavedOperator>, TaskError> {
    let mut reader = Reader::new(bytes);
    let operators = (|| {
        let count = reader.count()?;
        (0..count).map(|_| read_operator(&mut reader)).collect::<Option<Vec<_>>>()
    })();
    operators.filter(|_| reader.is_empty()).ok_or_else(damaged)
}

fn read_operator(reader: &mut Reader<'_>) -> Option<SavedOperator> {
    let batch = |bytes: &[u8]| ipc::read_one(bytes).ok().map(SavedBatch);
    let (pending, completed) = (reader.u64()?, reader.u64()?);
    let snapshot = reader.bytes()?.to_vec();
    let groups = reader.count()?;
    let mut rows = Vec::new();
    for _ in 0..groups {
        let restarts = reader.u32()?;
        rows.push(SavedRows { restarts, batch: batch(reader.bytes()?)? });
    }
    let results = all(reader)?.into_iter().map(batch).collect::<Option<Vec<_>>>()?;
    let inputs = all(reader)?.into_iter().map(batch).collect::<Option<Vec<_>>>()?;
    Some(SavedOperator {
        rows,
        results: results.into_iter().next(),
        inputs,
        snapshot,
        pending: usize::try_from(pending).ok()?,
        completed: usize::try_from(completed).ok()?,
    })
}

/// Counts the rows of what [`write_operators`] has written, as [`count_rows`] does.
///
/// # Errors
///
/// As [`read_operators`].
pub fn counts_of(operators: &[u8]) -> Result<(u64, u64), TaskError> {
    if operators.is_empty() {
        return Ok((0, 0));
    }
    let (pending, completed) = count_rows(&read_operators(operators)?);
    Ok((pending as u64, completed as u64))
}

/// Counts the rows of what operators hold: those without an outcome, and those with one.
pub fn count_rows(operators: &[SavedOperator]) -> (usize, usize) {
    let inputs = |it: &SavedOperator| it.inputs.iter().map(|it| rows_of(&it.0)).sum::<usize>();
    let pending = operators.iter().map(|it| it.pending + inputs(it)).sum();
    (pending, operators.iter().map(|it| it.completed).sum())
}

fn rows_of(batch: &RecordBatch) -> usize {
    batch.num_rows()
}

fn put_all<'a>(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = &'a [u8]>) {
    put_count(out, items.len());
    items.for_each(|it| put_bytes(out, it));
}

fn all<'a>(reader: &mut Reader<'a>) -> Option<Vec<&'a [u8]>> {
    let count = reader.count()?;
    (0..count).map(|_| reader.bytes()).collect()
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
            task: TaskId([3; 16]),
            part: 5,
            token: [9; 16],
            address: "/tmp/a.sock".to_owned(),
            schema: vec![7; 3],
            completed_rows: 2,
            completed: vec![vec![1, 2, 3], Vec::new()],
            operators: vec![4; 100],
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
    fn newer_version_is_named() {
        let mut bytes = carried().encode();
        bytes[4] = 3;

        let error = Carried::decode(&bytes).unwrap_err();

        assert!(
            matches!(error, TaskError::Saved { kind: ErrorKind::SnapshotVersionUnknown, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("format 3"), "{error}");
    }

    #[test]
    fn what_is_shown_has_neither_rows_nor_the_token() {
        let shown = format!("{:?}", carried());

        assert!(shown.contains("completed_rows: 2"), "{shown}");
        assert!(!shown.contains('9'), "{shown}");
    }
}
