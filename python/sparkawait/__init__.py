# SPDX-License-Identifier: Apache-2.0
"""Async I/O for Spark: call any external service for every row, thousands of calls in flight.

`ordered_wait`, `unordered_wait`, `key_ordered_wait` and `async_udf` work on Spark DataFrames and
need PySpark; `sparkawait.arrow` has the same over record batches and does not.
"""

# Public names stand at the top of the package, all else in a folder:
#
#   spark/  arrow                 where rows come from
#      |      |
#      +--> _plan/                what checks a call and travels to the executors
#             |
#             +--> _worker/       what runs where the calls are made, around `_core`
#
#   connectors/                   functions in Rust: http, redis, postgres
#   _doctor/  _probe              what `sparkawait doctor` looks at
#   testing/                      what users test with
#   _flights/                     a program to read, examples/flights; `sparkawait demo`

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    msg = "sparkawait runs on Linux and macOS; on Windows, use it in WSL or a container"
    raise ImportError(msg)

# Loads what the others need, and says what is in the way if that fails.
from sparkawait._worker import address_space  # noqa: F401  # pyright: ignore[reportUnusedImport]  # isort: skip
from sparkawait import arrow, exceptions, retry, typing
from sparkawait._core import VERSION
from sparkawait.connectors import connector, http, postgres, redis
from sparkawait.exceptions import (
    AsyncFunctionError,
    AsyncIOError,
    ConfigurationError,
    how_to_install,
)
from sparkawait.functions import AsyncFunction, async_function
from sparkawait.journal import Journal
from sparkawait.limits import Adaptive, Batch, Channel, CircuitBreaker, Hedge
from sparkawait.metrics import Metrics
from sparkawait.options import WaitOptions
from sparkawait.outcomes import Cache, CarryOver, OnError, Tuning, WatermarkStrategy
from sparkawait.rate_limit import Budget, PerJob, RateLimit
from sparkawait.retry import RetryAfter
from sparkawait.secrets import secret

if TYPE_CHECKING:
    from sparkawait import llm, testing
    from sparkawait.spark import (
        async_udf,
        drain,
        job,
        key_ordered_wait,
        ordered_wait,
        send,
        ship,
        split,
        unordered_wait,
        write_once,
    )

__all__ = [
    "Adaptive",
    "AsyncFunction",
    "AsyncFunctionError",
    "AsyncIOError",
    "Batch",
    "Budget",
    "Cache",
    "CarryOver",
    "Channel",
    "CircuitBreaker",
    "ConfigurationError",
    "Hedge",
    "Journal",
    "Metrics",
    "OnError",
    "PerJob",
    "RateLimit",
    "RetryAfter",
    "Tuning",
    "WaitOptions",
    "WatermarkStrategy",
    "__version__",
    "arrow",
    "async_function",
    "async_udf",
    "connector",
    "drain",
    "exceptions",
    "http",
    "job",
    "key_ordered_wait",
    "llm",
    "ordered_wait",
    "postgres",
    "redis",
    "retry",
    "secret",
    "send",
    "ship",
    "split",
    "testing",
    "typing",
    "unordered_wait",
    "write_once",
]

__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Imports the Spark functions when they are asked for, so that the rest needs no PySpark."""
    if name in ("llm", "testing"):
        return importlib.import_module(f"sparkawait.{name}")
    if name in __all__:  # all others are here
        found = getattr(_import_spark(name), name)
        globals()[name] = found  # so that nobody asks again
        return found
    msg = f"module `sparkawait` has no attribute `{name}`"
    raise AttributeError(msg)


def _import_spark(name: str) -> Any:
    try:
        return importlib.import_module("sparkawait.spark")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        msg = f"the functions for DataFrames of Spark need PySpark; {how_to_install('spark')}"
        if name in arrow.__all__:
            msg += f". For polars, pandas, DuckDB and Arrow there is `sparkawait.arrow.{name}`"
        raise ModuleNotFoundError(msg, name="pyspark") from error


def __dir__() -> list[str]:
    """Lists the public names, the Spark functions included."""
    return sorted(__all__)
