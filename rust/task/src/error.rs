// SPDX-License-Identifier: Apache-2.0
//! Why a call failed, why a function could not be started, and why a task failed.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sparkawait_arrow::Side;
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{Ended, Failure};
use sparkawait_core::policy::Spent;

/// An error that was raised outside and is handed back as it was.
pub type Raised = Arc<dyn StdError + Send + Sync>;

/// Why a call failed.
#[derive(Clone)]
pub struct CallFailure {
    /// The stable code.
    pub kind: ErrorKind,
    /// For the error column; may quote what was raised.
    pub message: String,
    /// Names what went wrong without any content of a row, for logs and messages.
    pub summary: String,
    /// What the function raised.
    pub raised: Option<Raised>,
    /// What the service answered, as a status of HTTP.
    pub status: Option<u16>,
}

/// The bytes of a message that are kept: those of HTTP clients quote whole bodies.
pub const MOST_MESSAGE_BYTES: usize = 4 << 10;

impl CallFailure {
    /// Makes a failure with a text that holds neither contents of rows nor secrets.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let message = text.into();
        Self { kind, summary: message.clone(), message, raised: None, status: None }
    }

    /// Cuts long texts, which say how much is missing.
    pub(crate) fn shorten(&mut self) {
        for text in [&mut self.message, &mut self.summary] {
            if text.len() > MOST_MESSAGE_BYTES {
                let fits = |end: &usize| text.is_char_boundary(*end);
                let end = (0..=MOST_MESSAGE_BYTES).rev().find(fits).unwrap_or_default();
                *text = format!("{} .. and {} more bytes", &text[..end], text.len() - end);
            }
        }
    }

    /// Adds what else there is to know.
    pub fn add(&mut self, more: &str) {
        for text in [&mut self.message, &mut self.summary] {
            text.push_str("; ");
            text.push_str(more);
        }
    }

    /// The bytes of its texts.
    pub(crate) const fn bytes(&self) -> usize {
        self.message.len() + self.summary.len()
    }

    /// The bytes of what a record failed with, as long as that waits to be emitted.
    pub(crate) fn held_bytes(failure: &Failure<Box<Self>>) -> usize {
        match failure {
            Failure::Function(failure) | Failure::RetriesExhausted(failure) => failure.bytes(),
            // Made of what was not held as an outcome.
            Failure::Ended(_) => 0,
        }
    }

    /// Describes a call that was refused because its destination is paused for so long at least, with
    /// the last failure before it.
    pub fn refused(rest: Duration, last: Option<Box<Self>>) -> Self {
        let kind = Ended::Refused { rest }.kind();
        let refused = format!(
            "its destination dropped the last calls and is paused, for {:?} at least",
            whole_millis(rest)
        );
        Self::uncalled(kind, refused, last)
    }

    /// Describes a call that the budget of this name has too little left for, with the last failure before
    /// it.
    pub fn spent(spent: Spent, name: &str, last: Option<Box<Self>>) -> Self {
        let kind = Ended::Spent(spent).kind();
        let Spent { total, left, cost, .. } = spent;
        // A budget counts in millionths of its unit, so that parts of a cent are whole.
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let [cost, left, spent, total] =
            [cost, left, total.saturating_sub(left), total].map(|it| it as f64 / 1e6);
        let spent = format!(
            "not called: the call costs {cost}, and the budget \"{name}\" has {left} left: {spent} of \
             {total} are spent"
        );
        Self::uncalled(kind, spent, last)
    }

    fn uncalled(kind: ErrorKind, refused: String, last: Option<Box<Self>>) -> Self {
        let Some(last) = last else {
            return Self::new(kind, refused);
        };
        let with = |last: &str| format!("{refused}; the last failure was: {last}");
        let (message, summary) = (with(&last.message), with(&last.summary));
        Self { kind, message, summary, raised: last.raised, status: last.status }
    }

    /// Describes a call that returned more than what goes into a row beside others.
    pub(crate) fn several(count: u32) -> Self {
        let summary = format!(
            "a function that is called beside others must return one result for a row, got {count}"
        );
        Self::new(ErrorKind::ResultSchemaMismatch, summary)
    }
}

// Shows nothing of the message and of what was raised, which may quote a value.
sparkawait_core::opaque_debug!(CallFailure, kind: kind, summary: summary);

