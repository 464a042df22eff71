# SPDX-License-Identifier: Apache-2.0
"""Messages of tasks to who counts their calls: PUBLISH and SUBSCRIBE, as clients of Redis speak.

The server is that in the driver's process, or a Redis. Used in workers and in the user's process.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import time
from collections.abc import Generator, Iterator, Sequence
from io import BufferedReader, IOBase
from time import monotonic
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import revealed_server
from sparkawait.secrets import Secret

__all__ = ["RefusedError", "Subscription", "publish"]

_PATIENCE = 5.0
_PAUSE = 1.0
"""Seconds until a server that has gone is asked again."""
_LEAST_PATIENCE = 0.05
_LONGEST_LINE = 1024
_LOOKED_UP: dict[Secret, str] = {}
"""Addresses that are secrets, until a server at one refuses something."""


class RefusedError(OSError):
    """The server has answered that it does not take a message."""


def publish(server: str | Secret, channel: str, message: str, patience: float) -> None:
    """Publishes a message, and waits until somebody has it.

    Args:
        server: Where it is, with its secret.
        channel: Where; ``"ends"``: the last message of its task.
        message: The message.
        patience: Seconds that this may take.

    Raises:
        OSError: If the server cannot be reached, or refuses it.
        ConfigurationError: If its address is a secret that is not there.
    """
    # As any client of Redis does it; a server has a connection of a worker for moments.
    until = monotonic() + patience
    with (
        _doubting(server),
        _connected(server, patience) as connection,
        connection.makefile("rb") as replies,
    ):
        # One who hears it.
        _ask(connection, replies, ("PUBLISH", channel, message), b":1", until)


class Subscription:
    """The messages of a channel, as long as its server is there.

    Args:
        server: Where it is, with its secret.
        channel: The channel.

    Raises:
        ConfigurationError: If it does not answer.
    """

    def __init__(self, server: str | Secret, channel: str) -> None:
        """Subscribes."""
        self._server, self._channel = server, channel
        self._connection: socket.socket | None = None
        self._is_closed = False
        try:
            with _doubting(server):
                self._replies = self._subscribed()
        except OSError as error:
            msg = f"`server` of `job` does not answer: {error}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from error

    def __iter__(self) -> Iterator[str | None]:
        """Yields messages, and nothing where some may have been lost."""
        replies: BufferedReader | None = self._replies
        while not self._is_closed:
            if replies is not None:
                with contextlib.suppress(OSError), replies:
                    while words := _words(replies):
                        if words[0] == b"message":
                            yield words[2].decode()
            yield None
            time.sleep(_PAUSE)
            replies = None
            with contextlib.suppress(OSError, ConfigurationError), _doubting(self._server):
                replies = self._subscribed()

    def close(self) -> None:
        """Ends it, also for who waits for a message."""
        self._is_closed = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _subscribed(self) -> BufferedReader:
        connection = _connected(self._server, _PATIENCE)
        try:
            replies = connection.makefile("rb")
            connection.sendall(_command(("SUBSCRIBE", self._channel)))
            if _words(replies)[:1] != [b"subscribe"]:
                msg = "it wants a password, or does not let anybody subscribe"
                raise RefusedError(msg)  # noqa: TRY301
        except BaseException:
            connection.close()
            raise
        connection.settimeout(None)
        # Else a host that has gone without a word would be waited for.
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection = connection
        return replies


def _connected(server: str | Secret, patience: float) -> socket.socket:
    """Returns a connection to a server that knows who it is."""
    until = monotonic() + patience
    where = urlsplit(_address_of(server))
    connection = _reached(where, patience)
    try:
        if where.scheme in {"rediss", "valkeys"}:
            connection.settimeout(max(until - monotonic(), _LEAST_PATIENCE))
            connection = _tls().wrap_socket(connection, server_hostname=where.hostname)
        secret, user = _secret_of(where), unquote(where.username or "")
        if secret:
            words = ("AUTH", *([user] if user else []), secret)
            with connection.makefile("rb", buffering=0) as replies:
                _ask(connection, replies, words, b"+OK", until)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _doubting(server: str | Secret) -> Generator[None]:
    """Has an address that is a secret looked up again where something fails."""
    try:
        yield
    except OSError:
        if isinstance(server, Secret):
            _LOOKED_UP.pop(server, None)
        raise


def _address_of(server: str | Secret) -> str:
    if not isinstance(server, Secret):
        return server
    if server not in _LOOKED_UP:
        _LOOKED_UP[server] = revealed_server(server)
    return _LOOKED_UP[server]


@functools.cache
def _tls() -> ssl.SSLContext:
    """Returns what takes 27 ms to make: the certificates that this machine trusts."""
    return ssl.create_default_context()


def _secret_of(where: SplitResult) -> str:
    return unquote(where.password or "") or parse_qs(where.query).get("pass", [""])[0]


def _reached(where: SplitResult, patience: float) -> socket.socket:
    if where.scheme not in {"redis+unix", "unix"}:
        try:
            port = where.port or 6379
        except ValueError:
            # It may be a part of a password with a slash in it.
            msg = "its port is not a number; percent-encode a password"
            raise OSError(msg) from None
        return socket.create_connection((where.hostname or "", port), patience)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(patience)
        connection.connect(unquote(where.path))
    except BaseException:
        connection.close()
        raise
    return connection


# -- what is said and read


def _command(words: Sequence[str]) -> bytes:
    encoded = [word.encode() for word in words]
    sized = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
    return b"*%d\r\n%s" % (len(encoded), sized)


def _ask(
    connection: socket.socket, replies: IOBase, words: Sequence[str], wanted: bytes, until: float
) -> None:
    connection.settimeout(max(until - monotonic(), _LEAST_PATIENCE))
    connection.sendall(_command(words))
    reply = _line(replies)
    if reply != wanted:
        refused = reply.decode("ascii", "replace") or "nothing"
        msg = f"the server of reports answers {refused}"
        raise RefusedError(msg)


def _words(replies: BufferedReader) -> list[bytes]:
    """Reads a list of texts; an empty one at the end, or for anything else."""
    words: list[bytes] = []
    for _ in range(_length(_line(replies), b"*")):
        length = _length(_line(replies), b"$")
        # A number stands for how many channels there are.
        words.append(replies.read(length + 2)[:-2] if length >= 0 else b"")
        if length >= 0 and len(words[-1]) < length:
            return []
    return words


def _line(replies: IOBase) -> bytes:
    return replies.readline(_LONGEST_LINE).rstrip(b"\r\n")


def _length(line: bytes, kind: bytes) -> int:
    return int(line[1:]) if line[:1] == kind and line[1:].isdigit() else -1
