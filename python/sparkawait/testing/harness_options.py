# SPDX-License-Identifier: Apache-2.0
"""The options of the harness, checked by the rules of the wait functions."""

from __future__ import annotations

from typing import Any

from sparkawait._plan.checks import MAX_COUNT, choice, refuse, shown
from sparkawait._plan.option_checks import the_retry
from sparkawait.durations import positive_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.retry import AsyncRetryStrategy

__all__ = ["check_options"]


def check_options(  # noqa: PLR0917 - in the order of the harness
    mode: object,
    capacity: Any,
    max_concurrency: Any,
    timeout: float | None,
    attempt_timeout: float | None,
    max_wait: float | None,
    retry: AsyncRetryStrategy | int | None,
    key: object,
    on_timeout: object,
) -> dict[str, Any]:
    """Returns the options of an `OperatorTestHarness` as the extension module takes them.

    Raises:
        ConfigurationError: If an option is wrong.
    """
    choice(mode, "mode", "ordered", "unordered", "key_ordered")
    if mode == "key_ordered" and key is None:
        msg = "mode `key_ordered` needs `key`, a callable that gives the key of a value"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    _check_types(key, on_timeout)
    strategy = None if retry is None else the_retry(retry, "retry")
    timeout = None if timeout is None else positive_duration(timeout, "timeout")
    if attempt_timeout is not None:
        attempt_timeout = positive_duration(attempt_timeout, "attempt_timeout")
    max_wait = None if max_wait is None else positive_duration(max_wait, "max_wait")
    _check_counts(capacity, max_concurrency)
    if max_concurrency is not None and not 1 <= max_concurrency <= max(capacity, 1):
        msg = f"`max_concurrency` must be from 1 to `capacity`, got {shown(max_concurrency)}"
        raise ConfigurationError(msg, ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE)
    if attempt_timeout is not None and timeout is not None and attempt_timeout > timeout:
        msg = f"`attempt_timeout` must not be above `timeout`, got {attempt_timeout}"
        raise ConfigurationError(msg, ErrorKind.ATTEMPT_TIMEOUT_TOO_LONG)
    if strategy is not None and timeout is None:
        msg = "`retry` needs a `timeout`, got None"
        raise ConfigurationError(msg, ErrorKind.RETRY_NEEDS_TIMEOUT)
    return {
        "mode": mode,
        "capacity": capacity,
        "max_concurrency": capacity if max_concurrency is None else max_concurrency,
        "timeout": timeout,
        "attempt_timeout": attempt_timeout,
        "max_wait": max_wait,
        "retry": strategy,
        "asks_on_timeout": on_timeout is not None,
    }


def _check_types(key: object, on_timeout: object) -> None:
    for name, value in (("key", key), ("on_timeout", on_timeout)):
        if value is not None and not callable(value):
            refuse(f"`{name}` must be callable, got {shown(value)}")


def _check_counts(capacity: object, max_concurrency: object) -> None:
    for name, value in (("capacity", capacity), ("max_concurrency", max_concurrency)):
        if value is None and name == "max_concurrency":
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            refuse(f"`{name}` must be an int, got {shown(value)}")
        if value > MAX_COUNT:
            refuse(f"`{name}` must be at most {MAX_COUNT}, got {shown(value)}")