/// Why a native function cannot be started.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// The stable code.
    pub kind: ErrorKind,
    /// What is wrong, with the value and the rule; never a secret.
    pub message: String,
}

impl StartError {
    /// Makes the error of an option that is wrong.
    pub fn option(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::OptionInvalid, message: message.into() }
    }
}

/// Columns of a row that an error may show, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowName(pub Vec<(String, String)>);

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (column, value)) in self.0.iter().enumerate() {
            let before = if position == 0 { " (" } else { ", " };
            write!(f, "{before}{column}={value}")?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A row failed for good, and failures fail the task.
    #[error("`{function}` failed for row {row} of partition {partition}{named} after {attempts}: {}", .failure.summary, attempts = plural(*.attempts))]
    Row {
        /// Name of the function.
        function: String,
        /// Position of the row in its task, from 0.
        row: u64,
        /// The partition.
        partition: u32,
        /// What else names the row.
        named: RowName,
        /// Attempts started.
        attempts: u32,
        /// What the last attempt came to.
        failure: Box<CallFailure>,
    },
    /// A row's time passed.
    #[error("`{function}` timed out for row {row} of partition {partition}{named}: {}; {}", .timed_out.summary(), .timed_out.way_out())]
    TimedOut {
        /// Name of the function.
        function: String,
        /// Position of the row in its task, from 0.
        row: u64,
        /// The partition.
        partition: u32,
        /// What else names the row.
        named: RowName,
        /// Which time, and what was tried in it.
        timed_out: Box<TimedOut>,
    },
    /// Input or results do not fit their schema.
    #[error(transparent)]
    Arrow(#[from] sparkawait_arrow::Error),
    /// The function or its cache could not be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Rows that an earlier task has left cannot be taken up.
    #[error("rows that were carried over cannot be taken up: {message}")]
    Saved {
        /// The stable code.
        kind: ErrorKind,
        /// What is wrong, and what to do.
        message: String,
    },
    /// A panic or a broken invariant, caught at a boundary.
    #[error("{0}; please report this")]
    Internal(String),
    /// A failure from outside, handed back as it was.
    #[error("{0}")]
    External(Raised),
}

impl TaskError {
    /// Returns the stable code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Row { failure, .. } => failure.kind,
            Self::TimedOut { timed_out, .. } => timed_out.kind(),
            Self::Start(error) => error.kind,
            Self::Saved { kind, .. } => *kind,
            Self::Arrow(error) if error.side() == Some(Side::Result) => {
                ErrorKind::ResultSchemaMismatch
            }
            Self::Arrow(_) => ErrorKind::InputInvalid,
            Self::Internal(_) | Self::External(_) => ErrorKind::Internal,
        }
    }
}

/// How a row ran out of time.
#[derive(Clone, Debug)]
pub struct TimedOut {
    /// How.
    pub why: Ended,
    /// The time that passed, of the row or of an attempt.
    pub after: Duration,
    /// Attempts started.
    pub attempts: u32,
    /// Why there was no further one although there are retries.
    pub not_repeated: Option<Arc<str>>,
    /// What the last attempt that failed came to.
    pub last: Option<Box<CallFailure>>,
}

impl TimedOut {
    /// Returns the stable code.
    pub const fn kind(&self) -> ErrorKind {
        self.why.kind()
    }

    /// Says so for the error column, which may quote what the function raised.
    pub fn message(&self) -> String {
        self.text(|failure| &failure.message)
    }

    /// Says so without any content of a row.
    pub fn summary(&self) -> String {
        self.text(|failure| &failure.summary)
    }

    /// Returns what the service answered last.
    pub fn status(&self) -> Option<u16> {
        self.last.as_ref().and_then(|failure| failure.status)
    }

