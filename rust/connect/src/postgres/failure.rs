// SPDX-License-Identifier: Apache-2.0
//! What a failure of PostgreSQL means for the calls that it hit.

use std::error::Error as _;
use std::fmt;
use std::io;

use sparkawait_core::ErrorKind;
use sparkawait_core::operator::Retry;
use sparkawait_core::policy::CallSign;
use sparkawait_task::error::{CallFailure, StartError};
use tokio_postgres::error::DbError;

use crate::lookup::{refusal, service_failure};
use crate::tls::{in_words, is_refused_certificate};

/// What was being done when a statement that was prepared before is run.
pub(crate) const STATEMENT: &str = "the statement";

/// What was being done when there was no connection yet.
pub(crate) const CONNECTING: &str = "connecting";

/// What helps behind a pooler.
const POOLER: &str = "; behind a pooler such as PgBouncer give `prepare=False`";

/// Why calls failed, in a form that can be given to each of them.
#[derive(Clone)]
pub(crate) struct Failure {
    /// Quotes the server.
    message: String,
    /// Quotes no value and no address.
    summary: String,
    class: Class,
    /// Whether the server has answered "no", and if so whether that is about who calls.
    refuses_caller: Option<bool>,
}

/// What helps against a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Another attempt may: the statement was not sent.
    Unsent,
    /// Another attempt may, though nobody knows whether this one was carried out.
    Transient,
    /// Another attempt may: the server has too much to do, or is not ready.
    Overloaded,
    /// Another host: this one is not of the kind that is wanted. The statement was not sent.
    OfAnotherKind,
    /// The server takes no writes: nothing, or another server where writing is what it is for.
    ReadOnly,
    /// Another attempt, with a new plan: the server refused the old one.
    Stale,
    /// The same, though the statement was carried out.
    StaleAnswer,
    /// Nothing: all rows fare alike.
    Statement,
    /// Nothing, and no row is at fault: columns have types that do not go together.
    Types,
    /// The rows of a batch may fare differently if each is sent alone.
    Row,
    /// A row took too long: the rows of a batch may fare differently, and so may another attempt.
    Slow,
    /// More was found than is read; it may be read in parts.
    TooLarge,
}

impl Class {
    /// Returns what a failure is whose statement was sent only if it was met while `doing` that.
    fn while_doing(self, doing: &str) -> Self {
        if self == Self::Transient && doing != STATEMENT { Self::Unsent } else { self }
    }
}

