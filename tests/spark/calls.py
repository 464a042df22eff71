# SPDX-License-Identifier: Apache-2.0
"""What a function did, told by files: Spark's workers are other processes."""

import os
from collections import Counter
from pathlib import Path


class CallLog:
    """Lines that functions append, from any process. Travels to the executors as a path."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def add(self, line: object) -> None:
        """Appends a line; short ones are written at once, so that they do not mix."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def counts(self) -> Counter[str]:
        path = Path(self._path)
        return Counter(path.read_text().splitlines() if path.exists() else ())


class Once:
    """Lets exactly one caller through, in all processes together."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def take(self) -> bool:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class Presence:
    """Tells when the last of those who are present has left, without asking again and again.

    A named pipe: who is present holds its writing end open, and reading it ends with the last. A
    process that dies has left, too.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = str(path)

    def enter(self) -> int:
        """Returns what keeps the caller present until it is given to `leave`."""
        descriptor = os.open(self._path, os.O_WRONLY)
        os.write(descriptor, b".")
        return descriptor

    @staticmethod
    def leave(descriptor: int) -> None:
        os.close(descriptor)

    def watch(self) -> "Watch":
        return Watch(self._path)


class Watch:
    """The reading end of a `Presence`; to be made before anybody enters."""

    def __init__(self, path: str) -> None:
        # A plain open would wait for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self._descriptor, True)
        self._writer: int | None = os.open(path, os.O_WRONLY)

    def wait_for_one(self) -> None:
        """Returns when somebody has entered."""
        assert os.read(self._descriptor, 1) == b"."

    def wait_for_nobody(self) -> int:
        """Returns when all have left: how many had entered since."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None
        count = 0
        while read := os.read(self._descriptor, 1024):
            count += len(read)
        return count

    def close(self) -> None:
        os.close(self._descriptor)
        if self._writer is not None:
            os.close(self._writer)
