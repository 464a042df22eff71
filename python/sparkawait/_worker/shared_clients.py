# SPDX-License-Identifier: Apache-2.0
"""Clients that the tasks of a process share, for `FunctionContext.shared`.

```text
  first task asks --> made --> users 1, 2, .. --> the last has left --> idle for a minute --> closed
                                      ^                                   |
                                      +------- the next one asks ---------+
```

One set for each event loop, since clients are bound to the loop that they were made on; a forked
child has a loop, and so a set, of its own. Runs on the event loop thread only.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import Any

from sparkawait._callables import is_async, place_of
from sparkawait._checks import shown
from sparkawait.exceptions import ConfigurationError, ErrorKind, OperatorStateError

_logger = logging.getLogger("sparkawait")
IDLE_SECONDS = 60.0
"""How long a client that no task uses is kept for the next one: more than lies between two
micro-batches, as long as Spark keeps a worker that has nothing to do."""


class SharedClients:
    """Clients by key, each with its users.

    Args:
        loop: The loop that they are used on.
        pool: Where a `close` that is a plain function is called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """Starts empty."""
        self._loop = loop
        self._pool = pool
        self._clients: dict[Hashable, _Client] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, name: Hashable, factory: Callable[[], Any], user: Borrower) -> _Client:
        """Returns the client of that name, made by `factory` if there is none."""
        client = self._clients.get(name)
        if client is None:
            client = _Client(name, self._loop, factory)
            self._clients[name] = client
            if client.making is not None:
                client.making.add_done_callback(lambda _: self._forget_failed(client))
        client.stay()
        client.users.add(user)
        return client

    def leave(self, user: Borrower) -> None:
        """Notes that a task has ended; clients without another user are closed after a while."""
        for client in self._clients.values():
            if user in client.users:
                client.users.remove(user)
                if not client.users:
                    client.timer = self._loop.call_later(IDLE_SECONDS, self._expire, client)

    async def close(self) -> None:
        """Closes all of them: the loop is about to end."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.stay()
        closing = [self._close(client) for client in clients.values()]
        await asyncio.gather(*closing, *self._closing)

    def _expire(self, client: _Client) -> None:
        del self._clients[client.name]
        # Kept, because the loop holds tasks weakly.
        closing = self._loop.create_task(self._close(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, client: _Client) -> None:
        try:
            made = client.made
            if client.making is not None:
                if not client.making.done():
                    client.making.cancel()
                    return
                made = client.making.result()
            close = getattr(made, "aclose", None) or getattr(made, "close", None)
            if close is None:
                return
            if inspect.iscoroutinefunction(close):
                await close()
                return
            closed = await self._loop.run_in_executor(self._pool, close)
            if inspect.isawaitable(closed):
                await closed
        except Exception:
            _logger.warning("a shared client could not be closed", exc_info=True)

    def _forget_failed(self, client: _Client) -> None:
        """Lets the next task try again, if the client could not be made."""
        made = client.making
        assert made is not None  # noqa: S101 - it is the one that is done
        failed = made.cancelled() or made.exception() is not None
        if failed and self._clients.get(client.name) is client:
            # Whatever has this name from now on is another one, with a time of its own.
            client.stay()
            del self._clients[client.name]


class _Client:
    """A client, or the task that makes it.

    Invariant: while its timer runs, it is in the table, without users.
    """

    __slots__ = ("made", "making", "name", "timer", "users")

    def __init__(
        self, name: Hashable, loop: asyncio.AbstractEventLoop, factory: Callable[[], Any]
    ) -> None:
        self.name = name
        self.users: set[Borrower] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.made: Any = factory()
        self.making: asyncio.Task[Any] | None = None
        if is_async(factory):
            # A task of its own, so that one that asks and is cancelled does not end it for others.
            self.making = loop.create_task(_awaited(self.made))

    def stay(self) -> None:
        """Stops the time after which it would be closed."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


async def _awaited(made: Any) -> Any:
    return await made


class Borrower:
    """A task of Spark, which uses shared clients.

    Args:
        clients: The clients.
        is_on_loop: Tells whether the caller runs on the loop of the clients.
    """

    def __init__(self, clients: SharedClients, is_on_loop: Callable[[], bool]) -> None:
        """Uses none yet."""
        self._clients = clients
        self._is_on_loop = is_on_loop

    def take(self, key: Hashable, factory: Callable[[], Any]) -> Any:
        """Does what `FunctionContext.shared` does."""
        try:
            hash(key)
        except TypeError:
            msg = f"`key` of `shared` must be hashable, a text or a tuple, got {shown(key)}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from None
        if not callable(factory):
            msg = (
                "`factory` of `shared` must be a function that makes the client, got"
                f" `{type(factory).__name__}`; write lambda: .."
            )
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        if not self._is_on_loop():
            msg = (
                "`shared` was called in a thread of a plain function; call it in `open`, and keep"
                " what it returns"
            )
            raise OperatorStateError(msg, ErrorKind.INPUT_INVALID)
        client = self._clients.take((key, place_of(factory)), factory, self)
        return client.made if client.making is None else asyncio.shield(client.making)

    def give_back(self) -> None:
        """Uses none any more."""
        self._clients.leave(self)
