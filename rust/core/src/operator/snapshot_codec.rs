// SPDX-License-Identifier: Apache-2.0
//! The byte format of a snapshot whose values are bytes already.
//!
//! ```text
//!   "SAWS"  version: u16  count: u32  element*  checksum: u64 (of all before)
//!   element = 0  timestamp: i64                                    a watermark
//!           | 1  timestamp: option  attempts: u32  value: bytes  state
//!   state   = 0  time left: option  back-off left: option  was running: u8  last failure
//!           | 1 results: bytes | 2 error: bytes | 3 error: bytes (retries exhausted)
//!           | 4 last failure (timed out) | 5 last failure (its last attempt timed out)
//!           | 6 is paused: u8 i64 last failure (its destination is not there)
//!           | 7 i64 i64 last failure (too late for a retry)
//!           | 8 refusal last failure (the call was refused)
//!   refusal = 0 i64 (its destination is paused for so long)
//!   last failure = 0 | 1 error: bytes
//!   option  = 0 | 1 i64        bytes = length: u32 byte*        all little endian
//! ```
//!
//! Earlier versions are read, too: 3 has no state 6, 2 none beyond 7 and the checksum FNV-1a, 1 also
//! no last failures and no state beyond 4.

mod checksum;

use std::fmt;
use std::time::Duration;

use super::{
    Failure, NotCalled, Refusal, Snapshot, SnapshotRecord, SnapshotState, TooLate, Unavailable,
};
use crate::element::{StreamElement, StreamRecord, Timestamp, Watermark};
use checksum::checksum;

/// A snapshot of values that the caller has serialised.
type ByteSnapshot = Snapshot<Vec<u8>, Vec<u8>, Vec<u8>>;
type ByteRecord = SnapshotRecord<Vec<u8>, Vec<u8>, Vec<u8>>;
type ByteState = SnapshotState<Vec<u8>, Vec<u8>>;

const MAGIC: &[u8; 4] = b"SAWS";
const VERSION: u16 = 4;
/// The oldest version that is read.
const OLDEST_VERSION: u16 = 1;
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
                write!(
                    f,
                    "snapshot has version `{version}`, this operator reads `{OLDEST_VERSION}` to \
                     `{VERSION}`"
                )
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
    out.extend(checksum(VERSION, &out).to_le_bytes());
    out
}

fn encode_record(out: &mut Vec<u8>, record: &ByteRecord) {
    encode_option(out, record.record.timestamp.map(|Timestamp(timestamp)| timestamp));
    out.extend(record.attempts.to_le_bytes());
    encode_bytes(out, &record.record.value);
    match &record.state {
        SnapshotState::Pending { time_left, backoff_left, was_running, last_failure } => {
            out.push(0);
            encode_option(out, time_left.map(nanos));
            encode_option(out, backoff_left.map(nanos));
            out.push(u8::from(*was_running));
            encode_last_failure(out, last_failure.as_deref());
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
        SnapshotState::Completed(Err(Failure::TimedOut(last))) => {
            out.push(4);
            encode_last_failure(out, last.as_deref());
        }
        SnapshotState::Completed(Err(Failure::AttemptTimedOut(last))) => {
            out.push(5);
            encode_last_failure(out, last.as_deref());
        }
        SnapshotState::Completed(Err(Failure::NotCalled(failure))) => {
            let (reason, last) = failure.as_ref();
            encode_reason(out, *reason);
            encode_last_failure(out, last.as_deref());
        }
    }
}

fn encode_reason(out: &mut Vec<u8>, reason: NotCalled) {
    match reason {
        NotCalled::Unavailable(Unavailable { waited, is_paused }) => {
            out.extend([6, u8::from(is_paused)]);
            out.extend(nanos(waited).to_le_bytes());
        }
        NotCalled::TooLate(TooLate::Retry { delay, left }) => {
            out.push(7);
            out.extend(nanos(delay).to_le_bytes());
            out.extend(nanos(left).to_le_bytes());
        }
        NotCalled::Refused(Refusal::Paused(rest)) => {
            out.extend([8, 0]);
            out.extend(nanos(rest).to_le_bytes());
        }
    }
}

fn encode_option(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        out.extend(value.to_le_bytes());
    }
}

