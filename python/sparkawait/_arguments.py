# SPDX-License-Identifier: Apache-2.0
"""The types of the options, as keywords. `make signatures` writes this file, from the options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from sparkawait._checks import ColumnsLike, Duration, Size
from sparkawait._schema.types import Row, SchemaLike
from sparkawait.journal import JournalLike
from sparkawait.limits import Adaptive, Batch, Channel, CircuitBreaker, Hedge
from sparkawait.outcomes import Cache, CarryOver, OnErrorLike, Tuning, WatermarkStrategy
from sparkawait.rate_limit import PerJob, RateLimits
from sparkawait.retry import AsyncRetryStrategy

__all__ = ["ColumnArguments", "FunctionArguments", "OwnArguments", "WaitArguments"]


class OwnArguments(TypedDict, total=False):
    """The options that a function may have for itself, as keywords of its decorator."""

    timeout: Duration | None
    attempt_timeout: Duration | None
    max_wait: Duration | None
    max_concurrency: int | Adaptive | PerJob | None
    retry: AsyncRetryStrategy | int | None
    hedge: Hedge | str | bool | None
    on_error: OnErrorLike
    on_timeout: Any | Callable[[Row], Any]
    info: str | None
    cache: Cache | str | bool | None
    journal: JournalLike | None
    channel: Channel | ColumnsLike | None
    rate_limit: RateLimits | None
    circuit_breaker: CircuitBreaker | bool | None


class FunctionArguments(OwnArguments, total=False):
    """What ``with_options`` of a function takes, as keywords."""

    schema: SchemaLike | None
    batch: Batch | int | None
    idempotent: bool | None
    threads: int | None
    blocked_loop_timeout: Duration | None
    setup_timeout: Duration | None


class ColumnArguments(OwnArguments, total=False):
    """The options that column functions have, too, as keywords."""

    schema: SchemaLike | None
    capacity: Size | None
    tuning: Tuning | None


class WaitArguments(ColumnArguments, total=False):
    """The options of the wait functions as keywords: what `WaitOptions` takes."""

    watermark: WatermarkStrategy | None
    carry_over: CarryOver | bool | None
