# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on the loopback interface whose answers a bench makes up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Answer", "serve"]

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


@contextmanager
def serve(answer: Callable[[str], Awaitable[Answer]]) -> Iterator[str]:
    """Answers requests on a thread of its own, and gives its address.

    Args:
        answer: Makes the answer to a request from its path, on that thread.
    """
    loop = asyncio.new_event_loop()
    ready: list[asyncio.Server] = []
    is_ready = threading.Event()

    async def listen() -> None:
        ready.append(await asyncio.start_server(_handler(answer), "127.0.0.1", 0))
        is_ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(listen())
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_ready.wait()
    try:
        yield f"http://127.0.0.1:{ready[0].sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _handler(
    answer: Callable[[str], Awaitable[Answer]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                status, headers, body = await answer(head.split(b" ", 2)[1].decode())
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()

    return handle
