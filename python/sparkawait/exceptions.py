# SPDX-License-Identifier: Apache-2.0
"""The exceptions of sparkawait, one tree under `AsyncIOError`.

They are written in Python and imported by the extension module, so that they pickle by name and are
seen by type checkers. Each carries a `kind` from `ErrorKind`, which never changes its meaning.
Any thread may raise them.
"""

from __future__ import annotations

import builtins
import functools
import sys
from enum import Enum
from typing import Any, cast

__all__ = [
    "AsyncFunctionError",
    "AsyncIOError",
    "ConfigurationError",
    "ElementTimeoutError",
    "ErrorKind",
    "InternalError",
    "OperatorStateError",
    "ResultError",
    "SnapshotError",
]


def how_to_install(extra: str) -> str:
    """Returns what to run for the packages of an extra, which no index has yet."""
    return (
        f"run `pip install 'sparkawait[{extra}]'` where the wheel of sparkawait is installed"
        " (`make wheel` in the source builds it)"
    )


class ErrorKind(str, Enum):
    """What went wrong, as a stable string. New kinds are appended, none is renamed or removed."""

    CAPACITY_NOT_POSITIVE = "capacity-not-positive"
    TIMEOUT_NOT_POSITIVE = "timeout-not-positive"
    RETRY_NEEDS_TIMEOUT = "retry-needs-timeout"
    USER_FUNCTION_FAILED = "user-function-failed"
    RETRIES_EXHAUSTED = "retries-exhausted"
    ELEMENT_TIMED_OUT = "element-timed-out"
    RESULT_IS_NONE = "result-is-none"
    RESULT_NOT_A_LIST = "result-not-a-list"
    RESULT_SCHEMA_MISMATCH = "result-schema-mismatch"
    OPERATOR_CLOSED = "operator-closed"
    FORKED_PROCESS = "forked-process"
    SNAPSHOT_VERSION_UNKNOWN = "snapshot-version-unknown"
    SNAPSHOT_SCHEMA_MISMATCH = "snapshot-schema-mismatch"
    INTERNAL = "internal"
    DURATION_INVALID = "duration-invalid"
    SCHEMA_INVALID = "schema-invalid"
    SCHEMA_MISSING = "schema-missing"
    COLUMN_CLASH = "column-clash"
    COLUMN_MISSING = "column-missing"
    COLUMN_NOT_A_TIMESTAMP = "column-not-a-timestamp"
    FUNCTION_NOT_ASYNC = "function-not-async"
    FUNCTION_INVALID = "function-invalid"
    FUNCTION_NOT_PICKLABLE = "function-not-picklable"
    MAX_CONCURRENCY_OUT_OF_RANGE = "max-concurrency-out-of-range"
    ATTEMPT_TIMEOUT_TOO_LONG = "attempt-timeout-too-long"
    BATCH_INVALID = "batch-invalid"
    RETRY_INVALID = "retry-invalid"
    FALLBACK_INVALID = "fallback-invalid"
    WATERMARK_INVALID = "watermark-invalid"
    OPTION_INVALID = "option-invalid"
    OPTION_UNKNOWN = "option-unknown"
    INPUT_INVALID = "input-invalid"
    OPEN_FAILED = "open-failed"
    CLOSE_FAILED = "close-failed"
    BATCH_RESULT_COUNT_MISMATCH = "batch-result-count-mismatch"
    SNAPSHOT_DAMAGED = "snapshot-damaged"
    SECRET_MISSING = "secret-missing"  # noqa: S105 - no secret
    CACHE_INVALID = "cache-invalid"
    CHANNELS_INVALID = "channels-invalid"
    CERTIFICATE_MISSING = "certificate-missing"
    VERSION_MISMATCH = "version-mismatch"
    MODULE_MISSING = "module-missing"
    WORKERS_UNFIT = "workers-unfit"
    TYPE_REFUSED = "type-refused"
    SETUP_TIMED_OUT = "setup-timed-out"
    LOOP_BLOCKED = "loop-blocked"
    RESULT_TOO_LARGE = "result-too-large"
    THREAD_NOT_STARTED = "thread-not-started"
    TEXT_INVALID = "text-invalid"
    DESTINATION_PAUSED = "destination-paused"
    RATE_LIMIT_INVALID = "rate-limit-invalid"
    COST_INVALID = "cost-invalid"
    REQUEST_REFUSED = "request-refused"
    UNAUTHORIZED = "unauthorized"
    DESTINATION_UNAVAILABLE = "destination-unavailable"
    THREADS_HUNG = "threads-hung"
    BUDGET_SPENT = "budget-spent"
    JOURNAL_INVALID = "journal-invalid"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    CONTENT_FILTER = "content-filter"
    UNANSWERED = "unanswered"

    def __str__(self) -> str:
        """Returns the stable string."""
        return self.value


