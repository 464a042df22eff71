# SPDX-License-Identifier: Apache-2.0
"""What the doctor is told to look at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DoctorSettings"]


@dataclass(frozen=True)
class DoctorSettings:
    """The options of the program.

    Attributes:
        master: The Spark master of a classic session.
        remote: The address of a server of Spark Connect, instead.
        ship: Whether the driver's wheel is sent to the executors first.
        timeout: Seconds that Spark has for each thing that it is asked.
        json: Whether the report is JSON.
    """

    master: str = "local[2]"
    remote: str | None = None
    ship: bool = False
    timeout: float = 120.0
    json: bool = False

    @property
    def is_client(self) -> bool:
        """Whether Spark itself runs somewhere else, so that no Java is needed here."""
        return self.remote is not None and not self.remote.startswith("local")