    fn text(&self, quote: impl Fn(&CallFailure) -> &str) -> String {
        let (after, attempts) = (self.after, plural(self.attempts));
        let mut text = match self.why {
            Ended::TimedOut => format!("timed out after {after:?} and {attempts}"),
            Ended::AttemptTimedOut => format!("the last of {attempts} took longer than {after:?}"),
            Ended::Refused { rest } => CallFailure::refused(rest, None).summary,
            Ended::Spent(spent) => CallFailure::spent(spent, "", None).summary,
            Ended::Unavailable { waited, is_paused } => {
                let waited = whole_millis(waited);
                let state = if is_paused {
                    "is paused".to_owned()
                } else {
                    format!("has not answered for {after:?} or more")
                };
                format!("waited {waited:?} for its destination, which {state}, after {attempts}")
            }
            Ended::TooLate { delay, left } => format!(
                "timed out after {attempts}: {left:?} of {after:?} are left, and the next one would \
                 begin in {delay:?}"
            ),
        };
        if let Some(why) = &self.not_repeated {
            text.push_str("; ");
            text.push_str(why);
        }
        if let Some(failure) = &self.last {
            text.push_str("; the last failure was: ");
            text.push_str(quote(failure));
        }
        text
    }

    const fn way_out(&self) -> &'static str {
        match self.why {
            Ended::TimedOut | Ended::TooLate { .. } => "raise `timeout` or give `on_timeout`",
            Ended::Refused { .. } | Ended::Unavailable { .. } => {
                "look at the destination; raise `max_wait` to wait longer, or give `on_timeout`"
            }
            Ended::AttemptTimedOut => "raise `attempt_timeout`",
            Ended::Spent(_) => "raise the budget, or call for fewer rows",
        }
    }
}

/// Returns "1 attempt", "2 attempts", ..
fn plural(attempts: u32) -> String {
    format!("{attempts} attempt{}", if attempts == 1 { "" } else { "s" })
}

/// Rounds up to milliseconds: nobody reads the rest.
fn whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(millis.try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_waited_in_vain_tells_for_what_and_for_how_long() {
        let timed_out = |is_paused, attempts| TimedOut {
            why: Ended::Unavailable { waited: Duration::from_nanos(11_998_907_724), is_paused },
            after: Duration::from_secs(7),
            attempts,
            not_repeated: None,
            last: None,
        };

        let silent = timed_out(false, 0);

        assert_eq!(silent.kind(), ErrorKind::DestinationUnavailable);
        assert_eq!(
            silent.summary(),
            "waited 11.999s for its destination, which has not answered for 7s or more, after 0 \
             attempts"
        );
        assert_eq!(
            timed_out(true, 1).summary(),
            "waited 11.999s for its destination, which is paused, after 1 attempt"
        );
    }

    #[test]
    fn a_task_that_failed_for_a_destination_that_is_not_there_says_so_by_its_kind() {
        let failed = |why| TaskError::TimedOut {
            function: "lookup".to_owned(),
            row: 7,
            partition: 3,
            named: RowName::default(),
            timed_out: Box::new(TimedOut {
                why,
                after: Duration::from_millis(13),
                attempts: 2,
                not_repeated: None,
                last: None,
            }),
        };
        let (waited, delay) = (Duration::from_secs(7), Duration::from_millis(11));
        let unavailable = failed(Ended::Unavailable { waited, is_paused: true });

        assert_eq!(unavailable.kind(), ErrorKind::DestinationUnavailable);
        for why in [Ended::TimedOut, Ended::AttemptTimedOut, Ended::TooLate { delay, left: delay }]
        {
            assert_eq!(failed(why).kind(), ErrorKind::ElementTimedOut, "{why:?}");
        }
    }

    #[test]
    fn a_refused_call_tells_why_and_what_failed_before() {
        let rest = Duration::from_nanos(7_998_907_724);
        let last = CallFailure {
            kind: ErrorKind::UserFunctionFailed,
            message: "ConnectionError: 7".to_owned(),
            summary: "ConnectionError".to_owned(),
            raised: Some(Arc::new(StartError::option("down"))),
            status: Some(503),
        };

        let first = CallFailure::refused(rest, None);
        let later = CallFailure::refused(rest, Some(Box::new(last)));

        let paused = "its destination dropped the last calls and is paused, for 7.999s at least";
        assert_eq!((first.kind, first.summary.as_str()), (ErrorKind::DestinationPaused, paused));
        assert_eq!(later.message, format!("{paused}; the last failure was: ConnectionError: 7"));
        assert_eq!(later.summary, format!("{paused}; the last failure was: ConnectionError"));
        assert!(first.raised.is_none() && later.raised.is_some());
        assert_eq!((first.status, later.status), (None, Some(503)));
    }
}
