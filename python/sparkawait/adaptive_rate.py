# SPDX-License-Identifier: Apache-2.0
"""A rate that follows what a service refuses, for the option ``adaptive_rate=``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AdaptiveRate"]


@dataclass(frozen=True)
class AdaptiveRate:
    """Finds out how many calls per time each channel bears, from those that are refused.

    For services that answer 429 or 503 because they limit a rate, where nobody knows which.
    `RateLimit` is for one that is known, `AdaptiveLimit` finds calls at a time. There is no bound
    before the first refusal. That sets the rate to seven tenths of what was sent; then it grows
    along a cubic curve, quickly back to where it was refused, slowly there, quickly beyond, and is
    never more than twice what is sent, nor less than one call in two seconds. It is the adaptive
    mode of the AWS SDKs, whose curve is that of TCP CUBIC.

    A refusal is a status of 429 or 503, of `sparkawait.http` or told of by an exception of an HTTP
    client, and a `RetryAfter`. Without ``channel=`` the task has one rate. It is of a task: tasks
    that run at once find one each.

    Examples:
        >>> import sparkawait as sa
        >>> options = sa.WaitOptions(
        ...     adaptive_rate=sa.AdaptiveRate(), retry=sa.retry.fixed_delay(5, "1s")
        ... )
    """