class AsyncIOError(Exception):
    """Base of all exceptions that sparkawait raises.

    Args:
        message: What happened, with the value and the rule.
        kind: Stable name of the case.

    Attributes:
        kind: Stable name of the case, to be compared by programs.
    """

    kind: ErrorKind

    def __init__(self, message: str, kind: ErrorKind | str) -> None:
        """Takes the message and the kind."""
        # One positional argument only: a subclass is also an OSError, which would read a second
        # one as `strerror` and the message as `errno`.
        super().__init__(message)
        self.kind = ErrorKind(kind)
        # In a traceback only: what is captured of a row is the message.
        add_note(self, _advice(self.kind))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles by constructor arguments; attributes and notes travel beside them."""
        return type(self), (str(self), self.kind.value), self.__dict__.copy()


class ConfigurationError(AsyncIOError, ValueError):
    """An argument is wrong. Raised before anything starts."""


class AsyncFunctionError(AsyncIOError):
    """The user's function failed on a row for good; `__cause__` is the exception it raised.

    Args:
        message: Which row failed, and how.
        kind: Stable name of the case.
        attempts: Calls made for the row, 0 when no row is concerned.
        status: What the service answered last, as a status of HTTP.

    Attributes:
        attempts: Calls made for the row, 0 when no row is concerned.
        status: What the service answered last, as a status of HTTP; ``None`` if it did not answer,
            or has none.
    """

    attempts: int
    status: int | None

    def __init__(
        self,
        message: str,
        kind: ErrorKind | str,
        *,
        attempts: int = 0,
        status: int | None = None,
    ) -> None:
        """Takes the message, the kind, the number of calls made and the last answer's status."""
        super().__init__(message, kind)
        self.attempts = attempts
        self.status = status


class ElementTimeoutError(AsyncFunctionError, TimeoutError):
    """No attempt for a row finished within `timeout`, or it waited for longer than `max_wait`."""


class ResultError(AsyncIOError, TypeError):
    """The function returned something that is not rows of its schema."""


class OperatorStateError(AsyncIOError, RuntimeError):
    """The operator was used when closed, before `open`, in another process, or on the loop."""


class SnapshotError(AsyncIOError):
    """The state of a stream has an unknown version, another schema, or damaged bytes."""


class InternalError(AsyncIOError):
    """An invariant of sparkawait broke: please report it."""


@functools.cache
def _advice(kind: ErrorKind) -> str:
    """Returns where a kind is explained."""
    return f"see {_page()}#{kind}"


@functools.cache
def _page() -> str:
    """Returns the address that the package was published with, or the file in its repository."""
    from importlib import metadata

    try:
        addresses = metadata.metadata("sparkawait").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a source tree that was not installed
        addresses = []
    named = (address.partition(", ") for address in addresses)
    return next((url for label, _, url in named if label == "Errors"), "docs/errors.md")


def add_note(error: BaseException, note: str) -> None:
    """Attaches a PEP 678 note, which Python 3.10 keeps but does not print."""
    notes = getattr(error, "__notes__", [])
    error.__notes__ = [*notes, note]  # pyright: ignore[reportAttributeAccessIssue]


def text_of(error: BaseException) -> str:
    """Returns what an exception says: nothing where making its text raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a text of the user's may raise anything
        return ""


def described(error: BaseException) -> str:
    """Returns the class of an exception and what it says, as the operator tells of it."""
    name, text = type(error).__qualname__, text_of(error)
    return f"{name}: {text}" if text else name


def leaves(error: BaseException) -> tuple[BaseException, ...]:
    """Returns the exceptions that `error` stands for: those of a group, however nested, or itself.

    Task groups of asyncio and anyio, and the clients that are built on them, raise groups.
    """
    if not isinstance(error, _group_classes()):
        return (error,)
    members = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    return tuple(leaf for member in members for leaf in leaves(member))


def spokesman(error: BaseException) -> BaseException:
    """Returns the exception that tells why: of a group with members of one class, the first one.

    Of any other group it is a group whose message names the first two. An exception that is not a
    group comes back as it is.
    """
    members = leaves(error)
    if members == (error,):
        return error
    if len(set(map(type, members))) == 1:
        return members[0]
    named = "; ".join(map(described, members[:2]))
    message = f"{getattr(error, 'message', '')}: {named}"
    # Another group, because the message of a group cannot be changed. It is an `ExceptionGroup`
    # where all members are of class `Exception`.
    (base,) = _group_classes()
    group = base(message, cast("Any", error).exceptions)
    group.__cause__, group.__context__ = error.__cause__, error.__context__
    group.__suppress_context__ = error.__suppress_context__
    return group.with_traceback(error.__traceback__)


def _group_classes() -> tuple[type[BaseException], ...]:
    """Returns the base of all groups; before Python 3.11 it is in a package, if it is in use."""
    if sys.version_info >= (3, 11):
        return (builtins.BaseExceptionGroup,)
    package = sys.modules.get("exceptiongroup")
    return () if package is None else (package.BaseExceptionGroup,)
