// SPDX-License-Identifier: Apache-2.0
//! A step of a task of another process.

use std::io::{self, ErrorKind as IoKind};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::Bytes;
use sparkawait_core::ErrorKind;
use sparkawait_runtime::Patience;
use sparkawait_wire::Frame;

use super::connection::{CHANNEL, Connection, GREETING, unexpected};
use super::messages::{Address, FAILED, TURN, about, write_subject};
use crate::detached::{Counts, PartEnd};
use crate::reader::Reader;
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
#[derive(Debug)]
pub struct RemoteTask {
    connection: Connection,
}

impl RemoteTask {
    /// Begins a part of a task; `None` if the task is not there, or elsewhere with its input.
    pub fn begin(address: &Address, id: TaskId, run: &str, part: u64) -> Option<Self> {
        let stream = UnixStream::connect(&address.path).ok()?;
        stream.set_write_timeout(None).ok()?;
        let mut connection = Connection::greet(stream, address.token).ok()?;
        let subject = Bytes::from(write_subject(id, run, part));
        connection.send(Frame::Open { channel: CHANNEL, credit: 1, subject }).ok()?;
        match connection.receive(GREETING).ok()?? {
            Frame::AddCredit { credit, .. } => {
                connection.credit = credit;
                Some(Self { connection })
            }
            _ => None,
        }
    }

    /// Waits until a bundle is wanted; false if none is within a short time.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn is_wanted(&mut self) -> Result<bool, StepError> {
        if self.connection.credit == 0 {
            match self.connection.receive(TURN)? {
                None => {}
                Some(Frame::AddCredit { credit, .. }) => self.connection.credit += credit,
                Some(frame) => return Err(failure(&frame)),
            }
        }
        Ok(self.connection.credit > 0)
    }

    /// Hands rows over as Arrow IPC, once they are wanted.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn put(&mut self, rows: &[u8]) -> Result<(), StepError> {
        Ok(self.connection.send_data(about::ROWS, &[rows])?)
    }

    /// Says that the part has no further rows.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn put_end(&mut self, patience: Patience) -> Result<(), StepError> {
        let nanos = match patience {
            Patience::Drain => u64::MAX,
            Patience::Linger(linger) => u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX - 1),
        };
        self.connection.send_data(about::PATIENCE, &[&nanos.to_le_bytes()])?;
        let sequence = self.connection.sequence;
        Ok(self.connection.send(Frame::End { channel: CHANNEL, sequence })?)
    }

    /// Waits for what the part came to, and adds to `end` what comes; true if that is all.
    ///
    /// # Errors
    ///
    /// The task has failed, or its process is gone.
    pub fn wait(&mut self, end: &mut Answer) -> Result<bool, StepError> {
        let Some(frame) = self.connection.receive(TURN)? else { return Ok(false) };
        match frame {
            Frame::Data { payload, .. } => {
                end.add(&payload).ok_or_else(|| io::Error::from(IoKind::InvalidData))?;
                // Behind its last message the other end is gone, which is no loss.
                let _ = self.connection.add_credit();
                Ok(false)
            }
            Frame::End { .. } => Ok(true),
            // What bundles were worth, and nobody needs any more.
            Frame::AddCredit { .. } => Ok(false),
            frame => Err(failure(&frame)),
        }
    }
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
            about::OPERATORS => self.end.operators = whole,
            about::NUMBERS => {
                let mut reader = Reader::new(&whole);
                self.end.output_rows = reader.u64()?;
                self.end.carried = reader.u64()?;
                self.end.held = reader.u64()?;
                self.end.oldest = Duration::from_nanos(reader.u64()?);
                while !reader.is_empty() {
                    let mut numbers = [0; 8];
                    for number in &mut numbers {
                        *number = reader.u64()?;
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
fn failure(frame: &Frame) -> StepError {
    let Frame::Reset { code: FAILED, reason, .. } = frame else {
        return StepError::Lost(unexpected(frame));
    };
    let mut reader = Reader::new(reason);
    let kind = reader.bytes().and_then(|it| std::str::from_utf8(it).ok());
    let kind = kind.and_then(ErrorKind::from_code).unwrap_or(ErrorKind::Internal);
    let message = String::from_utf8_lossy(reader.rest()).into_owned();
    StepError::Failed { kind, message }
}
