// SPDX-License-Identifier: Apache-2.0
//! What a failure of PostgreSQL means for the calls that it hit.

use std::error::Error as _;
use std::fmt;
use std::io;

use sparkawait_core::ErrorKind;
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::{CallFailure, StartError};
use tokio_postgres::error::DbError;

use crate::failure::{Failure, plain_failure, refusal, service_failure};
use crate::tls::{in_words, is_refused_certificate};

/// What was being done when a statement that was prepared before is run.
pub(crate) const STATEMENT: &str = "the statement";

/// What was being done when there was no connection yet.
pub(crate) const CONNECTING: &str = "connecting";

/// What helps behind a pooler that gives each statement any of its connections.
const POOL_MODE: &str = "; set `pool_mode=transaction` for this database in the pooler";

/// What helps behind a pooler.
const POOLER: &str = "; behind a pooler such as PgBouncer give `prepare=False`";

/// What the library says of a server that does not encrypt, where it must.
const NO_TLS: &str = "server does not support TLS";

/// What helps then.
const UNENCRYPTED: &str = ", which `sslmode` or a certificate asks for; have it encrypt, or give \
    `sslmode=prefer` and no certificates";

/// What has gone wrong, for one call or for several.
#[derive(Clone)]
pub(crate) struct Fault {
    /// What rows are told: quotes the server in its message, and neither values nor addresses in its
    /// summary.
    call: Box<CallFailure>,
    cause: Cause,
    class: Class,
}

/// What helps against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Another attempt may: the connection is of no more use.
    Transient,
    /// Another attempt may: the server has too much to do, or is not ready.
    Overloaded,
    /// Another host: this one is not of the kind that is wanted.
    OfAnotherKind,
    /// The server takes no writes: nothing, or another server where writing is what it is for.
    ReadOnly,
    /// Another attempt, with a new plan: the server refused the old one, or answered what it was not
    /// made for.
    Stale,
    /// Nothing: all rows fare alike.
    Statement,
    /// Nothing, and no row is at fault: columns have types that do not go together, or a setting is wrong.
    /// The task ends with it.
    Setting,
    /// The rows of a batch may fare differently if each is sent alone.
    Row,
    /// A row took too long: the rows of a batch may fare differently, and so may another attempt.
    Slow,
    /// More was found than is read; it may be read in parts.
    TooLarge,
}

// Shows nothing of what the server said, which may quote a value.
sparkawait_core::opaque_debug!(Fault, class: class, summary: call.summary);

impl Fault {
    /// Makes a fault that no retry helps, with a text that holds no content; nothing was sent.
    pub(crate) fn permanent(text: impl Into<String>) -> Self {
        Self::plain(text, Class::Statement, Cause::NotSent)
    }