/// Shows nothing of what the server said, which may quote a value.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Failure");
        shown.field("class", &self.class).field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Failure {
    /// Makes a failure that no retry helps, with a text that holds no content.
    pub(crate) fn permanent(text: impl Into<String>) -> Self {
        Self::plain(text.into(), Class::Statement)
    }

    /// Makes the failure of a statement whose types are not those of the columns.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::plain(text.into(), Class::Types)
    }

    /// Makes a failure that may pass, with a text that holds no content.
    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self::plain(text.into(), Class::Transient)
    }

    /// Makes the failure of calls that were not sent, with a text that holds no content.
    pub(crate) fn unsent(text: impl Into<String>) -> Self {
        Self::plain(text.into(), Class::Unsent)
    }

    /// Makes the failure of an answer that is not the one which was planned for.
    pub(crate) fn stale_answer(text: &str) -> Self {
        Self::plain(format!("PostgreSQL: {text}; it is planned anew"), Class::StaleAnswer)
    }

    /// Makes the failure of a host that is not of the kind that is wanted.
    pub(crate) fn of_another_kind(text: String) -> Self {
        Self::plain(text, Class::OfAnotherKind)
    }

    /// Reads an error that was met before a server was spoken to.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        Self::unsent(format!("PostgreSQL: {CONNECTING} failed: {error}"))
    }

    /// Returns the failure where all of several hosts failed, and this was the last.
    pub(crate) fn of_hosts(self, hosts: usize) -> Self {
        let all = format!("; none of the {hosts} hosts could be used");
        Self { message: self.message + &all, summary: self.summary + &all, ..self }
    }

    /// Returns the failure of a statement that may write, on a server that has become read-only.
    pub(crate) fn demoted(self) -> Self {
        Self { class: Class::Unsent, ..self }
    }

    /// Makes the failure of a row for which more than `most` bytes were found.
    pub(crate) fn too_large(most: usize) -> Self {
        let text = format!("PostgreSQL: more was found than the {most} bytes of `max_reply_bytes`");
        Self::plain(text, Class::TooLarge)
    }

    fn plain(text: String, class: Class) -> Self {
        Self { message: text.clone(), summary: text, class, refuses_caller: None }
    }

    /// Reads the error of a query or of a connection; `doing` says which.
    pub(crate) fn of(doing: &str, error: &tokio_postgres::Error) -> Self {
        if let Some(error) = error.as_db_error() {
            return Self::of_server(doing, error);
        }
        // Without a state: the connection broke, could not be made, or its configuration is wrong.
        let is_io = error.source().is_some_and(is_io);
        let is_transient = error.is_closed() || is_io;
        let reason = error.source().and_then(in_words);
        let said = || error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let reason = reason.unwrap_or_else(said);
        let class =
            if is_transient { Class::Transient.while_doing(doing) } else { Class::Statement };
        Self::plain(format!("PostgreSQL: {doing} failed: {reason}"), class)
    }

    fn of_server(doing: &str, error: &DbError) -> Self {
        let (code, said) = (error.code().code(), error.message());
        let class = classify(code, said, error.routine()).while_doing(doing);
        let mut message = format!("PostgreSQL: {doing} failed with SQLSTATE {code}: {said}");
        for more in [error.detail(), error.hint()].into_iter().flatten() {
            message.push_str("; ");
            message.push_str(more);
        }
        let mut summary = format!("PostgreSQL: {doing} failed with SQLSTATE {code}");
        if quotes_values(doing, class, code) {
            summary.push_str("; on_error='capture' shows its text");
        } else {
            summary.push_str(": ");
            summary.push_str(said);
        }
        let pooler = is_of_pooler(code, said).then_some(POOLER);
        for advice in [pooler, advice(code)].into_iter().flatten() {
            message.push_str(advice);
            summary.push_str(advice);
        }
        let is_refusal = matches!(class, Class::Statement | Class::Row);
        let refuses_caller = is_refusal.then(|| code.starts_with("28") || code == "42501");
        Self { message, summary, class, refuses_caller }
    }

    /// Returns whether another attempt may help.
    pub(crate) fn is_transient(&self) -> bool {
        self.retry() != Retry::No
    }

    /// Returns whether what was planned is of no more use.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self.class, Class::Stale | Class::StaleAnswer)
    }

    /// Returns whether to plan and send the statement again, which `reads` or not.
    pub(crate) fn is_to_be_planned_again(&self, reads: bool) -> bool {
        self.class == Class::Stale || reads && self.class == Class::StaleAnswer
    }

    /// Returns whether a host was not of the kind that is wanted.
    pub(crate) fn is_of_another_kind(&self) -> bool {
        self.class == Class::OfAnotherKind
    }

    /// Returns whether the server refused who connects.
    pub(crate) fn is_of_caller(&self) -> bool {
        self.refuses_caller == Some(true)
    }

    /// Returns the same where another attempt may fare better: a secret may be changing just now.
    pub(crate) fn that_may_pass(self) -> Self {
        Self { class: Class::Unsent, ..self }
    }

    /// Returns whether the server takes no writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.class == Class::ReadOnly
    }

    /// Returns whether the connection is of no more use.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self.class, Class::Unsent | Class::Transient)
    }

    /// Returns whether the rows of a batch may fare differently if each is sent alone.
    pub(crate) fn is_of_rows(&self) -> bool {
        matches!(self.class, Class::Row | Class::Slow)
    }

    /// Returns whether each row at fault costs the time after which the server gives up.
    pub(crate) fn is_slow(&self) -> bool {
        self.class == Class::Slow
    }

    /// Returns the failure of a row that was in a query with too many that took too long.
    pub(crate) fn of_others(&self) -> Self {
        const OTHERS: &str = "; it was in a query with other rows, too many of which took too long";
        let mut failure = self.clone();
        failure.message.push_str(OTHERS);
        failure.summary.push_str(OTHERS);
        failure
    }

    /// Returns what the task ends with.
    pub(crate) fn start_error(&self) -> StartError {
        StartError { kind: ErrorKind::TypeRefused, message: self.message.clone() }
    }

    /// Returns whether the task ends with it: its columns have types that do not go together.
    pub(crate) fn is_of_types(&self) -> bool {
        self.class == Class::Types
    }

    /// Returns whether more was found than is read.
    pub(crate) fn is_too_large(&self) -> bool {
        self.class == Class::TooLarge
    }

    /// Returns the failure of one call.
    pub(crate) fn call_failure(&self) -> CallFailure {
        let failure = service_failure(self.message.clone(), self.summary.clone());
        match self.refuses_caller {
            Some(is_of_caller) => refusal(is_of_caller, failure),
            None => failure,
        }
    }

    /// Returns what the failure says of the server.
    pub(crate) fn sign(&self) -> CallSign {
        match self.class {
            Class::Overloaded => CallSign::Overloaded,
            Class::Unsent | Class::OfAnotherKind | Class::Transient => CallSign::Unreachable,
            Class::Slow => CallSign::TimedOut,
            _ => CallSign::Neutral,
        }
    }

    /// Returns whether a call is worth another attempt.
    pub(crate) fn retry(&self) -> Retry {
        match self.class {
            Class::Unsent | Class::OfAnotherKind | Class::Overloaded | Class::Stale => Retry::Yes,
            Class::Transient | Class::Slow | Class::StaleAnswer => Retry::IfRepeatable,
            Class::Statement | Class::ReadOnly | Class::Types | Class::Row | Class::TooLarge => {
                Retry::No
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    // A refused certificate comes as an I/O error, and stays refused.
    error.is::<io::Error>() && !is_refused_certificate(error)
}

/// Returns what to do about errors that users can mend.
fn advice(code: &str) -> Option<&'static str> {
    match code {
        // A read-only transaction, which all lookups have.
        "25006" => Some("; a statement that writes needs `writes=True`"),
        "42501" => Some("; the user needs permission for what the statement names"),
        "28P01" | "28000" => Some("; check user and password"),
        _ => None,
    }
}

/// Tells whether the text of an error may quote a value: of a row, or of a name made out of one.
fn quotes_values(doing: &str, class: Class, code: &str) -> bool {
    class == Class::Row || doing == STATEMENT && code.starts_with("42")
}

/// Tells whether a pooler is in the way, which gives transactions any of its connections.
fn is_of_pooler(code: &str, said: &str) -> bool {
    match code {
        // What was prepared is not there, or somebody else's is.
        "26000" | "42P05" => true,
        "08P01" => said.starts_with("unsupported startup parameter"),
        _ => false,
    }
}

/// Sorts by the SQLSTATE; its first two characters are the class.
fn classify(code: &str, said: &str, routine: Option<&str>) -> Class {
    match code {
        // What a plan of a changed table gives; anything else with that code is not supported.
        "0A000" if routine == Some("RevalidateCachedQuery") => Class::Stale,
        "0A000" => Class::Statement,
        "26000" => Class::Stale,
        "25006" => Class::ReadOnly,
        // Statement timeout and lock timeout.
        "57014" | "55P03" => Class::Slow,
        "08P01" if is_of_pooler(code, said) => Class::Statement,
        // It starts, stops, or recovers.
        "57P03" => Class::Overloaded,
        _ => match &code[..code.len().min(2)] {
            // Conflicts of transactions, and too many connections or too little memory.
            "40" | "53" => Class::Overloaded,
            "08" | "57" | "58" => Class::Transient,
            "28" | "42" | "3D" | "3F" | "25" | "XX" => Class::Statement,
            _ => Class::Row,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sorted_into_what_passes_and_what_does_not() {
        let of = |code: &str| classify(code, "", None);

        for transient in ["57P01", "08006"] {
            assert!(of(transient) == Class::Transient, "{transient}");
        }
        for overloaded in ["57P03", "40001", "40P01", "53300"] {
            assert!(of(overloaded) == Class::Overloaded, "{overloaded}");
        }
        for statement in ["28P01", "42601", "42P01", "25001", "3D000", "0A000"] {
            assert!(of(statement) == Class::Statement, "{statement}");
        }
        for row in ["22P02", "22012", "21000", "23505", "P0001"] {
            assert!(of(row) == Class::Row, "{row}");
        }
        for slow in ["57014", "55P03"] {
            assert!(of(slow) == Class::Slow, "{slow}");
        }
        assert!(of("25006") == Class::ReadOnly);
        assert!(classify("0A000", "", Some("RevalidateCachedQuery")) == Class::Stale);
        let said = "unsupported startup parameter: options";
        assert!(classify("08P01", said, None) == Class::Statement);
    }

    #[test]
    fn only_a_statement_that_was_sent_may_have_been_carried_out() {
        assert!(Class::Transient.while_doing(CONNECTING) == Class::Unsent);
        assert!(Class::Transient.while_doing(STATEMENT) == Class::Transient);
        assert!(Class::Slow.while_doing("preparing the statement") == Class::Slow);
        assert!(Failure::unsent("no").retry() == Retry::Yes);
        assert!(Failure::transient("no").retry() == Retry::IfRepeatable);
    }

    #[test]
    fn a_text_that_may_quote_a_value_is_not_for_logs() {
        // A name that is cast out of an argument.
        assert!(quotes_values(STATEMENT, Class::Statement, "42P01"));
        assert!(!quotes_values("preparing the statement", Class::Statement, "42P01"));
        assert!(quotes_values(STATEMENT, Class::Row, "22P02"));
        assert!(!quotes_values(STATEMENT, Class::Statement, "25006"));
    }
}
