# SPDX-License-Identifier: Apache-2.0
"""What calls of a function say beside their outcomes, on its way to the operator.

Functions tell it from the event loop thread, or from threads of their own; it is sent by the loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import threading
from collections.abc import Mapping, Sequence
from typing import NoReturn, cast

from sparkawait._checks import shown
from sparkawait._core import Log, Port, Row
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import RateLimit
from sparkawait.retry import plain_headers

# -- where the lines of the logger ``sparkawait`` go, and how those of Rust come to it.
#
# ```text
#   threads of Rust --> queue, 256 lines --> event loop thread --> logger --> its handlers,
#                       never waits, counts what is lost            else standard error of a worker
# ```
#
# Any thread may log; a Python worker's standard error ends in the executor's log.

LEVEL_VARIABLE = "SPARKAWAIT_LOG"
"""Names the least level of a worker's lines; ``WARNING`` without it."""

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_DATE_FORMAT = "%y/%m/%d %H:%M:%S"  # Spark's own
_logger = logging.getLogger("sparkawait")


class RustLines:
    """Has the lines of Rust logged by the thread of a loop. One per process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Waits for lines; to be called before `loop` runs, or on its thread."""
        self._log: Log = Log(_logger.getEffectiveLevel())
        loop.add_reader(self._log.fileno(), self.deliver)

    def deliver(self) -> None:
        """Logs what waits."""
        lines, lost = self._log.take()
        for level, text in lines:
            _logger.log(level, "%s", text)
        if lost:
            _logger.warning("%d more lines were lost, because they came too fast", lost)


@functools.cache
def write_to_standard_error() -> None:
    """Has the lines of a Spark worker written, unless its logging is set up by somebody else."""
    level = os.environ.get(LEVEL_VARIABLE, "").upper()
    if level in _LEVELS:
        _logger.setLevel(level)
    if not _logger.hasHandlers():
        handler = _StandardError()
        handler.setFormatter(logging.Formatter(_FORMAT, _DATE_FORMAT))
        _logger.addHandler(handler)
    if level and level not in _LEVELS:
        _logger.warning("%s must be one of %s", LEVEL_VARIABLE, ", ".join(_LEVELS))


class _StandardError(logging.StreamHandler):  # pyright: ignore[reportMissingTypeArgument]
    """Steps back when somebody sets up logging later on."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


_MOST = 2**53
_OF_LIMITS = "ratelimit"
"""What names of headers have in them that tell of limits."""


class Remarks:
    """Collects what calls have cost, and what replies say of limits, until outcomes are sent.

    Args:
        limits: Those that calls pay.
    """

    def __init__(self, limits: Sequence[RateLimit]) -> None:
        """Starts empty."""
        self._labels = [limit.label for limit in limits]
        guessed = [index for index, limit in enumerate(limits) if limit.is_settled]
        known = [0] if len(limits) == 1 else guessed
        self._usual = known[0] if len(known) == 1 else None
        """The limit that is meant if none is named."""
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._limits: list[int] = []
        self._costs: list[int] = []
        self._told: list[tuple[Row, dict[str, str]]] = []

    def __bool__(self) -> bool:
        """Whether there is something to send."""
        return bool(self._rows or self._told)

    def settle(self, row: Row, cost: float, limit: str | None) -> None:
        """Takes what a call has cost, see `FunctionContext.settle`."""
        _check_row("settle", row)
        index, amount = self._index(limit), _amount(cost)
        with self._lock:
            self._rows.append(row)
            self._limits.append(index)
            self._costs.append(amount)

    def read_limits(self, row: Row, headers: Mapping[str, str]) -> None:
        """Takes the headers of a reply, see `FunctionContext.read_limits`."""
        _check_row("read_limits", row)
        try:
            read = plain_headers(headers)
        except (AttributeError, TypeError, ValueError):
            read = None
        if read is None:
            got = type(headers).__name__
            _refuse(f"`headers` of `read_limits` must map names to values, got `{got}`")
        told = {name: value for name, value in read.items() if _OF_LIMITS in name}
        if told:
            # Points in time are those of the clock of the service.
            clock = {name: read[name] for name in ("date",) if name in read}
            with self._lock:
                self._told.append((row, told | clock))

    def send(self, port: Port) -> None:
        """Sends all of them, before the outcomes of these calls."""
        with self._lock:
            rows, limits, costs, told = self._rows, self._limits, self._costs, self._told
            self._rows, self._limits, self._costs, self._told = [], [], [], []
        if rows:
            port.settle(rows, limits, costs)
        if told:
            port.tell([row for row, _ in told], [headers for _, headers in told])

    def _index(self, limit: str | None) -> int:
        if limit is None and self._usual is not None:
            return self._usual
        if limit not in self._labels:
            names = ", ".join(map(shown, self._labels))
            _refuse(f"`limit` of `settle` must be one of {names}, got {shown(limit)}")
        return self._labels.index(limit)


def _check_row(method: str, row: object) -> None:
    if not isinstance(row, Row):
        _refuse(f"`{method}` takes the row of the call, got `{type(row).__name__}`")


def _amount(cost: object) -> int:
    """Returns a cost in whole permits."""
    try:
        amount = -1 if isinstance(cost, bool) else math.ceil(cast("float", cost))
    except (TypeError, ValueError, OverflowError):
        amount = -1
    if not 0 <= amount <= _MOST or cast("float", cost) < 0:
        _refuse(f"`cost` of `settle` must be a number from 0 to 2**53, got {shown(cost)}")
    return amount


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message, ErrorKind.COST_INVALID)
