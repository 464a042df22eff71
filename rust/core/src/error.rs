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
    /// A timeout is zero or negative.
    TimeoutNotPositive = "timeout-not-positive",
    /// A retry strategy was given without a timeout.
    RetryNeedsTimeout = "retry-needs-timeout",
    /// The user's function failed and the failure was not retried.
    UserFunctionFailed = "user-function-failed",
    /// The user's function failed on its last permitted attempt.
    RetriesExhausted = "retries-exhausted",
    /// No attempt finished within the row's timeout.
    ElementTimedOut = "element-timed-out",
    /// The function returned nothing at all.
    ResultIsNone = "result-is-none",
    /// The function returned neither a mapping nor a list of mappings.
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
    /// An invariant of this project broke.
    Internal = "internal",
    /// A duration cannot be read.
    DurationInvalid = "duration-invalid",
    /// A schema cannot be read.
    SchemaInvalid = "schema-invalid",
    /// Neither the function nor the call gives a schema.
    SchemaMissing = "schema-missing",
    /// A result column has the name of an input column.
    ColumnClash = "column-clash",
    /// A named column does not exist.
    ColumnMissing = "column-missing",
    /// The event-time column has another type.
    ColumnNotATimestamp = "column-not-a-timestamp",
    /// The function is not a coroutine function.
    FunctionNotAsync = "function-not-async",
    /// The function cannot be used at all.
    FunctionInvalid = "function-invalid",
    /// The function cannot travel to the executors.
    FunctionNotPicklable = "function-not-picklable",
    /// `max_concurrency` is below 1 or above `capacity`.
    MaxConcurrencyOutOfRange = "max-concurrency-out-of-range",
    /// `attempt_timeout` is longer than `timeout`.
    AttemptTimeoutTooLong = "attempt-timeout-too-long",
    /// The bounds of batched calls are wrong.
    BatchInvalid = "batch-invalid",
    /// A retry strategy's parameters are wrong.
    RetryInvalid = "retry-invalid",
    /// The fallback for timeouts is wrong.
    FallbackInvalid = "fallback-invalid",
    /// The watermark strategy is wrong.
    WatermarkInvalid = "watermark-invalid",
    /// An option has a value that its rule excludes.
    OptionInvalid = "option-invalid",
    /// An option does not exist.
    OptionUnknown = "option-unknown",
    /// The input is not what the task was told to expect.
    InputInvalid = "input-invalid",
    /// The function could not be opened.
    OpenFailed = "open-failed",
    /// The function could not be closed.
    CloseFailed = "close-failed",
    /// A batched call returned another number of results than it got rows.
    BatchResultCountMismatch = "batch-result-count-mismatch",
    /// The snapshot's bytes are damaged.
    SnapshotDamaged = "snapshot-damaged",
    /// A secret is neither in the environment nor in a file.
    SecretMissing = "secret-missing",
    /// A cache's settings are wrong.
    CacheInvalid = "cache-invalid",
    /// The settings of channels are wrong.
    ChannelsInvalid = "channels-invalid",
    /// A file with a certificate or a key cannot be read.
    CertificateMissing = "certificate-missing",
    /// The driver and the executor have different versions.
    VersionMismatch = "version-mismatch",
    /// A module is not installed where it is needed.
    ModuleMissing = "module-missing",
    /// The Python of Spark's workers cannot run the function.
    WorkersUnfit = "workers-unfit",
    /// A column's type cannot become the one that a server has without loss, or the other way.
    TypeRefused = "type-refused",
    /// `open` or `close` of the function took longer than it may.
    SetupTimedOut = "setup-timed-out",
    /// The event loop that runs the functions is blocked, or would be.
    LoopBlocked = "loop-blocked",
    /// The results of a row are larger than a column can hold.
    ResultTooLarge = "result-too-large",
    /// A thread could not be started, mostly because the memory is bounded.
    ThreadNotStarted = "thread-not-started",
    /// A row has a text that is not UTF-8 in a column that is read.
    TextInvalid = "text-invalid",
    /// The destination of a row is paused, and its rows are not to wait.
    DestinationPaused = "destination-paused",
    /// A limit in time, or what else bounds calls, is wrong.
    RateLimitInvalid = "rate-limit-invalid",
    /// What a row costs of a rate limit is not a cost.
    CostInvalid = "cost-invalid",
    /// The service has answered that it will not do what the call asks for.
    RequestRefused = "request-refused",
    /// The service answered that the caller may not.
    Unauthorized = "unauthorized",
    /// A row has waited too long for a destination that is paused or does not answer.
    DestinationUnavailable = "destination-unavailable",
    /// All threads of a plain function are held by calls that do not return.
    ThreadsHung = "threads-hung",
    /// A budget has less left than a call of the row costs.
    BudgetSpent = "budget-spent",
    /// The folder of a journal is not what the call needs, or cannot be reached or written.
    JournalInvalid = "journal-invalid",
    /// A model has said that it will not answer.
    Refusal = "refusal",
    /// A model's answer ends before its end.
    Truncated = "truncated",
    /// A filter has taken a model's answer away.
    ContentFilter = "content-filter",
    /// No answer came to a call that may have been carried out, and that is not made again.
    Unanswered = "unanswered",
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
