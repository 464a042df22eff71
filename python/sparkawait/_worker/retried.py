# SPDX-License-Identifier: Apache-2.0
"""What the log is told of calls that were made again although nobody had asked for that."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkawait._plan.plan import Plan

__all__ = ["tell"]

_logger = logging.getLogger("sparkawait")


def tell(operators: Sequence[Plan], metrics: Sequence[Mapping[str, Any]]) -> None:
    """Says for each call how many there were, once its task has ended.

    Args:
        operators: The calls of the task.
        metrics: What each of them has done; nothing before the first rows.
    """
    for plan, counts in zip(operators, metrics, strict=False):
        retry = plan.options.retry
        if retry is not None and retry.only_refused and counts.get("retries"):
            _logger.warning(
                "%d of the %d calls of `%s` were made again, because the ones before were refused"
                " or not carried out; `retry=0` fails such rows, and `retry=` says how often",
                counts["retries"],
                counts["attempts"],
                plan.function_name,
            )
