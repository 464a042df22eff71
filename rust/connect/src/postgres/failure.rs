// SPDX-License-Identifier: Apache-2.0
//! What a failure of PostgreSQL means for the calls that it hit.

use std::error::Error as _;
use std::fmt;

use sparkawait_core::operator::Retry;
use tokio_postgres::error::{DbError, SqlState};

use crate::error::CallFailure;
use crate::lookup::service_failure;
use crate::tls::is_refused_certificate;

/// Why calls failed, in a form that can be given to each of them.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Quotes the server.
    message: String,
    /// Quotes no value and no address.
    summary: String,
    class: Class,
}

/// What helps against a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Another attempt may.
    Transient,
    /// Another attempt, with a new plan.
    Stale,
    /// Nothing: all rows fare alike.
    Statement,
    /// The rows of a batch may fare differently one by one.
    Row,
    /// More was found than is read; it may be read in parts.
    TooLarge,
}

impl Failure {
    /// Makes a failure that no retry helps, with a text that holds no content.
    pub(crate) fn permanent(text: impl Into<String>) -> Self {
        Self::plain(text.into(), Class::Statement)
    }

    /// Makes a failure that may pass, with a text that holds no content.
    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self::plain(text.into(), Class::Transient)
    }

    /// Makes the failure of a plan that does not hold any more.
    pub(crate) fn stale(text: &str) -> Self {
        Self::plain(format!("PostgreSQL: {text}; it is planned anew"), Class::Stale)
    }

    /// Makes the failure of a row for which more than `most` bytes were found.
    pub(crate) fn too_large(most: usize) -> Self {
        let text = format!("PostgreSQL: more was found than the {most} bytes of `max_reply_bytes`");
        Self::plain(text, Class::TooLarge)
    }

    fn plain(text: String, class: Class) -> Self {
        Self { message: text.clone(), summary: text, class }
    }

    /// Reads the error of a query or of a connection; `doing` says which.
    pub(crate) fn of(doing: &str, error: &tokio_postgres::Error) -> Self {
        if let Some(error) = error.as_db_error() {
            return Self::of_server(doing, error);
        }
        // Without a state: the connection broke, could not be made, or its configuration is wrong.
        let is_io = error.source().is_some_and(is_io);
        let is_transient = error.is_closed() || is_io;
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let class = if is_transient { Class::Transient } else { Class::Statement };
        Self::plain(format!("PostgreSQL: {doing} failed: {reason}"), class)
    }

    fn of_server(doing: &str, error: &DbError) -> Self {
        let (code, said) = (error.code().code(), error.message());
        let class = classify(error.code());
        let mut message = format!("PostgreSQL: {doing} failed with SQLSTATE {code}: {said}");
        for more in [error.detail(), error.hint()].into_iter().flatten() {
            message.push_str("; ");
            message.push_str(more);
        }
        // The text of an error about a value quotes the value.
        let summary = match class {
            Class::Row => format!(
                "PostgreSQL: {doing} failed with SQLSTATE {code}; on_error='capture' shows its text"
            ),
            _ => format!("PostgreSQL: {doing} failed with SQLSTATE {code}: {said}"),
        };
        Self { message, summary, class }
    }

    /// Returns whether another attempt may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.class, Class::Transient | Class::Stale)
    }

    /// Returns whether what was planned is of no more use.
    pub(crate) fn is_stale(&self) -> bool {
        self.class == Class::Stale
    }

    /// Returns whether the rows of a batch may fare differently one by one.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.class == Class::Row
    }

    /// Returns whether more was found than is read.
    pub(crate) fn is_too_large(&self) -> bool {
        self.class == Class::TooLarge
    }

    /// Returns the failure of one call.
    pub(crate) fn call_failure(&self) -> CallFailure {
        service_failure(self.message.clone(), self.summary.clone())
    }

    /// Returns whether a call is worth another attempt.
    pub(crate) fn retry(&self) -> Retry {
        if self.is_transient() { Retry::Yes } else { Retry::No }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    // A refused certificate comes as an I/O error, and stays refused.
    error.is::<std::io::Error>() && !is_refused_certificate(error)
}

/// Sorts by the SQLSTATE, of which the first two characters are the class.
fn classify(state: &SqlState) -> Class {
    match state.code() {
        // Feature not supported is what a plan of a changed table gives.
        "0A000" | "26000" => Class::Stale,
        "57014" | "55P03" | "25006" => {
            // Statement timeout and lock timeout may pass; read-only does not.
            if state.code() == "25006" { Class::Statement } else { Class::Transient }
        }
        code => match &code[..code.len().min(2)] {
            "08" | "40" | "53" | "57" | "58" => Class::Transient,
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
        let of = |code: &str| classify(&SqlState::from_code(code));

        for transient in ["57P01", "57P03", "40001", "40P01", "53300", "57014", "08006", "55P03"] {
            assert!(of(transient) == Class::Transient, "{transient}");
        }
        for statement in ["28P01", "42601", "42P01", "25006", "3D000"] {
            assert!(of(statement) == Class::Statement, "{statement}");
        }
        for row in ["22P02", "22012", "21000", "23505", "P0001"] {
            assert!(of(row) == Class::Row, "{row}");
        }
        assert!(of("0A000") == Class::Stale);
    }
}
