// SPDX-License-Identifier: Apache-2.0
//! The byte format of a snapshot whose values are bytes already.
//!
//! ```text
//!   "SAWS"  version: u16  count: u32  element*  checksum: u64 (FNV-1a of all before)
//!   element = 0  timestamp: i64                                    a watermark
//!           | 1  timestamp: option  attempts: u32  value: bytes  state
//!   state   = 0  time left: option  back-off left: option  was running: u8
//!           | 1 results: bytes | 2 error: bytes | 3 error: bytes (retries exhausted) | 4 (timed out)
//!   option  = 0 | 1 i64        bytes = length: u32 byte*        all little endian
//! ```

use std::fmt;
use std::time::Duration;

use super::{Failure, Snapshot, SnapshotRecord, SnapshotState};
use crate::element::{StreamElement, StreamRecord, Timestamp, Watermark};

/// A snapshot of values that the caller has serialised.
type ByteSnapshot = Snapshot<Vec<u8>, Vec<u8>, Vec<u8>>;
type ByteRecord = SnapshotRecord<Vec<u8>, Vec<u8>, Vec<u8>>;
type ByteState = SnapshotState<Vec<u8>, Vec<u8>>;

const MAGIC: &[u8; 4] = b"SAWS";
const VERSION: u16 = 1;
/// Bytes of the trailing checksum.
const CHECKSUM_BYTES: usize = 8;

/// Why bytes are not a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// Written by a version of the format that this one does not read.
    UnknownVersion(u16),
    /// Truncated, altered, or no snapshot at all.
    Damaged,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion(version) => {
                write!(f, "snapshot has version `{version}`, this operator reads `{VERSION}`")
            }
            Self::Damaged => f.write_str("snapshot bytes are damaged or truncated"),
        }
    }
}

impl std::error::Error for SnapshotError {}

/// Writes a snapshot.
pub fn encode_snapshot(snapshot: &ByteSnapshot) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend(length(snapshot.len()));
    for element in snapshot {
        match element {
            StreamElement::Watermark(Watermark(Timestamp(timestamp))) => {
                out.push(0);
                out.extend(timestamp.to_le_bytes());
            }
            StreamElement::Record(record) => {
                out.push(1);
                encode_record(&mut out, record);
            }
        }
    }
    out.extend(checksum(&out).to_le_bytes());
    out
}

fn encode_record(out: &mut Vec<u8>, record: &ByteRecord) {
    encode_option(out, record.record.timestamp.map(|Timestamp(timestamp)| timestamp));
    out.extend(record.attempts.to_le_bytes());
    encode_bytes(out, &record.record.value);
    match &record.state {
        SnapshotState::Pending { time_left, backoff_left, was_running } => {
            out.push(0);
            encode_option(out, time_left.map(nanos));
            encode_option(out, backoff_left.map(nanos));
            out.push(u8::from(*was_running));
        }
        SnapshotState::Completed(Ok(results)) => {
            out.push(1);
            encode_bytes(out, results);
        }
        SnapshotState::Completed(Err(Failure::Function(error))) => {
            out.push(2);
            encode_bytes(out, error);
        }
        SnapshotState::Completed(Err(Failure::RetriesExhausted(error))) => {
            out.push(3);
            encode_bytes(out, error);
        }
        SnapshotState::Completed(Err(Failure::TimedOut)) => out.push(4),
    }
}

fn encode_option(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        out.extend(value.to_le_bytes());
    }
}

fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(length(bytes.len()));
    out.extend(bytes);
}

/// A snapshot holds at most `capacity` elements: its lengths are far below 2^32.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// FNV-1a: finds damage, does not resist forgery.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Reads a snapshot.
///
/// # Errors
///
/// [`SnapshotError`], for any bytes that [`encode_snapshot`] did not write.
pub fn decode_snapshot(bytes: &[u8]) -> Result<ByteSnapshot, SnapshotError> {
    let mut reader = Reader { bytes };
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(SnapshotError::Damaged);
    }
    let version = u16::from_le_bytes(reader.array()?);
    if version != VERSION {
        return Err(SnapshotError::UnknownVersion(version));
    }
    let (body, sum) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM_BYTES));
    if checksum(body).to_le_bytes() != sum {
        return Err(SnapshotError::Damaged);
    }
    let count = u32::from_le_bytes(reader.array()?);
    let elements = (0..count).map(|_| reader.element()).collect::<Result<_, _>>()?;
    if reader.bytes.len() == CHECKSUM_BYTES { Ok(elements) } else { Err(SnapshotError::Damaged) }
}

