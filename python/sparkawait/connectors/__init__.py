# SPDX-License-Identifier: Apache-2.0
"""Functions that the extension module carries out: `http`, `redis` and `postgres`.

```text
  sa.http.get(..)         http_options, http_body --> http_request --> http    --+
  sa.redis.hash(..)       redis_function --> redis                             --+--> Plan
  sa.postgres.lookup(..)  postgres_lookup --> postgres                         --+
```

Each checks on the driver what it is given and makes a description, which travels without its
secrets. The calls are made in Rust. `certificates` are the same for all; those of HTTP are fields
of its client, in `http_client`. Other packages bring connectors of their own: see `connector`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from sparkawait._checks import refuse, shown, text
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["connector"]

GROUP = "sparkawait.connectors"
"""The entry points that packages declare their connectors under."""


def connector(name: str) -> Any:
    """Returns a connector that another installed package brings.

    A package declares it as an entry point of the group ``sparkawait.connectors``. It is usually a
    module whose functions return what the wait functions take: a `sparkawait.AsyncFunction`, or
    another function. Executors need the package, too.

    Args:
        name: The name of the entry point.

    Returns:
        What the entry point names.

    Raises:
        ConfigurationError: If no installed package brings it, several do, or it cannot be imported.

    Examples:
        >>> connector("pigeon")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        ...
        ConfigurationError: no installed package brings a connector `pigeon`
    """
    text(name, "name", "the name of a connector")
    all_of_them = entry_points(group=GROUP)
    # The same package may be found twice, in two folders of the path: the first one is imported.
    found = {(point.dist.name if point.dist else "", point.value): point for point in all_of_them}
    named = [(package, point) for (package, _), point in found.items() if point.name == name]
    if not named:
        known = ", ".join(sorted({f"`{point.name}`" for point in found.values()})) or "none"
        refuse(
            f"no installed package brings a connector `{name}`; installed ones: {known};"
            " `sa.http`, `sa.redis` and `sa.postgres` need no `sa.connector`"
        )
    if len(named) > 1:
        packages = ", ".join(sorted(f"`{package}`" for package, _ in named))
        refuse(f"several packages bring a connector `{name}`: {packages}; uninstall all but one")
    ((package, point),) = named
    try:
        return point.load()
    except Exception as error:
        msg = f"the connector `{name}` of `{package}` cannot be imported: {shown(error)}"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from error
