# SPDX-License-Identifier: Apache-2.0
"""The local server of Spark Connect, of which a machine has one at a time."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["only_local_server"]


@contextmanager
def only_local_server() -> Iterator[None]:
    """Waits until no other test has a server: with ``remote("local[..]")`` each takes port 15002.

    Tests on several versions of Spark may run side by side.
    """
    lock = Path(tempfile.gettempdir()) / f"sparkawait-tests-connect-{os.getuid()}.lock"
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