fn encode_last_failure(out: &mut Vec<u8>, error: Option<&[u8]>) {
    out.push(u8::from(error.is_some()));
    if let Some(error) = error {
        encode_bytes(out, error);
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

/// Reads a snapshot.
///
/// # Errors
///
/// [`SnapshotError`], for any bytes that [`encode_snapshot`] did not write.
pub fn decode_snapshot(bytes: &[u8]) -> Result<ByteSnapshot, SnapshotError> {
    let mut reader = Reader { bytes, version: VERSION };
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(SnapshotError::Damaged);
    }
    let version = u16::from_le_bytes(reader.array()?);
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        return Err(SnapshotError::UnknownVersion(version));
    }
    reader.version = version;
    let (body, sum) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM_BYTES));
    if checksum(version, body).to_le_bytes() != sum {
        return Err(SnapshotError::Damaged);
    }
    let count = u32::from_le_bytes(reader.array()?);
    let elements = (0..count).map(|_| reader.element()).collect::<Result<_, _>>()?;
    if reader.bytes.len() == CHECKSUM_BYTES { Ok(elements) } else { Err(SnapshotError::Damaged) }
}

/// What is left to read.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Of the format.
    version: u16,
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

    fn flag(&mut self) -> Result<bool, SnapshotError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(SnapshotError::Damaged),
        }
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
        self.option()?.map(duration).transpose()
    }

    fn nanos(&mut self) -> Result<Duration, SnapshotError> {
        self.integer().and_then(duration)
    }

    fn owned(&mut self) -> Result<Vec<u8>, SnapshotError> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).unwrap_or(usize::MAX)).map(<[u8]>::to_vec)
    }

    fn last_failure(&mut self) -> Result<Option<Vec<u8>>, SnapshotError> {
        if self.version < 2 {
            return Ok(None);
        }
        match self.byte()? {
            0 => Ok(None),
            1 => self.owned().map(Some),
            _ => Err(SnapshotError::Damaged),
        }
    }

    fn refusal(&mut self) -> Result<Refusal, SnapshotError> {
        match self.byte()? {
            0 => self.nanos().map(Refusal::Paused),
            _ => Err(SnapshotError::Damaged),
        }
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
                    last_failure: self.last_failure()?,
                });
            }
            1 => Ok(self.owned()?),
            2 => Err(Failure::Function(self.owned()?)),
            3 => Err(Failure::RetriesExhausted(self.owned()?)),
            4 => Err(Failure::TimedOut(self.last_failure()?)),
            5 if self.version > 1 => Err(Failure::AttemptTimedOut(self.last_failure()?)),
            6 if self.version > 3 => {
                let (is_paused, waited) = (self.flag()?, self.nanos()?);
                let why = NotCalled::Unavailable(Unavailable { waited, is_paused });
                Err(Failure::not_called(why, self.last_failure()?))
            }
            7 if self.version > 1 => {
                let (delay, left) = (self.nanos()?, self.nanos()?);
                Err(Failure::too_late(TooLate::Retry { delay, left }, self.last_failure()?))
            }
            8 if self.version > 2 => {
                let refusal = self.refusal()?;
                Err(Failure::refused(refusal, self.last_failure()?))
            }
            _ => return Err(SnapshotError::Damaged),
        };
        Ok(SnapshotState::Completed(outcome))
    }
}