    /// Makes the fault of a statement whose types are not those of the columns.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::of_setting(text, ErrorKind::TypeRefused)
    }

    /// Makes the fault of a statement or a setting that suits no row, with a text that holds no content.
    pub(crate) fn mistake(text: impl Into<String>) -> Self {
        Self::of_setting(text, ErrorKind::OptionInvalid)
    }

    fn of_setting(text: impl Into<String>, kind: ErrorKind) -> Self {
        let mut fault = Self::plain(text, Class::Setting, Cause::NotSent);
        fault.call.kind = kind;
        fault
    }

    /// Makes a fault that may pass, with a text that holds no content.
    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self::plain(text, Class::Transient, Cause::Unknown)
    }

    /// Makes the fault of calls that were not sent, with a text that holds no content.
    pub(crate) fn unsent(text: impl Into<String>) -> Self {
        Self::plain(text, Class::Transient, Cause::NotSent)
    }

    /// Makes the fault of an answer that is not the one which was planned for.
    pub(crate) fn stale_answer(text: &str) -> Self {
        let text = format!("PostgreSQL: {text}; it is planned again");
        Self::plain(text, Class::Stale, Cause::Unknown)
    }

    /// Makes the fault of a host that is not of the kind that is wanted.
    pub(crate) fn of_another_kind(text: String) -> Self {
        Self::plain(text, Class::OfAnotherKind, Cause::NotSent)
    }

    /// Reads an error that was met before a server was spoken to.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        Self::unsent(format!("PostgreSQL: {CONNECTING} failed: {error}"))
    }

    /// Makes the fault of a connection that has not taken its settings.
    pub(crate) fn without_settings() -> Self {
        const WHAT: &str = "the connection does not have the settings that it was opened with";
        let call = refusal(
            false,
            plain_failure(format!("PostgreSQL: {CONNECTING} failed: {WHAT}{POOLER}")),
        );
        Self { call: Box::new(call), cause: Cause::NotSent, class: Class::Statement }
    }

    /// Returns the fault where all of several hosts failed, and this was the last.
    pub(crate) fn of_hosts(mut self, hosts: usize) -> Self {
        self.call.add(&format!("none of the {hosts} hosts could be used"));
        self
    }

    /// Returns the fault of a statement that may write, on a server that has become read-only.
    pub(crate) fn demoted(self) -> Self {
        Self { class: Class::Transient, ..self }
    }

    /// Makes the fault of a row for which more than `most` bytes were found.
    pub(crate) fn too_large(most: usize) -> Self {
        let text = format!("PostgreSQL: more was found than the {most} bytes of `max_reply_bytes`");
        Self::plain(text, Class::TooLarge, Cause::Answered)
    }

    /// Returns the fault of a statement that may write, where too much was found for a query of rows.
    pub(crate) fn of_query_that_writes(mut self) -> Self {
        self.call.add("the query may have been carried out; use a smaller `batch`");
        Self { cause: Cause::Unknown, ..self }
    }

    /// Makes the fault of a query that was answered with rows of calls that do not exist.
    pub(crate) fn of_unknown_rows() -> Self {
        let text = "PostgreSQL: the server answered with rows that are of no row of the query";
        Self::plain(text, Class::Statement, Cause::Unknown)
    }

    fn plain(text: impl Into<String>, class: Class, cause: Cause) -> Self {
        Self { call: Box::new(plain_failure(text)), cause, class }
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
        if reason == NO_TLS {
            return Self::mistake(format!("PostgreSQL: {doing} failed: {reason}{UNENCRYPTED}"));
        }
        let class = if is_transient { Class::Transient } else { Class::Statement };
        let cause = Cause::of(doing == STATEMENT, !is_transient);
        Self::plain(format!("PostgreSQL: {doing} failed: {reason}"), class, cause)
    }

    fn of_server(doing: &str, error: &DbError) -> Self {
        let (code, said) = (error.code().code(), error.message());
        let class = classify(code, said, error.routine());
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
        let pooler = if is_of_pool_mode(code, said) {
            Some(POOL_MODE)
        } else {
            is_of_pooler(code, said).then_some(POOLER)
        };
        for advice in [pooler, advice(code)].into_iter().flatten() {
            message.push_str(advice);
            summary.push_str(advice);
        }
        let call = service_failure(message, summary);
        let call = if matches!(class, Class::Statement | Class::Row | Class::ReadOnly) {
            refusal(code.starts_with("28") || code == "42501", call)
        } else {
            call
        };
        let says_nothing = matches!(class, Class::Transient | Class::Slow);
        let cause = Cause::of(doing == STATEMENT, !says_nothing);
        Self { call: Box::new(call), cause, class }
    }

    /// Returns whether that helps against it.
    pub(crate) fn is(&self, class: Class) -> bool {
        self.class == class
    }

    /// Returns whether another attempt may help.
    pub(crate) fn is_transient(&self) -> bool {
        self.sign().is_some()
    }

    /// Returns whether to plan and send the statement again, which `reads` or not.
    pub(crate) fn is_to_be_planned_again(&self, reads: bool) -> bool {
        self.is(Class::Stale) && self.cause.may_repeat(reads)
    }

    /// Returns whether the server refused who connects.
    pub(crate) fn is_of_caller(&self) -> bool {
        self.call.kind == ErrorKind::Unauthorized
    }

    /// Returns the same where another attempt may fare better: a secret may be changing just now.
    pub(crate) fn that_may_pass(self) -> Self {
        Self { class: Class::Transient, ..self }
    }

    /// Returns whether the rows of a batch may fare differently if each is sent alone.
    pub(crate) fn is_of_rows(&self) -> bool {
        matches!(self.class, Class::Row | Class::Slow)
    }

    /// Returns the failure of a row that was in a query with too many that took too long.
    pub(crate) fn of_others(&self) -> Self {
        let mut fault = self.clone();
        fault.call.add("it was in a query with other rows, and too many of them took too long");
        fault
    }

    /// Returns what the task ends with.
    pub(crate) fn start_error(&self) -> StartError {
        StartError { kind: self.call.kind, message: self.call.message.clone() }
    }

    /// Returns what it says of the server, if it may pass.
    const fn sign(&self) -> Option<CallSign> {
        match self.class {
            Class::Overloaded => Some(CallSign::Overloaded),
            Class::OfAnotherKind | Class::Transient => Some(CallSign::Unreachable),
            Class::Slow => Some(CallSign::TimedOut),
            Class::Stale => Some(CallSign::Neutral),
            Class::ReadOnly | Class::Statement | Class::Setting | Class::Row | Class::TooLarge => {
                None
            }
        }
    }
}

