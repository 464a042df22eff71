# SPDX-License-Identifier: Apache-2.0
"""When a service asks to be called again, as HTTP says it and as the exceptions of clients hold it.

No client is imported: an exception is asked for what those of openai, httpx, requests, aiohttp,
urllib and botocore have. Pure functions, for any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from sparkawait import _core
from sparkawait.exceptions import leaves

_FORBIDDEN = 403
_TOO_MANY_REQUESTS = 429
_SERVICE_UNAVAILABLE = 503
_STATUSES = range(100, 600)


def announced_delay(error: BaseException) -> float | None:
    """Returns the seconds after which the response that `error` tells of wants to be asked again.

    Read are the headers in ``error.response.headers`` and ``error.headers``: ``Retry-After``,
    ``retry-after-ms``, and if the status is 429 or 403 those of limits that are used up. Of a group
    each member is asked, and the longest delay counts.

    Returns:
        ``None`` if it does not say.
    """
    return longest(_announced(leaf)[0] for leaf in leaves(error))


def announced_pause(error: BaseException) -> float | None:
    """Returns the same if no other call may be made until then either.

    With a status of 429 or 503, the service has too much to do for anybody. It is 0 if the service
    does not say for how long. A 403 counts only if it does.
    """
    return longest(map(_pause_of_one, leaves(error)))


def longest(delays: Iterable[float | None]) -> float | None:
    """Returns the longest of `delays`, ``None`` if there is none."""
    return max((delay for delay in delays if delay is not None), default=None)


def _pause_of_one(error: BaseException) -> float | None:
    delay, status = _announced(error)
    if status == _FORBIDDEN:
        return delay
    return (delay or 0.0) if status in (_TOO_MANY_REQUESTS, _SERVICE_UNAVAILABLE) else None


def _announced(error: BaseException) -> tuple[float | None, object]:
    """Returns the delay, and the status of the response."""
    try:
        response = getattr(error, "response", None)
        status = _status_of(error, response)
        for headers in (_headers_of(response), _headers_of(error)):
            delay = None if headers is None else _delay_in(headers, status)
            if delay is not None:
                return delay, status
    except Exception:  # noqa: BLE001 - a strange exception is retried like any other
        return None, None
    return None, status


def answered_status(error: BaseException) -> int | None:
    """Returns the status of the response that `error` tells of; ``None`` if it tells of none.

    Of a group it is that of the first member that tells of one.
    """
    return next((it for it in map(_status_of_one, leaves(error)) if it is not None), None)


def _status_of_one(error: BaseException) -> int | None:
    try:
        status = _status_of(error, getattr(error, "response", None))
        # An exception of urllib has it as `code`, and others have a code of their own there.
        is_one = type(status) is int and status in _STATUSES
    except Exception:  # noqa: BLE001 - a strange exception has no status
        return None
    return cast("int", status) if is_one else None


def encodable(text: str) -> str:
    """Returns a text that UTF-8 can encode, with question marks for what it cannot."""
    return text.encode("utf-8", "replace").decode()


def plain_headers(headers: Any) -> dict[str, str]:
    """Returns headers of any client, by their names in lower case.

    What comes in parts is put together as HTTP says; most clients do so, but aiohttp and urllib.
    """
    plain: dict[str, str] = {}
    for key, value in headers.items():
        name, text = encodable(str(key)).lower(), encodable(str(value))
        plain[name] = f"{plain[name]}, {text}" if name in plain else text
    return plain


def _headers_of(owner: object) -> Any:
    if isinstance(owner, Mapping):  # botocore
        metadata = cast("Mapping[str, Any]", owner).get("ResponseMetadata")
        return metadata and metadata.get("HTTPHeaders")
    return getattr(owner, "headers", None)


def _status_of(error: BaseException, response: object) -> object:
    if isinstance(response, Mapping):  # botocore
        metadata = cast("Mapping[str, Any]", response).get("ResponseMetadata")
        return metadata and metadata.get("HTTPStatusCode")
    # As httpx and requests, aiohttp, and urllib have it.
    owners = ((response, "status_code"), (error, "status"), (error, "code"))
    return next((it for owner, name in owners if (it := getattr(owner, name, None))), None)


def _delay_in(headers: Any, status: object) -> float | None:
    is_refused = status in (_FORBIDDEN, _TOO_MANY_REQUESTS)
    return _core.announced_delay(plain_headers(headers), is_refused)