/// What is left to read.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], SnapshotError> {
        let (head, tail) = self.bytes.split_at_checked(length).ok_or(SnapshotError::Damaged)?;
        self.bytes = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        self.take(N)?.try_into().map_err(|_| SnapshotError::Damaged)
    }

    fn byte(&mut self) -> Result<u8, SnapshotError> {
        self.array().map(|[byte]| byte)
    }

    fn integer(&mut self) -> Result<i64, SnapshotError> {
        self.array().map(i64::from_le_bytes)
    }

    fn option(&mut self) -> Result<Option<i64>, SnapshotError> {
        match self.byte()? {
            0 => Ok(None),
            1 => self.integer().map(Some),
            _ => Err(SnapshotError::Damaged),
        }
    }

    fn duration(&mut self) -> Result<Option<Duration>, SnapshotError> {
        let Some(nanos) = self.option()? else { return Ok(None) };
        u64::try_from(nanos)
            .map(|nanos| Some(Duration::from_nanos(nanos)))
            .map_err(|_| SnapshotError::Damaged)
    }

    fn owned(&mut self) -> Result<Vec<u8>, SnapshotError> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).unwrap_or(usize::MAX)).map(<[u8]>::to_vec)
    }

    fn element(&mut self) -> Result<StreamElement<ByteRecord>, SnapshotError> {
        match self.byte()? {
            0 => Ok(StreamElement::Watermark(Watermark(Timestamp(self.integer()?)))),
            1 => {
                let timestamp = self.option()?.map(Timestamp);
                let attempts = u32::from_le_bytes(self.array()?);
                let record = StreamRecord { value: self.owned()?, timestamp };
                Ok(StreamElement::Record(SnapshotRecord { record, attempts, state: self.state()? }))
            }
            _ => Err(SnapshotError::Damaged),
        }
    }

    fn state(&mut self) -> Result<ByteState, SnapshotError> {
        let outcome = match self.byte()? {
            0 => {
                return Ok(SnapshotState::Pending {
                    time_left: self.duration()?,
                    backoff_left: self.duration()?,
                    was_running: self.byte()? != 0,
                });
            }
            1 => Ok(self.owned()?),
            2 => Err(Failure::Function(self.owned()?)),
            3 => Err(Failure::RetriesExhausted(self.owned()?)),
            4 => Err(Failure::TimedOut),
            _ => return Err(SnapshotError::Damaged),
        };
        Ok(SnapshotState::Completed(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending() -> ByteState {
        let time_left = Some(Duration::from_nanos(7));
        SnapshotState::Pending { time_left, backoff_left: None, was_running: true }
    }

    fn sample() -> ByteSnapshot {
        let completed = |outcome| SnapshotState::Completed(outcome);
        let states = [
            pending(),
            completed(Ok(b"results".to_vec())),
            completed(Err(Failure::Function(b"down".to_vec()))),
            completed(Err(Failure::RetriesExhausted(Vec::new()))),
            completed(Err(Failure::TimedOut)),
        ];
        let records = states.into_iter().map(|state| {
            let record = StreamRecord::new(b"value".to_vec(), Some(Timestamp(-3)));
            StreamElement::Record(SnapshotRecord { record, attempts: 2, state })
        });
        records.chain([StreamElement::Watermark(Watermark(Timestamp(i64::MIN)))]).collect()
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        assert_eq!(decode_snapshot(&encode_snapshot(&sample())), Ok(sample()));
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let bytes = encode_snapshot(&sample());

        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x55;
            assert!(decode_snapshot(&damaged).is_err(), "byte {position}");
        }
    }

    #[test]
    fn every_truncation_is_found() {
        let bytes = encode_snapshot(&sample());

        for length in 0..bytes.len() {
            assert!(decode_snapshot(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = encode_snapshot(&sample());
        bytes[4] = 9;

        assert_eq!(decode_snapshot(&bytes), Err(SnapshotError::UnknownVersion(9)));
    }
}
