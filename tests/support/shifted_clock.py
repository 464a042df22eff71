# SPDX-License-Identifier: Apache-2.0
"""A wall clock that other processes read and a test sets."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

__all__ = ["ShiftedClock"]

_SOURCE = Path(__file__).with_suffix(".c")


class ShiftedClock:
    """The wall clock of the processes that get its environment.

    Args:
        folder: Where its library and what it says are put.

    Attributes:
        environment: What the processes are started with.
    """

    def __init__(self, folder: Path) -> None:
        library, said = folder / "shifted_clock.so", folder / "shifted_clock"
        compiled = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(compiled, check=True)
        said.write_bytes(struct.pack("l", 0))
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(said)}
        with said.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    def set(self, ahead: int) -> None:
        """Puts it so many seconds ahead of the real one, or behind."""
        self._page[:] = struct.pack("l", ahead)
