// SPDX-License-Identifier: Apache-2.0
//! A step of another process, in the process of its task.

use std::io::{self, ErrorKind as IoKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sparkawait_core::ErrorKind;
use sparkawait_runtime::Patience;
use sparkawait_task::error::TaskError;
use sparkawait_wire::Frame;

use super::connection::{CHANNEL, Connection, GREETING, unexpected};
use super::messages::{FAILED, NOT_HERE, TURN, about, read_subject};
use crate::bundles::BundleId;
use crate::detached::{Begun, Claim, Counts, DetachedTask, PartEnd};
use crate::ipc;
use crate::reader::{Reader, put_bytes};

/// Bytes of a piece of something that is larger than a frame may be.
const PIECE: usize = 16 << 20;

/// Carries out the step of a connection.
pub(super) fn serve(stream: UnixStream, token: [u8; 16]) {
    let Ok(mut connection) = Connection::greet(stream, token) else { return };
    let Ok(Some(Frame::Open { subject, .. })) = connection.receive(GREETING) else { return };
    let task = read_subject(&subject).and_then(|(id, run, part)| {
        let task = DetachedTask::find(id)?;
        match task.begin_within(&run, part, GREETING / 2) {
            Begun::Yes => Some(task),
            Begun::Busy => None,
            Begun::Stale => {
                task.abandon();
                None
            }
        }
    });
    let Some(task) = task else {
        let _ = connection.reset(NOT_HERE, String::new());
        return;
    };
    match serve_part(&mut connection, &task) {
        Ok(Some(end)) => {
            // If the other end is gone, its batch has failed, and is carried out again.
            let _ = answer(&mut connection, &end);
        }
        Ok(None) => {}
        Err(Broken::Off) => task.leave(),
        Err(Broken::Other) => {
            task.abandon();
            let _ = connection.reset(NOT_HERE, String::new());
        }
    }
}

/// Why a part did not come to its end.
enum Broken {
    /// Whoever brought it is gone. It may be brought again.
    Off,
    /// The task has other rows of it.
    Other,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Off
    }
}

/// Takes a part; returns nothing if the task has failed, and the other end was told.
fn serve_part(
    connection: &mut Connection,
    task: &Arc<DetachedTask>,
) -> Result<Option<Arc<PartEnd>>, Broken> {
    connection.add_credit()?;
    let mut patience = Patience::Drain;
    loop {
        let Some(frame) = connection.receive(TURN)? else { continue };
        match frame {
            Frame::Data { payload, .. } => match payload.split_first() {
                Some((&about::ROWS, rows)) => {
                    put(connection, task, rows)?;
                    connection.add_credit()?;
                }
                Some((&about::PATIENCE, linger)) => {
                    let linger = Reader::new(linger).u64().filter(|it| *it < u64::MAX);
                    let linger = linger.map(Duration::from_nanos);
                    patience = linger.map_or(Patience::Drain, Patience::Linger);
                }
                _ => return Err(io::Error::from(IoKind::InvalidData).into()),
            },
            Frame::End { .. } => break,
            frame => return Err(unexpected(&frame).into()),
        }
    }
    if !task.put_end(patience) {
        return Err(Broken::Other);
    }
    loop {
        match task.wait(TURN) {
            Ok(Some(end)) => return Ok(Some(end)),
            Ok(None) => is_there(connection)?,
            Err(error) => {
                let mut reason = Vec::new();
                put_bytes(&mut reason, kind_of(&error).as_str().as_bytes());
                reason.extend(error.to_string().as_bytes());
                let reason = Bytes::from(reason);
                connection.send(Frame::Reset { channel: CHANNEL, code: FAILED, reason })?;
                return Ok(None);
            }
        }
    }
}

fn put(connection: &mut Connection, task: &DetachedTask, rows: &[u8]) -> Result<(), Broken> {
    let bundle = BundleId::of(rows);
    match task.claim(bundle) {
        Claim::Known => return Ok(()),
        Claim::Other => return Err(Broken::Other),
        Claim::New => {}
    }
    let batches = ipc::read(rows).map_err(io::Error::other)?;
    for (number, mut batch) in batches.into_iter().enumerate() {
        while let Err(returned) = task.put_within(batch, TURN) {
            // Nobody could tell how much of a bundle is there.
            is_there(connection)
                .map_err(|_| if number == 0 { Broken::Off } else { Broken::Other })?;
            batch = returned;
        }
    }
    task.note(bundle);
    Ok(())
}

/// Looks whether the other end is there, which has nothing to say.
fn is_there(connection: &mut Connection) -> io::Result<()> {
    match connection.receive(Duration::from_millis(1))? {
        None => Ok(()),
        Some(frame) => Err(unexpected(&frame)),
    }
}

/// Says what the part came to, as fast as the other end wants it.
fn answer(connection: &mut Connection, end: &PartEnd) -> io::Result<()> {
    connection.credit = 1;
    let mut numbers = Vec::new();
    let oldest = u64::try_from(end.oldest.as_nanos()).unwrap_or(u64::MAX);
    let counts = end.counts.iter().flat_map(Counts::numbers);
    for number in [end.output_rows, end.carried, end.held, oldest].into_iter().chain(counts) {
        numbers.extend(number.to_le_bytes());
    }
    send_wanted(connection, about::NUMBERS, &numbers, true)?;
    for output in &end.outputs {
        send_pieces(connection, about::OUTPUT, output)?;
    }
    send_pieces(connection, about::OPERATORS, &end.operators)?;
    let sequence = connection.sequence;
    connection.send(Frame::End { channel: CHANNEL, sequence })
}

fn send_pieces(connection: &mut Connection, about: u8, bytes: &[u8]) -> io::Result<()> {
    let mut pieces = bytes.chunks(PIECE).peekable();
    while let Some(piece) = pieces.next() {
        send_wanted(connection, about, piece, pieces.peek().is_none())?;
    }
    Ok(())
}

/// Sends a piece of something once it is wanted, and whether it is the last one of it.
fn send_wanted(
    connection: &mut Connection,
    about: u8,
    piece: &[u8],
    is_last: bool,
) -> io::Result<()> {
    while connection.credit == 0 {
        match connection.receive(TURN)? {
            Some(Frame::AddCredit { credit, .. }) => connection.credit += credit,
            Some(frame) => return Err(unexpected(&frame)),
            None => {}
        }
    }
    connection.send_data(about, &[&[u8::from(is_last)], piece])
}

fn kind_of(error: &TaskError) -> ErrorKind {
    match error {
        TaskError::Row { failure, .. } => failure.kind,
        TaskError::TimedOut { .. } => ErrorKind::ElementTimedOut,
        TaskError::Start(error) => error.kind,
        TaskError::Saved { kind, .. } => *kind,
        TaskError::Arrow(_) => ErrorKind::InputInvalid,
        _ => ErrorKind::Internal,
    }
}
