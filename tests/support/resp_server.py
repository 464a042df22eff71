# SPDX-License-Identifier: Apache-2.0
"""A server that speaks Redis's protocol and whose answers a test makes up."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

from typing_extensions import Self

from tests.support.servers import LOOPBACK

__all__ = ["Answer", "RespServer", "bulk", "json_module"]

Answer = Callable[[int, list[str]], "bytes | None"]
"""Gets the number of the connection, from 0, and a command with its arguments.

Returns the packed reply, or nothing of one; ``None`` resets the connection, and loses what was not
sent yet."""


def bulk(text: str | None) -> bytes:
    """Packs a value; ``None`` is nil."""
    if text is None:
        return b"$-1\r\n"
    packed = text.encode()
    return b"$%d\r\n%s\r\n" % (len(packed), packed)


def json_module(documents: Mapping[str, str]) -> Answer:
    """Answers ``JSON.GET`` of a key as the module RedisJSON does: with the whole document."""

    def answer(_connection: int, command: list[str]) -> bytes:
        name, key = command
        if name != "JSON.GET":
            return b"-Existing key has wrong Redis type\r\n"
        return bulk(documents.get(key))

    return answer


class RespServer:
    """Answers commands in their order, as a context manager.

    Args:
        answer: Makes the reply to a command; called on a thread of the connection, which may wait.
        piece: Bytes of one write; ``None`` for a whole reply.
        is_told_pings: Whether it makes those to ``PING``, too, with which clients begin.
    """

    def __init__(
        self, answer: Answer, *, piece: int | None = None, is_told_pings: bool = False
    ) -> None:
        self._answer = answer
        self._is_told_pings = is_told_pings
        self._piece = piece
        self._listener = socket.create_server((LOOPBACK, 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{LOOPBACK}:{self._listener.getsockname()[1]}"

    @property
    def connections(self) -> int:
        """Connections that it ever had."""
        return len(self._connections)

    def hang_up(self, connection: int) -> None:
        """Says nothing more over a connection: what was said arrives before its end."""
        self._connections[connection].shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        """Begins to accept connections."""
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for end in (self._listener, *self._connections):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections.append(connection)
                arguments = (len(self._connections) - 1, connection)
                self._threads.append(threading.Thread(target=self._serve, args=arguments))
                self._threads[-1].start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as source:
            for command in _commands(source):
                is_own = command == ["PING"] and not self._is_told_pings
                reply = b"+PONG\r\n" if is_own else self._answer(number, command)
                if reply is None:
                    # Closing without lingering resets.
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    break
                size = self._piece or len(reply) or 1
                for start in range(0, len(reply), size):
                    connection.sendall(reply[start : start + size])
        connection.close()


def _commands(source: BinaryIO) -> Iterator[list[str]]:
    while head := source.readline():
        command: list[str] = []
        for _ in range(int(head[1:])):
            length = int(source.readline()[1:])
            argument = source.read(length + 2)[:length]
            command.append(argument.decode("utf-8", "surrogateescape"))
        yield command
