// SPDX-License-Identifier: Apache-2.0
//! A step of a task of another process.

use std::fmt;
use std::io::{self, ErrorKind as IoKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use sparkawait_core::ErrorKind;
use sparkawait_runtime::Patience;
use sparkawait_wire::ChannelKey;

use super::inbox::Received;
use super::link::Link;
use super::messages::{ANSWER, Address, FAILED, GIVEN_UP, Subject, TURN, about};
use crate::part_end::{Counts, NUMBERS, PartEnd};
use crate::reader::bytes;
use crate::state::TaskId;

/// Why a step over a connection did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The other process is gone, or does not answer as it should: the rows are in the state.
    #[error("the process that held the rows is gone: {0}")]
    Lost(#[from] io::Error),
    /// The task failed.
    #[error("{message}")]
    Failed {
        /// The stable code.
        kind: ErrorKind,
        /// Why.
        message: String,
    },
}

/// A task of another process, for one part.
///
/// Dropped before its end, it leaves the part to the next that begins it.
#[derive(Debug)]
pub struct RemoteTask {
    link: Arc<Link>,
    /// What the part comes to is received here.
    answer: ChannelKey,
    /// Its rows are sent here.
    rows: ChannelKey,
}

impl RemoteTask {
    /// Begins a part of a task; `None` if the task is not there, or elsewhere with its input.
    pub fn begin(address: &Address, id: TaskId, owner: &str, part: u64) -> Option<Self> {
        let subject = Subject::Part { task: id, owner: owner.to_owned(), part };
        let (link, answer) = Link::ask(address, &subject).ok()?;
        if let Ok(Received::Wanted(rows)) = link.receive(answer, ANSWER) {
            return Some(Self { link, answer, rows });
        }
        link.close(answer);
        None
    }

    /// Hands rows over, once they are wanted; false if they are not within a short time.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn put(&mut self, rows: &Bundle) -> Result<bool, StepError> {
        self.send(&rows.0)
    }

    fn send(&mut self, payload: &Bytes) -> Result<bool, StepError> {
        if self.link.push_within(self.rows, Some(self.answer), payload, TURN)? {
            return Ok(true);
        }
        match self.link.receive(self.answer, Duration::ZERO)? {
            Received::Nothing if self.link.is_wanted(self.rows) => Ok(false),
            received => Err(failure(&received)),
        }
    }

    /// Says that the part has no further rows; false if it cannot within a short time.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn put_end(&mut self, patience: Patience) -> Result<bool, StepError> {
        let nanos = match patience {
            Patience::Drain => u64::MAX,
            Patience::Linger(linger) => u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX - 1),
        };
        let is_sent = self.send(&message(about::PATIENCE, &nanos.to_le_bytes()))?;
        if is_sent {
            self.link.end(self.rows);
        }
        Ok(is_sent)
    }

    /// Waits for what the part came to, and adds to `end` what comes; true if that is all.
    ///
    /// # Errors
    ///
    /// The task has failed, or its process is gone.
    pub fn wait(&mut self, end: &mut Answer) -> Result<bool, StepError> {
        match self.link.receive(self.answer, TURN)? {
            Received::Nothing => Ok(false),
            Received::Message(cost, payload) => {
                let added = end.add(&payload);
                self.link.recycle(self.answer, cost);
                added.ok_or_else(|| io::Error::from(IoKind::InvalidData))?;
                Ok(false)
            }
            Received::Ended => Ok(true),
            received => Err(failure(&received)),
        }
    }
}

impl Drop for RemoteTask {
    fn drop(&mut self) {
        self.link.reset(self.rows, GIVEN_UP, Bytes::new());
        self.link.close(self.answer);
    }
}

/// Rows on their way to a task, made once however often it is tried to hand them over.
pub struct Bundle(Bytes);

impl Bundle {
    /// Makes it of rows as Arrow IPC.
    pub fn new(rows: &[u8]) -> Self {
        Self(message(about::ROWS, rows))
    }
}

/// Shows sizes only: row contents do not belong in logs.
impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("bytes", &self.0.len()).finish()
    }
}

fn message(about: u8, bytes: &[u8]) -> Bytes {
    let mut payload = Vec::with_capacity(1 + bytes.len());
    payload.push(about);
    payload.extend(bytes);
    Bytes::from(payload)
}

/// What a part came to, as far as it has come.
#[derive(Debug, Default)]
pub struct Answer {
    end: PartEnd,
    piece: Vec<u8>,
}

impl Answer {
    /// Returns it, when all of it has come.
    pub fn finish(self) -> PartEnd {
        self.end
    }

    fn add(&mut self, payload: &[u8]) -> Option<()> {
        let [about, is_last, bytes @ ..] = payload else { return None };
        self.piece.extend(bytes);
        if *is_last == 0 {
            return Some(());
        }
        let whole = std::mem::take(&mut self.piece);
        match *about {
            about::OUTPUT => self.end.outputs.push(whole),
            about::OPERATOR => self.end.operators.push(whole),
            about::NUMBERS => {
                let mut rest = whole.as_slice();
                self.end.output_rows = rest.try_get_u64_le().ok()?;
                self.end.carried = rest.try_get_u64_le().ok()?;
                self.end.held = rest.try_get_u64_le().ok()?;
                self.end.input = rest.try_get_u64_le().ok()?;
                self.end.oldest = Duration::from_nanos(rest.try_get_u64_le().ok()?);
                while !rest.is_empty() {
                    let mut numbers = [0; NUMBERS];
                    for number in &mut numbers {
                        *number = rest.try_get_i64_le().ok()?;
                    }
                    self.end.counts.push(Counts::from_numbers(numbers));
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// Says why a step has come to no end.
fn failure(received: &Received) -> StepError {
    let Received::Reset(FAILED, reason) = received else {
        return StepError::Lost(io::Error::new(IoKind::ConnectionAborted, "it has other rows"));
    };
    let mut rest: &[u8] = reason;
    let kind = bytes(&mut rest).and_then(|it| std::str::from_utf8(it).ok());
    let kind = kind.and_then(ErrorKind::from_code).unwrap_or(ErrorKind::Internal);
    let message = String::from_utf8_lossy(rest).into_owned();
    StepError::Failed { kind, message }
}
