// SPDX-License-Identifier: Apache-2.0
//! A step of another process, in the process of its task.

use std::io::{self, ErrorKind as IoKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use sparkawait_runtime::Patience;
use sparkawait_task::error::TaskError;
use sparkawait_wire::ChannelKey;

use super::inbox::Received;
use super::link::Link;
use super::messages::{ANSWER, FAILED, GIVEN_UP, NOT_HERE, Subject, TURN, about};
use crate::bundles::BundleId;
use crate::detached::DetachedTask;
use crate::ipc;
use crate::part::{Begun, Claim};
use crate::part_end::{Counts, PartEnd};
use crate::reader::put_bytes;

/// Bytes of a piece of something long: what others send goes between the pieces.
const PIECE: usize = 256 << 10;

/// Carries out what the other end asks for, on a thread of its own.
pub(super) fn serve(link: Arc<Link>, channel: ChannelKey, subject: Subject) -> io::Result<()> {
    std::thread::Builder::new()
        .name("sparkawait-holder".to_owned())
        .spawn(move || serve_step(&link, channel, &subject))
        .map(drop)
}

fn serve_step(link: &Link, answers: ChannelKey, subject: &Subject) {
    let mut step = Step { link, answers, begun: None, is_told: false };
    let Some(task) = begin(subject) else { return step.refuse(NOT_HERE, Bytes::new()) };
    step.begun = Some(Arc::clone(&task));
    let Ok(rows) = link.open(&Subject::Rows(answers)) else { return };
    let served = serve_part(link, &task, answers, rows);
    link.close(rows);
    if !matches!(served, Err(Broken::Off)) {
        // Another step may have begun the next part by now.
        step.begun = None;
    }
    match served {
        Ok(end) => step.answer(&end),
        Err(Broken::Off) => {}
        Err(Broken::Other) => {
            task.abandon();
            step.refuse(NOT_HERE, Bytes::new());
        }
        Err(Broken::Failed(error)) => {
            let mut reason = Vec::new();
            put_bytes(&mut reason, error.kind().as_str().as_bytes());
            reason.extend(error.to_string().as_bytes());
            step.refuse(FAILED, Bytes::from(reason));
        }
    }
}

/// A step that is served. However that ends, by a panic too, the other end is told, which waits
/// without a deadline, and the task is there for others or for nobody.
struct Step<'a> {
    link: &'a Link,
    answers: ChannelKey,
    /// The task, as long as its part is begun and has not ended.
    begun: Option<Arc<DetachedTask>>,
    /// Whether the other end knows what happened to it.
    is_told: bool,
}

impl Step<'_> {
    fn refuse(&mut self, code: u16, reason: Bytes) {
        self.link.reset(self.answers, code, reason);
        self.is_told = true;
    }

    fn answer(&mut self, end: &PartEnd) {
        // If the other end is gone, its batch has failed, and is carried out again.
        if answer(self.link, self.answers, end).is_ok() {
            self.link.end(self.answers);
            self.is_told = true;
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        match &self.begun {
            // Nobody could tell how much of a bundle is there.
            Some(task) if std::thread::panicking() => task.abandon(),
            Some(task) => task.leave(),
            None => {}
        }
        if !self.is_told {
            self.refuse(GIVEN_UP, Bytes::new());
        }
    }
}

fn begin(subject: &Subject) -> Option<Arc<DetachedTask>> {
    let Subject::Part { task, owner, part } = subject else { return None };
    let task = DetachedTask::find(*task)?;
    (task.begin_within(owner, *part, ANSWER / 2) == Begun::Yes).then_some(task)
}

/// Why a part did not come to its end.
enum Broken {
    /// The task that brought it is gone. It may be brought again.
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
                    Some((&about::PATIENCE, mut linger)) => {
                        let linger = linger.try_get_u64_le().ok().filter(|it| *it < u64::MAX);
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
    let numbers_of_part = [end.output_rows, end.carried, end.held, end.input, oldest];
    for number in numbers_of_part {
        numbers.extend(number.to_le_bytes());
    }
    for number in counts {
        numbers.extend(number.to_le_bytes());
    }
    send(link, answers, about::NUMBERS, &numbers)?;
    for output in &end.outputs {
        send(link, answers, about::OUTPUT, output)?;
    }
    end.operators.iter().try_for_each(|it| send(link, answers, about::OPERATOR, it))
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
        let payload = Bytes::from(payload);
        while !link.push_within(answers, None, &payload, TURN)? {
            if !link.is_wanted(answers) {
                return Err(IoKind::BrokenPipe.into());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}