fn duration(nanos: i64) -> Result<Duration, SnapshotError> {
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| SnapshotError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending() -> ByteState {
        let time_left = Some(Duration::from_nanos(7));
        let last_failure = Some(b"down".to_vec());
        SnapshotState::Pending { time_left, backoff_left: None, was_running: true, last_failure }
    }

    fn sample() -> ByteSnapshot {
        let completed = |outcome| SnapshotState::Completed(outcome);
        let states = [
            pending(),
            completed(Ok(b"results".to_vec())),
            completed(Err(Failure::Function(b"down".to_vec()))),
            completed(Err(Failure::RetriesExhausted(Vec::new()))),
            completed(Err(Failure::TimedOut(None))),
            completed(Err(Failure::TimedOut(Some(b"down".to_vec())))),
            completed(Err(Failure::AttemptTimedOut(Some(Vec::new())))),
            completed(Err(Failure::not_called(
                NotCalled::Unavailable(Unavailable {
                    waited: Duration::from_nanos(5),
                    is_paused: true,
                }),
                None,
            ))),
            completed(Err(Failure::too_late(
                TooLate::Retry { delay: Duration::from_secs(9), left: Duration::ZERO },
                Some(b"busy".to_vec()),
            ))),
            completed(Err(Failure::refused(
                Refusal::Paused(Duration::from_secs(7)),
                Some(b"down".to_vec()),
            ))),
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
    fn the_first_version_is_read() {
        // Two records, one pending and one timed out, as that version wrote them.
        let mut bytes = b"SAWS\x01\x00\x02\x00\x00\x00".to_vec();
        bytes.extend(b"\x01\x00\x03\x00\x00\x00\x01\x00\x00\x00v\x00\x00\x00\x01");
        bytes.extend(b"\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00w\x04");
        bytes.extend(checksum(1, &bytes).to_le_bytes());
        let record = |value: &[u8], attempts, state| {
            let record = StreamRecord::new(value.to_vec(), None);
            StreamElement::Record(SnapshotRecord { record, attempts, state })
        };
        let (time_left, backoff_left, last_failure) = (None, None, None);
        let pending =
            SnapshotState::Pending { time_left, backoff_left, was_running: true, last_failure };
        let timed_out = SnapshotState::Completed(Err(Failure::TimedOut(None)));

        let decoded = decode_snapshot(&bytes);

        assert_eq!(decoded, Ok(vec![record(b"v", 3, pending), record(b"w", 1, timed_out)]));
    }

    /// A snapshot as an earlier version wrote it, if it had nothing that is new.
    fn written_by(version: u16, snapshot: &ByteSnapshot) -> Vec<u8> {
        let mut bytes = encode_snapshot(snapshot);
        bytes[MAGIC.len()..][..2].copy_from_slice(&version.to_le_bytes());
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        bytes.extend(checksum(version, &bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn the_second_version_is_read() {
        let is_new = |element: &StreamElement<ByteRecord>| {
            let StreamElement::Record(it) = element else { return false };
            let SnapshotState::Completed(Err(Failure::NotCalled(failure))) = &it.state else {
                return false;
            };
            matches!(failure.0, NotCalled::Refused(_) | NotCalled::Unavailable(_))
        };
        let (new, known): (Vec<_>, Vec<_>) = sample().into_iter().partition(is_new);

        assert_eq!(decode_snapshot(&written_by(2, &known)), Ok(known));
        assert_eq!(decode_snapshot(&written_by(2, &new)), Err(SnapshotError::Damaged));
        // Made of the rules above, byte by byte.
        let mut bytes = b"SAWS\x02\x00\x01\x00\x00\x00".to_vec();
        bytes.extend(b"\x01\x00\x03\x00\x00\x00\x01\x00\x00\x00v\x05\x01\x04\x00\x00\x00down");
        bytes.extend(0x3A9D_9238_F5EC_9C91_u64.to_le_bytes());
        let state = SnapshotState::Completed(Err(Failure::AttemptTimedOut(Some(b"down".to_vec()))));
        let record = StreamRecord::new(b"v".to_vec(), None);
        let record = StreamElement::Record(SnapshotRecord { record, attempts: 3, state });
        assert_eq!(decode_snapshot(&bytes), Ok(vec![record]));
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = encode_snapshot(&sample());
        bytes[4] = 9;

        assert_eq!(decode_snapshot(&bytes), Err(SnapshotError::UnknownVersion(9)));
    }
}