/// The failure of one call.
impl From<&Fault> for Failure {
    fn from(fault: &Fault) -> Self {
        match fault.sign() {
            Some(sign) => Self { sign, ..Self::passing(fault.cause, fault.call.clone()) },
            None => Self::lasting(fault.cause, fault.call.clone()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.call.message)
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
        "3D000" => Some("; name the database in `dsn`, as in postgresql://host:5432/database"),
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

/// Tells whether a pooler is in the way, which takes no transactions.
fn is_of_pool_mode(code: &str, said: &str) -> bool {
    code == "08P01" && said.ends_with("not allowed in statement pooling mode")
}

/// Sorts by the SQLSTATE; its first two characters are the class.
fn classify(code: &str, said: &str, routine: Option<&str>) -> Class {
    match code {
        // What a plan of a changed table gives; anything else with that code is not supported.
        "0A000" if routine == Some("RevalidateCachedQuery") => Class::Stale,
        "0A000" => Class::Statement,
        "26000" => Class::Stale,
        // Unlike the rest of its class: whether the transaction was committed is not known.
        "40003" => Class::Transient,
        "25006" => Class::ReadOnly,
        // Statement timeout and lock timeout.
        "57014" | "55P03" => Class::Slow,
        // A verdict on what was sent. PgBouncer says the rest with that code, too, such as that its server
        // is gone.
        "08P01" if is_of_pooler(code, said) || is_of_pool_mode(code, said) => Class::Statement,
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
    use sparkawait_core::operator::Retry;

    use super::*;

    #[test]
    fn states_are_sorted_into_what_passes_and_what_does_not() {
        let of = |code: &str| classify(code, "", None);

        for transient in ["57P01", "08006", "40003"] {
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
        assert!(classify("08P01", "server conn crashed?", None) == Class::Transient);
        let said = "transaction blocks not allowed in statement pooling mode";
        assert!(classify("08P01", said, None) == Class::Statement);
    }

    #[test]
    fn only_a_statement_that_was_sent_may_have_been_carried_out() {
        let of = |fault: Fault| (Failure::from(&fault).cause, Failure::from(&fault).retry);
        assert_eq!(of(Fault::unsent("no")), (Cause::NotSent, Retry::Yes));
        assert_eq!(of(Fault::transient("no")), (Cause::Unknown, Retry::IfRepeatable));
        assert_eq!(of(Fault::refused("types")), (Cause::NotSent, Retry::No));
        assert_eq!(Fault::refused("types").start_error().kind, ErrorKind::TypeRefused);
        assert_eq!(Fault::mistake("args").start_error().kind, ErrorKind::OptionInvalid);
        assert_eq!(of(Fault::too_large(7)), (Cause::Answered, Retry::No));

        let stale = Fault::stale_answer("other types");
        assert!(stale.is_to_be_planned_again(true) && !stale.is_to_be_planned_again(false));
        let refused = Fault { cause: Cause::of(true, true), ..stale };
        assert!(refused.is_to_be_planned_again(false));
        assert_eq!(of(refused), (Cause::Answered, Retry::Yes));
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
