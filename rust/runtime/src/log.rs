// SPDX-License-Identifier: Apache-2.0
//! What this process has to say, for the writer of its logs.
//!
//! Any thread may log, those of tokio among them: a line goes into a bounded queue, under a lock
//! that nobody keeps while they wait, and a byte in a pipe wakes the reader. Lines that the reader
//! leaves no room for are counted instead.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines that wait for the reader; what comes when there are so many is lost, and counted.
const MOST_LINES: usize = 256;
/// Bytes of one line.
const MOST_BYTES: usize = 1024;
/// What other crates log is theirs.
const TARGET: &str = "sparkawait";

/// The log of this process. Without a lock, as one that is held at a fork stays
/// locked in the child for ever.
static CURRENT: ArcSwapOption<Log> = ArcSwapOption::const_empty();

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much it matters.
    pub level: Level,
    /// What happened, on one line.
    pub text: String,
}

/// Lines that nobody has taken yet.
#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Line>,
    lost: u64,
    /// Whether a byte is in the pipe.
    is_signalled: bool,
}

/// The lines of one process, between those who log and the one reader.
#[derive(Debug)]
pub struct Log {
    process_id: u32,
    waiting: Mutex<Waiting>,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Log {
    /// Returns the log of this process, from which lines of `level` and above can be taken.
    ///
    /// Opened by the first call; in a forked child it replaces the parent's. The level of the first call stays.
    ///
    /// # Errors
    ///
    /// The operating system refused a pipe.
    pub fn open(level: LevelFilter) -> std::io::Result<Arc<Self>> {
        if let Some(log) = CURRENT.load_full()
            && log.process_id == std::process::id()
        {
            return Ok(log);
        }
        let log = Arc::new(Self::new()?);
        // Never dropped: another thread may be about to write to its pipe.
        std::mem::forget(CURRENT.swap(Some(Arc::clone(&log))));
        #[expect(
            clippy::let_underscore_must_use,
            reason = "refused where there is a subscriber already: ours, or that of a program around us"
        )]
        let _ = tracing::subscriber::set_global_default(Events { level, log: None });
        Ok(log)
    }

    /// Makes a log of its own, for [`subscriber`](Self::subscriber).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn new() -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self { process_id: std::process::id(), waiting: Mutex::default(), reader, writer })
    }

    /// Returns what hands lines of `level` and above to this log, in place of that of the process.
    /// Tests share a process, and want to see what their own thread says.
    pub fn subscriber(self: &Arc<Self>, level: LevelFilter) -> impl Subscriber + use<> {
        Events { level, log: Some(Arc::clone(self)) }
    }

    /// Returns the lines that wait, oldest first, and how many were lost behind them.
    pub fn take(&self) -> (Vec<Line>, u64) {
        let taken = std::mem::take(&mut *self.lock());
        if taken.is_signalled {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "a pipe that is empty has nothing to be taken"
            )]
            let _ = (&self.reader).read(&mut [0]);
        }
        (taken.lines.into(), taken.lost)
    }

    /// Adds a line, or counts it if there are too many.
    fn push(&self, line: Line) {
        let mut waiting = self.lock();
        if waiting.lines.len() < MOST_LINES {
            waiting.lines.push_back(line);
        } else {
            waiting.lost += 1;
        }
        let was_signalled = std::mem::replace(&mut waiting.is_signalled, true);
        drop(waiting);
        if !was_signalled {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "the pipe holds one byte at most, so this never waits"
            )]
            let _ = (&self.writer).write_all(&[1]);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for Log {
    /// Readable while lines wait.
    fn as_raw_fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }
}

/// Hands the events of this project's crates to a log.
#[derive(Debug)]
struct Events {
    level: LevelFilter,
    /// `None`: that of the process.
    log: Option<Arc<Log>>,
}

impl Subscriber for Events {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= self.level
            && metadata.target().starts_with(TARGET)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let current = CURRENT.load();
        // A forked child has its parent's until it opens its own.
        let log = self.log.as_ref().or(current.as_ref());
        let Some(log) = log.filter(|log| log.process_id == std::process::id()) else { return };
        log.push(Line { level: *event.metadata().level(), text: text_of(event) });
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Writes `connection lost: address=127.0.0.1:6379, reason=..`.
fn text_of(event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let Fields { message, mut others } = fields;
    let mut text = message;
    if !others.is_empty() {
        others.insert_str(0, ": ");
        text.push_str(&others);
    }
    if text.len() > MOST_BYTES {
        let end = (0..=MOST_BYTES).rfind(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text.replace(['\n', '\r'], " ")
}

/// The fields of an event as text.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        #[expect(clippy::let_underscore_must_use, reason = "writing to a string cannot fail")]
        let _ = if field.name() == "message" {
            self.message.write_fmt(value)
        } else {
            let comma = if self.others.is_empty() { "" } else { ", " };
            write!(self.others, "{comma}{}={value}", field.name())
        };
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;

    use super::*;

    /// What comes out of a log when `say` is called.
    fn said(level: LevelFilter, say: impl FnOnce()) -> (Vec<Line>, u64) {
        let log = Arc::new(Log::new().unwrap());
        with_default(log.subscriber(level), say);
        log.take()
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn an_event_becomes_a_line_with_its_fields() {
        let (lines, lost) = said(LevelFilter::WARN, || {
            tracing::warn!(address = "127.0.0.1:6379", tries = 3, "connection\nlost");
        });

        assert_eq!(texts(&lines), ["connection lost: address=127.0.0.1:6379, tries=3"]);
        assert_eq!((lines[0].level, lost), (Level::WARN, 0));
    }

    #[test]
    fn what_is_below_the_level_or_of_other_crates_is_left_out() {
        let (lines, _) = said(LevelFilter::WARN, || {
            tracing::info!("too little");
            tracing::error!(target: "hyper", "not ours");
            tracing::error!("ours");
        });

        assert_eq!(texts(&lines), ["ours"]);
    }

    #[test]
    fn lines_beyond_the_bound_are_counted() {
        let (lines, lost) = said(LevelFilter::WARN, || {
            for number in 0..MOST_LINES + 3 {
                tracing::warn!("{number}");
            }
        });

        assert_eq!((lines.len(), lost), (MOST_LINES, 3));
        assert_eq!(lines[MOST_LINES - 1].text, "255");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let (lines, _) = said(LevelFilter::WARN, || tracing::warn!("x{}", "é".repeat(1000)));

        assert_eq!(lines[0].text.len(), MOST_BYTES - 1);
    }

    #[test]
    fn taken_lines_do_not_come_again() {
        let log = Log::new().unwrap();
        let line = Line { level: Level::WARN, text: "once".into() };
        log.push(line.clone());

        assert_eq!(log.take().0, [line]);
        assert_eq!(log.take(), (Vec::new(), 0));
    }
}
