# SPDX-License-Identifier: Apache-2.0
"""What is asked: an embedded `LookupServer`, a service that runs elsewhere, or a store."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from sparkawait.demo.data import Dataset
from sparkawait.demo.errors import DemoError
from sparkawait.demo.functions import http_lookups
from sparkawait.demo.settings import Settings
from sparkawait.native_function import NativeFunction
from sparkawait.testing import LookupServer
from sparkawait.testing.latency import Latency, LogNormal

__all__ = ["Service", "mean_of_one", "mean_of_two", "serve"]

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Service:
    """Where the lookups go.

    Attributes:
        name: What it is called.
        lookups: The weather and the aircraft of a flight, natively.
        url: Address of an HTTP service, without a slash at the end; else ``None``.
        mean_latency: Mean time of a call in seconds, if it is known beforehand.
        mean_latency_of_two: Mean time of two calls that are made at once.
    """

    name: str
    lookups: Sequence[NativeFunction]
    url: str | None = None
    mean_latency: float | None = None
    mean_latency_of_two: float | None = None

    def stats(self) -> dict[str, int] | None:
        """Returns the service's counters, or ``None`` if it is no `LookupServer`."""
        if self.url is None:
            return None
        try:
            with _open(f"{self.url}/-/stats") as response:
                counters: object = json.load(response)
        except (OSError, ValueError):
            return None
        is_ours = isinstance(counters, dict) and "requests" in counters
        return cast("dict[str, int]", counters) if is_ours else None


@contextmanager
def serve(settings: Settings, dataset: Dataset) -> Generator[Service]:
    """Yields the HTTP service that the settings name; one of our own lives as long as the body.

    Raises:
        DemoError: If a service elsewhere cannot be reached.
    """
    if settings.url is not None:
        _check_reachable(settings.url)
        url = settings.url.rstrip("/")
        yield Service(url, http_lookups(url), url)
        return
    latency = settings.distribution
    tables = dataset.served()
    with LookupServer(tables, latency=latency, error_rate=settings.error_rate) as server:
        means = mean_of_one(latency), mean_of_two(latency)
        yield Service(server.url, http_lookups(server.url), server.url, *means)


def mean_of_one(latency: Latency) -> float:
    """Returns the mean time of a call in seconds.

    Args:
        latency: A log-normal distribution.
    """
    if not isinstance(latency, LogNormal):
        raise TypeError(latency)
    usual = latency.median * math.exp(latency.sigma**2 / 2)
    return usual * (1 + latency.stragglers * (latency.straggler_factor - 1))


def mean_of_two(latency: Latency) -> float:
    """Returns the mean time of two calls that are made at once, in seconds.

    It is the mean of the later of two draws. Whether a draw is a straggler's makes three cases; in
    each, the larger of two log-normal variables has a mean in closed form.

    Args:
        latency: A log-normal distribution.
    """
    if not isinstance(latency, LogNormal):
        raise TypeError(latency)
    usual = latency.median * math.exp(latency.sigma**2 / 2)
    late, share = usual * latency.straggler_factor, latency.stragglers
    return (
        (1 - share) ** 2 * _mean_of_larger(usual, usual, latency.sigma)
        + 2 * share * (1 - share) * _mean_of_larger(usual, late, latency.sigma)
        + share**2 * _mean_of_larger(late, late, latency.sigma)
    )


def _mean_of_larger(first: float, second: float, sigma: float) -> float:
    """Returns it for two log-normal variables with these means and one `sigma`."""
    if not sigma:
        return max(first, second)
    spread = sigma * math.sqrt(2)
    distance = math.log(first / second) / spread
    below = NormalDist().cdf
    return first * below(distance + spread / 2) + second * below(spread / 2 - distance)


def _check_reachable(url: str) -> None:
    try:
        _open(url).close()
    except HTTPError:
        pass  # an answer all the same
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise DemoError(f"`{url}` cannot be reached: {reason}") from error


def _open(url: str) -> Any:
    return urlopen(url, timeout=_CONNECT_SECONDS)  # noqa: S310 - the user names the address
