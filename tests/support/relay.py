# SPDX-License-Identifier: Apache-2.0
"""A relay between a client and a server, which loses or spoils what it passes on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from typing_extensions import Self

from tests.support.servers import LOOPBACK

__all__ = ["Relay"]

Spoil = Callable[[int, bytes], "bytes | None"]
"""Gets the number of the connection, from 0, and what the server sent.

Returns what the client gets; ``None`` ends the connection."""


class Relay:
    """Passes connections on to a port, as a context manager.

    Args:
        port: Port of the server.
        spoil: What becomes of the server's answers; called on the thread of a connection.
    """

    def __init__(self, port: int, spoil: Spoil) -> None:
        self._target = port
        self._spoil = spoil
        self._listener = socket.create_server((LOOPBACK, 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def port(self) -> int:
        """The port to connect to."""
        return self._listener.getsockname()[1]

    def lead_to(self, port: int) -> None:
        """Passes further connections on to another port."""
        self._target = port

    def __enter__(self) -> Self:
        """Begins to accept connections."""
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all connections."""
        self._shut(self._listener)
        self._threads[0].join()
        for end in self._sockets:
            self._shut(end)
        for thread in self._threads[1:]:
            thread.join()
        for end in (self._listener, *self._sockets):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self._target))
                number = len(self._sockets) // 2
                self._sockets += [client, server]
                for arguments in (
                    (client, server, lambda sent: sent),
                    (server, client, lambda sent, number=number: self._spoil(number, sent)),
                ):
                    thread = threading.Thread(target=self._pass_on, args=arguments)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(
        self,
        source: socket.socket,
        target: socket.socket,
        change: Callable[[bytes], bytes | None],
    ) -> None:
        with contextlib.suppress(OSError):
            while sent := source.recv(1 << 16):
                passed = change(sent)
                if passed is None:
                    break
                target.sendall(passed)
        self._shut(source)
        self._shut(target)

    @staticmethod
    def _shut(end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
