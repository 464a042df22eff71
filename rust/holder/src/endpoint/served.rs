// SPDX-License-Identifier: Apache-2.0
//! A step of another process, in the process of its task.

use std::io::{self, ErrorKind as IoKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sparkawait_core::ErrorKind;
use sparkawait_runtime::Patience;
use sparkawait_task::error::TaskError;
use sparkawait_wire::ChannelKey;

use super::inbox::Received;
use super::link::Link;
use super::messages::{ANSWER, FAILED, NOT_HERE, Subject, TURN, about};
use crate::bundles::BundleId;
use crate::detached::{Begun, Claim, Counts, DetachedTask, PartEnd};
use crate::ipc;
use crate::reader::{Reader, put_bytes};

/// Bytes of a piece of something that is to be sent: what others send goes between.
const PIECE: usize = 256 << 10;

/// Carries out what the other end asks for, on a thread of its own.
pub(super) fn serve(link: Arc<Link>, channel: ChannelKey, subject: Subject) -> io::Result<()> {
    std::thread::Builder::new()
        .name("sparkawait-holder".to_owned())
        .spawn(move || serve_step(&link, channel, &subject))
        .map(drop)
}

fn serve_step(link: &Link, answers: ChannelKey, subject: &Subject) {
    let Some(task) = begin(subject) else {
        return link.reset(answers, NOT_HERE, Bytes::new());
    };
    let Ok(rows) = link.open(&Subject::Rows(answers)) else { return task.leave() };
    let served = serve_part(link, &task, answers, rows);
    link.close(rows);
    match served {
        Ok(end) => {
            // If the other end is gone, its batch has failed, and is carried out again.
            let _ = answer(link, answers, &end);
        }
        Err(Broken::Off) => task.leave(),
        Err(Broken::Other) => {
            task.abandon();
            link.reset(answers, NOT_HERE, Bytes::new());
        }
        Err(Broken::Failed(error)) => {
            let mut reason = Vec::new();
            put_bytes(&mut reason, kind_of(&error).as_str().as_bytes());
            reason.extend(error.to_string().as_bytes());
            link.reset(answers, FAILED, Bytes::from(reason));
        }
    }
}

fn begin(subject: &Subject) -> Option<Arc<DetachedTask>> {
    let Subject::Part { task, owner, part } = subject else { return None };
    let task = DetachedTask::find(*task)?;
    match task.begin_within(owner, *part, ANSWER / 2) {
        Begun::Yes => Some(task),
        Begun::Busy => None,
        Begun::Stale => {
            task.abandon();
            None
        }
    }
}

/// Why a part did not come to its end.
enum Broken {
    /// Whoever brought it is gone. It may be brought again.
    Off,
    /// The task has other rows of it.
    Other,
    /// The task has failed.
    Failed(TaskError),
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Off
    }
}

/// Takes a part, and waits for what it comes to.
fn serve_part(
    link: &Link,
    task: &DetachedTask,
    answers: ChannelKey,
    rows: ChannelKey,
) -> Result<Arc<PartEnd>, Broken> {
    let mut patience = Patience::Drain;
    loop {
        match link.receive(rows, TURN)? {
            Received::Message(cost, payload) => {
                match payload.split_first() {
                    Some((&about::ROWS, bundle)) => put(link, task, answers, bundle)?,
                    Some((&about::PATIENCE, linger)) => {
                        let linger = Reader::new(linger).u64().filter(|it| *it < u64::MAX);
                        let linger = linger.map(Duration::from_nanos);
                        patience = linger.map_or(Patience::Drain, Patience::Linger);
                    }
                    _ => return Err(Broken::Off),
                }
                link.recycle(rows, cost);
            }
            Received::Ended => break,
            Received::Nothing if link.is_wanted(answers) => {}
            _ => return Err(Broken::Off),
        }
    }
    if !task.put_end(patience) {
        return Err(Broken::Other);
    }
    loop {
        match task.wait(TURN) {
            Ok(Some(end)) => return Ok(end),
            Ok(None) if link.is_wanted(answers) => {}
            Ok(None) => return Err(Broken::Off),
            Err(error) => return Err(Broken::Failed(error)),
        }
    }
}

fn put(link: &Link, task: &DetachedTask, answers: ChannelKey, rows: &[u8]) -> Result<(), Broken> {
    let bundle = BundleId::of(rows);
    match task.claim(bundle) {
        Claim::Known => return Ok(()),
        Claim::Other => return Err(Broken::Other),
        Claim::New => {}
    }
    let batches = ipc::read(rows).map_err(io::Error::other)?;
    for (number, mut batch) in batches.into_iter().enumerate() {
        while let Err(returned) = task.put_within(batch, TURN) {
            if !link.is_wanted(answers) {
                // Nobody could tell how much of a bundle is there.
                return Err(if number == 0 { Broken::Off } else { Broken::Other });
            }
            batch = returned;
        }
    }
    task.note(bundle);
    Ok(())
}

/// Says what the part came to, as fast as the other end wants it.
fn answer(link: &Link, answers: ChannelKey, end: &PartEnd) -> io::Result<()> {
    let mut numbers = Vec::new();
    let oldest = u64::try_from(end.oldest.as_nanos()).unwrap_or(u64::MAX);
    let counts = end.counts.iter().flat_map(Counts::numbers);
    for number in [end.output_rows, end.carried, end.held, oldest].into_iter().chain(counts) {
        numbers.extend(number.to_le_bytes());
    }
    send(link, answers, about::NUMBERS, &numbers)?;
    for output in &end.outputs {
        send(link, answers, about::OUTPUT, output)?;
    }
    send(link, answers, about::OPERATORS, &end.operators)?;
    link.end(answers);
    Ok(())
}

/// Sends something in pieces once they are wanted; each says whether it is the last one.
fn send(link: &Link, answers: ChannelKey, about: u8, bytes: &[u8]) -> io::Result<()> {
    let mut pieces = bytes.chunks(PIECE).peekable();
    loop {
        let piece = pieces.next().unwrap_or_default();
        let is_last = pieces.peek().is_none();
        let mut payload = Vec::with_capacity(2 + piece.len());
        payload.extend([about, u8::from(is_last)]);
        payload.extend(piece);
        while !link.has_room(answers, None, TURN)? {
            if !link.is_wanted(answers) {
                return Err(IoKind::BrokenPipe.into());
            }
        }
        link.push(answers, Bytes::from(payload))?;
        if is_last {
            return Ok(());
        }
    }
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
