// SPDX-License-Identifier: Apache-2.0
//! Stable codes of the failures that users meet.

use std::fmt;

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $variant:ident = $code:literal,)+) => {
        /// What went wrong, as a stable code.
        ///
        /// Codes are append-only: dashboards and `except` clauses compare them.
        /// Python's `ErrorKind` lists the same codes; a test compares both.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $variant,)+
        }

        impl ErrorKind {
            /// Every kind, in the order of introduction.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the stable code, for example `element-timed-out`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }
        }
    };
}

error_kinds! {
    /// `capacity` is below 1.
    CapacityNotPositive = "capacity-not-positive",
    /// `timeout` is zero or negative.
    TimeoutNotPositive = "timeout-not-positive",
    /// A retry strategy was given without a timeout.
    RetryNeedsTimeout = "retry-needs-timeout",
    /// Any other argument that breaks a rule.
    InvalidArgument = "invalid-argument",
    /// The user's function failed and the failure was not retried.
    UserFunctionFailed = "user-function-failed",
    /// The user's function failed on its last permitted attempt.
    RetriesExhausted = "retries-exhausted",
    /// No attempt finished within the row's timeout.
    ElementTimedOut = "element-timed-out",
    /// The function returned nothing at all.
    ResultIsNone = "result-is-none",
    /// The function returned something that is neither a mapping nor a list.
    ResultNotAList = "result-not-a-list",
    /// A result does not fit the declared schema.
    ResultSchemaMismatch = "result-schema-mismatch",
    /// The operator was closed.
    OperatorClosed = "operator-closed",
    /// The operator was opened in another process.
    ForkedProcess = "forked-process",
    /// The snapshot was written by an unknown version.
    SnapshotVersionUnknown = "snapshot-version-unknown",
    /// The snapshot does not fit the operator that restores it.
    SnapshotSchemaMismatch = "snapshot-schema-mismatch",
    /// The snapshot's bytes are damaged.
    SnapshotDamaged = "snapshot-damaged",
    /// An input batch differs from the batches before it.
    InputSchemaMismatch = "input-schema-mismatch",
    /// An invariant of this project broke.
    Internal = "internal",
}

impl ErrorKind {
    /// Finds the kind with the given code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == code)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
