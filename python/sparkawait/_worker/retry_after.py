# SPDX-License-Identifier: Apache-2.0
"""When a service asks to be called again, as HTTP says it and as the exceptions of clients hold it.

No client is imported: an exception is asked for what those of openai, httpx, requests, aiohttp,
urllib and botocore have. Pure functions, for any thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, cast

__all__ = ["announced_delay", "header_seconds"]


def header_seconds(text: str) -> float | None:
    """Returns the seconds from now that the value of a ``Retry-After`` header means.

    Args:
        text: Seconds or a date. A date that has passed means now.

    Returns:
        ``None`` if it is neither.
    """
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        return _seconds_until(text)
    return seconds if 0 <= seconds < math.inf else None


def announced_delay(error: BaseException) -> float | None:
    """Returns the seconds after which the response that `error` tells of wants to be asked again.

    Read are ``retry-after-ms`` and ``Retry-After`` of ``error.response.headers`` and
    ``error.headers``.

    Returns:
        ``None`` if it does not say so.
    """
    try:
        response = getattr(error, "response", None)
        for headers in (_headers_of(response), _headers_of(error)):
            delay = None if headers is None else _delay_in(headers)
            if delay is not None:
                return delay
    except Exception:  # noqa: BLE001 - a strange exception is retried like any other
        return None
    return None


def _headers_of(owner: object) -> Any:
    if isinstance(owner, Mapping):  # botocore
        metadata = cast("Mapping[str, Any]", owner).get("ResponseMetadata")
        return metadata and metadata.get("HTTPHeaders")
    return getattr(owner, "headers", None)


def _delay_in(headers: Any) -> float | None:
    found = {str(name).lower(): value for name, value in headers.items()}
    millis = header_seconds(str(found.get("retry-after-ms", "")))
    if millis is not None:
        return millis / 1000
    return header_seconds(str(found.get("retry-after", "")))


def _seconds_until(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max(0.0, (date - datetime.now(timezone.utc)).total_seconds())
